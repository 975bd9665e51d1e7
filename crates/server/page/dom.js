/* Elements and small services of the page. Text enters the document as text nodes alone. */

export const $ = (id) => document.getElementById(id);

/** An element with attributes, listeners (`onclick`) and children; empty ones are left out. */
export function h(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "class") node.className = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const ICONS = {
  logo: "M7 17V8l5 5.5L17 8v9", plus: "M12 5v14M5 12h14", menu: "M4 7h16M4 12h16M4 17h10",
  sliders: "M4 8h8M16 8h4M14 6v4M4 16h4M12 16h8M10 14v4", download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  upload: "M12 15V4M7 8l5-5 5 5M5 20h14", gear: "M12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6M12 3v3M12 18v3M3 12h3M18 12h3M5.6 5.6l2.1 2.1M16.3 16.3l2.1 2.1M5.6 18.4l2.1-2.1M16.3 7.7l2.1-2.1",
  pen: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4", send: "M12 19V6M6 12l6-6 6 6", stop: "M7.5 7.5h9v9h-9z",
  copy: "M9 9h10v10H9zM5 15V5h10", check: "M5 13l4 4L19 7", redo: "M4 12a8 8 0 1 0 2.5-5.8M4 4v4h4",
  down: "M12 5v14M6 13l6 6 6-6", more: "M6 12h.01M12 12h.01M18 12h.01", trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z", chevron: "M9 6l6 6-6 6", left: "M15 6l-6 6 6 6", right: "M9 6l6 6-6 6",
  thought: "M9 18h6M10 21h4M12 3a6 6 0 0 0-3.5 10.9V15h7v-1.1A6 6 0 0 0 12 3z", search: "M11 5a6 6 0 1 0 0 12 6 6 0 0 0 0-12M15.5 15.5L20 20",
  image: "M4 5h16v14H4zM8.5 8a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3M4 17l5-4 3 2.5 4-4.5 4 4", close: "M6 6l12 12M18 6L6 18",
  tool: "M14 6a4 4 0 0 0-5 5l-6 6 3 3 6-6a4 4 0 0 0 5-5l-3 3-3-3z", alert: "M12 8v5M12 16.5h.01M12 3l9.5 17h-19z",
  clip: "M8 12.5l6.5-6.5a3 3 0 0 1 4.2 4.2l-8.4 8.4a5 5 0 0 1-7-7L11 4", file: "M7 3h7l4 4v14H7zM14 3v4h4", pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
  play: "M8 5l11 7-11 7z", print: "M7 9V4h10v5M7 17H4V9h16v8h-3M7 14h10v6H7z", undo: "M9 6L4 11l5 5M4 11h10a6 6 0 0 1 6 6v1",
};

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  if (name === "chevron") svg.setAttribute("class", "chevron");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** Gives each element of the page with `data-icon` its icon and its label. */
export function drawIcons() {
  for (const node of document.querySelectorAll("[data-icon]")) {
    node.prepend(icon(node.dataset.icon));
    if (node.dataset.label) node.append(node.dataset.label);
  }
}

export const iconButton = (name, label, onclick, extra = "") =>
  h("button", { class: "icon small " + extra, type: "button", "aria-label": label, title: label, onclick }, icon(name));

export function copyButton(text, extra) {
  const button = iconButton("copy", "Copy", async () => {
    button.replaceChildren(icon(await toClipboard(text()) ? "check" : "alert"));
    setTimeout(() => button.replaceChildren(icon("copy")), 1600);
  }, extra);
  return button;
}

export async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages that are not served over https have no clipboard but this one.
    const area = h("textarea", { class: "sr", "aria-hidden": "true" });
    area.value = text;
    (document.querySelector("dialog[open]") || document.body).append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** Tells something for some seconds, with an action to undo it. */
export function toast(text, action, run) {
  const box = $("toast");
  const button = action && h("button", { type: "button", onclick: () => { box.hidden = true; run(); } }, action);
  box.replaceChildren(text, ...(button ? [button] : []));
  box.hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { box.hidden = true; }, 8000);
}

/** Tells something that stays until `unbanner` of the same name: text and actions as `[label, run]`. */
export function banner(name, text, ...actions) {
  const buttons = actions.map(([label, run]) => h("button", { class: "button", type: "button", onclick: run }, label));
  const node = h("div", { class: "banner", role: "alert", "data-name": name }, icon("alert"), h("span", null, text), h("div", null, buttons));
  const known = $("banners").querySelector(`[data-name="${name}"]`);
  if (known?.textContent === node.textContent) return;
  if (known) known.replaceWith(node); else $("banners").append(node);
}
export const unbanner = (name) => $("banners").querySelector(`[data-name="${name}"]`)?.remove();

/** Tells a reader of the screen. */
export const say = (text) => { $("status").textContent = text; };

export const newId = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
export const seconds = (value) => value < 10 ? value.toFixed(value < 1 ? 2 : 1) + " s" : Math.round(value) + " s";
export const fileName = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 50);
/** The last part of a model's name. */
export const short = (id) => String(id || "").replace(/^.*\/(?=[^/]+$)/, "");
/** A finger, not a mouse: no `Shift` is near. */
export const isTouch = () => matchMedia("(pointer: coarse)").matches;

export function toFile(blob, name) {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** A menu below `anchor` of `[icon, label, run, class]`. */
export function menu(anchor, entries) {
  document.querySelector(".menu")?.remove();
  const box = h("div", { class: "menu", role: "menu" });
  const close = (back) => {
    box.remove();
    document.removeEventListener("pointerdown", outside);
    if (back) anchor.focus();
  };
  const outside = (event) => { if (!box.contains(event.target)) close(false); };
  box.append(...entries.filter(Boolean).map(([name, label, run, kind]) =>
    h("button", { type: "button", role: "menuitem", class: kind, onclick: () => { close(true); run(); } }, icon(name), label)));
  box.addEventListener("keydown", (event) => {
    const items = [...box.children];
    const at = items.indexOf(document.activeElement);
    if (event.key === "ArrowDown") items[(at + 1) % items.length].focus();
    else if (event.key === "ArrowUp") items[(at - 1 + items.length) % items.length].focus();
    else if (event.key === "Escape") { event.stopPropagation(); close(true); }
    else if (event.key === "Tab") return close(false);
    else return;
    event.preventDefault();
  });
  // Inside of a landmark, where those who read by landmarks find it.
  (anchor.closest("main, aside") || document.body).append(box);
  const place = anchor.getBoundingClientRect();
  box.style.left = Math.max(8, Math.min(place.left, innerWidth - box.offsetWidth - 8)) + "px";
  box.style.top = Math.min(place.bottom + 4, innerHeight - box.offsetHeight - 8) + "px";
  document.addEventListener("pointerdown", outside);
  box.firstChild.focus();
}

/* Signals between the page's modules. */

const listeners = new Map();
export const on = (name, run) => listeners.set(name, [...(listeners.get(name) || []), run]);
export const emit = (name, value) => { for (const run of listeners.get(name) || []) run(value); };
