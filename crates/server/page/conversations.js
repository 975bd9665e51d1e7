/* The conversations of this browser: in memory, in IndexedDB, and the same in all tabs. */

import { banner, emit, newId, on, toast, unbanner } from "./dom.js";
import * as database from "./database.js";
import { grown, hollow, merge, stamp } from "./tree.js";
import { settings } from "./settings.js";

/** All of them by their ids, deleted ones too until the page is left. */
export const chats = new Map();
export const view = { current: null };
/** Ids of the messages that this tab is writing. */
export const writing = new Set();

const channel = "BroadcastChannel" in window ? new BroadcastChannel("ml") : null;
const tellOthers = (message) => channel?.postMessage(message);

const isChat = (chat) => chat && typeof chat.id === "string" && typeof chat.title === "string" && chat.messages && typeof chat.messages === "object";

export const emptyChat = (id = newId()) => {
  const now = Date.now();
  return { id, title: "New chat", created: now, updated: now, changed: now, messages: {}, chosen: {}, options: { ...settings.defaults } };
};

/* Reading. */

export async function load() {
  try {
    for (const chat of await database.all("chats")) if (isChat(chat)) chats.set(chat.id, chat);
    takeUnwritten();
    await takeOver();
    purgeIfAlone();
  } catch (error) {
    banner("storage", `This browser keeps no conversations (${error.message}). They are lost when the page is left: export what shall stay.`);
  }
}

/** What a page could not finish writing before it was left is written now. */
function takeUnwritten() {
  let keys = [];
  try { keys = Object.keys(localStorage).filter((name) => name.startsWith(UNWRITTEN)); } catch { /* nothing can be there */ }
  for (const key of keys) {
    let chat = null;
    try { chat = JSON.parse(localStorage.getItem(key)); } catch { /* as if there were none */ }
    if (!isChat(chat) || key !== UNWRITTEN + chat.id) {
      localStorage.removeItem(key);
      continue;
    }
    const known = chats.get(chat.id);
    if (known) merge(chat, known, () => false);
    chats.set(chat.id, chat);
    parked.add(chat.id);
    save(chat);
  }
}

/** Conversations that the page before this one kept in localStorage, once. */
async function takeOver() {
  let old;
  try { old = JSON.parse(localStorage.getItem("ml.chats")); } catch { return; }
  if (!Array.isArray(old)) return;
  const files = [];
  const taken = old.filter((chat) => isChat(chat) && Array.isArray(chat.messages) && !chats.has(chat.id)).map((chat) => fromList(chat, files));
  await database.putAll(taken, files);
  for (const chat of taken) chats.set(chat.id, chat);
  localStorage.removeItem("ml.chats");
}

/** A conversation of a list of messages, with pictures as data URLs that go to `files`. */
export function fromList(chat, files) {
  const id = chat.id || newId();
  const messages = chat.messages.map(({ pictures, ...message }) => ({
    ...message,
    ...(pictures?.length && { pictures: pictures.map((data) => {
      const file = { id: newId(), chat: id, data };
      files.push(file);
      return file.id;
    }) }),
  }));
  const now = Date.now();
  return { ...emptyChat(id), options: {}, ...chat, id, created: chat.created || now, updated: chat.updated || now, messages: grown(messages, newId), chosen: {} };
}

/* Writing. A record is read, merged and written in one transaction, so that no tab undoes another's work. */

const unsaved = new Set();
const queues = new Map();
/** Conversations of which localStorage has what was not written yet. */
const parked = new Set();
const UNWRITTEN = "ml.unwritten.";

/** Keeps a conversation; calls that come while it is being kept are one further write. */
export function save(chat) {
  const queue = queues.get(chat.id);
  if (queue) {
    queue.again = true;
    return queue.done;
  }
  const fresh = { again: false };
  queues.set(chat.id, fresh);
  fresh.done = (async () => {
    do {
      fresh.again = false;
      await write(chat);
    } while (fresh.again);
    queues.delete(chat.id);
  })();
  return fresh.done;
}

async function write(chat) {
  if (!Object.keys(chat.messages).length) return;
  let merged = false;
  try {
    await database.update("chats", chat.id, (known) => {
      if (known) merged = merge(chat, known, (id) => writing.has(id));
      return chat;
    });
    tellOthers({ chat: chat.id });
    unsaved.delete(chat.id);
    if (parked.delete(chat.id)) localStorage.removeItem(UNWRITTEN + chat.id);
    if (!unsaved.size) unbanner("full");
    if (merged) emit("chat", chat);
  } catch (error) {
    unsaved.add(chat.id);
    tellTrouble(error);
  }
}

/** Says that nothing more can be kept; what is not kept stays in this page. */
export function tellTrouble(error) {
  const reason = database.isFull(error) ? "The browser's storage is full" : `The browser does not keep this conversation (${error.message})`;
  banner("full", `${reason}. What comes now stays in this page until there is room; nothing was dropped. Export or delete conversations.`,
    ["Export all", () => emit("export-all")], ["Try again", () => { for (const id of [...unsaved]) save(chats.get(id)); }]);
}

