/* Formulas: how they are found in Markdown, and KaTeX, which is loaded when the first one is shown. */

import { h } from "./dom.js";

let katex = null;

function load() {
  katex ??= (async () => {
    const style = h("link", { rel: "stylesheet", href: new URL("./vendor/katex/katex.css", import.meta.url).href });
    document.head.append(style);
    await import("./vendor/katex/katex.js");
    return globalThis.katex;
  })();
  return katex;
}

/** A formula; until KaTeX is there, and where it cannot read it, as it was written. */
export function formula(tex, source, display) {
  const node = h(display ? "div" : "span", { class: display ? "formula display" : "formula", ...(display && { tabindex: "0", role: "group", "aria-label": "Formula" }) }, source);
  load().then((library) => {
    const shown = document.createElement(display ? "div" : "span");
    library.render(tex.trim(), shown, { displayMode: display, throwOnError: true, strict: "ignore", trust: false, maxExpand: 500, maxSize: 40 });
    node.replaceChildren(...shown.childNodes);
  }).catch(() => node.classList.add("unread"));
  return node;
}

const PAIRS = [["\\(", "\\)", false], ["\\[", "\\]", true], ["$$", "$$", true]];

/** The end of `close` from `from` on, not behind a backslash. */
function closing(text, close, from, end) {
  for (let at = text.indexOf(close, from); at >= 0 && at + close.length <= end; at = text.indexOf(close, at + 1)) {
    let slashes = 0;
    while (text[at - 1 - slashes] === "\\") slashes++;
    if (slashes % 2 === 0) return at;
  }
  return -1;
}

function push(state, tex, source, display) {
  const token = state.push("formula", "", 0);
  token.content = tex;
  token.markup = source;
  token.info = display ? "display" : "";
}

/* `\( \)`, `\[ \]`, `$$ $$` and `$ $` within a line of text. A dollar of money is none: behind the first one stands no
   space, before the second neither, no letter or figure surrounds the pair. */
function inline(state, silent) {
  const { src, pos, posMax } = state;
  if (src[pos] !== "\\" && src[pos] !== "$") return false;
  for (const [open, close, display] of PAIRS) {
    if (!src.startsWith(open, pos)) continue;
    const end = closing(src, close, pos + open.length, posMax);
    const tex = end < 0 ? "" : src.slice(pos + open.length, end);
    if (!/[\p{L}\p{N}]/u.test(tex)) return false;
    if (!silent) push(state, tex, src.slice(pos, end + close.length), display);
    state.pos = end + close.length;
    return true;
  }
  if (src[pos] !== "$" || /[\p{L}\p{N}\\$]/u.test(src[pos - 1] || "") || /\s/.test(src[pos + 1] || " ")) return false;
  const end = closing(src, "$", pos + 1, Math.min(posMax, pos + 400));
  const tex = src.slice(pos + 1, end);
  if (end < 0 || /\s$|\n/.test(tex) || /[\p{L}\p{N}$]/u.test(src[end + 1] || "") || tex.includes("`")) return false;
  if (!silent) push(state, tex, src.slice(pos, end + 1), false);
  state.pos = end + 1;
  return true;
}

/* A formula that begins a line and ends one, of several lines but no empty one. What is not closed yet waits at the end
   of a text that grows. */
function block(state, first, last, silent) {
  if (state.sCount[first] - state.blkIndent >= 4) return false;
  const begin = state.bMarks[first] + state.tShift[first];
  const pair = PAIRS.find(([open, , display]) => display && state.src.startsWith(open, begin));
  if (!pair) return false;
  const [open, close] = pair;
  for (let line = first; line < last && (line === first || !state.isEmpty(line)); line++) {
    if (line > first && state.sCount[line] < state.blkIndent) return false;
    const from = line === first ? begin + open.length : state.bMarks[line] + state.tShift[line];
    const end = closing(state.src, close, from, state.eMarks[line]);
    const isAlone = end >= 0 && !state.src.slice(end + close.length, state.eMarks[line]).trim();
    if (end >= 0 && !isAlone) return false;
    if (!isAlone && !(state.env.grows && line + 1 >= last && state.src.slice(begin).trim().length > 2)) continue;
    if (silent) return true;
    const source = state.getLines(first, line + 1, state.blkIndent, false).trim();
    const tex = source.slice(open.length, isAlone ? -close.length : undefined);
    if (isAlone && !tex.trim()) return false;
    push(state, isAlone ? tex : "", source, true);
    const token = state.tokens[state.tokens.length - 1];
    token.block = true;
    token.map = [first, line + 1];
    state.line = line + 1;
    return true;
  }
  return false;
}

export function formulas(parser) {
  parser.inline.ruler.before("escape", "formula", inline);
  parser.block.ruler.before("fence", "formula", block, { alt: ["paragraph", "reference", "blockquote", "list"] });
}
