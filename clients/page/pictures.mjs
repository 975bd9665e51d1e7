// Pictures that models make and edit, on their tab: settings, previews, results that are kept,
// cancelling, faults.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { accessible, narrow, shot, visit } from "./browser.mjs";

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

export async function pictures({ url, painting }) {
  // Without an image model there is no tab.
  const chat = await visit(url);
  assert.equal(await chat.locator("#tabs").isVisible(), false);
  await chat.context().close();

  // The tab, by keyboard.
  const page = await visit(painting);
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
  // The model makes more than a million pixels of each input, which takes a slow processor minutes: the answer is written here.
  let order;
  await page.route("**/v1/images/edits", (route) => {
    order = route.request().postDataJSON();
    const done = { type: "image_edit.completed", b64_json: first.bytes.split(",")[1], seed: 5, size: "64x64" };
    return route.fulfill({ status: 200, contentType: "text/event-stream", body: `data: ${JSON.stringify(done)}\n\n` });
  });
  await page.getByRole("button", { name: "Make", exact: true }).click();
  await cards(page).nth(3).waitFor();
  assert.deepEqual(order.images, [{ image_url: first.bytes }, { image_url: first.bytes }]);
  assert.deepEqual([order.model, order.size, order.steps, order.stream], ["qwen_image_edit_plus", "64x64", 2, true]);
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

  // A conversation leads back to chats. The tab is remembered, and so are the pictures.
  await page.keyboard.press("Control+k");
  assert.equal(await page.locator("#prompt").isVisible(), true);
  await page.getByRole("tab", { name: "Pictures" }).click();
  const count = await cards(page).count();
  await page.reload();
  await page.locator("#easel").waitFor();
  await cards(page).nth(count - 1).waitFor();
  assert.deepEqual(await facts(cards(page).first()), edited);
  // One that is taken away comes back, or is gone.
  await cards(page).first().getByRole("button", { name: "Take away" }).click();
  assert.equal(await cards(page).count(), count - 1);
  await page.getByRole("button", { name: "Undo" }).click();
  assert.equal(await cards(page).count(), count);
  // It stays gone where the page is left before IndexedDB has removed it.
  await page.evaluate(() => {
    const remove = IDBObjectStore.prototype.delete;
    IDBObjectStore.prototype.delete = function (id) {
      const request = remove.call(this, id);
      this.transaction.abort();
      return request;
    };
  });
  await cards(page).first().getByRole("button", { name: "Take away" }).click();
  await page.reload();
  await cards(page).nth(count - 2).waitFor();
  assert.equal(await cards(page).count(), count - 1);
  await page.context().close();

  // A phone.
  const phone = await visit(painting, { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2 });
  await phone.getByRole("tab", { name: "Pictures" }).click();
  await narrow(phone, "pictures on a phone");
  await shot(phone, "pictures-phone.png");
  await phone.context().close();
  return "pictures, edits, errors, cancelling, what is kept";
}
