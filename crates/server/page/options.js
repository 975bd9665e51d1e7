/* Options of a conversation: its system prompt and how it is answered, with named presets. */

import { $, emit, h, on, toast } from "./dom.js";
import { change, view } from "./conversations.js";
import { OPTIONS, saveSettings, settings } from "./settings.js";

const form = () => $("options-form");
const field = (name) => form().elements[name];

function fill(values) {
  for (const name of OPTIONS) field(name).value = values?.[name] ?? "";
}

/** What the form says; what is empty is left to the model. */
function told() {
  return Object.fromEntries(OPTIONS.map((name) => [name, field(name).value]).filter(([, value]) => value.trim() !== ""));
}

function checkSchema() {
  const text = field("schema").value.trim();
  let fault = "";
  try {
    const schema = text ? JSON.parse(text) : {};
    if (typeof schema !== "object" || schema === null) fault = "A schema is an object.";
  } catch (error) { fault = `This is not JSON: ${error.message}`; }
  field("schema").setCustomValidity(fault);
}

function showPresets() {
  const chosen = $("preset").value;
  $("preset").replaceChildren(h("option", { value: "" }, settings.presets.length ? "Choose a preset…" : "No presets yet"),
    ...settings.presets.map(({ name }) => h("option", { value: name }, name)));
  $("preset").value = settings.presets.some(({ name }) => name === chosen) ? chosen : "";
  $("preset-delete").hidden = !$("preset").value;
}

function open() {
  fill(view.current.options);
  checkSchema();
  $("preset").value = "";
  $("preset-name").value = "";
  showPresets();
  $("as-default").checked = false;
  $("options").returnValue = "";
  $("options").showModal();
}

function savePreset() {
  const name = $("preset-name").value.trim();
  if (!name) return $("preset-name").focus();
  checkSchema();
  if (!form().reportValidity()) return undefined;
  settings.presets = [...settings.presets.filter((one) => one.name !== name), { name, options: told() }].sort((a, b) => a.name.localeCompare(b.name));
  saveSettings();
  showPresets();
  $("preset").value = name;
  $("preset-name").value = "";
  $("preset-delete").hidden = false;
  return undefined;
}

function deletePreset() {
  const name = $("preset").value;
  const gone = settings.presets.find((one) => one.name === name);
  settings.presets = settings.presets.filter((one) => one !== gone);
  saveSettings();
  showPresets();
  toast(`The preset ${name} is deleted.`, "Undo", () => { settings.presets = [...settings.presets, gone]; saveSettings(); showPresets(); });
}

on("start", () => {
  on("options", open);
  $("options-open").addEventListener("click", open);
  field("schema").addEventListener("input", checkSchema);
  $("preset").addEventListener("change", () => {
    const preset = settings.presets.find(({ name }) => name === $("preset").value);
    if (preset) fill(preset.options);
    $("preset-delete").hidden = !preset;
  });
  $("preset-save").addEventListener("click", savePreset);
  $("preset-name").addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); savePreset(); } });
  $("preset-delete").addEventListener("click", deletePreset);
  $("options-clear").addEventListener("click", () => fill({}));
  $("options").addEventListener("close", () => {
    if ($("options").returnValue !== "save") return;
    const options = told();
    if ($("as-default").checked) settings.defaults = options;
    saveSettings();
    change(view.current, { options });
    emit("chat", view.current);
  });
});
