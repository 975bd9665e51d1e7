// Export and import: a way around with all versions, and the exports of ChatGPT and Open WebUI.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { answered, ask, profile, reload, tab, texts } from "./browser.mjs";
import { standIn } from "./stand-in.mjs";

const PNG = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");

async function take(page, name, data) {
  await page.locator("#import-files").setInputFiles({ name, mimeType: "application/json", buffer: Buffer.from(typeof data === "string" ? data : JSON.stringify(data)) });
}

const OPENAI = [{
  title: "From ChatGPT", create_time: 1700000000.5, update_time: 1700000100.5, current_node: "d",
  mapping: {
    root: { id: "root", message: null, parent: null, children: ["s"] },
    s: { id: "s", message: { id: "s", author: { role: "system" }, content: { content_type: "text", parts: [""] } }, parent: "root", children: ["a"] },
    a: { id: "a", message: { id: "a", author: { role: "user" }, create_time: 1700000001, content: { content_type: "text", parts: ["A question"] } }, parent: "s", children: ["b", "c"] },
    b: { id: "b", message: { id: "b", author: { role: "assistant" }, create_time: 1700000002, content: { content_type: "text", parts: ["First answer"] }, metadata: { model_slug: "gpt-4" } }, parent: "a", children: [] },
    t: { id: "t", message: { id: "t", author: { role: "tool" }, content: { content_type: "text", parts: ["a tool"] } }, parent: "a", children: ["c"] },
    c: { id: "c", message: { id: "c", author: { role: "assistant" }, create_time: 1700000003, content: { content_type: "text", parts: ["Second answer"] } }, parent: "t", children: ["d"] },
    d: { id: "d", message: { id: "d", author: { role: "user" }, create_time: 1700000004, content: { content_type: "multimodal_text", parts: [{ content_type: "image_asset_pointer" }, "And then?"] } }, parent: "c", children: [] },
  },
}];

const OPEN_WEBUI = [{
  id: "x", title: "From Open WebUI", created_at: 1700000000, updated_at: 1700000100,
  chat: {
    title: "From Open WebUI", models: ["m"], messages: [],
    history: {
      currentId: "2",
      messages: {
        1: { id: "1", parentId: null, childrenIds: ["2", "3"], role: "user", content: "Hello", timestamp: 1700000000 },
        2: { id: "2", parentId: "1", childrenIds: [], role: "assistant", content: "Hi there", model: "m", timestamp: 1700000001 },
        3: { id: "3", parentId: "1", childrenIds: [], role: "assistant", content: "Other", model: "m", timestamp: 1700000002 },
      },
    },
  },
}];

export async function transfer({ url }) {
  const stand = await standIn(url);
  stand.models = [{ ...stand.model("seeing"), input_modalities: ["text", "image"] }];
  let count = 0;
  stand.chat = async (body, answer) => { answer.say(`answer ${++count}`); answer.end(); };
  const context = await profile();
  const page = await tab(context, stand.url);
  await page.locator("#files").setInputFiles([{ name: "a.png", mimeType: "image/png", buffer: PNG }, { name: "a.txt", mimeType: "text/plain", buffer: Buffer.from("in a file") }]);
  await page.locator("#pictures .chip").waitFor();
  await ask(page, "look");
  await answered(page);
  await page.getByRole("button", { name: "Answer again" }).click();
  await page.getByText("answer 2").waitFor();
  await answered(page);

  const saved = async (click) => {
    const waits = page.waitForEvent("download");
    await click();
    const download = await waits;
    return [download.suggestedFilename(), await readFile(await download.path(), "utf8")];
  };
  const menu = (name) => async () => {
    await page.getByRole("button", { name: "Export or print this conversation" }).click();
    await page.getByRole("menuitem", { name, exact: true }).click();
  };
  const [mdName, text] = await saved(menu("Markdown"));
  assert.equal(mdName, "look.md");
  assert.match(text, /# look\n\n## You\n\n!\[picture\]\(data:image\/png;base64,[^)]+\)\n\nFile a.txt:\n```\nin a file\n```\n\nlook\n\n## seeing\n\nanswer 2\n/);
  const [, one] = await saved(menu("JSON"));
  await page.getByRole("button", { name: "Settings" }).click();
  const [allName, all] = await saved(() => page.getByRole("button", { name: "Export all" }).click());
  assert.match(allName, /^conversations-\d{4}-\d\d-\d\d\.json$/);
  assert.equal(JSON.parse(all).conversations.length, 1);
  await page.keyboard.press("Escape");

  // Another browser takes it, with its versions and its picture.
  const other = await tab(await profile(), stand.url);
  await take(other, "look.json", one);
  await other.getByText("1 conversation imported.").waitFor();
  assert.deepEqual(await texts(other), ["look", "answer 2"]);
  await other.locator("article.user img[src^='data:image/png']").waitFor();
  assert.equal(await other.locator(".versions").textContent(), "2/2");
  await reload(other);
  await other.getByRole("button", { name: "Earlier version of the answer" }).click();
  assert.deepEqual(await texts(other), ["look", "answer 1"]);

  await take(other, "conversations.json", OPENAI);
  await other.getByText("And then?").waitFor();
  assert.deepEqual(await texts(other), ["A question", "Second answer", "And then?"]);
  await other.getByRole("button", { name: "Earlier version of the answer" }).click();
  assert.deepEqual(await texts(other), ["A question", "First answer"]);
  await take(other, "chat-export.json", OPEN_WEBUI);
  await other.getByText("Hi there").waitFor();
  assert.deepEqual(await texts(other), ["Hello", "Hi there"]);
  assert.equal(await other.locator(".versions").textContent(), "1/2");
  // What this page exported before it had versions.
  await take(other, "old.json", { id: "1", title: "Older", created: 1, updated: 2, messages: [{ role: "user", content: "then" }, { role: "assistant", content: "and now", stats: { tokens: 2, first: 0.1 } }] });
  await other.getByText("and now").waitFor();

  // Files that are something else say so, and change nothing.
  const before = await other.locator("#list a.open").count();
  for (const [data, words] of [["{ no", /cannot be read/], [{ a: 1 }, /has no conversations/], [[], /has no conversations/], ["null", /has no conversations/],
    [[{ mapping: { a: { message: { author: { role: "user" }, content: { parts: ["x"] } }, parent: "a" } } }], /imported/]]) {
    await take(other, "other.json", data);
    await other.locator("#toast", { hasText: words }).waitFor();
  }
  assert.equal(await other.locator("#list a.open").count(), before + 1);
  await other.context().close();
  await context.close();
  stand.close();
  return "export, import, ChatGPT's, Open WebUI's, older ones";
}
