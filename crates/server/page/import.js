/* Conversations of files: this page's own form, and what OpenAI's and Open WebUI's exports are. Only fields that are
   known are taken, and only of the types that they have here. */

import { newId } from "./dom.js";
import { fromList } from "./conversations.js";

export const FORMAT = "ml-conversations";

const text = (value) => typeof value === "string" ? value : "";
const time = (value, unit) => Number.isFinite(value) && value > 0 ? value * unit : Date.now();
const isDataUrl = (value) => /^data:image\/(png|jpeg|webp|gif);base64,[A-Za-z0-9+/=]+$/.test(text(value));

const NUMERIC = ["created", "updated", "thought", "gone"];
const TEXTUAL = ["reasoning", "model", "finish", "error", "code"];
const FLAGS = ["stopped", "edited", "deleted"];

function cleanMessage(message) {
  const out = { id: text(message.id) || newId(), parent: text(message.parent) || null, role: message.role === "user" ? "user" : "assistant", content: text(message.content) };
  for (const name of NUMERIC) if (Number.isFinite(message[name])) out[name] = message[name];
  for (const name of TEXTUAL) if (text(message[name])) out[name] = message[name];
  for (const name of FLAGS) if (message[name] === true) out[name] = true;
  out.created ||= Date.now();
  out.updated ||= out.created;
  const stats = message.stats && typeof message.stats === "object" ? Object.entries(message.stats).filter(([, value]) => typeof value === "number" || typeof value === "boolean") : [];
  // The line below an answer needs both of these.
  if (stats.some(([name]) => name === "tokens") && stats.some(([name]) => name === "first")) out.stats = Object.fromEntries(stats);
  if (Array.isArray(message.files)) out.files = message.files.filter((file) => text(file?.name) && typeof file.text === "string").map(({ name, text: inner }) => ({ name, text: inner }));
  if (Array.isArray(message.pictures)) out.pictures = message.pictures.filter((id) => typeof id === "string");
  if (Array.isArray(message.calls)) out.calls = message.calls.filter(Boolean).map((call) => ({ name: text(call.name), arguments: text(call.arguments) }));
  return out;
}

/** A conversation of messages that name their parents, with ids of its own, so that nothing that is here is replaced. */
function fromTree({ title, created, updated, options, from }, list, current) {
  const ids = new Map(list.map((message) => [message.id, newId()]));
  const messages = {};
  for (const message of list) messages[ids.get(message.id)] = { ...message, id: ids.get(message.id), parent: ids.get(message.parent) || null };
  const chosen = {};
  const passed = new Set();
  for (let at = messages[ids.get(current)]; at && !passed.has(at.id); at = messages[at.parent]) {
    passed.add(at.id);
    chosen[at.parent ?? ""] = at.id;
  }
  const known = Object.entries(options && typeof options === "object" ? options : {}).filter(([, value]) => typeof value === "string");
  return {
    id: newId(), title: text(title).slice(0, 200) || "Imported", renamed: true, created, updated, changed: Date.now(),
    messages, chosen, options: Object.fromEntries(known), ...(ids.has(from) && { from: ids.get(from) }),
  };
}

/** This page's own form. */
function fromOwn(data, files) {
  const kept = new Map((Array.isArray(data.files) ? data.files : []).filter((file) => isDataUrl(file?.data)).map((file) => [file.id, file.data]));
  return data.conversations.filter((chat) => chat?.messages && typeof chat.messages === "object").map((chat) => {
    const list = Object.values(chat.messages).filter((message) => message && typeof message === "object").map(cleanMessage);
    const fresh = fromTree({ ...chat, created: time(chat.created, 1), updated: time(chat.updated, 1) }, list, null);
    const ids = Object.fromEntries(list.map((message, at) => [message.id, Object.keys(fresh.messages)[at]]));
    for (const [parent, child] of Object.entries(chat.chosen || {})) if (ids[child]) fresh.chosen[ids[parent] || ""] = ids[child];
    for (const message of Object.values(fresh.messages)) {
      if (message.pictures) message.pictures = message.pictures.filter((id) => kept.has(id)).map((id) => put(files, fresh.id, kept.get(id)));
    }
    return fresh;
  });
}

