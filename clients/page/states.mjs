// What the server may be: loading, gone and back, with another model, wanting a key, full. Each is
// told in plain words and mended without a reload.

import assert from "node:assert/strict";
import { accessible, answered, ask, profile, reload, shot, tab, texts, visit } from "./browser.mjs";
import { standIn } from "./stand-in.mjs";

async function loading(stand) {
  stand.state = "loading";
  const context = await profile();
  const page = await tab(context, stand.url, { isReady: false });
  await page.locator("#dot.loading").waitFor();
  await ask(page, "early");
  await page.getByText("The model is being loaded. The question is sent as soon as it is there.").waitFor();
  await accessible(page, "a model that is being loaded");
  await shot(page, "chat-loading.png");
  for (const percent of [50, 75]) {
    stand.percent = percent;
    await page.getByText(`The model is being loaded (${percent} %). The question is sent as soon as it is there.`).waitFor();
    await page.locator("#model option", { hasText: `stand-in · loading ${percent} %` }).waitFor({ state: "attached" });
    assert.equal(await page.locator("#dot").getAttribute("title"), `The model is being loaded: ${percent} %`);
  }
  assert.equal(stand.requests.length, 0);
  stand.state = "up";
  await page.getByText("Answer to: early").waitFor();
  await answered(page);
  await page.locator("#dot.up").waitFor();
  return page;
}

async function gone(stand, page) {
  stand.state = "gone";
  await ask(page, "while it is gone");
  await page.getByText("The server does not answer. The question is sent as soon as it is back.").waitFor();
  await page.locator("#dot.down").waitFor();
  await page.locator(".banner", { hasText: "The server does not answer" }).waitFor();
  await accessible(page, "a server that is gone");
  // It can be stopped, and asked again.
  await page.keyboard.press("Escape");
  await page.getByText("Stopped.").waitFor();
  await page.getByRole("button", { name: "Answer again" }).last().click();
  await page.getByText("The question is sent as soon as it is back.").waitFor();
  // It comes back with another model.
  stand.models = [stand.model("another")];
  stand.state = "up";
  await page.getByText("Answer to: while it is gone").waitFor();
  await answered(page);
  assert.equal(await page.locator(".banner").count(), 0);
  assert.equal(await page.locator("#model").inputValue(), "another");
  assert.equal(stand.requests.at(-1).model, "another");

  // The model changes while nothing is asked of it: the next question goes to the one that is there.
  stand.models = [stand.model("third")];
  await ask(page, "whom do I ask?");
  await page.getByText("Answer to: whom do I ask?").waitFor();
  await answered(page);
  assert.deepEqual(stand.requests.slice(-2).map(({ model }) => model), ["another", "third"]);
}

async function full(stand, page) {
  const plain = stand.chat;
  stand.chat = async (body, answer) => body.messages.length > 3
    ? answer.refuse(400, "context_length_exceeded", "this model's maximum context length is 4096 tokens, and the prompt has 6023") : plain(body, answer);
  await ask(page, "too much");
  await page.getByText("The conversation is longer than the model's context (4,096 tokens).", { exact: true }).waitFor();
  await accessible(page, "a full context");
  await shot(page, "chat-full.png");
  await page.getByRole("button", { name: "Drop the oldest turns" }).click();
  await page.getByText("Answer to: too much").waitFor();
  await answered(page);
  assert.deepEqual(stand.requests.at(-1).messages.map(({ content }) => content).at(-1), "too much");
  assert.ok(stand.requests.at(-1).messages.length <= 3);
  // Nothing was taken away, and it can be sent again.
  assert.ok((await texts(page)).includes("early"));
  await page.getByText("What stands above is not sent to the model any more.").waitFor();
  await page.getByRole("button", { name: "Send it again" }).click();
  await ask(page, "more still");
  await page.getByText("The conversation is longer than the model's context (4,096 tokens).", { exact: true }).waitFor();
  await page.getByRole("button", { name: "New conversation" }).click();
  assert.equal(await page.locator("#prompt").inputValue(), "more still");
  await page.keyboard.press("Enter");
  await page.getByText("Answer to: more still").waitFor();
  await answered(page);
  assert.equal((await texts(page)).length, 2);
  stand.chat = plain;
}

async function key(stand, page) {
  stand.state = "key:secret";
  await ask(page, "with a key");
  await page.locator(".banner", { hasText: "This server wants an API key." }).waitFor();
  await page.getByRole("button", { name: "Enter the key" }).click();
  await accessible(page, "a key that is wanted");
  await page.locator("#key input").fill("wrong");
  await page.getByRole("button", { name: "Use this key" }).click();
  await page.getByRole("button", { name: "Enter the key" }).click();
  await page.locator("#key input").fill("secret");
  await page.getByRole("button", { name: "Use this key" }).click();
  await page.getByText("Answer to: with a key").waitFor();
  await answered(page);
  assert.equal(await page.locator(".banner").count(), 0);
  stand.state = "up";
}

/** A browser that has no more room says so, before anything is dropped. */
async function noRoom(stand, page) {
  await page.evaluate(() => {
    const { put } = IDBObjectStore.prototype;
    globalThis.giveRoom = () => { IDBObjectStore.prototype.put = put; };
    IDBObjectStore.prototype.put = () => { throw new DOMException("no room", "QuotaExceededError"); };
  });
  await page.keyboard.press("Control+k");
  await ask(page, "not kept");
  await page.locator(".banner", { hasText: "The browser's storage is full" }).waitFor();
  await answered(page);
  assert.deepEqual(await texts(page), ["not kept", "Answer to: not kept"]);
  await accessible(page, "a full storage");
  await page.evaluate(() => globalThis.giveRoom());
  await page.getByRole("button", { name: "Try again" }).click();
  await page.locator(".banner").waitFor({ state: "detached" });
  await reload(page);
  assert.deepEqual(await texts(page), ["not kept", "Answer to: not kept"]);
}

/** The real servers: the built-in model, and one that wants a key. */
async function real({ url, keyed, key: secret }) {
  const page = await visit(url);
  await ask(page, "Hello");
  await page.locator(".stats", { hasText: "tokens" }).first().waitFor();
  await answered(page);
  await page.locator("#context", { hasText: "of 2,048 tokens" }).waitFor();
  await ask(page, "again and again ".repeat(1500));
  await page.getByText("The conversation is longer than the model's context (2,048 tokens).", { exact: true }).waitFor();
  await page.context().close();

  const other = await tab(await profile(), keyed, { isReady: false });
  await other.getByRole("button", { name: "Enter the key" }).click();
  await other.locator("#key input").fill(secret);
  await other.getByRole("button", { name: "Use this key" }).click();
  await other.locator("#dot.up").waitFor();
  await ask(other, "Hello");
  await other.locator(".stats", { hasText: "tokens" }).first().waitFor();
  await other.context().close();
}

export async function states(servers) {
  const stand = await standIn(servers.url);
  const page = await loading(stand);
  await gone(stand, page);
  await full(stand, page);
  await key(stand, page);
  await noRoom(stand, page);
  await page.context().close();
  stand.close();
  await real(servers);
  return "loading, gone, back, another model, full, a key, no room";
}
