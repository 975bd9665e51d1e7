/* The tab of pictures: the form, and what is on its way. */

import { $, h, icon, on, say, toast } from "./dom.js";
import { asDataUrl, thumbnail } from "./attachments.js";
import { addPicture, cards, made } from "./gallery.js";
import { address, chosenModel, events, headers, isWaiting, modelName, refresh, refusal, server, showModels } from "./server.js";
import { saveSettings, settings } from "./settings.js";

let painting = null;
let inputs = [];

const easel = () => $("easel");

/** How many input pictures the model takes; unknown until it was loaded once. */
const most = () => server.painters.get(modelName())?.info?.max_input_images;

function showDefaults() {
  const info = server.painters.get(modelName())?.info;
  const own = { width: info?.default_side, height: info?.default_side, steps: info?.default_steps, guidance: info?.default_guidance };
  for (const [name, value] of Object.entries(own)) easel().elements[name].placeholder = value ?? "the model's own";
  const least = info?.min_input_images;
  $("inputs").hidden = most() === 0 && !inputs.length;
  $("inputs-note").textContent = most() === 0 ? "This model takes no input pictures: take these away."
    : "To edit pictures: drop, paste or choose them." + (most() ? ` This model takes ${least < most() ? `${least} to ${most()}` : most()}.` : "");
  $("make").replaceChildren(icon(painting ? "stop" : "image"), painting ? "Cancel" : "Make");
  $("make").title = painting ? "Cancel (Esc)" : "Make (Ctrl Enter)";
  $("gallery-note").textContent = made.length ? "Pictures are kept in this browser until they are taken away."
    : painting ? "" : "What you make appears here, with its settings.";
}

function give(pictures) {
  inputs = pictures;
  $("given").replaceChildren(...inputs.map((url, at) => thumbnail(url, `Picture ${at + 1}`, () => give(inputs.filter((_, other) => other !== at)))));
  showDefaults();
}

async function takeInputs(files) {
  if (most() === 0) return toast("This model takes no input pictures.");
  const known = files.filter((file) => /^image\/(png|jpeg|webp|gif)$/.test(file.type));
  if (known.length < files.length) toast("Pictures are PNG, JPEG, WebP or GIF.");
  try {
    give([...inputs, ...await Promise.all(known.map(asDataUrl))]);
  } catch (error) { toast(`The picture cannot be read: ${error.message}`); }
  return undefined;
}

/** The request that the form describes. What is empty is left to the model. */
function ordered() {
  const text = (name) => easel().elements[name].value.trim();
  const number = (name) => text(name) === "" ? {} : { [name]: Number(text(name)) };
  const side = text("width") || text("height");
  return {
    ...(modelName() && { model: modelName() }), prompt: text("prompt"),
    ...(text("negative_prompt") && { negative_prompt: text("negative_prompt") }),
    ...(side && { size: `${text("width") || side}x${text("height") || side}` }),
    ...number("steps"), ...number("guidance"), ...number("seed"), ...number("n"),
    stream: true, ...number("partial_images"), ...(inputs.length && { images: inputs.map((url) => ({ image_url: url })) }),
  };
}

async function make() {
  const order = ordered();
  const run = painting = { order, count: order.n ?? 1, abort: new AbortController(), begun: performance.now(), done: 0, seen: 0, url: null, loads: isWaiting(chosenModel()) };
  let error = null;
  $("trouble").replaceChildren();
  showMade();
  progress.node.scrollIntoView({ block: "nearest" });
  say(run.loads ? "Loading the model" : "Making pictures");
  const clock = setInterval(showProgress, 500);
  try {
    await receive(run);
  } catch (reason) {
    if (reason.name !== "AbortError") error = reason instanceof TypeError ? "The connection to the server was lost." : reason.message;
  }
  clearInterval(clock);
  painting = null;
  showMade();
  if (error) {
    $("trouble").replaceChildren(h("div", { class: "failure", role: "alert" }, icon("alert"), h("span", null, error)));
    $("trouble").scrollIntoView({ block: "nearest" });
  } else say(run.done < run.count ? "Cancelled" : "All pictures are done");
  refresh();
}

