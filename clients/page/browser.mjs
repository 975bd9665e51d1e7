// Chromium, pages of it whose faults are collected, and what every topic asks of a page.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

// Its package brings the libraries of a bare Linux too, where this is set.
process.env.AWS_LAMBDA_JS_RUNTIME ??= "nodejs22.x";
const { default: packed } = await import("@sparticuz/chromium");
const { chromium } = await import("playwright-core");

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const shots = process.env.ML_SCREENSHOTS;

export const browser = await chromium.launch({
  executablePath: process.env.ML_CHROMIUM ?? (await packed.executablePath()),
  // As root, which tests in containers are, Chromium has no sandbox.
  args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
});

/** What went wrong on any page: errors of scripts, what the policy blocked, requests to other servers. */
export const faults = [];

/** Statuses that a test asks for, and connections that it cuts, are no faults. */
const FORGIVEN = /status of (400|401|404|503)|ERR_(CONNECTION_RESET|CONNECTION_REFUSED|EMPTY_RESPONSE|INCOMPLETE_CHUNKED_ENCODING|ABORTED)/;

/** A profile of its own: nothing is kept in it yet. */
export const profile = (options = {}) =>
  browser.newContext({ viewport: { width: 1280, height: 860 }, reducedMotion: "reduce", colorScheme: "light", ...options });

/** A tab of a profile, once the page is ready. */
export async function tab(context, address, { isReady = true } = {}) {
  // The policy of the page is left on: what it blocks is told in the console.
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.on("pageerror", (error) => faults.push(`${error.stack || error}`));
  page.on("console", (message) => {
    const text = message.text();
    if (message.type() === "error" && !FORGIVEN.test(text)) faults.push(text);
  });
  const { origin } = new URL(address);
  page.on("request", (request) => {
    const to = request.url();
    if (!/^(data|blob):/.test(to) && !to.startsWith(origin)) faults.push(`asks for ${to}`);
  });
  await page.goto(address);
  await ready(page);
  if (isReady) await page.locator("#dot.up").waitFor();
  return page;
}

/** Waits until what the browser keeps is read, which the server may be found before. */
const ready = (page) => page.locator("html[data-ready]").waitFor({ state: "attached" });

/** Reads the page anew, with its server up. */
export async function reload(page) {
  await page.reload();
  await ready(page);
  await page.locator("#dot.up").waitFor();
}

export const visit = async (address, options) => tab(await profile(options), address);

/** What axe finds that keeps somebody from using the page. Its script comes in by the debugger, not by the policy. */
export async function accessible(page, what) {
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(axe);
  // What passed is much, and stays in the browser.
  const told = await page.evaluate(async () => {
    const { violations } = await globalThis.axe.run({ resultTypes: ["violations"] });
    return violations.map((found) => `${found.id}: ${found.nodes.map((node) => node.html).join(" ")}`);
  });
  assert.deepEqual(told, [], what);
}

export const shot = async (page, name) => shots && page.screenshot({ path: path.join(shots, name) });

/** No more than the width of the screen. */
export async function narrow(page, what) {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wide <= 0, `${what}: ${wide} pixels are outside of the width`);
}

export async function ask(page, text) {
  await page.locator("#prompt").fill(text);
  await page.locator("#prompt").press("Enter");
}

/** Waits until no answer is on its way in the conversation that is seen. */
export const answered = (page) => page.locator('#send[aria-label="Send"]').waitFor();

/** The texts of the conversation that is seen, question by answer. */
export const texts = (page) => page.locator("#column article").evaluateAll((nodes) =>
  nodes.map((node) => (node.querySelector(":scope > .text, :scope > .md")?.textContent ?? "").trim()));
