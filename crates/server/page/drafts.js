/* What is being written and not sent yet: for each conversation its text, its attachments, and open edits. */

import { on } from "./dom.js";

const PREFIX = "ml.draft.";
const drafts = new Map();
const due = new Set();
let timer = 0;

const EMPTY = () => ({ text: "", pictures: [], files: [], edits: {} });

export function draftOf(id) {
  if (!drafts.has(id)) {
    let kept = null;
    try { kept = JSON.parse(localStorage.getItem(PREFIX + id)); } catch { /* as if there were none */ }
    drafts.set(id, { ...EMPTY(), ...kept });
  }
  return drafts.get(id);
}

/** The conversations that have a draft. */
export function draftIds() {
  try { return Object.keys(localStorage).filter((key) => key.startsWith(PREFIX)).map((key) => key.slice(PREFIX.length)); } catch { return []; }
}

function write(id) {
  const draft = drafts.get(id);
  const isEmpty = !draft.text && !draft.pictures.length && !draft.files.length && !Object.keys(draft.edits).length;
  try {
    if (isEmpty) localStorage.removeItem(PREFIX + id);
    else localStorage.setItem(PREFIX + id, JSON.stringify(draft));
  } catch { /* full: the draft stays in this page */ }
}

function flush() {
  clearTimeout(timer);
  timer = 0;
  for (const id of due) write(id);
  due.clear();
}

/** Keeps the draft of a conversation, soon. */
export function keepDraft(id) {
  due.add(id);
  timer ||= setTimeout(flush, 250);
}

on("leave", flush);
