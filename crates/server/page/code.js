/* Blocks of code, and their colours by highlight.js, which is loaded when the first one is shown. */

import { h, icon, toClipboard } from "./dom.js";

/** Longer code stays plain, since colouring it would hold up the page. */
const LONGEST = 60000;
let library = null;
const load = () => (library ??= import("./vendor/highlight/highlight.js").then((module) => module.default));

/** The nodes of highlight.js' tree of tokens; its HTML is not used. */
function nodes(tree) {
  return tree.children.map((child) => {
    if (typeof child === "string") return child;
    const inner = nodes(child);
    if (!child.scope || child.scope.startsWith("language:")) return inner;
    const [first, ...rest] = child.scope.split(".");
    return h("span", { class: ["hljs-" + first, ...rest.map((name, at) => name + "_".repeat(at + 1))].join(" ") }, inner);
  });
}

/** Colours the text of `node`, once the library is there. */
export async function colour(node, code, language) {
  if (!language || code.length > LONGEST) return;
  const highlighter = await load().catch(() => null);
  if (!highlighter?.getLanguage(language) || node.textContent !== code) return;
  const { _emitter } = highlighter.highlight(code, { language, ignoreIllegals: true });
  const fresh = h("code", null, nodes(_emitter.rootNode));
  // Should another version of the library lose a letter, the code stays as it was written.
  if (fresh.textContent === code) node.replaceChildren(...fresh.childNodes);
}

/** A block with its language, a button to copy it, and its text, which `grow` sets anew. */
export function codeBlock(code, info) {
  const language = (info || "").trim().split(/[\s{,]/)[0];
  const label = h("span", null, "Copy");
  const copy = h("button", { type: "button", "aria-label": "Copy the code" }, icon("copy"), label);
  const text = document.createTextNode(code);
  const inner = h("code", null, text);
  copy.addEventListener("click", async () => {
    const done = await toClipboard(inner.textContent.replace(/\n$/, ""));
    copy.replaceChildren(icon(done ? "check" : "alert"), label);
    label.textContent = done ? "Copied" : "Not allowed";
    setTimeout(() => { copy.replaceChildren(icon("copy"), label); label.textContent = "Copy"; }, 1600);
  });
  const node = h("div", { class: "block" }, h("div", null, h("span", null, language || "code"), copy),
    h("pre", { tabindex: "0", ...(language && { "data-language": language }) }, inner));
  node.grow = (next) => {
    if (next.startsWith(text.data)) text.appendData(next.slice(text.data.length)); else text.data = next;
  };
  node.paint = () => colour(inner, inner.textContent, language.toLowerCase());
  return node;
}
