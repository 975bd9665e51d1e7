/* The tabs. There are two where a model makes pictures, and one answers in text. */

import { $, on } from "./dom.js";
import { server, showModels } from "./server.js";
import { saveSettings, settings } from "./settings.js";
import { showMade } from "./studio.js";
import { retitle } from "./thread.js";

const NAMES = ["talk", "studio"];

function showTab() {
  const { painters, models } = server;
  server.tab = !painters.size ? "talk" : !models.size ? "studio" : settings.tab;
  const { tab } = server;
  const opens = tab === "studio" && $("studio").hidden;
  $("tabs").hidden = !painters.size || !models.size;
  for (const name of NAMES) {
    $(name).hidden = name !== tab;
    $("tab-" + name).setAttribute("aria-selected", String(name === tab));
    $("tab-" + name).tabIndex = name === tab ? 0 : -1;
  }
  document.body.classList.toggle("studio", tab === "studio");
  $("skip").href = tab === "studio" ? "#easel" : "#prompt";
  $("skip").textContent = tab === "studio" ? "Skip to the picture's settings" : "Skip to the message field";
  showModels();
  if (opens) showMade();
  retitle();
}

export function toTab(name) {
  settings.tab = name;
  saveSettings();
  showTab();
}

on("start", () => {
  on("models", showTab);
  $("skip").addEventListener("click", (event) => {
    // The address names the conversation, so that the link moves the focus alone.
    event.preventDefault();
    (server.tab === "studio" ? $("easel").elements.prompt : $("prompt")).focus();
  });
  for (const name of NAMES) {
    $("tab-" + name).addEventListener("click", () => toTab(name));
    $("tab-" + name).addEventListener("keydown", (event) => {
      if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
      event.preventDefault();
      toTab(event.key === "Home" ? "talk" : event.key === "End" ? "studio" : server.tab === "talk" ? "studio" : "talk");
      $("tab-" + server.tab).focus();
    });
  }
});
