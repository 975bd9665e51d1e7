/* What messages of both roles have: their versions, an editor, and being deleted. */

import { emit, h, iconButton, isTouch, toast } from "./dom.js";
import { save } from "./conversations.js";
import { draftOf, keepDraft } from "./drafts.js";
import { isBusy } from "./answers.js";
import { choose, remove, restore } from "./tree.js";

/** `‹ 2/3 ›`, where a message has more than one version. */
export function switcher(chat, { message, versions, place }) {
  if (versions.length < 2) return null;
  const go = (to) => {
    choose(chat, versions[to]);
    save(chat);
    emit("chat", chat);
    // The button that was pressed is another message's now.
    document.querySelector(`[data-id="${versions[to].id}"] .versions button:not(:disabled)`)?.focus();
  };
  const button = (name, label, to) => {
    const node = iconButton(name, label, () => go(to));
    node.disabled = to < 0 || to >= versions.length;
    return node;
  };
  const what = message.role === "user" ? "question" : "answer";
  return h("span", { class: "versions", role: "group", "aria-label": "Versions" },
    button("left", `Earlier version of the ${what}`, place - 1), h("span", null, `${place + 1}/${versions.length}`), button("right", `Later version of the ${what}`, place + 1));
}

/** What was deleted since the page was opened, by conversation: it can be brought back until the page is left. */
const removed = new Map();

function bringBack(chat, message) {
  removed.set(chat.id, (removed.get(chat.id) || []).filter((other) => other !== message));
  restore(chat, message);
  save(chat);
  emit("chat", chat);
}

/** A line that brings back the message that was deleted last. */
export function removedLine(chat) {
  const list = (removed.get(chat.id) || []).filter((message) => message.deleted);
  if (!list.length) return null;
  const text = list.length === 1 ? "A message was deleted." : `${list.length} messages were deleted.`;
  return h("div", { class: "from" }, h("span", null, text),
    h("button", { class: "button", type: "button", onclick: () => bringBack(chat, list[list.length - 1]) }, list.length === 1 ? "Bring it back" : "Bring back the last one"));
}

export function deleteButton(chat, message, extra = "") {
  return iconButton("trash", "Delete this message", () => {
    if (isBusy(chat)) return;
    remove(chat, message);
    removed.set(chat.id, [...(removed.get(chat.id) || []), message]);
    save(chat);
    emit("chat", chat);
    toast("Message deleted.", "Undo", () => bringBack(chat, message));
  }, "when-idle " + extra);
}

export function startEdit(chat, message) {
  draftOf(chat.id).edits[message.id] = message.content;
  keepDraft(chat.id);
  emit("edits");
  document.querySelector(`[data-id="${message.id}"] .editor textarea`)?.focus();
}

function endEdit(chat, message) {
  delete draftOf(chat.id).edits[message.id];
  keepDraft(chat.id);
}

/** The editor of a message whose edit is open; `actions` are `[label, run(text), mayBeEmpty]`, the first one by Enter. */
export function editor(chat, message, label, actions) {
  const draft = draftOf(chat.id);
  const area = h("textarea", { "aria-label": label });
  area.value = draft.edits[message.id];
  const cancel = () => { endEdit(chat, message); emit("edits"); document.getElementById("prompt").focus(); };
  const submit = (run) => {
    if (!area.value.trim() && !message.pictures?.length && !message.files?.length ) return;
    if (isBusy(chat)) return toast("An answer is on its way here: wait for it, or stop it.");
    const text = area.value;
    endEdit(chat, message);
    return run(text);
  };
  const size = () => {
    area.style.height = "auto";
    area.style.height = Math.min(area.scrollHeight + 4, innerHeight / 2) + "px";
  };
  area.addEventListener("input", () => { draft.edits[message.id] = area.value; keepDraft(chat.id); size(); });
  area.addEventListener("keydown", (event) => {
    const isSent = event.key === "Enter" && !event.isComposing && (event.ctrlKey || event.metaKey || message.role === "user" && !event.shiftKey && !isTouch());
    if (isSent) { event.preventDefault(); submit(actions[0][1]); }
    if (event.key === "Escape") { event.stopPropagation(); cancel(); }
  });
  requestAnimationFrame(size);
  return h("div", { class: "editor" }, area, h("div", null,
    h("button", { class: "button", type: "button", onclick: cancel }, "Cancel"),
    actions.toReversed().map(([name, run], at) =>
      h("button", { class: at === actions.length - 1 ? "button primary" : "button", type: "button", onclick: () => submit(run) }, name))));
}