/** A change of the conversation itself, such as its title. */
export function change(chat, values) {
  Object.assign(chat, values, { changed: stamp() });
  emit("list");
  return save(chat);
}

export async function saveAll(list, files) {
  try {
    await database.putAll(list, files);
  } catch (error) {
    tellTrouble(error);
    return false;
  }
  for (const chat of list) {
    chats.set(chat.id, chat);
    tellOthers({ chat: chat.id });
  }
  emit("list");
  return true;
}

/* Other tabs. */

let answered = null;
/** So long without an answer of another tab there is none, in milliseconds. */
const ALONE = 1500;

channel?.addEventListener("message", async ({ data }) => {
  if (data.hello) return tellOthers({ here: data.hello });
  if (data.here) return answered?.();
  if (data.gone) {
    if (view.current?.id === data.gone || [...Object.keys(chats.get(data.gone)?.messages || {})].some((id) => writing.has(id))) return;
    chats.delete(data.gone);
    return emit("list");
  }
  if (!data.chat) return;
  const theirs = await database.one("chats", data.chat).catch(() => null);
  if (!isChat(theirs)) return;
  const own = chats.get(theirs.id) || (view.current?.id === theirs.id ? view.current : null);
  if (!own) chats.set(theirs.id, theirs);
  else {
    chats.set(own.id, own);
    merge(own, theirs, (id) => writing.has(id));
  }
  emit("chat", own || theirs);
});

/* Deleting. A deleted conversation stays until the page is left, and its record until no tab can bring it back. */

export const isDeleted = (chat) => Boolean(chat.deleted);

export function removeChats(list) {
  for (const chat of list) {
    emit("stop", chat);
    change(chat, { deleted: Date.now() });
  }
  emit("removed", list);
  const text = list.length === 1 ? "Conversation deleted." : `${list.length} conversations deleted.`;
  toast(text, "Undo", () => bringBack(list));
}

export function bringBack(list) {
  for (const chat of list) change(chat, { deleted: undefined });
  if (list.length === 1) emit("open", list[0]);
}

/** What was deleted before this page was opened: conversations, and messages of those that stay. */
function deletedBefore() {
  const all = [...chats.values()];
  const messages = all.filter((chat) => !isDeleted(chat)).map((chat) =>
    [chat, Object.values(chat.messages).filter((message) => message.deleted && message.content)]);
  return { whole: all.filter(isDeleted), messages: messages.filter(([, list]) => list.length) };
}

async function purge({ whole, messages }) {
  // Pictures that were attached to a message which was never sent, nor is being written.
  const isDraft = (id) => { try { return localStorage.getItem("ml.draft." + id) !== null; } catch { return true; } };
  for (const id of await database.owners()) if (!chats.has(id) && !isDraft(id) && view.current?.id !== id) await database.forget(id);
  for (const chat of whole.filter(isDeleted)) {
    chats.delete(chat.id);
    try { localStorage.removeItem("ml.draft." + chat.id); } catch { /* nothing was kept */ }
    await database.forget(chat.id);
    tellOthers({ gone: chat.id });
  }
  for (const [chat, list] of messages) {
    const gone = list.filter((message) => message.deleted);
    for (const message of gone) chat.messages[message.id] = hollow(message);
    const used = new Set(Object.values(chat.messages).flatMap((message) => message.pictures || []));
    await save(chat);
    for (const id of gone.flatMap((message) => message.pictures || [])) if (!used.has(id)) await database.remove("files", id);
  }
  emit("list");
}

/** What was deleted before goes when no other tab is there that offers to undo it. */
function purgeIfAlone() {
  const before = deletedBefore();
  if (!channel) return void purge(before).catch(tellTrouble);
  const timer = setTimeout(() => {
    answered = null;
    emit("alone");
    purge(before).catch(tellTrouble);
  }, ALONE);
  answered = () => { clearTimeout(timer); answered = null; };
  return tellOthers({ hello: newId() });
}

/* Pictures of messages. */

const known = new Map();

export async function keepFile(chat, data) {
  const file = { id: newId(), chat: chat.id, data };
  known.set(file.id, data);
  await database.put("files", file).catch(tellTrouble);
  return file.id;
}

/** The data URL of a picture; empty where it is gone. */
export async function fileData(id) {
  if (!known.has(id)) {
    const file = await database.one("files", id).catch(() => null);
    if (!file) return "";
    known.set(id, file.data);
  }
  return known.get(id);
}

on("leave", () => { for (const id of unsaved) save(chats.get(id)); });

// A page that is left does not wait for IndexedDB, whose open transactions may end without a result.
on("left", () => {
  for (const id of queues.keys()) {
    const chat = chats.get(id) || (view.current?.id === id ? view.current : null);
    if (!chat) continue;
    try {
      localStorage.setItem(UNWRITTEN + id, JSON.stringify(chat));
      parked.add(id);
    } catch { /* full: what IndexedDB finishes is kept */ }
  }
});
