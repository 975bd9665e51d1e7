/* Markdown as nodes: markdown-it reads CommonMark and GFM's tables, strikes, links and tasks; no HTML is ever made. */

import MarkdownIt from "./vendor/markdown-it/markdown-it.js";
import { codeBlock } from "./code.js";
import { h, icon } from "./dom.js";
import { formula, formulas } from "./formula.js";

const parser = new MarkdownIt({ html: false, linkify: true, maxNesting: 60 });
// `main.rs` is a file and no address: only what says that it is one becomes a link.
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
// Addresses that the page does not open are still read as links, and shown without a way to follow them.
parser.validateLink = () => true;
parser.use(formulas);

const isOpened = (address) => /^(https?:\/\/|mailto:)/i.test(address);

function link(token, children) {
  const href = token.attrGet("href") || "";
  const title = token.attrGet("title");
  if (!isOpened(href)) return h("span", { class: "link", title: title || href, "data-href": href, "data-title": title }, children);
  return h("a", { href, title, target: "_blank", rel: "noopener noreferrer nofollow" }, children);
}

/** A picture of another server is not fetched: it would tell that server who reads. */
function picture(token, env) {
  const address = token.attrGet("src") || "";
  const alt = parser.renderer.renderInlineAsText(token.children || [], parser.options, env);
  const label = h("span", { class: "picture", "data-alt": alt }, icon("image"), alt || address);
  const open = { attrGet: (name) => name === "href" ? address : token.attrGet("title") };
  return h("span", { class: "image" }, link(open, [label]));
}

/** Text with `<br>`, which models write into the cells of tables, as breaks. */
const broken = (text) => text.split(/<br ?\/?>/i).flatMap((part, at) => at ? [h("br"), part] : [part]);

const LEAVES = {
  text: (token, env) => env.cell ? broken(token.content) : [token.content],
  text_special: (token) => [token.content],
  softbreak: () => ["\n"],
  hardbreak: () => [h("br")],
  code_inline: (token) => [h("code", null, token.content)],
  formula: (token) => [formula(token.content, token.markup, Boolean(token.info))],
  image: (token, env) => [picture(token, env)],
  hr: () => [h("hr")],
};

const codeOf = (token) => {
  const block = codeBlock(token.content, token.type === "fence" ? parser.utils.unescapeAll(token.info) : "");
  block.paint();
  return block;
};

function element(token, children) {
  const align = /text-align:\s*(\w+)/.exec(token.attrGet("style") || "")?.[1];
  switch (token.type) {
    case "link_open": return link(token, children);
    case "table_open": return h("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Table" }, h("table", null, children));
    case "th_open": return h(children.length ? "th" : "td", { class: align !== "left" && align, scope: children.length ? "col" : null }, children);
    case "td_open": return h("td", { class: align !== "left" && align }, children);
    case "ordered_list_open": return h("ol", { start: token.attrGet("start") }, children);
    case "list_item_open": return task(h("li", null, children));
    default: return h(token.tag, null, children);
  }
}

/** An item that begins with `[ ]` or `[x]` is a task. */
function task(item) {
  const holder = item.firstChild?.nodeName === "P" ? item.firstChild : item;
  const text = holder.firstChild;
  const mark = text?.nodeType === Node.TEXT_NODE && /^\[([ xX])\]\s+/.exec(text.data);
  if (!mark) return item;
  text.data = text.data.slice(mark[0].length);
  const done = mark[1] !== " ";
  holder.prepend(h("input", { type: "checkbox", disabled: true, checked: done, "aria-label": done ? "done" : "open" }));
  item.className = "task";
  return item;
}

/** The nodes of `tokens`. */
function build(tokens, env) {
  const stack = [{ children: [] }];
  for (const token of tokens) {
    const top = stack[stack.length - 1];
    if (token.type === "inline") {
      const cell = /^t[hd]_open$/.test(top.token?.type);
      top.children.push(...build(token.children, { ...env, cell }));
    } else if (token.nesting === 1) stack.push({ token, children: [] });
    else if (token.nesting === -1) {
      const { token: opened, children } = stack.pop();
      // The paragraphs of a tight list's items are not shown as such.
      stack[stack.length - 1].children.push(...(opened.hidden ? children : [element(opened, children)]));
    } else if (token.type === "fence" || token.type === "code_block") top.children.push(codeOf(token));
    else top.children.push(...(LEAVES[token.type] || (() => [token.content]))(token, env));
  }
  return stack[0].children;
}

/** The blocks of a text: the lines that each spans, and its tokens. */
function blocks(text, env) {
  const found = [];
  let depth = 0;
  for (const token of parser.parse(text, env)) {
    if (depth === 0) found.push({ map: token.map, tokens: [] });
    found[found.length - 1].tokens.push(token);
    depth += token.nesting;
  }
  return found;
}

/** The nodes of a whole text. */
export const markdown = (text) => build(parser.parse(text, {}), {});

/** The place behind so many lines of a text. */
function behind(text, lines) {
  let at = 0;
  for (let line = 0; line < lines; line++) at = text.indexOf("\n", at) + 1 || text.length;
  return at;
}

/**
 * Renders a growing text into `root`. A block that another one follows is finished: it keeps its node, and only what
 * comes behind it is read again. `finish` shows the whole, also where addresses were defined behind their use.
 */
export function growing(root) {
  let done = "", tail = [], open = null, env = { grows: true };
  const reset = (grows) => {
    root.replaceChildren();
    [done, tail, open, env] = ["", [], null, { grows }];
  };
  const unfinished = (token) => token.content.replace(/\n$/, "");
  const show = (written) => {
    const text = written.replace(/\r\n?/g, "\n");
    if (!text.startsWith(done)) reset(true);
    const rest = text.slice(done.length);
    const list = blocks(rest, env);
    const last = list[list.length - 1];
    const fence = env.grows && last?.tokens[0].type === "fence" ? last.tokens[0] : null;
    // A block of code that grows only gets its new letters.
    if (open && fence && list.length === 1 && fence.info === open.info) return open.node.grow(unfinished(fence));
    for (const node of tail) node.remove();
    [tail, open] = [[], null];
    for (const block of list.slice(0, -1)) root.append(...build(block.tokens, env));
    if (!last) return undefined;
    done += rest.slice(0, behind(rest, last.map?.[0] ?? 0));
    if (fence) {
      open = { info: fence.info, node: codeBlock(unfinished(fence), parser.utils.unescapeAll(fence.info)) };
      tail = [open.node];
    } else tail = build(last.tokens, env);
    return root.append(...tail);
  };
  const finish = (text) => {
    const isDefined = Object.keys(env.references || {}).length > 0;
    if (isDefined || !done) {
      reset(false);
      tail = markdown(text);
      root.append(...tail);
    } else {
      env.grows = false;
      show(text);
    }
    [done, env] = [isDefined ? "" : done, { grows: true }];
  };
  return { show, finish };
}
