// Answers on their way: several at once, stopped one by one, cut by a reload, continued, with
// thoughts and calls.

import assert from "node:assert/strict";
import { accessible, answered, ask, profile, reload, shot, tab, texts } from "./browser.mjs";
import { gate, sleep, standIn } from "./stand-in.mjs";

async function severalAtOnce(stand, page) {
  const ends = {};
  stand.chat = async ({ messages }, answer) => {
    const name = messages.at(-1).content;
    ends[name] = gate();
    answer.say(`${name} begins`);
    await ends[name].opened;
    answer.say(" and ends");
    answer.end();
  };
  for (const name of ["first", "second", "third"]) {
    await page.keyboard.press("Control+k");
    await ask(page, name);
    await page.getByText(`${name} begins`).waitFor();
  }
  assert.equal(await page.getByRole("img", { name: "Being answered" }).count(), 3);
  await accessible(page, "answers on their way");

  // Esc stops the one that is seen, and no other; the button of each conversation is its own.
  await page.getByRole("link", { name: "second" }).click();
  await page.keyboard.press("Escape");
  await page.getByText("Stopped.").waitFor();
  assert.equal(await page.getByRole("img", { name: "Being answered" }).count(), 2);
  await page.getByRole("link", { name: "first" }).click();
  await page.getByRole("button", { name: "Stop", exact: true }).waitFor();
  // A title that is being written stays open while an answer elsewhere ends.
  await page.getByRole("button", { name: "Options of first" }).click();
  await page.getByRole("menuitem", { name: "Rename" }).click();
  await page.getByRole("textbox", { name: "Title" }).fill("half a ti");
  ends.third.open();
  await page.waitForFunction(() => document.querySelectorAll("#list .busy").length <= 1);
  await page.getByRole("textbox", { name: "Title" }).pressSequentially("tle");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "half a title" }).waitFor();
  ends.first.open();
  await answered(page);
  assert.deepEqual(await texts(page), ["first", "first begins and ends"]);
  await page.getByRole("link", { name: "third" }).click();
  assert.deepEqual(await texts(page), ["third", "third begins and ends"]);
}

async function cutByReload(stand, page) {
  const never = gate();
  stand.chat = async (body, answer) => { answer.think("a thought"); answer.say("what was there "); await never.opened; };
  await page.keyboard.press("Control+k");
  await ask(page, "cut");
  await page.getByText("what was there").waitFor();
  await sleep(1300);
  await reload(page);
  assert.equal((await texts(page))[1], "what was there");
  await page.getByText("The page was left before the answer was complete.").waitFor({ timeout: 12_000 });
  await accessible(page, "an answer that was cut");

  // It goes on from its last character.
  stand.chat = async ({ messages, continue_final_message: goesOn }, answer) => {
    assert.deepEqual([goesOn, messages.at(-1)], [true, { role: "assistant", content: "what was there ", reasoning_content: "a thought" }]);
    answer.say("and the rest.");
    answer.end();
  };
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByText("what was there and the rest.").waitFor();
  await answered(page);
  assert.equal(await page.getByText("The page was left").count(), 0);
  never.open();
}

async function cutByLength(stand, page) {
  stand.chat = async (body, answer) => { answer.say("one two"); answer.end("length"); };
  await page.keyboard.press("Control+k");
  await ask(page, "long");
  await page.getByText("The answer reached the most tokens it may have.").waitFor();
  stand.chat = async (body, answer) => { answer.say(" three"); answer.end("stop", { prompt_tokens: 15, completion_tokens: 3, total_tokens: 18 }); };
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByText("one two three").waitFor();
  await answered(page);
  // The tokens are those of both parts, with the model; the meter has what the context holds.
  const stats = await page.locator(".stats").last().textContent();
  assert.match(stats, /stand-in8 tokens/);
  assert.equal(await page.locator("#context").textContent(), "18 of 4,096 tokens");

  // A connection that breaks keeps what was there.
  stand.chat = async (body, answer) => { answer.say("a half"); await sleep(100); answer.cut(); };
  await page.keyboard.press("Control+k");
  await ask(page, "break");
  await page.getByText("The connection to the server was lost in the middle of the answer.", { exact: true }).waitFor();
  assert.equal((await texts(page))[1], "a half");
  await page.getByRole("button", { name: "Continue" }).waitFor();
  await accessible(page, "a broken answer");
}

async function thoughtsAndCalls(stand, page) {
  stand.chat = async (body, answer) => {
    answer.think("Let me **think**.");
    answer.say("The answer.");
    answer.send({ tool_calls: [{ index: 0, function: { name: "look_up", arguments: "{\"city\": " } }] });
    answer.send({ tool_calls: [{ index: 0, function: { arguments: "\"Oslo\"}" } }] });
    answer.end("tool_calls");
  };
  await page.keyboard.press("Control+k");
  await ask(page, "think");
  await page.getByText("Thought for").click();
  assert.equal(await page.locator(".thought strong").textContent(), "think");
  // What was opened stays open when another question follows.
  await ask(page, "and then?");
  await page.getByText("Thought for").nth(1).waitFor();
  await answered(page);
  assert.equal(await page.locator(".thought[open]").count(), 1);
  await page.getByRole("button", { name: "Delete this message" }).last().click();
  assert.equal(await page.locator(".call summary code").textContent(), "look_up");
  assert.match(await page.locator(".call pre").textContent(), /"city": "Oslo"/);
  await accessible(page, "thoughts and calls");
}

/** A long answer in many pieces does not hold up the page, and the reader may scroll away from its end. */
async function long(stand, page) {
  const pieces = 20_000;
  stand.chat = async (body, answer) => {
    for (let at = 0; at < pieces; at++) {
      answer.say(at % 50 === 49 ? "\n\n" : `word${at % 7} `);
      if (at % 200 === 0) await sleep(2);
    }
    answer.say("the very end");
    answer.end();
  };
  await page.keyboard.press("Control+k");
  await page.evaluate(() => {
    globalThis.longest = 0;
    new PerformanceObserver((list) => { for (const { duration } of list.getEntries()) globalThis.longest = Math.max(globalThis.longest, duration); }).observe({ type: "longtask" });
  });
  const begun = Date.now();
  await ask(page, "write much");
  await page.locator("article.assistant p").nth(20).waitFor();
  await page.locator("#scroll").evaluate((node) => { node.scrollTop = 0; });
  await page.getByText("the very end").waitFor({ state: "attached" });
  await answered(page);
  const time = Date.now() - begun;
  assert.equal(await page.locator("#scroll").evaluate((node) => node.scrollTop), 0, "the reader stays where she is");
  assert.equal(await page.locator("article.assistant > .md > p").count(), pieces / 50 + 1);
  const longest = await page.evaluate(() => globalThis.longest);
  assert.ok(longest < 1000 && time < 15_000, `${longest} ms, ${time} ms`);
  return `${pieces} pieces in ${time} ms, none longer than ${Math.round(longest)} ms`;
}

export async function answers({ url }) {
  const stand = await standIn(url);
  const context = await profile();
  const page = await tab(context, stand.url);
  await severalAtOnce(stand, page);
  await cutByReload(stand, page);
  await cutByLength(stand, page);
  await thoughtsAndCalls(stand, page);
  const told = await long(stand, page);
  await shot(page, "long.png");
  await context.close();
  stand.close();
  return `several at once, stopped, cut and continued; ${told}`;
}
