/* What goes along with a message: pictures as data URLs, and files of text. */

import { $, emit, h, icon, on, toast } from "./dom.js";
import { fileData, keepFile, view } from "./conversations.js";
import { draftOf, keepDraft } from "./drafts.js";
import { sees, server } from "./server.js";

/** The longest file of text, in bytes: about as many tokens as four times less. */
const LONGEST = 2 ** 20;
const IMAGE = /^image\/(png|jpeg|webp|gif)$/;

const read = (file, how) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = () => reject(reader.error);
  reader[how](file);
});
export const asDataUrl = (file) => read(file, "readAsDataURL");

/** The text of a file; none where its bytes are no text. */
async function asText(file) {
  const bytes = await read(file, "readAsArrayBuffer");
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

export const thumbnail = (url, label, takeAway) => h("span", null, h("img", { src: url, alt: label }),
  h("button", { type: "button", "aria-label": `Take ${label.toLowerCase()} away`, onclick: takeAway }, icon("close")));

export async function renderAttachments() {
  const chat = view.current;
  const draft = draftOf(chat.id);
  const drop = (name, at) => () => {
    draft[name] = draft[name].filter((_, other) => other !== at);
    keepDraft(chat.id);
    renderAttachments();
  };
  const urls = await Promise.all(draft.pictures.map(fileData));
  if (view.current !== chat) return;
  const shown = urls.map((url, at) => thumbnail(url, `Picture ${at + 1}`, drop("pictures", at)));
  const files = draft.files.map(({ name }, at) => h("span", { class: "chip" }, icon("file"), h("span", null, name),
    h("button", { type: "button", "aria-label": `Take ${name} away`, onclick: drop("files", at) }, icon("close"))));
  $("pictures").replaceChildren(...shown, ...files);
  emit("draft");
}

async function addOne(chat, file) {
  const draft = draftOf(chat.id);
  if (IMAGE.test(file.type)) {
    if (!sees()) return "This model does not see pictures.";
    draft.pictures = [...draft.pictures, await keepFile(chat, await asDataUrl(file))];
    return "";
  }
  if (/^image\//.test(file.type)) return "Pictures are PNG, JPEG, WebP or GIF.";
  if (/\.pdf$/i.test(file.name) || file.type === "application/pdf") return "A PDF cannot be read here. Copy its text, or save it as a file of text.";
  if (file.size > LONGEST) return `${file.name} is too long: a file of text has at most 1 MiB.`;
  const text = await asText(file);
  if (text === null) return `${file.name} is no text that can be read here. It must be UTF-8.`;
  draft.files = [...draft.files, { name: file.name, text }];
  return "";
}

/** Adds files to the message that is being written. */
async function attach(list) {
  const chat = view.current;
  for (const file of list) {
    let trouble;
    try { trouble = await addOne(chat, file); } catch (error) { trouble = `${file.name} cannot be read: ${error.message}`; }
    if (trouble) toast(trouble);
  }
  keepDraft(chat.id);
  await renderAttachments();
  $("prompt").focus();
}

on("start", () => {
  const take = (list) => { if (list.length) emit(server.tab === "studio" ? "inputs" : "attach", list); };
  on("attach", attach);
  $("attach").addEventListener("click", () => $("files").click());
  $("files").addEventListener("change", () => { take([...$("files").files]); $("files").value = ""; });
  addEventListener("paste", (event) => {
    const files = [...event.clipboardData?.files ?? []];
    if (files.length && (server.tab === "studio" || event.target === $("prompt"))) { event.preventDefault(); take(files); }
  });
  const brings = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => { if (brings(event)) { event.preventDefault(); document.body.classList.add("dropping"); } });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
  addEventListener("drop", (event) => {
    document.body.classList.remove("dropping");
    if (brings(event)) { event.preventDefault(); take([...event.dataTransfer.files]); }
  });
});
