// Conversations: versions of questions and answers, drafts, addresses, deleting and undoing,
// finding, pinning.

import assert from "node:assert/strict";
import { accessible, answered, ask, narrow, profile, reload, shot, tab, texts } from "./browser.mjs";
import { standIn } from "./stand-in.mjs";

const article = (page, at) => page.locator("#column article").nth(at);
const press = (page, at, name) => article(page, at).getByRole("button", { name, exact: true }).click();

/** Answers are numbered, so that versions can be told from each other. */
function numbered(stand) {
  let count = 0;
  stand.chat = async ({ messages }, answer) => { answer.say(`answer ${++count} to ${messages.at(-1).content}`); answer.end(); };
}

async function versions(page) {
  await ask(page, "one");
  await answered(page);
  await ask(page, "two");
  await answered(page);
  assert.deepEqual(await texts(page), ["one", "answer 1 to one", "two", "answer 2 to two"]);

  // Another answer to the first question: what followed the old one is still there.
  await press(page, 1, "Answer again");
  await page.getByText("answer 3 to one").waitFor();
  await answered(page);
  assert.deepEqual(await texts(page), ["one", "answer 3 to one"]);
  assert.equal(await article(page, 1).locator(".versions").textContent(), "2/2");
  await press(page, 1, "Earlier version of the answer");
  assert.deepEqual(await texts(page), ["one", "answer 1 to one", "two", "answer 2 to two"]);

  // An edited question is a version, too.
  await article(page, 2).hover();
  await press(page, 2, "Edit and ask again");
  await page.getByRole("textbox", { name: "Edit the message" }).fill("two, changed");
  await page.keyboard.press("Enter");
  await page.getByText("answer 4 to two, changed").waitFor();
  await answered(page);
  assert.equal(await article(page, 2).locator(".versions").textContent(), "2/2");
  await accessible(page, "versions");
  await shot(page, "chat-versions.png");

  // All of it is there after a reload, at the same address.
  const address = page.url();
  assert.match(address, /#\/c\/\w+$/);
  await reload(page);
  assert.deepEqual(await texts(page), ["one", "answer 1 to one", "two, changed", "answer 4 to two, changed"]);
  await press(page, 2, "Earlier version of the question");
  assert.deepEqual((await texts(page)).slice(2), ["two", "answer 2 to two"]);

  // Keyboard alone: the focus stays with the switch.
  assert.match(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), /version of the question/);

  // An edited answer is a version.
  await press(page, 3, "Edit the answer");
  await page.getByRole("textbox", { name: "Edit the answer" }).fill("my own words");
  await page.getByRole("button", { name: "Save as a version" }).click();
  assert.equal((await texts(page))[3], "my own words");
  assert.equal(await article(page, 3).locator(".versions").textContent(), "2/2");

  // A version that is deleted gives way to the other one, and comes back.
  await press(page, 3, "Delete this message");
  assert.equal((await texts(page))[3], "answer 2 to two");
  await page.getByRole("button", { name: "Undo" }).click();
  assert.equal((await texts(page))[3], "my own words");
  // A message alone is taken out, and what follows stays.
  await page.locator("#prompt").fill("three");
  await page.keyboard.press("Enter");
  await answered(page);
  await article(page, 4).hover();
  await press(page, 4, "Delete this message");
  assert.deepEqual((await texts(page)).slice(3), ["my own words", "answer 5 to three"]);
  // When the toast is gone, a line brings it back, until the page is left.
  await page.locator("#toast").evaluate((node) => { node.hidden = true; });
  await page.getByRole("button", { name: "Bring it back" }).click();
  assert.equal((await texts(page)).length, 6);
  await article(page, 4).hover();
  await press(page, 4, "Delete this message");
  await reload(page);
  assert.deepEqual((await texts(page)).slice(3), ["my own words", "answer 5 to three"]);
  // What IndexedDB never finishes, since the page is left before, is there too.
  await page.evaluate(() => { IDBObjectStore.prototype.put = () => ({}); });
  await article(page, 4).hover();
  await press(page, 4, "Delete this message");
  await reload(page);
  assert.deepEqual((await texts(page)).slice(3), ["my own words"]);
  await page.waitForFunction(() => !Object.keys(localStorage).some((key) => key.startsWith("ml.unwritten.")));
  await page.waitForFunction(async () => {
    const database = await new Promise((resolve) => { indexedDB.open("ml").onsuccess = (event) => resolve(event.target.result); });
    const chats = await new Promise((resolve) => { database.transaction("chats").objectStore("chats").getAll().onsuccess = (event) => resolve(event.target.result); });
    database.close();
    return Object.values(chats[0].messages).every(({ content, deleted }) => !deleted || content === "");
  });
  return address;
}

