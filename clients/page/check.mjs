// The page in headless Chromium against servers: check.mjs URL KEYED_URL KEY, and ML_PAINTING, the
// address of one with image models. With ML_SCREENSHOTS, a folder, it leaves pictures of the page
// there. ML_TOPICS names some of the topics.

import assert from "node:assert/strict";

if (process.platform !== "linux" && !process.env.ML_CHROMIUM) {
  console.log("skipped: the package has Chromium for Linux alone; ML_CHROMIUM names another one");
  process.exit(0);
}
const { browser, faults } = await import("./browser.mjs");

const [url, keyed, key] = process.argv.slice(2);
const servers = { url, keyed, key, painting: process.env.ML_PAINTING };
const TOPICS = ["markdown", "conversations", "tabs", "answers", "options", "transfer", "states", "attacks", "pictures"];
const chosen = process.env.ML_TOPICS?.split(",") ?? TOPICS;

for (const name of chosen) {
  const begun = Date.now();
  const topic = await import(`./${name}.mjs`);
  let told;
  try {
    told = await topic[name](servers);
  } catch (error) {
    // What the page itself said is nearer to the cause.
    for (const fault of faults) console.error(fault);
    throw error;
  }
  assert.deepEqual(faults, [], name);
  console.log(`${name}: ${told} (${((Date.now() - begun) / 1000).toFixed(1)} s)`);
}
await browser.close();
console.log(`in Chromium ${browser.version()}`);
