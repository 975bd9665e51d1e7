/* The server: its state, its models, and requests to it. */

import { $, banner, emit, h, menu, on, short, toast, unbanner } from "./dom.js";
import { saveSettings, settings } from "./settings.js";

/** An address of the server that this page came from, also below a proxy's path. */
export const address = (path) => new URL(path, document.baseURI).href;
export const headers = () => ({ "Content-Type": "application/json", ...(settings.key && { Authorization: "Bearer " + settings.key }) });

/** A refusal by the server, with its status and its `code`. */
class Refusal extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

export async function refusal(response) {
  const text = await response.text().catch(() => "");
  let { code, message } = { code: "", message: text.slice(0, 500) };
  try { ({ code, message } = JSON.parse(text).error); } catch { /* not JSON: the text itself */ }
  return new Refusal(response.status, code || "", message || `The server answered ${response.status}.`);
}

/** The data of server-sent events, one after the other. */
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    const lines = (rest + (value || "")).split("\n");
    rest = done ? "" : lines.pop();
    for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
    if (done) return;
  }
}

/* Its state: `up`, `loading`, `down`, or `key` where it wants one. */

export const server = { state: "connecting", models: new Map(), painters: new Map(), tab: "talk" };

const WORDS = {
  up: ["Connected", ""], loading: ["The model is being loaded", "Loading the model…"],
  down: ["The server does not answer. It is asked again every few seconds.", "No connection"], key: ["The server wants an API key", "A key is wanted"],
};

let waiters = [];
function become(state) {
  const was = server.state;
  server.state = state;
  $("dot").className = "dot " + state;
  $("dot").title = WORDS[state][0] + (state === "loading" && server.percent !== undefined ? `: ${server.percent} %` : "");
  if (state === "key") banner("key", "This server wants an API key.", ["Enter the key", () => emit("key-wanted")]);
  else unbanner("key");
  if (state === "down" && was !== "connecting") banner("down", "The server does not answer. It is asked again every few seconds; what you have written stays.");
  else if (state !== "down") unbanner("down");
  if (state === "up") {
    for (const wake of waiters) wake();
    waiters = [];
  }
  if (was !== state) emit("server", state);
}

/** Resolves when the server is ready; rejects where `signal` ends the wait. */
export function untilReady(signal) {
  refresh();
  return new Promise((resolve, reject) => {
    signal.addEventListener("abort", () => reject(new DOMException("stopped", "AbortError")), { once: true });
    waiters.push(resolve);
  });
}

/** Asks for the state and the models, now and every few seconds. */
export async function refresh() {
  clearTimeout(refresh.timer);
  const turn = refresh.turn = (refresh.turn || 0) + 1;
  let state;
  try {
    state = await ask();
  } catch {
    state = "down";
  }
  if (turn !== refresh.turn) return;
  become(state);
  emit("models");
  clearTimeout(refresh.timer);
  // Others load and unload models, too. A page that nobody sees asks only for what an answer of it waits for.
  if (state !== "up") refresh.timer = setTimeout(refresh, document.hidden && !waiters.length ? 20000 : 1500);
  else if (!document.hidden) refresh.timer = setTimeout(refresh, isLoading() ? 1500 : server.models.size + server.painters.size > 1 ? 15000 : 30000);
}

async function ask() {
  server.percent = undefined;
  const response = await fetch(address("v1/models"), { headers: headers(), cache: "no-store" });
  if (response.status === 401) return "key";
  if (response.ok) {
    const { data } = await response.json();
    const named = (list) => new Map(list.map((model) => [String(model.id), model]));
    server.models = named(data.filter((model) => !model.output_modalities || model.output_modalities.includes("text")));
    server.painters = named(data.filter((model) => model.output_modalities?.includes("image")));
  }
  // A server with one model refuses requests until it is there; several are loaded as they are asked for.
  const all = [...server.models.values(), ...server.painters.values()];
  if (response.ok && !(all.length === 1 && isWaiting(all[0]))) return "up";
  const health = await fetch(address("health"), { cache: "no-store" });
  if (health.ok) return response.ok ? "up" : "loading";
  const { status, models } = await health.json().catch(() => ({}));
  server.percent = Object.values(models || {}).find(({ load }) => load)?.load.percent;
  return status === "draining" ? "down" : status === "loading" ? "loading" : response.ok ? "up" : "down";
}

