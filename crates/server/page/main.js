/* The page: what is seen is in the address, and everything else follows. */

import { $, drawIcons, emit, isTouch, menu, on, toast } from "./dom.js";
import { chats, emptyChat, isDeleted, load, view } from "./conversations.js";
import { draftIds } from "./drafts.js";
import { loadGallery } from "./gallery.js";
import { refresh, server } from "./server.js";
import { download } from "./transfer.js";
import { toTab } from "./tabs.js";
import { renderList } from "./list.js";
import { render, toEnd } from "./thread.js";
import { showDraft } from "./composer.js";
import "./dialogs.js";
import "./options.js";
import "./studio.js";

const addressOf = (id) => "#/c/" + id;
const asked = () => /^#\/c\/([\w-]+)$/.exec(location.hash)?.[1];
const isEmpty = (chat) => !Object.keys(chat.messages).length;

/* The new conversation of this tab is not in the address until something was sent: its id outlives a reload here. */
const FRESH = "ml.fresh";
function fresh() {
  const chat = emptyChat();
  try { sessionStorage.setItem(FRESH, chat.id); } catch { /* then its draft ends with the page */ }
  return chat;
}
function unsent() {
  let id = null;
  try { id = sessionStorage.getItem(FRESH); } catch { /* none */ }
  return id && !chats.has(id) ? emptyChat(id) : fresh();
}

/** Shows a conversation. */
function show(chat) {
  view.current = chat;
  toggleDrawer(false, false);
  render();
  showDraft();
  toEnd();
  if (!isTouch()) $("prompt").focus({ preventScroll: true });
}

function open(chat) {
  if (server.tab !== "talk") toTab("talk");
  const to = isEmpty(chat) && !chats.has(chat.id) ? "#/" : addressOf(chat.id);
  if (to === "#/") try { sessionStorage.setItem(FRESH, chat.id); } catch { /* see above */ }
  if (location.hash !== to && !(to === "#/" && !location.hash)) history.pushState(null, "", to);
  show(chat);
}

/** Shows what the address names, as after Back, a link or a reload. */
function follow() {
  const id = asked();
  if (!id) return show(unsent());
  const chat = view.current?.id === id ? view.current : chats.get(id);
  if (chat && !isDeleted(chat)) {
    if (server.tab !== "talk" && view.current) toTab("talk");
    return show(chat);
  }
  history.replaceState(null, "", "#/");
  show(unsent());
  return toast(chat ? "This conversation was deleted." : "This conversation is not in this browser.");
}

/** The new conversation that nothing was sent in yet, with its draft. */
const startNew = () => open(view.current && isEmpty(view.current) ? view.current : unsent());

/** What was being written in a tab that is gone: it is shown where nothing else is begun. */
function adoptDraft() {
  if (!isEmpty(view.current) || asked() || $("prompt").value) return;
  const id = draftIds().find((one) => !chats.has(one) && one !== view.current.id);
  if (id) open(emptyChat(id));
}

function toggleDrawer(isShown, movesFocus = true) {
  document.body.classList.toggle("drawer", isShown);
  $("drawer").setAttribute("aria-expanded", String(isShown));
  if (movesFocus) (isShown ? $("new") : $("drawer")).focus();
}

function exportMenu() {
  const chat = view.current;
  menu($("export"), [
    ["download", "Markdown", () => download(chat, "md")], ["download", "JSON", () => download(chat, "json")],
    ["print", "Print", () => print()],
  ]);
}

async function start() {
  drawIcons();
  emit("start");
  on("open", open);
  on("new", startNew);
  on("alone", adoptDraft);
  on("drawer", toggleDrawer);
  // The first message makes a new conversation one that has an address.
  on("sent", (chat) => { if (!asked()) history.replaceState(null, "", addressOf(chat.id)); });
  on("removed", (list) => { if (list.includes(view.current)) { history.replaceState(null, "", "#/"); show(fresh()); } });
  $("drawer").addEventListener("click", () => toggleDrawer(true));
  $("shade").addEventListener("click", () => toggleDrawer(false));
  $("new").addEventListener("click", startNew);
  $("new-small").addEventListener("click", startNew);
  $("export").addEventListener("click", exportMenu);
  addEventListener("popstate", follow);
  addEventListener("pagehide", () => { emit("leave"); emit("left"); });
  document.addEventListener("visibilitychange", () => { if (document.hidden) emit("leave"); });
  const asking = refresh();
  const gallery = loadGallery();
  await load();
  // What was typed while the conversations were read is kept.
  const typed = $("prompt").value;
  follow();
  if (typed && !$("prompt").value) emit("write", typed);
  renderList();
  await Promise.all([asking, gallery]);
  document.documentElement.dataset.ready = "";
}

start();
