// Options of a conversation, presets, attachments, and models that are loaded and unloaded.

import assert from "node:assert/strict";
import { accessible, answered, ask, profile, reload, shot, tab } from "./browser.mjs";
import { standIn } from "./stand-in.mjs";

const PNG = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");
const field = (page, name) => page.locator(`#options-form [name="${name}"]`);
const open = (page) => page.getByRole("button", { name: "Options of this conversation", exact: true }).first().click();
const save = (page) => page.locator("#options").getByRole("button", { name: "Save", exact: true }).click();

async function requestFields(stand, page) {
  await open(page);
  const numbers = { temperature: "0.7", top_p: "0.9", top_k: "40", min_p: "0.05", repetition_penalty: "1.1", presence_penalty: "0.2", frequency_penalty: "-0.1", max_tokens: "200", seed: "7", reasoning_budget: "64" };
  for (const [name, value] of Object.entries(numbers)) await field(page, name).fill(value);
  await field(page, "system").fill("Be brief.");
  await field(page, "reasoning_effort").selectOption("low");
  await field(page, "schema").fill("{ not JSON");
  await save(page);
  assert.equal(await page.locator("#options[open]").count(), 1, "what is wrong is not taken");
  const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
  await field(page, "schema").fill(JSON.stringify(schema));
  await page.locator("#preset-name").fill("Strict");
  await page.getByRole("button", { name: "Save preset" }).click();
  await accessible(page, "options");
  await shot(page, "chat-options.png");
  await save(page);
  await page.getByRole("button", { name: /system prompt · temperature 0.7/ }).waitFor();
  await ask(page, "Where?");
  await answered(page);
  const { messages, model, stream, stream_options: _, ...sent } = stand.requests.at(-1);
  assert.deepEqual(sent, {
    ...Object.fromEntries(Object.entries(numbers).map(([name, value]) => [name, Number(value)])), reasoning_effort: "low",
    response_format: { type: "json_schema", json_schema: { name: "answer", schema } },
  });
  assert.deepEqual(messages, [{ role: "system", content: "Be brief." }, { role: "user", content: "Where?" }]);

  // They are this conversation's alone, and outlive a reload.
  await page.keyboard.press("Control+k");
  await ask(page, "plain");
  await answered(page);
  assert.deepEqual(Object.keys(stand.requests.at(-1)).toSorted(), ["messages", "model", "stream", "stream_options"]);
  await page.goBack();
  await reload(page);
  await open(page);
  assert.equal(await field(page, "top_k").inputValue(), "40");
  await save(page);
  // Esc takes back what was changed.
  await open(page);
  await field(page, "top_k").fill("50");
  await page.keyboard.press("Escape");
  await open(page);
  assert.equal(await field(page, "top_k").inputValue(), "40");
  await page.locator("#options").getByRole("button", { name: "Cancel" }).click();

  // A preset fills the form, and can be what new conversations begin with.
  await page.keyboard.press("Control+k");
  await open(page);
  await page.locator("#preset").selectOption("Strict");
  assert.equal(await field(page, "min_p").inputValue(), "0.05");
  await page.getByRole("button", { name: "Clear" }).click();
  await field(page, "temperature").fill("0");
  await page.getByLabel("New conversations begin with these options").check();
  await save(page);
  await page.keyboard.press("Control+k");
  await ask(page, "cold");
  await answered(page);
  assert.equal(stand.requests.at(-1).temperature, 0);
}

async function attachments(stand, page) {
  stand.models = [{ ...stand.model("seeing"), input_modalities: ["text", "image"] }];
  await page.reload();
  await page.getByRole("button", { name: "Add pictures or files" }).waitFor();
  const files = page.locator("#files");
  await files.setInputFiles([
    { name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("first line\n```\nsecond") },
    { name: "a.png", mimeType: "image/png", buffer: PNG },
  ]);
  await page.locator("#pictures .chip").waitFor();
  await page.locator("#pictures img").waitFor();
  await accessible(page, "attachments");
  // What is attached is part of the draft.
  await page.reload();
  await page.locator("#pictures .chip", { hasText: "notes.txt" }).waitFor();
  await page.locator("#pictures img").waitFor();
  await ask(page, "What is in them?");
  await answered(page);
  const [picture, text] = stand.requests.at(-1).messages.at(-1).content;
  assert.equal(picture.image_url.url, `data:image/png;base64,${PNG.toString("base64")}`);
  assert.equal(text.text, "File notes.txt:\n````\nfirst line\n```\nsecond\n````\n\nWhat is in them?");
  await page.locator("details.file summary").click();
  assert.equal(await page.locator("details.file pre").textContent(), "first line\n```\nsecond");
  await accessible(page, "a message with files");

  for (const [file, words] of [
    [{ name: "a.pdf", mimeType: "application/pdf", buffer: Buffer.from("%PDF-1.4") }, /A PDF cannot be read here/],
    [{ name: "a.bin", mimeType: "application/octet-stream", buffer: Buffer.from([0xff, 0xfe, 0x00]) }, /a\.bin is no text/],
    [{ name: "a.bmp", mimeType: "image/bmp", buffer: PNG }, /PNG, JPEG, WebP or GIF/],
  ]) {
    await files.setInputFiles(file);
    await page.locator("#toast", { hasText: words }).waitFor();
  }
  stand.models = [stand.model("blind")];
  await reload(page);
  await files.setInputFiles({ name: "a.png", mimeType: "image/png", buffer: PNG });
  await page.locator("#toast", { hasText: "This model does not see pictures." }).waitFor();
}

async function models(stand, page) {
  stand.models = [stand.model("owner/one"), { ...stand.model("two"), state: "unloaded" }];
  await page.reload();
  await page.locator("#model option", { hasText: "two · not loaded" }).waitFor({ state: "attached" });
  await page.locator("#model").selectOption("two");
  await page.getByRole("button", { name: "Load or unload the model" }).click();
  await accessible(page, "a menu");
  await page.getByRole("menuitem", { name: "Load now" }).click();
  await page.locator("#toast", { hasText: "two is being loaded." }).waitFor();
  await page.locator("#model").selectOption("owner/one");
  await page.getByRole("button", { name: "Load or unload the model" }).click();
  await page.getByRole("menuitem", { name: "Unload" }).click();
  await page.waitForFunction(() => document.querySelector("#toast").textContent.includes("unloaded"));
  for (let tries = 0; tries < 50 && stand.loads.length < 2; tries++) await page.waitForTimeout(20);
  assert.deepEqual(stand.loads, [
    { model: "two", messages: [], stream: false }, { model: "owner/one", messages: [], stream: false, keep_alive: 0 },
  ]);
}

export async function options({ url }) {
  const stand = await standIn(url);
  const context = await profile();
  const page = await tab(context, stand.url);
  await requestFields(stand, page);
  await attachments(stand, page);
  await models(stand, page);
  await context.close();
  stand.close();
  return "options, presets, attachments, loads";
}
