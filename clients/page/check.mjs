// The page in headless Chromium against servers: check.mjs URL KEYED_URL KEY, and ML_PAINTING, the address
// of one with image models. With ML_SCREENSHOTS, a folder, it leaves pictures of the page there.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

if (process.platform !== "linux" && !process.env.ML_CHROMIUM) {
  console.log("skipped: the package has Chromium for Linux alone; ML_CHROMIUM names another one");
  process.exit(0);
}
// Its package brings the libraries of a bare Linux too, where this is set.
process.env.AWS_LAMBDA_JS_RUNTIME ??= "nodejs22.x";
const { default: packed } = await import("@sparticuz/chromium");
const { chromium } = await import("playwright-core");

const [url] = process.argv.slice(2);
const painting = process.env.ML_PAINTING;
const shots = process.env.ML_SCREENSHOTS;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const browser = await chromium.launch({
  executablePath: process.env.ML_CHROMIUM ?? (await packed.executablePath()),
  // As root, which tests in containers are, Chromium has no sandbox.
  args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
});
const faults = [];

async function visit(address, options = {}) {
  // The policy of the page is left on: what it blocks is told in the console.
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  page.on("pageerror", (error) => faults.push(`${error}`));
  page.on("console", (message) => {
    const text = message.text();
    if (message.type() === "error" && !/status of (400|404)/.test(text)) faults.push(text);
  });
  page.on("request", (request) => {
    const to = request.url();
    if (!/^(data|blob):/.test(to) && !to.startsWith(address)) faults.push(`asks for ${to}`);
  });
  await page.goto(address);
  await page.locator("#dot.up").waitFor();
  return page;
}

/** What axe finds that keeps somebody from using the page. Its script comes in by the debugger, not by the policy. */
async function accessible(page, what) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => axe.run());
  const told = violations.map((found) => `${found.id}: ${found.nodes.map((node) => node.html).join(" ")}`);
  assert.deepEqual(told, [], what);
}

const shot = async (page, name) => shots && page.screenshot({ path: path.join(shots, name) });
const field = (page, name) => page.locator(`#easel [name="${name}"]`);

/** The cards of finished pictures, newest first. */
const cards = (page) => page.locator("#made .card:not(#progress)");
async function facts(card) {
  const names = await card.locator("dt").allTextContents();
  const values = await card.locator("dd").allTextContents();
  return Object.fromEntries(names.map((name, at) => [name, values[at]]));
}
/** The width, the height and the bytes of a card's picture. */
const pixels = (card) =>
  card.locator("img").evaluate(async (image) => {
    await image.decode();
    return { width: image.naturalWidth, height: image.naturalHeight, bytes: image.src };
  });

// Without an image model there is no tab, and chats are as ever.
const chat = await visit(url);
assert.equal(await chat.locator("#tabs").isVisible(), false);
await chat.locator("#prompt").fill("Hello");
await chat.locator("#prompt").press("Enter");
await chat.locator(".stats", { hasText: "tokens" }).first().waitFor();
await chat.close();

// The tab, by keyboard.
const page = await visit(painting, { colorScheme: "light" });
await page.getByRole("tab", { name: "Chat" }).focus();
await page.keyboard.press("ArrowRight");
assert.equal(await page.getByRole("tab", { name: "Pictures" }).getAttribute("aria-selected"), "true");
assert.equal(await page.title(), "Pictures · ml");
assert.equal(await page.locator("#prompt").isVisible(), false);
await accessible(page, "the empty form");

// Two pictures with their settings, and previews on the way.
await page.locator("#model").selectOption("z_image");
await field(page, "prompt").fill("a fox in the snow");
await field(page, "negative_prompt").fill("people");
await field(page, "width").fill("128");
await field(page, "height").fill("96");
await field(page, "steps").fill("6");
await field(page, "guidance").fill("3");
await field(page, "seed").fill("42");
await field(page, "n").fill("2");
const previews = page.evaluate(
  () =>
    new Promise((resolve, reject) => {
      const seen = new Set();
      const watch = new MutationObserver(() => {
        const image = document.querySelector("#progress img:not([hidden])");
        if (image) seen.add(image.src);
        if (document.querySelectorAll("#made .card:not(#progress)").length === 2) resolve(seen.size);
        const alert = document.querySelector("#trouble [role=alert]");
        if (alert) reject(new Error(alert.textContent));
      });
      watch.observe(document.querySelector("#gallery"), { subtree: true, childList: true, attributes: true });
    }),
);
await field(page, "prompt").press("Control+Enter");
assert.ok((await previews) >= 2, "pictures are seen on their way");
await page.getByRole("button", { name: "Make", exact: true }).waitFor();
const told = await facts(cards(page).nth(1));
assert.equal(told.Model, "z_image");
assert.deepEqual([told.Size, told.Steps, told.Seed, told.Not], ["128 × 96", "6", "42", "people"]);
assert.match(told.Time, / s$/);
assert.equal((await facts(cards(page).nth(0))).Seed, "43");
const first = await pixels(cards(page).nth(1));
assert.deepEqual([first.width, first.height], [128, 96]);
await accessible(page, "finished pictures");
await shot(page, "pictures-light.png");

