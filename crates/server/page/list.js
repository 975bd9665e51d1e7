/* The list of conversations: by day, pinned ones first, found by words, and those that were deleted. */

import { $, emit, h, icon, iconButton, menu, on } from "./dom.js";
import { bringBack, change, chats, isDeleted, removeChats, view } from "./conversations.js";
import { running } from "./answers.js";
import { download } from "./transfer.js";

let words = "";
/** The conversation whose title is being written, and its field. */
let renaming = null;
/** While the list is drawn anew, a field loses the focus without having been left. */
let isDrawing = false;

function rename(chat) {
  const input = h("input", { value: chat.title, "aria-label": "Title", maxlength: "120" });
  renaming = { chat, input };
  const finish = (isKept) => {
    if (renaming?.input !== input) return;
    renaming = null;
    const title = input.value.trim();
    if (isKept && title && title !== chat.title) change(chat, { title, renamed: true });
    emit("chat", chat);
  };
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.isComposing) finish(true);
    if (event.key === "Escape") { event.stopPropagation(); finish(false); }
  });
  input.addEventListener("blur", () => { if (!isDrawing && document.hasFocus()) finish(true); });
  renderList();
  input.focus();
  input.select();
}

/** The first place where all words are found: in the title, or in a message, with what stands around it. */
function found(chat, all) {
  const title = chat.title.toLowerCase();
  if (all.every((word) => title.includes(word))) return { snippet: "" };
  for (const message of Object.values(chat.messages)) {
    if (message.deleted) continue;
    const text = String(message.content || "").toLowerCase();
    if (!all.every((word) => text.includes(word) || title.includes(word))) continue;
    const at = Math.max(0, text.indexOf(all.find((word) => text.includes(word))) - 24);
    return { snippet: (at ? "…" : "") + message.content.slice(at, at + 80).replace(/\s+/g, " ") };
  }
  return null;
}

function row(chat, snippet) {
  const isActive = chat.id === view.current?.id;
  if (renaming?.chat === chat) return h("li", { class: isActive && "active" }, renaming.input);
  const isBusy = running.has(chat.id);
  // With a key of the browser's held, the link opens where that key says.
  const onclick = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    emit("open", chat);
  };
  const more = iconButton("more", `Options of ${chat.title}`, () => menu(more, [
    ["pen", "Rename", () => rename(chat)],
    ["pin", chat.pinned ? "Unpin" : "Pin", () => change(chat, { pinned: chat.pinned ? undefined : true })],
    ["download", "Export as Markdown", () => download(chat, "md")],
    ["download", "Export as JSON", () => download(chat, "json")],
    ["trash", "Delete", () => removeChats([chat]), "danger"],
  ]), "more");
  return h("li", { class: isActive && "active" },
    h("a", { class: "open", href: "#/c/" + chat.id, title: chat.title, "aria-current": isActive && "true", onclick },
      chat.pinned && icon("pin"), h("span", null, chat.title), snippet && h("small", null, snippet)),
    isBusy && h("span", { class: "busy", role: "img", "aria-label": "Being answered", title: "Being answered" }), more);
}

function deletedRow(chat) {
  return h("li", { class: "deleted" }, h("span", { title: chat.title }, chat.title),
    iconButton("undo", `Bring back ${chat.title}`, () => bringBack([chat])));
}

export function renderList() {
  const isWriting = renaming && document.activeElement === renaming.input;
  const caret = isWriting && [renaming.input.selectionStart, renaming.input.selectionEnd];
  isDrawing = true;
  const day = new Date().setHours(0, 0, 0, 0);
  const kept = [...chats.values()].filter((chat) => !isDeleted(chat) && Object.keys(chat.messages).length);
  const sorted = kept.sort((a, b) => b.updated - a.updated);
  const focused = document.activeElement?.closest("#list") && (document.activeElement.getAttribute("href") || document.activeElement.getAttribute("aria-label"));
  const section = (name, rows) => rows.length ? [h("h2", null, name), h("ul", null, rows)] : [];
  let sections;
  if (words) {
    const all = words.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = sorted.map((chat) => [chat, found(chat, all)]).filter(([, where]) => where).map(([chat, { snippet }]) => row(chat, snippet));
    sections = rows.length ? section(`${rows.length} found`, rows) : [h("p", { class: "note" }, "No conversation has these words.")];
  } else {
    const groups = [["Today", day], ["Yesterday", day - 864e5], ["Last 7 days", day - 7 * 864e5], ["Earlier", -Infinity]];
    const loose = sorted.filter((chat) => !chat.pinned);
    const within = groups.map(([name, since], at) => {
      const before = at ? groups[at - 1][1] : Infinity;
      return section(name, loose.filter((chat) => chat.updated >= since && chat.updated < before).map((chat) => row(chat)));
    });
    const gone = [...chats.values()].filter(isDeleted);
    sections = [section("Pinned", sorted.filter((chat) => chat.pinned).map((chat) => row(chat))), within,
      section("Deleted, until the page is left", gone.map(deletedRow))];
  }
  $("list").replaceChildren(...sections.flat(3));
  if (isWriting) {
    renaming.input.focus();
    renaming.input.setSelectionRange(...caret);
  }
  isDrawing = false;
  if (focused && !isWriting) [...$("list").querySelectorAll("a, button")].find((node) => (node.getAttribute("href") || node.getAttribute("aria-label")) === focused)?.focus();
  $("search").hidden = !sorted.length && !words;
}

/** Draws the list once for all that happens at the same time. */
let isDue = false;
function renderSoon() {
  if (isDue) return;
  isDue = true;
  queueMicrotask(() => { isDue = false; renderList(); });
}

on("start", () => {
  on("list", renderSoon);
  on("rendered", renderSoon);
  $("search").addEventListener("input", () => { words = $("search").value.trim(); renderList(); });
  $("search").addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.stopPropagation(); $("search").value = words = ""; renderList(); }
    if (event.key === "Enter") $("list").querySelector("a.open")?.click();
  });
});
