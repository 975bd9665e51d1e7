/* The pictures that were made: cards, kept in IndexedDB. */

import { $, emit, fileName, h, iconButton, newId, on, seconds, toFile, toast } from "./dom.js";
import * as database from "./database.js";
import { tellTrouble } from "./conversations.js";

/** Newest first. */
export const made = [];
const nodes = new Map();
/** Pictures that were taken away, whose removal IndexedDB has not confirmed. */
const removing = new Set();
const REMOVED = "ml.pictures.removed";

export async function loadGallery() {
  for (const id of left()) forget(id);
  const kept = await database.all("gallery").catch(() => []);
  made.push(...kept.filter((one) => one?.order && typeof one.url === "string").sort((a, b) => b.created - a.created));
  emit("made");
}

function left() {
  try {
    const ids = JSON.parse(localStorage.getItem(REMOVED));
    localStorage.removeItem(REMOVED);
    return Array.isArray(ids) ? ids.filter((id) => typeof id === "string") : [];
  } catch { return []; }
}

function forget(id) {
  removing.add(id);
  database.remove("gallery", id).then(() => removing.delete(id), () => {});
}

// A page that is left does not wait for IndexedDB: the next one takes these pictures away.
on("left", () => {
  try { localStorage.setItem(REMOVED, JSON.stringify([...removing])); } catch { /* nothing can be kept: IndexedDB may finish */ }
});

const keep = (one) => database.put("gallery", one).catch(tellTrouble);

export function addPicture(one) {
  const whole = { id: newId(), created: Date.now(), ...one };
  made.unshift(whole);
  keep(whole);
}

function takeAway(one) {
  const at = made.indexOf(one);
  made.splice(at, 1);
  forget(one.id);
  emit("made");
  toast("Picture taken away.", "Undo", () => { made.splice(at, 0, one); removing.delete(one.id); keep(one); emit("made"); });
}

export function cards() {
  for (const one of made) if (!nodes.has(one.id)) nodes.set(one.id, card(one));
  return made.map((one) => nodes.get(one.id));
}

function card(one) {
  const { order } = one;
  const [width, height] = one.size.split("x");
  const facts = [
    ["Model", order.model], ["Size", `${width} × ${height}`], ["Steps", one.steps], ["Guidance", one.guidance], ["Seed", one.seed],
    ["Not", order.negative_prompt], ["Input", order.images && (order.images.length > 1 ? `${order.images.length} pictures` : "1 picture")],
    ["Time", seconds(one.seconds)],
  ].filter(([, value]) => value !== undefined && value !== null);
  const file = () => {
    const bytes = Uint8Array.from(atob(one.url.slice(one.url.indexOf(",") + 1)), (letter) => letter.charCodeAt(0));
    toFile(new Blob([bytes], { type: "image/png" }), `${fileName(order.prompt) || "picture"}-${one.seed}.png`);
  };
  const full = () => { $("large-picture").src = one.url; $("large-picture").alt = order.prompt; $("large").showModal(); };
  return h("article", { class: "card", "aria-label": "Picture: " + order.prompt.slice(0, 80) },
    h("button", { class: "frame", type: "button", "aria-label": "Show in full", title: "Show in full", onclick: full }, h("img", { src: one.url, alt: order.prompt })),
    h("div", { class: "about" }, h("p", null, order.prompt),
      h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", null, name), h("dd", null, String(value))]).flat()),
      h("div", { class: "tools-row" },
        iconButton("download", "Download", file), iconButton("redo", "Use these settings again", () => emit("reuse", one)),
        iconButton("image", "Use as an input picture", () => emit("input", one.url)),
        iconButton("trash", "Take away", () => takeAway(one)))));
}

on("start", () => {
  $("large").addEventListener("click", (event) => { if (event.target === $("large")) $("large").close(); });
});
