// Markdown, through the page's own module: CommonMark's examples, GFM, formulas, colours, and texts
// that grow.

import assert from "node:assert/strict";
import { tests } from "commonmark-spec";
import { browser, faults, shot, visit } from "./browser.mjs";

/** Examples that come out otherwise, each with its reason. */
const GFM = "a bare address is a link, as GFM has it";
const EXCEPTIONS = { 602: GFM, 608: GFM, 611: GFM };

/** Tags and texts of nodes, without what stands around the same structure on the page. Runs in the browser. */
function outline(root) {
  const BLOCK = /^(P|H[1-6]|UL|OL|LI|BLOCKQUOTE|PRE|HR|TABLE|THEAD|TBODY|TR|TH|TD|BR|BODY)$/;
  const out = [];
  const put = (text) => { if (typeof out.at(-1) === "string" && !out.at(-1).startsWith("\u0001")) out.push(out.pop() + text); else out.push(text); };
  const tag = (text) => out.push("\u0001" + text);
  const walk = (node, isPre) => {
    if (node.nodeType === 3) return put(isPre ? node.data : node.data.replace(/[ \t\n]+/g, " "));
    const has = (name) => node.classList?.contains(name);
    if (has("block")) return walk(node.querySelector("pre"), false);
    if (has("table") || has("image") && node.tagName === "SPAN" && !node.querySelector(".picture")) return node.childNodes.forEach((child) => walk(child, isPre));
    if (has("image")) {
      const holder = node.querySelector("a, .link");
      return tag(`IMG ${holder.getAttribute("href") ?? holder.dataset.href}|${node.querySelector(".picture").dataset.alt}|${holder.dataset.title ?? (holder.tagName === "A" && holder.getAttribute("title")) ?? ""}`);
    }
    if (node.tagName === "IMG") return tag(`IMG ${node.getAttribute("src")}|${node.alt}|${node.getAttribute("title") ?? ""}`);
    let name = node.tagName;
    if (name === "A" || has("link")) name = `A ${node.getAttribute("href") ?? node.dataset.href}|${node.dataset.title ?? (node.tagName === "A" && node.getAttribute("title")) ?? ""}`;
    if (name === "OL") name = `OL ${node.getAttribute("start") ?? 1}`;
    if (name === "CODE" && isPre) name = `CODE ${node.parentNode.dataset.language ?? /language-(\S+)/.exec(node.className)?.[1] ?? ""}`;
    if (/^hljs/.test(node.className)) return node.childNodes.forEach((child) => walk(child, isPre));
    tag(name);
    node.childNodes.forEach((child) => walk(child, isPre || node.tagName === "PRE"));
    tag("/" + name.split(" ")[0]);
  };
  root.childNodes.forEach((child) => walk(child, false));
  const isBlock = (part) => part === undefined || part.startsWith("\u0001") && BLOCK.test(part.slice(1).replace(/^\//, "").split(" ")[0]);
  let inPre = false;
  return out.map((part, at) => {
    if (/^\u0001\/?PRE/.test(part)) inPre = part === "\u0001PRE";
    if (part.startsWith("\u0001") || inPre) return part;
    let text = part;
    if (isBlock(out[at - 1])) text = text.trimStart();
    if (isBlock(out[at + 1])) text = text.trimEnd();
    return text;
  }).filter(Boolean).map((part) => part.replace("|false", "|"));
}

/** Whether raw HTML of the example stands in what is expected: the page shows such as text. */
function hasHtml({ markdown, html, section }) {
  const raw = markdown.match(/<\/?[A-Za-z][^<>]*>|<!--|<\?|<!\[|<![A-Z]/g) || [];
  return /HTML/i.test(section) || raw.some((part) => !/^<(https?|mailto|[a-z][\w+.-]+:)/i.test(part) && html.includes(part));
}

async function commonMark(page) {
  const plain = await (await browser.newContext()).newPage();
  // The package writes a tab as the specification prints it.
  const tabbed = tests.map((example) => ({ ...example, markdown: example.markdown.replaceAll("→", "\t"), html: example.html.replaceAll("→", "\t") }));
  const examples = tabbed.filter((example) => !hasHtml(example));
  const source = outline.toString();
  const expected = await plain.evaluate(([list, code]) => {
    const read = (0, eval)(`(${code})`);
    return list.map(({ html }) => read(new DOMParser().parseFromString(html, "text/html").body));
  }, [examples, source]);
  await plain.close();
  await page.evaluate(`globalThis.outline = ${source}`);
  const found = await page.evaluate(async (list) => {
    const { markdown } = await import("/page/markdown.js");
    return list.map((text) => {
      const box = document.createElement("div");
      box.append(...markdown(text));
      return globalThis.outline(box);
    });
  }, examples.map(({ markdown }) => markdown));
  const wrong = examples.flatMap((example, at) => JSON.stringify(found[at]) === JSON.stringify(expected[at]) ? [] : [{ ...example, found: found[at], expected: expected[at] }]);
  const unnamed = wrong.filter(({ number }) => !(number in EXCEPTIONS));
  for (const one of unnamed) console.log(JSON.stringify(one).replaceAll("\\u0001", "<"));
  assert.equal(unnamed.length, 0, "examples of CommonMark that come out otherwise");
  for (const number of Object.keys(EXCEPTIONS)) assert.ok(wrong.some((one) => String(one.number) === number), `example ${number} comes out right now`);
  assert.ok(examples.length > 540 && wrong.length / examples.length <= 0.02, `${wrong.length} of ${examples.length}`);
  return `${examples.length - wrong.length} of ${examples.length} examples of CommonMark`;
}

/** The outline of a text on the page. */
const shown = (page, text) => page.evaluate(async (source) => {
  const { markdown } = await import("/page/markdown.js");
  const box = document.createElement("div");
  box.append(...markdown(source));
  return globalThis.outline(box).map((part) => part.replace("\u0001", "<"));
}, text);

async function extensions(page) {
  const has = async (text, ...parts) => {
    const found = (await shown(page, text)).join(" ");
    for (const part of parts) assert.ok(found.includes(part), `${text}\n${found}\nhas no ${part}`);
  };
  await has("| a | b |\n|---|---|\n| x<br>y | &amp; &lt; &copy; |", "<TD x <BR </BR y </TD", "& < ©");
  await has("a <br> b", "a <br> b");
  await has("1. **Install it**\n\n   Run the installer.\n2. next", "<LI <P <STRONG Install it </STRONG </P <P Run the installer. </P </LI");
  await has("- [x] done\n- [ ] open", "<INPUT </INPUT done");
  await has("~~gone~~ https://example.org/a_b_c, and main.rs", "<S gone </S", "<A https://example.org/a_b_c| https://example.org/a_b_c </A , and main.rs");
  await has("[x](javascript:alert(1))", "<A javascript:alert(1)|");
  assert.equal(await page.evaluate(async () => {
    const { markdown } = await import("/page/markdown.js");
    const box = document.createElement("div");
    box.append(...markdown("[x](javascript:alert(1)) <javascript:alert(1)> ![x](http://example.org/a.png) [y](data:text/html,x)"));
    return box.querySelectorAll("img, a[href^='javascript'], a[href^='data']").length;
  }), 0);
}

async function formulas(page) {
  const read = (text) => page.evaluate(async (source) => {
    const { markdown } = await import("/page/markdown.js");
    const box = document.createElement("div");
    box.className = "md";
    document.querySelector("#column").replaceChildren(box);
    box.append(...markdown(source));
    const nodes = [...box.querySelectorAll(".formula")];
    for (let tries = 0; tries < 200 && nodes.some((node) => !node.querySelector(".katex") && !node.classList.contains("unread")); tries++) await new Promise((resolve) => setTimeout(resolve, 20));
    return nodes.map((node) => `${node.classList.contains("display") ? "display " : ""}${node.querySelector("annotation")?.textContent ?? "unread"}`);
  }, text);
  assert.deepEqual(await read("\\(E = mc^2\\) and \\(x_1*y_1*z\\) and $a*b*c$."), ["E = mc^2", "x_1*y_1*z", "a*b*c"]);
  assert.deepEqual(await read("\\[\n\\frac{a}{b}\n= c\n- d\n\\]\n\nand $$x^2$$\n\n$$\ny\n$$"), ["display \\frac{a}{b}\n= c\n- d", "display x^2", "display y"]);
  assert.deepEqual(await read("It costs $5 and $10, US$3 or $HOME/$USER; `$x$`, 5$ and \\$x\\$"), []);
  assert.deepEqual(await read("- item\n\n  $$\n  z\n  $$\n"), ["display z"]);
  assert.deepEqual(await read("$\\notacommand{$"), ["unread"]);
  assert.deepEqual(await read("\\[ open\n\nnever closed"), []);
}

/** A text in pieces ends as the same text at once, and what stands above its end is not built anew. */
async function grows(page) {
  const text = "# Title\n\nSee [the page][1] and $x$.\n\n- one\n\n  two\n- three\n\n```js\nlet a = 1;\n\nlet b = 2;\n```\n\n\\[\na\n= b\n\\]\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted\nlazily\n\n1. x\n2. y\n\n[1]: https://example.org/\n";
  const same = await page.evaluate(async (source) => {
    const { growing, markdown } = await import("/page/markdown.js");
    const [piecemeal, whole] = [document.createElement("div"), document.createElement("div")];
    const { show, finish } = growing(piecemeal);
    for (let end = 1; end <= source.length; end++) show(source.slice(0, end));
    finish(source);
    whole.append(...markdown(source));
    await new Promise((resolve) => setTimeout(resolve, 300));
    return [globalThis.outline(piecemeal), globalThis.outline(whole)];
  }, text);
  assert.deepEqual(same[0], same[1]);
  const time = await page.evaluate(async () => {
    const { growing } = await import("/page/markdown.js");
    const box = document.createElement("div");
    const { show, finish } = growing(box);
    const pieces = Array.from({ length: 20000 }, (_, at) => at % 40 === 39 ? "\n\n" : at % 7 === 3 ? "**word** " : "letters ");
    const paints = [];
    let text = "";
    const begun = performance.now();
    for (const [at, piece] of pieces.entries()) {
      text += piece;
      if (at % 5) continue;
      const before = performance.now();
      show(text);
      paints.push(performance.now() - before);
    }
    finish(text);
    const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];
    return { early: median(paints.slice(200, 1200)), late: median(paints.slice(-1000)), total: performance.now() - begun, blocks: box.children.length };
  });
  assert.equal(time.blocks, 500);
  // Each painting but the last reads the open end alone, so that it does not grow with the text.
  assert.ok(time.late < 4 * time.early + 2 && time.total < 20_000, JSON.stringify(time));
  return `20,000 pieces in ${Math.round(time.total)} ms`;
}

export async function markdown({ url }) {
  const page = await visit(url);
  const told = [await commonMark(page)];
  await extensions(page);
  await formulas(page);
  told.push(await grows(page));
  const coloured = await page.evaluate(async () => {
    const { markdown: nodes } = await import("/page/markdown.js");
    const box = document.createElement("div");
    const source = "fn main() { let x = \"<b>\"; } // ok";
    box.append(...nodes("```rust\n" + source + "\n```\n\n```mermaid\ngraph TD; A-->B\n```"));
    for (let tries = 0; tries < 200 && !box.querySelector(".hljs-keyword"); tries++) await new Promise((resolve) => setTimeout(resolve, 20));
    return [box.querySelector(".hljs-keyword")?.textContent, box.querySelectorAll("code")[0].textContent === source + "\n", box.querySelectorAll("code")[1].textContent];
  });
  assert.deepEqual(coloured, ["fn", true, "graph TD; A-->B\n"]);
  await shot(page, "markdown.png");
  await page.context().close();
  assert.deepEqual(faults, []);
  return told.join(", ");
}