async function drafts(page, address) {
  // A draft, and an edit that is open, survive a reload; so does the draft of a new conversation.
  await page.locator("#prompt").fill("half a thought");
  await article(page, 0).hover();
  await press(page, 0, "Edit and ask again");
  await page.getByRole("textbox", { name: "Edit the message" }).fill("half an edit");
  await reload(page);
  assert.equal(await page.locator("#prompt").inputValue(), "half a thought");
  assert.equal(await page.getByRole("textbox", { name: "Edit the message" }).inputValue(), "half an edit");
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.keyboard.press("Control+k");
  assert.equal(await page.locator("#prompt").inputValue(), "");
  await page.locator("#prompt").fill("a new one");
  await reload(page);
  assert.equal(await page.locator("#prompt").inputValue(), "a new one");

  // A conversation in between does not cost it, nor does a tab that is closed.
  await page.getByRole("link", { name: "one" }).click();
  await page.keyboard.press("Control+k");
  assert.equal(await page.locator("#prompt").inputValue(), "a new one");
  const context = page.context();
  const second = await tab(context, page.url().split("#")[0]);
  await second.waitForTimeout(2200);
  assert.equal(await second.locator("#prompt").inputValue(), "", "it is another tab's");
  await second.close();

  // Back leads to the conversation before, and a dead address says so.
  await page.goBack();
  assert.equal(page.url(), address);
  assert.equal((await texts(page))[0], "one");
  assert.equal(await page.locator("#prompt").inputValue(), "half a thought");
  await page.locator("#prompt").fill("");
  await page.evaluate(() => { location.hash = "#/c/nowhere"; });
  await page.getByText("This conversation is not in this browser.").waitFor();
}

async function list(page, address) {
  await page.locator("#prompt").fill("");
  for (const text of ["about badgers", "about foxes"]) {
    await page.keyboard.press("Control+k");
    await ask(page, text);
    await answered(page);
  }
  const titles = () => page.locator("#list a.open span").allTextContents();
  assert.deepEqual((await titles()).toSorted(), ["about badgers", "about foxes", "one"]);

  // Words are looked for in titles and in messages.
  await page.locator("#search").fill("ANSWER badgers");
  assert.deepEqual(await titles(), ["about badgers"]);
  await accessible(page, "what was found");
  await page.locator("#search").fill("zebra");
  await page.getByText("No conversation has these words.").waitFor();
  await page.locator("#search").press("Escape");

  // Pinned, renamed, deleted, and brought back.
  const options = async (title, name) => {
    await page.getByRole("button", { name: `Options of ${title}`, exact: true }).click();
    await page.getByRole("menuitem", { name, exact: true }).click();
  };
  await options("about badgers", "Pin");
  assert.equal(await page.locator("#list h2").first().textContent(), "Pinned");
  await options("about foxes", "Rename");
  await page.getByRole("textbox", { name: "Title" }).fill("Foxes");
  await page.keyboard.press("Enter");
  assert.ok((await titles()).includes("Foxes"));
  await options("Foxes", "Delete");
  assert.ok(!(await titles()).includes("Foxes"));
  await page.getByRole("button", { name: "Bring back Foxes" }).click();
  assert.ok((await titles()).includes("Foxes"));
  await options("Foxes", "Delete");
  await accessible(page, "a deleted conversation");
  await page.goto(address);
  await reload(page);
  await page.locator("#list .deleted").waitFor({ state: "detached" });
  assert.deepEqual((await titles()).toSorted(), ["about badgers", "one"]);
  assert.equal(await page.locator("#list h2").first().textContent(), "Pinned");

  // All at once, and undone.
  await page.getByRole("button", { name: "Settings" }).click();
  await accessible(page, "settings");
  await page.getByRole("button", { name: "Delete all" }).click();
  assert.deepEqual(await titles(), []);
  await page.getByRole("button", { name: "Undo" }).click();
  assert.equal((await titles()).length, 2);
}

