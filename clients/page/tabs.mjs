// Two tabs of one browser: neither loses what the other did.

import assert from "node:assert/strict";
import { answered, ask, profile, tab, texts } from "./browser.mjs";
import { gate, standIn } from "./stand-in.mjs";

const titles = (page) => page.locator("#list a.open span").allTextContents();

export async function tabs({ url }) {
  const stand = await standIn(url);
  const slow = gate();
  stand.chat = async ({ messages }, answer) => {
    const text = messages.at(-1).content;
    answer.say(`begin of ${text}`);
    if (text === "slow") await slow.opened;
    answer.say(`, end of ${text}`);
    answer.end();
  };
  const context = await profile();
  const one = await tab(context, stand.url);
  const two = await tab(context, stand.url);

  // A waits for its answer; B meanwhile asks, and is answered. Then A ends.
  await ask(one, "slow");
  await one.getByText("begin of slow").waitFor();
  await ask(two, "quick");
  await answered(two);
  await one.getByRole("link", { name: "quick" }).waitFor();
  slow.open();
  await answered(one);
  for (const page of [one, two]) {
    await page.getByRole("link", { name: "slow" }).waitFor();
    assert.deepEqual((await titles(page)).toSorted(), ["quick", "slow"]);
  }
  await two.reload();
  await two.getByRole("link", { name: "slow" }).click();
  assert.deepEqual(await texts(two), ["slow", "begin of slow, end of slow"]);

  // Both in one conversation: what one adds appears in the other, and an edit that is open there stays.
  await two.locator("article.user").first().hover();
  await two.getByRole("button", { name: "Edit and ask again" }).first().click();
  const edit = two.getByRole("textbox", { name: "Edit the message" });
  await edit.fill("an edit in B");
  await ask(one, "from A");
  await answered(one);
  await two.getByText("end of from A").waitFor();
  assert.equal(await edit.inputValue(), "an edit in B");
  assert.equal(await two.evaluate(() => document.activeElement.getAttribute("aria-label")), "Edit the message");

  // Both write to it at once: each keeps the other's messages, as versions of what follows.
  const both = gate();
  stand.chat = async ({ messages }, answer) => { await both.opened; answer.say(`to ${messages.at(-1).content}`); answer.end(); };
  await edit.press("Enter");
  await ask(one, "A again");
  both.open();
  await Promise.all([answered(one), answered(two)]);
  await one.waitForTimeout(300);
  const records = await one.evaluate(() => new Promise((resolve, reject) => {
    const opening = indexedDB.open("ml");
    opening.onerror = () => reject(opening.error);
    opening.onsuccess = () => { opening.result.transaction("chats").objectStore("chats").getAll().onsuccess = (event) => resolve(event.target.result); };
  }));
  assert.equal(records.length, 2, "a record for each conversation");
  const kept = Object.values(records.find(({ title }) => title === "slow").messages).map(({ content }) => content);
  assert.deepEqual(kept.toSorted(), ["A again", "an edit in B", "begin of from A, end of from A", "begin of slow, end of slow", "from A", "slow", "to A again", "to an edit in B"]);

  // What one deletes is gone in the other, which can bring it back.
  await one.getByRole("button", { name: "Options of quick" }).click();
  await one.getByRole("menuitem", { name: "Delete" }).click();
  await two.getByRole("button", { name: "Bring back quick" }).click();
  await one.getByRole("link", { name: "quick" }).waitFor();
  await context.close();
  stand.close();
  return "two tabs merge";
}