/* The choice of a model. */

const offered = () => server.tab === "studio" ? server.painters : server.models;
export const modelName = () => $("model").value;
/** The model that answers in text, also while the tab of pictures is seen. */
export function textModel() {
  if (server.tab !== "studio") return modelName();
  return server.models.has(settings.model) ? settings.model : [...server.models.keys()][0] ?? "";
}
export const chosenModel = () => offered().get(modelName());
export const sees = () => Boolean(chosenModel()?.input_modalities?.includes("image"));
export const isWaiting = (model) => Boolean(model?.state && model.state !== "loaded");
const isLoading = () => [...server.models.values(), ...server.painters.values()].some(({ state }) => state === "loading");
/** How much of the model for text is loaded, in percent; `undefined` where that is not told. */
export const percentLoaded = () => server.models.get(textModel())?.load?.percent ?? server.percent;
const size = (bytes) => bytes >= 2 ** 30 ? (bytes / 2 ** 30).toFixed(1) + " GiB" : Math.ceil(bytes / 2 ** 20) + " MiB";

export function showModels() {
  const select = $("model");
  const listed = offered();
  const ids = [...listed.keys()];
  if (!ids.length) {
    const percent = server.state === "loading" && server.percent !== undefined ? ` ${server.percent} %` : "";
    select.replaceChildren(h("option", { value: "" }, (WORDS[server.state]?.[1] || "No model") + percent));
    return;
  }
  const isTwice = (id) => ids.some((other) => other !== id && short(other) === short(id));
  const states = { unloaded: "not loaded", unloading: "not loaded", loading: "loading", failed: "failed" };
  const label = (id) => {
    const { state, load } = listed.get(id);
    return (isTwice(id) ? id : short(id)) + (states[state] ? ` · ${states[state]}` : "") + (load ? ` ${load.percent} %` : "");
  };
  // An open list stays open where the same models have other states.
  if ([...select.options].map((option) => option.value).join("\n") !== ids.join("\n")) {
    const before = select.value;
    const kept = server.tab === "studio" ? settings.painter : settings.model;
    select.replaceChildren(...ids.map((id) => h("option", { value: id })));
    if (ids.includes(kept)) select.value = kept;
    if (before && !ids.includes(before) && server.tab === showModels.tab) toast(`${short(before)} is not served any more. ${short(select.value)} answers now.`);
  }
  showModels.tab = server.tab;
  for (const option of select.options) if (option.textContent !== label(option.value)) option.textContent = label(option.value);
  const model = chosenModel();
  select.title = [select.value, model?.bytes && size(model.bytes), model?.max_model_len && `context of ${model.max_model_len} tokens`, model?.error].filter(Boolean).join(" · ");
  $("model-more").hidden = server.models.size + server.painters.size < 2 || !model?.state;
  emit("model");
}

/** Loads the model, or unloads it; Ollama's protocol has a way to ask for that. */
async function keepLoaded(model, isKept) {
  toast(isKept ? `${short(model)} is being loaded.` : `${short(model)} is being unloaded.`);
  setTimeout(refresh, 300);
  try {
    const body = { model, messages: [], stream: false, ...(!isKept && { keep_alive: 0 }) };
    const response = await fetch(address("api/chat"), { method: "POST", headers: headers(), body: JSON.stringify(body) });
    if (!response.ok) throw await refusal(response);
    await response.text();
  } catch (error) {
    toast(error.message);
  }
  refresh();
}

on("start", () => {
  $("model").addEventListener("change", () => {
    settings[server.tab === "studio" ? "painter" : "model"] = modelName();
    saveSettings();
    showModels();
  });
  const button = $("model-more");
  button.addEventListener("click", () => {
    const model = chosenModel();
    menu(button, [
      ["unloaded", "failed"].includes(model.state) && server.tab === "talk" && ["play", "Load now", () => keepLoaded(model.id, true)],
      model.state === "loaded" && !model.pinned && server.tab === "talk" && ["stop", "Unload", () => keepLoaded(model.id, false)],
      ["redo", "Ask for the models again", refresh],
    ]);
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  addEventListener("online", refresh);
  on("key", refresh);
});
