/* An answer: its thoughts, its text, its calls, how it ended, and what can be done with it. */

import { copyButton, emit, h, icon, iconButton, newId, seconds, short, toast } from "./dom.js";
import { emptyChat, fileData, keepFile, save, writing } from "./conversations.js";
import { draftOf, keepDraft } from "./drafts.js";
import { again, againShorter, goOn, running } from "./answers.js";
import { chosenModel, percentLoaded, server } from "./server.js";
import { colour } from "./code.js";
import { growing } from "./markdown.js";
import { add, messagesOf } from "./tree.js";
import { deleteButton, editor, startEdit, switcher } from "./versions.js";

const WAITS = {
  loading: () => {
    const percent = percentLoaded();
    return `The model is being loaded${percent === undefined ? "" : ` (${percent} %)`}. The question is sent as soon as it is there.`;
  },
  gone: () => "The server does not answer. The question is sent as soon as it is back.",
  key: () => "The server wants an API key. The question is sent as soon as it has one.",
};
/** So long after its last sign an answer of another tab counts as cut, in milliseconds. */
const SILENCE = 6000;

/** Tells whether an answer is on its way: here, or in another tab that gave a sign lately. */
const isLive = (message) => Boolean(message.running) && (writing.has(message.id) || Date.now() - message.updated < SILENCE);

function toolCall(call) {
  let text = call.arguments;
  try { text = JSON.stringify(JSON.parse(text), null, 2); } catch { /* still on its way: as it is */ }
  const code = h("code", null, text);
  colour(code, text, "json");
  return h("details", { class: "call", open: true },
    h("summary", null, icon("tool"), h("span", null, "Calls ", h("code", null, call.name)), icon("chevron")), h("pre", { tabindex: "0" }, code));
}

/** The editor of an answer: what is saved is a version of its own. */
function answerEditor(chat, message) {
  const kept = (content) => {
    const { parent, model } = message;
    add(chat, { id: newId(), role: "assistant", parent, content, model, edited: true });
    save(chat);
    emit("chat", chat);
  };
  return editor(chat, message, "Edit the answer", [["Save as a version", kept]]);
}

/** An answer's node, which stays while it grows and when it ends; `update` shows what has changed. */
export function assistantMessage(chat, message) {
  const node = h("article", { class: "assistant", "aria-label": "Assistant", "data-id": message.id });
  if (message.id in draftOf(chat.id).edits) {
    node.append(answerEditor(chat, message));
    return { node };
  }
  const body = h("div", { class: "md" });
  const thoughtBody = h("div", { class: "body md" });
  const thoughtLabel = h("span");
  const mode = chat.options?.thoughts || "folded";
  const thought = h("details", { class: "thought", open: mode === "shown" }, h("summary", null, icon("thought"), thoughtLabel, icon("chevron")), thoughtBody);
  const calls = h("div");
  const waitText = h("span", { class: "note" });
  const wait = h("div", { class: "wait", role: "img", "aria-label": "Waiting for the model" }, h("i"), h("i"), h("i"));
  const waiting = h("div", { class: "waiting" }, wait, waitText);
  node.append(thought, body, calls, waiting);
  const text = growing(body);
  const thoughts = growing(thoughtBody);
  const shown = { text: null, thoughts: null, calls: "", end: "" };
  let place = null;
  const showText = (live, name, renderer, source) => {
    if (live) renderer.show(source); else if (shown[name] !== source) renderer.finish(source);
    shown[name] = live ? null : source;
  };
  const update = (entry = place) => {
    place = entry;
    const live = isLive(message);
    const job = running.get(chat.id)?.message === message ? running.get(chat.id) : null;
    const isThinking = live && !message.content && !message.calls;
    thought.hidden = !message.reasoning || mode === "hidden";
    thought.classList.toggle("live", Boolean(isThinking));
    thoughtLabel.textContent = isThinking ? "Thinking…" : message.thought !== undefined ? `Thought for ${seconds(message.thought)}` : "Thoughts";
    // What is folded is rendered when it is opened.
    if (thought.open && !thought.hidden) showText(live, "thoughts", thoughts, message.reasoning);
    showText(live, "text", text, message.content);
    waiting.hidden = !live || Boolean(!job?.waits && (message.content || message.reasoning && mode !== "hidden" || message.calls));
    waitText.textContent = job?.waits ? WAITS[job.waits]() : live && !job ? "Another tab is getting this answer." : "";
    const told = JSON.stringify(message.calls || []);
    if (shown.calls !== told) calls.replaceChildren(...(message.calls || []).filter(Boolean).map(toolCall));
    shown.calls = told;
    const end = JSON.stringify([live || message.updated, entry.isLast, entry.place, entry.versions.length]);
    if (shown.end === end) return;
    shown.end = end;
    for (const old of node.querySelectorAll(":scope > .end")) old.remove();
    if (!live) node.append(...ending(chat, entry));
    // An answer of another tab that gives no more signs is shown as cut.
    else if (!writing.has(message.id)) setTimeout(() => { if (node.isConnected) update(); }, SILENCE);
  };
  thought.addEventListener("toggle", () => { if (place) update(); });
  return { node, update };
}

