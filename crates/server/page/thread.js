/* The conversation that is seen. A message that did not change keeps its node, so that nothing that is being written,
   selected or scrolled is lost when others change. */

import { $, emit, h, icon, on } from "./dom.js";
import { change, view } from "./conversations.js";
import { draftOf } from "./drafts.js";
import { running } from "./answers.js";
import { server } from "./server.js";
import { painter } from "./paint.js";
import { path } from "./tree.js";
import { userMessage } from "./user-message.js";
import { assistantMessage } from "./assistant-message.js";
import { removedLine } from "./versions.js";

const IDEAS = [
  ["Explain a concept", "How does attention work, in plain words?"],
  ["Write some code", "Write a function that merges overlapping intervals, with tests."],
  ["Compare options", "Compare SQLite and PostgreSQL in a table."],
  ["Think a plan through", "Plan a week of learning Rust, one hour a day."],
];

/** The nodes that are shown, by the ids of their messages, and the conversation that they are of. */
let shown = new Map();
let owner = null;

export const retitle = () => {
  const chat = view.current;
  document.title = server.tab === "studio" ? "Pictures · ml" : chat && Object.keys(chat.messages).length ? `${chat.title} · ml` : "ml";
};

const welcome = () => h("div", { id: "empty" }, h("h1", null, "What is on your mind?"),
  h("p", null, "Ask a question, or begin with one of these."),
  h("div", { class: "ideas" }, IDEAS.map(([name, text]) =>
    h("button", { type: "button", onclick: () => emit("write", text) }, h("b", null, name), h("span", null, text)))));

/** All that the node of a message is made of; where it is the same, the node stays. An answer shows changes itself. */
function signature(chat, { message, place, versions }) {
  const isEdited = message.id in draftOf(chat.id).edits;
  return JSON.stringify(message.role === "user" ? [isEdited, message.updated, place, versions.length] : [isEdited, chat.options?.thoughts]);
}

const boundary = (chat) => h("div", { class: "from" }, h("span", null, "What stands above is not sent to the model any more."),
  h("button", { class: "button", type: "button", onclick: () => { change(chat, { from: undefined }); render(); } }, "Send it again"));

/** What holds for this conversation alone: it can be seen, and opened. */
function ownOptions(chat) {
  const own = Object.entries(chat.options || {}).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  if (!own.length) return null;
  const names = { system: "system prompt", top_p: "top p", top_k: "top k", min_p: "min p", schema: "JSON schema", thoughts: "thoughts", reasoning_effort: "effort", reasoning_budget: "thinking budget" };
  const told = own.map(([name, value]) => ["system", "schema"].includes(name) ? names[name] : `${names[name] || name.replaceAll("_", " ")} ${value}`);
  return h("button", { class: "own-options", type: "button", title: "Options of this conversation", onclick: () => emit("options") }, icon("sliders"), told.join(" · "));
}

export function render() {
  const chat = view.current;
  if (!chat) return;
  const column = $("column");
  if (owner !== chat) {
    [owner, shown] = [chat, new Map()];
    column.replaceChildren();
  }
  const list = path(chat);
  column.classList.toggle("busy", running.has(chat.id));
  retitle();
  $("export").hidden = !list.length;
  if (!list.length) {
    shown = new Map();
    const options = ownOptions(chat);
    column.replaceChildren(...[options, removedLine(chat), welcome()].filter(Boolean));
    return emit("rendered");
  }
  const next = new Map();
  const nodes = [h("h1", { class: "sr" }, chat.title)];
  const options = ownOptions(chat);
  if (options) nodes.push(options);
  list.forEach((entry, at) => {
    const { message } = entry;
    const sign = signature(chat, entry);
    const known = shown.get(message.id);
    const make = () => message.role === "user" ? userMessage(chat, entry) : assistantMessage(chat, message);
    const one = known?.sign === sign ? known : { sign, ...make() };
    one.update?.({ ...entry, isLast: at === list.length - 1 });
    next.set(message.id, one);
    if (message.id === chat.from && at) nodes.push(boundary(chat));
    nodes.push(one.node);
  });
  const line = removedLine(chat);
  if (line) nodes.push(line);
  shown = next;
  place(column, nodes);
  return emit("rendered");
}

/** Makes `nodes` the children; those that are there already are not moved. */
function place(column, nodes) {
  const top = $("scroll").scrollTop;
  const kept = new Set(nodes);
  for (const child of [...column.childNodes]) if (!kept.has(child)) child.remove();
  let at = column.firstChild;
  for (const node of nodes) {
    if (node === at) at = at.nextSibling; else column.insertBefore(node, at);
  }
  $("scroll").scrollTop = top;
}

const atEnd = () => $("scroll").scrollHeight - $("scroll").scrollTop - $("scroll").clientHeight < 90;
export const toEnd = () => { $("scroll").scrollTop = $("scroll").scrollHeight; };

const grow = painter(() => {
  const job = running.get(view.current?.id);
  if (!job) return;
  const isStuck = atEnd();
  shown.get(job.message.id)?.update?.();
  if (isStuck) toEnd();
});

on("start", () => {
  $("scroll").addEventListener("scroll", () => { $("latest").hidden = atEnd(); }, { passive: true });
  $("latest").addEventListener("click", toEnd);
  on("chat", (chat) => {
    if (chat.id === view.current?.id) {
      const isStuck = atEnd();
      render();
      if (isStuck) toEnd();
    }
    emit("list");
  });
  on("end", () => { if (running.has(view.current?.id)) toEnd(); });
  on("growing", (job) => { if (job.chat === view.current) grow(); });
  on("edits", render);
});