// It is downloaded as it is shown.
const waits = page.waitForEvent("download");
await cards(page).nth(1).getByRole("button", { name: "Download" }).click();
const file = await waits;
assert.equal(file.suggestedFilename(), "a-fox-in-the-snow-42.png");
assert.equal(`data:image/png;base64,${readFileSync(await file.path()).toString("base64")}`, first.bytes);

// The same settings again are the same picture.
await field(page, "prompt").fill("something else");
await cards(page).nth(1).getByRole("button", { name: "Use these settings again" }).click();
assert.equal(await field(page, "prompt").inputValue(), "a fox in the snow");
assert.equal(await field(page, "n").inputValue(), "1");
await field(page, "prompt").press("Control+Enter");
await cards(page).nth(2).waitFor();
assert.equal((await pixels(cards(page).first())).bytes, first.bytes);

// What the server refuses is told in its words, and the form stays.
await field(page, "steps").fill("6");
await field(page, "n").fill("999");
await page.getByRole("button", { name: "Make", exact: true }).click();
const alert = page.locator("#trouble [role=alert]");
await alert.waitFor();
assert.match(await alert.textContent(), /`n`.*999|999.*`n`|at most/);
assert.equal(await cards(page).count(), 3);
await accessible(page, "an error");

// Esc cancels, and says so; the next picture is not held up.
await field(page, "n").fill("1");
await field(page, "width").fill("256");
await field(page, "height").fill("256");
await field(page, "steps").fill("1000");
await page.getByRole("button", { name: "Make", exact: true }).click();
await page.locator("#progress").waitFor();
await page.getByRole("button", { name: "Cancel", exact: true }).waitFor();
await page.keyboard.press("Escape");
await page.locator("#status", { hasText: "Cancelled" }).waitFor();
assert.equal(await page.locator("#progress").count(), 0);

// A picture is edited: chosen, dropped, or one that was made.
await page.locator("#model").selectOption("qwen_image_edit_plus");
await field(page, "prompt").fill("the same in the dark");
for (const name of ["width", "height"]) await field(page, name).fill("64");
await field(page, "steps").fill("2");
await cards(page).first().getByRole("button", { name: "Use as an input picture" }).click();
const png = Buffer.from(first.bytes.split(",")[1], "base64");
await page.locator("#input-files").setInputFiles({ name: "a.png", mimeType: "image/png", buffer: png });
await page.locator("#given img").nth(1).waitFor();
const carried = await page.evaluateHandle((data) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], "b.png", { type: "image/png" }));
  return transfer;
}, png.toString("base64"));
await page.dispatchEvent("#easel", "drop", { dataTransfer: carried });
await page.locator("#given img").nth(2).waitFor();
await page.getByRole("button", { name: "Take picture 3 away" }).click();
await page.getByRole("button", { name: "Make", exact: true }).click();
// Two more pictures go in, which takes a slow processor longer than all else here.
await cards(page).nth(3).waitFor({ timeout: 240_000 });
const edited = await facts(cards(page).first());
assert.deepEqual([edited.Model, edited.Input], ["qwen_image_edit_plus", "2 pictures"]);
await shot(page, "pictures-edit.png");

// In full, and closed by Esc.
await cards(page).first().getByRole("button", { name: "Show in full" }).click();
await page.locator("#large[open]").waitFor();
await page.keyboard.press("Escape");
assert.equal(await page.locator("#large[open]").count(), 0);

// Dark.
await page.getByRole("button", { name: "Switch to dark" }).click();
await accessible(page, "in dark");
await shot(page, "pictures-dark.png");

// A conversation leads back to chats, and the tab is remembered.
await page.keyboard.press("Control+k");
assert.equal(await page.locator("#prompt").isVisible(), true);
await page.getByRole("tab", { name: "Pictures" }).click();
await page.reload();
await page.locator("#easel").waitFor();
await page.close();

// A phone.
const phone = await visit(painting, { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, colorScheme: "light" });
await phone.getByRole("tab", { name: "Pictures" }).click();
const wide = await phone.evaluate(() => document.documentElement.scrollWidth - innerWidth);
assert.ok(wide <= 0, `${wide} pixels are outside of a phone's width`);
await shot(phone, "pictures-phone.png");
await phone.close();

await browser.close();
assert.deepEqual(faults, []);
console.log(`chats, pictures, edits, errors and cancelling in Chromium ${browser.version()}`);