/** The notes and buttons below an answer that ended. */
function ending(chat, entry) {
  const { message, isLast } = entry;
  const isCut = Boolean(message.running);
  const isFull = message.code === "context_length_exceeded" || message.finish === "length" && message.stats?.total >= (server.models.get(message.model)?.max_model_len || Infinity);
  const mayGoOn = isLast && message.content && !message.calls && (isCut || message.stopped || message.error || message.finish === "length" && !isFull);
  const notes = {
    length: isFull ? "The context of the model is full." : "The answer reached the most tokens it may have.", content_filter: "The answer was filtered.",
  };
  const note = isCut ? "The page was left before the answer was complete." : message.stopped ? "Stopped." : notes[message.finish];
  const actions = [
    mayGoOn && action("play", "Continue", () => goOn(chat, message)),
    isFull && isLast && action("redo", "Drop the oldest turns", () => { if (!againShorter(chat, message)) toast("Only the last question is left. Shorten it, or begin a new conversation."); }),
    isFull && isLast && action("plus", "New conversation", () => moveOn(chat, message)),
    message.error && !isFull && !message.content && isLast && action("redo", "Try again", () => again(chat, message)),
  ].filter(Boolean);
  const reason = message.code === "context_length_exceeded" ? `The conversation is longer than the model's context${context()}.` : message.error;
  return [
    reason && h("div", { class: "failure end", role: "alert" }, icon("alert"), h("span", null, reason)),
    note && !reason && h("p", { class: "note end" }, note),
    actions.length && h("div", { class: "actions-row end when-idle" }, actions),
    tools(chat, entry),
  ].filter(Boolean);
}

const action = (name, label, run) => h("button", { class: "button", type: "button", onclick: run }, icon(name), label);
const context = () => chosenModel()?.max_model_len ? ` (${chosenModel().max_model_len.toLocaleString("en")} tokens)` : "";

/** A new conversation with the question that did not fit. */
async function moveOn(chat, message) {
  const list = messagesOf(chat);
  const at = list.indexOf(message);
  const question = list.slice(0, at).reverse().find(({ role }) => role === "user");
  const fresh = { ...emptyChat(), options: { ...chat.options } };
  const urls = await Promise.all((question?.pictures || []).map(fileData));
  const pictures = await Promise.all(urls.filter(Boolean).map((url) => keepFile(fresh, url)));
  Object.assign(draftOf(fresh.id), { text: question?.content || "", files: question?.files || [], pictures });
  keepDraft(fresh.id);
  emit("open", fresh);
}

function tools(chat, entry) {
  const { message } = entry;
  const { stats } = message;
  const button = iconButton("redo", "Answer again", () => again(chat, message), "when-idle");
  return h("div", { class: "tools-row end" }, copyButton(() => message.content), button,
    message.content && iconButton("pen", "Edit the answer", () => startEdit(chat, message), "when-idle"),
    deleteButton(chat, message), switcher(chat, entry),
    h("span", { class: "stats" },
      message.model && h("span", { title: message.model }, short(message.model)),
      message.edited && h("span", null, "edited"),
      stats && h("span", { title: stats.prompt ? `${stats.prompt} tokens of prompt` : null }, `${stats.exact ? "" : "about "}${stats.tokens} tokens`),
      stats?.rate && h("span", null, `${stats.rate.toFixed(1)} tokens/s`),
      stats && h("span", null, `first after ${seconds(stats.first)}`)));
}
