/* The field where a message is written, and what the keys do. */

import { $, emit, icon, isTouch, on } from "./dom.js";
import { view } from "./conversations.js";
import { draftOf, keepDraft } from "./drafts.js";
import { isBusy, stop } from "./answers.js";
import { renderAttachments } from "./attachments.js";
import { chosenModel, sees, server } from "./server.js";
import { leaf, messagesOf } from "./tree.js";
import { ask } from "./user-message.js";

function grow() {
  const area = $("prompt");
  area.style.height = "auto";
  area.style.height = Math.min(area.scrollHeight, innerHeight * 0.4) + "px";
}

const isEmpty = ({ text, pictures, files }) => !text.trim() && !pictures.length && !files.length;

/** The button sends, or stops the answer of the conversation that is seen. */
function showButton() {
  const chat = view.current;
  const busy = isBusy(chat);
  const label = busy ? "Stop" : "Send";
  if (!$("send").firstChild || $("send").getAttribute("aria-label") !== label) {
    $("send").replaceChildren(icon(busy ? "stop" : "send"));
    $("send").setAttribute("aria-label", label);
    $("send").title = busy ? "Stop (Esc)" : isTouch() ? "Send" : "Send (Enter)";
  }
  $("send").disabled = !busy && isEmpty(draftOf(chat.id));
}

/** How much of the model's context the conversation took, as the last answer told. */
function showContext() {
  if (!view.current) return;
  const most = chosenModel()?.max_model_len;
  const last = messagesOf(view.current).findLast(({ stats }) => stats?.total);
  $("context").hidden = !most || !last;
  if (!most || !last) return;
  const used = last.stats.total;
  const meter = $("context").querySelector("meter");
  Object.assign(meter, { max: most, high: most * 0.85, low: most * 0.7, optimum: 0, value: Math.min(used, most) });
  $("context").querySelector("span").textContent = `${used.toLocaleString("en")} of ${most.toLocaleString("en")} tokens`;
  $("context").title = "What the conversation takes of the model's context";
}

/** Shows the draft of the conversation that is seen. */
export function showDraft() {
  const draft = draftOf(view.current.id);
  if ($("prompt").value !== draft.text) $("prompt").value = draft.text;
  grow();
  renderAttachments();
  showButton();
}

function write(text) {
  draftOf(view.current.id).text = text;
  keepDraft(view.current.id);
  showDraft();
  $("prompt").focus();
}

function send() {
  const chat = view.current;
  if (isBusy(chat)) return;
  const draft = draftOf(chat.id);
  if (isEmpty(draft)) return;
  const { text, pictures, files } = draft;
  Object.assign(draft, { text: "", pictures: [], files: [] });
  keepDraft(chat.id);
  showDraft();
  ask(chat, leaf(chat), { text, pictures, files });
  emit("sent", chat);
  emit("end");
}

function keys(event) {
  const isModal = Boolean(document.querySelector("dialog[open]"));
  if (event.key === "Escape" && !isModal) {
    if (document.body.classList.contains("drawer")) emit("drawer", false);
    else if (server.tab === "studio") emit("stop-pictures"); else stop(view.current);
  }
  if (!(event.ctrlKey || event.metaKey) || event.altKey || isModal) return;
  if (event.key.toLowerCase() === "k") { event.preventDefault(); emit("new"); }
  if (event.key === "/") { event.preventDefault(); (server.tab === "studio" ? $("easel").elements.prompt : $("prompt")).focus(); }
  if (event.key === "Enter" && server.tab === "studio") { event.preventDefault(); emit("make"); }
}

on("start", () => {
  const area = $("prompt");
  if (isTouch()) area.setAttribute("enterkeyhint", "enter");
  area.addEventListener("input", () => {
    if (!view.current) return;
    draftOf(view.current.id).text = area.value;
    keepDraft(view.current.id);
    grow();
    showButton();
  });
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!view.current) return;
    if (isBusy(view.current)) stop(view.current); else send();
  });
  area.addEventListener("keydown", (event) => {
    if (!view.current) return;
    // On a phone the key makes a line, and the button sends.
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && (!isTouch() || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (!isBusy(view.current)) $("composer").requestSubmit();
    }
    if (event.key === "ArrowUp" && !area.value && !isBusy(view.current)) {
      const edits = document.querySelectorAll(".edit");
      if (edits.length) { event.preventDefault(); edits[edits.length - 1].click(); }
    }
  });
  document.addEventListener("keydown", keys);
  if (/Mac|iPhone|iPad/.test(navigator.platform)) for (const key of document.querySelectorAll("kbd")) key.textContent = key.textContent.replace("Ctrl ", "⌘");
  on("write", write);
  on("draft", showButton);
  on("rendered", () => { showButton(); showContext(); });
  on("model", () => {
    $("attach").title = sees() ? "Add pictures or files of text, or drop or paste them" : "Add files of text, or drop or paste them";
    $("attach").setAttribute("aria-label", sees() ? "Add pictures or files" : "Add files");
    showContext();
  });
});