async function receive(run) {
  const { order, count } = run;
  let from = run.begun;
  const response = await fetch(address(order.images ? "v1/images/edits" : "v1/images/generations"), {
    method: "POST", headers: headers(), body: JSON.stringify(order), signal: run.abort.signal,
  });
  if (!response.ok) throw await refusal(response);
  for await (const data of events(response.body)) {
    let event;
    try { event = JSON.parse(data); } catch { continue; }
    if (event.error) throw new Error(event.error.message || "The server ended the pictures with an error.");
    // What the model's own settings are is known once it is loaded.
    if (run.loads) { run.loads = false; await refresh(); }
    const url = "data:image/png;base64," + event.b64_json;
    if (String(event.type).endsWith(".completed")) {
      const now = performance.now();
      const own = server.painters.get(order.model)?.info;
      addPicture({
        order, url, seed: event.seed, size: event.size, seconds: (now - from) / 1000,
        steps: order.steps ?? own?.default_steps, guidance: order.guidance ?? own?.default_guidance,
      });
      from = now;
      Object.assign(run, { done: run.done + 1, seen: 0, url: null });
      say(`Picture ${run.done} of ${count} is done`);
      showMade();
    } else {
      Object.assign(run, { seen: event.partial_image_index + 1, url });
      showProgress();
    }
  }
  if (run.done < count) throw new TypeError();
}

const progress = {
  image: h("img", { alt: "Preview" }), wait: h("span", { class: "wait" }, h("i"), h("i"), h("i")),
  bar: h("progress", { "aria-label": "Progress" }), text: h("span", { class: "note" }),
};
progress.node = h("article", { class: "card", id: "progress", "aria-label": "On its way" },
  h("div", { class: "frame" }, progress.image, progress.wait), h("div", { class: "about" }, progress.bar, progress.text));

function showProgress() {
  const run = painting;
  if (!run) return;
  const each = (run.order.partial_images ?? 0) + 1;
  progress.image.hidden = !run.url;
  progress.wait.hidden = Boolean(run.url);
  if (run.url && progress.image.src !== run.url) progress.image.src = run.url;
  progress.bar.max = run.count * each;
  progress.bar.value = run.done * each + run.seen;
  progress.text.textContent = [
    run.loads ? "Loading the model" : run.count > 1 ? `Picture ${run.done + 1} of ${run.count}` : "",
    run.seen ? `preview ${run.seen}` : "", `${Math.round((performance.now() - run.begun) / 1000)} s`,
  ].filter(Boolean).join(" · ");
}

export function showMade() {
  showProgress();
  $("made").replaceChildren(...(painting ? [progress.node] : []), ...cards());
  showDefaults();
}

/** The same picture again, unless something is changed. */
function reuse(one) {
  const { order } = one;
  const [width, height] = one.size.split("x");
  const values = { ...order, width, height, seed: one.seed, n: 1 };
  for (const field of easel().elements) if (field.name) field.value = values[field.name] ?? "";
  if (server.painters.has(order.model)) { $("model").value = settings.painter = order.model; saveSettings(); showModels(); }
  give((order.images || []).map((image) => image.image_url));
  easel().elements.prompt.focus();
  say("The settings are those of the picture.");
}

on("start", () => {
  easel().addEventListener("submit", (event) => {
    event.preventDefault();
    if (painting) painting.abort.abort(); else make();
  });
  $("make").addEventListener("click", (event) => {
    // Cancelling minds no field that is not filled in.
    if (painting) { event.preventDefault(); painting.abort.abort(); }
  });
  $("input-add").addEventListener("click", () => $("input-files").click());
  $("input-files").addEventListener("change", () => { takeInputs([...$("input-files").files]); $("input-files").value = ""; });
  on("inputs", takeInputs);
  on("input", (url) => {
    if (most() === 0) return toast("This model takes no input pictures.");
    give([...inputs, url]);
    return toast("Added to the input pictures.");
  });
  on("made", () => { if (server.tab === "studio") showMade(); });
  on("reuse", reuse);
  on("make", () => { if (!painting) easel().requestSubmit(); });
  on("stop-pictures", () => painting?.abort.abort());
  on("model", () => { if (server.tab === "studio") showDefaults(); });
});