/** What the page before this one kept in localStorage is taken over once. */
async function takenOver(stand) {
  const context = await profile();
  const first = await tab(context, stand.url);
  const old = [{ id: "old1", title: "From before", created: 1, updated: Date.now(), messages: [
    { role: "user", content: "an old question", pictures: ["data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="] },
    { role: "assistant", content: "an old answer", model: "m", stats: { tokens: 3, exact: true, first: 0.1, rate: 20 } }] }];
  await first.evaluate((chats) => {
    localStorage.setItem("ml.chats", JSON.stringify(chats));
    localStorage.setItem("ml.settings", JSON.stringify({ system: "Be brief.", temperature: "0.5", theme: "dark" }));
  }, old);
  await first.reload();
  await first.getByRole("link", { name: "From before" }).click();
  assert.deepEqual(await texts(first), ["an old question", "an old answer"]);
  await first.locator("article.user img[src^='data:']").waitFor();
  assert.equal(await first.evaluate(() => localStorage.getItem("ml.chats")), null);
  assert.equal(await first.evaluate(() => document.documentElement.dataset.theme), "dark");
  await first.keyboard.press("Control+k");
  await ask(first, "new");
  await answered(first);
  const { messages, temperature } = stand.requests.at(-1);
  assert.deepEqual([messages[0], temperature], [{ role: "system", content: "Be brief." }, 0.5]);
  await first.reload();
  await first.getByRole("link", { name: "From before" }).waitFor();
  await context.close();
}

/** What was being written in a tab that is gone is there in the next one. */
async function orphan(stand) {
  const context = await profile();
  const first = await tab(context, stand.url);
  await first.locator("#prompt").fill("never sent");
  await first.waitForTimeout(400);
  await first.close();
  const second = await tab(context, stand.url);
  await second.waitForFunction(() => document.querySelector("#prompt").value === "never sent");
  await context.close();
}

async function phone(stand) {
  const context = await profile({ viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true });
  const page = await tab(context, stand.url);
  // The key makes a line, and the button sends.
  await page.locator("#prompt").fill("two");
  await page.locator("#prompt").press("Enter");
  await page.locator("#prompt").pressSequentially("lines");
  assert.equal(await page.locator("#prompt").inputValue(), "two\nlines");
  stand.chat = async (body, answer) => { answer.say("| a | b | c | d | e | f |\n|---|---|---|---|---|---|\n| a long cell | a long cell | a long cell | a long cell | a long cell | a long cell |\n\n\\[ a + b + c + d + e + f + g + h + i + j + k + l + m + n + o + p + q + r + s + t = 0 \\]"); answer.end(); };
  await page.getByRole("button", { name: "Send" }).click();
  await page.locator(".katex").first().waitFor();
  await answered(page);
  await narrow(page, "a phone");
  await accessible(page, "a phone");
  await page.getByRole("button", { name: "Conversations" }).click();
  await page.locator("body.drawer").waitFor();
  await accessible(page, "a phone's list");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Options of this conversation" }).first().click();
  await narrow(page, "a phone's options");
  await context.close();
}

export async function conversations({ url }) {
  const stand = await standIn(url);
  numbered(stand);
  const context = await profile();
  const page = await tab(context, stand.url);
  await accessible(page, "an empty page");
  await page.locator("#send svg").waitFor();
  const address = await versions(page);
  await drafts(page, address);
  await list(page, address);
  await page.getByRole("button", { name: "Switch to dark" }).click();
  await page.goto(address);
  await accessible(page, "in dark");
  await context.close();
  await takenOver(stand);
  await orphan(stand);
  await phone(stand);
  stand.close();
  return "versions, drafts, addresses, words found, pins, undoing, what was kept before, a phone";
}
