/* Settings of this browser: theme, key, chosen models, presets. They are small, so that they are kept in localStorage. */

import { $, emit, icon, on } from "./dom.js";

/** The fields of a conversation's own options that are sent as numbers, and all of them. */
export const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "max_tokens", "seed", "reasoning_budget"];
export const OPTIONS = ["system", ...NUMBERS, "reasoning_effort", "thoughts", "schema"];

const STANDARD = { key: "", theme: "system", model: "", painter: "", tab: "talk", defaults: {}, presets: [] };

function read() {
  try { return JSON.parse(localStorage.getItem("ml.settings")) || {}; } catch { return {}; }
}

/** What the page before this one kept for all conversations is what new ones begin with. */
function taken(kept) {
  if (kept.defaults) return kept;
  const defaults = {};
  for (const name of OPTIONS) {
    if (kept[name]) defaults[name] = kept[name];
    delete kept[name];
  }
  return { ...kept, defaults };
}

export const settings = { ...STANDARD, ...taken(read()) };

export function saveSettings() {
  try {
    localStorage.setItem("ml.settings", JSON.stringify(settings));
    return true;
  } catch {
    return false;
  }
}

// Another tab's choices hold here, too, but for what each tab chooses for itself.
addEventListener("storage", (event) => {
  if (event.key !== "ml.settings") return;
  const { model, painter, tab, ...rest } = { ...STANDARD, ...read() };
  const key = settings.key;
  Object.assign(settings, rest);
  applyTheme();
  if (settings.key !== key) emit("key");
});

const systemDark = matchMedia("(prefers-color-scheme: dark)");

export function applyTheme() {
  const dark = settings.theme === "dark" || (settings.theme !== "light" && systemDark.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  const label = dark ? "Switch to light" : "Switch to dark";
  $("theme").replaceChildren(icon(dark ? "sun" : "moon"));
  $("theme").setAttribute("aria-label", label);
  $("theme").title = label;
}
systemDark.addEventListener("change", applyTheme);

on("start", () => {
  applyTheme();
  $("theme").addEventListener("click", () => {
    settings.theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    saveSettings();
    applyTheme();
  });
});