function put(files, chat, data) {
  const file = { id: newId(), chat, data };
  files.push(file);
  return file.id;
}

/** What this page exported before it had versions: one conversation, a list of messages. */
function fromOlder(chat, files) {
  const messages = chat.messages.filter((message) => message && typeof message === "object").map((message) => {
    const clean = cleanMessage(message);
    const urls = (Array.isArray(message.pictures) ? message.pictures : []).filter(isDataUrl);
    delete clean.id;
    delete clean.pictures;
    return { ...clean, ...(urls.length && { pictures: urls }) };
  });
  return fromList({ id: newId(), title: text(chat.title) || "Imported", renamed: true, created: time(chat.created, 1), updated: time(chat.updated, 1), messages }, files);
}

/** Only questions and answers are taken; what stands between them is passed over, and what follows keeps its place. */
function linked(nodes, read) {
  const taken = new Map();
  for (const [id, node] of Object.entries(nodes)) {
    const one = node && typeof node === "object" ? read(node) : null;
    if (one) taken.set(id, one);
  }
  const above = (id) => {
    const passed = new Set([id]);
    let at = nodes[id]?.parent ?? nodes[id]?.parentId ?? null;
    while (at && !taken.has(at) && !passed.has(at)) {
      passed.add(at);
      at = nodes[at]?.parent ?? nodes[at]?.parentId ?? null;
    }
    return taken.has(at) ? at : null;
  };
  return [...taken].map(([id, one]) => cleanMessage({ ...one, id, parent: above(id) }));
}

const nearest = (nodes, list, current) => {
  const passed = new Set();
  for (let at = current; at && !passed.has(at); at = nodes[at]?.parent ?? nodes[at]?.parentId) {
    passed.add(at);
    if (list.some(({ id }) => id === at)) return at;
  }
  return null;
};

/** A conversation of OpenAI's `conversations.json`: `mapping` of nodes with `message` and `parent`, and `current_node`. */
function fromOpenAi(chat) {
  const list = linked(chat.mapping, ({ message }) => {
    const role = message?.author?.role;
    const parts = message?.content?.parts;
    const content = Array.isArray(parts) ? parts.filter((part) => typeof part === "string").join("\n\n") : text(message?.content?.text);
    if (!["user", "assistant"].includes(role) || !content) return null;
    return { role, content, created: time(message.create_time, 1000), model: message.metadata?.model_slug };
  });
  const created = time(chat.create_time, 1000);
  return fromTree({ title: chat.title, created, updated: time(chat.update_time ?? chat.create_time, 1000) }, list, nearest(chat.mapping, list, chat.current_node));
}

/** A conversation of Open WebUI's export: `chat.history` with `messages` that have `parentId`, and `currentId`. */
function fromOpenWebUi(entry) {
  const { history, title } = entry.chat;
  const list = linked(history.messages, (message) => {
    if (!["user", "assistant"].includes(message.role) || !text(message.content)) return null;
    return { role: message.role, content: message.content, created: time(message.timestamp, 1000), model: message.model };
  });
  const updated = time(entry.updated_at ?? entry.timestamp, 1000);
  return fromTree({ title: title || entry.title, created: time(entry.created_at ?? entry.timestamp, 1000), updated }, list, nearest(history.messages, list, history.currentId));
}

/** The conversations of a file's text; `files` gets their pictures. */
export function conversationsOf(source, files) {
  const data = JSON.parse(source);
  if (data?.format === FORMAT && Array.isArray(data.conversations)) return fromOwn(data, files);
  const entries = Array.isArray(data) ? data : [data];
  return entries.flatMap((entry) => {
    if (entry?.mapping && typeof entry.mapping === "object") return [fromOpenAi(entry)];
    if (entry?.chat?.history?.messages && typeof entry.chat.history.messages === "object") return [fromOpenWebUi(entry)];
    if (Array.isArray(entry?.messages)) return [fromOlder(entry, files)];
    return [];
  }).filter((chat) => Object.keys(chat.messages).length);
}
