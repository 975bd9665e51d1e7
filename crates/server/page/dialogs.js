/* The settings of this browser, and the question for a key. */

import { $, emit, on, toast } from "./dom.js";
import { chats, isDeleted, removeChats } from "./conversations.js";
import { refresh } from "./server.js";
import { applyTheme, saveSettings, settings } from "./settings.js";

const kept = () => { if (!saveSettings()) toast("The browser does not let this page keep settings."); };

function closesOutside(dialog) {
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close("cancel"); });
}

on("start", () => {
  const form = $("settings-form");
  $("settings-open").addEventListener("click", () => {
    form.elements.key.value = settings.key;
    form.elements.theme.value = settings.theme;
    $("settings").returnValue = "";
    $("settings").showModal();
  });
  $("settings").addEventListener("close", () => {
    if ($("settings").returnValue !== "save") return;
    settings.theme = form.elements.theme.value;
    settings.key = form.elements.key.value.trim();
    kept();
    applyTheme();
    refresh();
  });
  $("forget").addEventListener("click", () => {
    $("settings").close("cancel");
    const list = [...chats.values()].filter((chat) => !isDeleted(chat));
    if (list.length) removeChats(list);
    else toast("There are no conversations.");
  });

  const key = $("key-form").elements.key;
  on("key-wanted", () => {
    if ($("key").open) return;
    key.value = settings.key;
    $("key").returnValue = "";
    $("key").showModal();
  });
  $("key").addEventListener("close", () => {
    if ($("key").returnValue !== "save") return;
    settings.key = key.value.trim();
    kept();
    emit("key");
  });
  on("server", (state) => { if (state === "up" && $("key").open) $("key").close("cancel"); });
  for (const name of ["settings", "key", "options"]) closesOutside($(name));
});
