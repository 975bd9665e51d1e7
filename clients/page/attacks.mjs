// Text that would like to be a script: in questions, answers, titles, labels of code, tables,
// links, formulas, files.

import assert from "node:assert/strict";
import { answered, ask, faults, profile, tab } from "./browser.mjs";
import { standIn } from "./stand-in.mjs";

const RUN = "globalThis.attacked=1";
const RAW = [
  `<script>${RUN}</script>`, `<img src=x onerror="${RUN}">`, `<svg onload="${RUN}">`, `<svg><script>${RUN}</script></svg>`, `<iframe srcdoc="<script>parent.attacked=1</script>"></iframe>`,
  `<iframe src="javascript:parent.attacked=1"></iframe>`, `<a href="javascript:${RUN}">x</a>`, `<body onload="${RUN}">`, `<input autofocus onfocus="${RUN}">`, `<details open ontoggle="${RUN}">`,
  `<video><source onerror="${RUN}"></video>`, `<audio src=x onerror="${RUN}">`, `<object data="javascript:${RUN}"></object>`, `<embed src="javascript:${RUN}">`, `<form action="javascript:${RUN}"><button>x</button></form>`,
  `<math><mi xlink:href="javascript:${RUN}">x</mi></math>`, `<style>@import "javascript:${RUN}"</style>`, `<link rel=stylesheet href="javascript:${RUN}">`, `<meta http-equiv=refresh content="0;url=javascript:${RUN}">`, `<base href="https://example.org/">`,
  `<template><script>${RUN}</script></template>`, `<noscript><p title="</noscript><img src=x onerror=${RUN}>">`, `"><img src=x onerror=${RUN}>`, `'-alert(1)-'`, `\u0000<img src=x onerror=${RUN}>`,
  `<img src="x\` \`<script>${RUN}</script>"\` \`>`, `<!--<img src="--><img src=x onerror=${RUN}//">`, `<![CDATA[<img src=x onerror=${RUN}>]]>`, `<?xml version="1.0"?><x onload="${RUN}"/>`, `&lt;img src=x onerror=${RUN}&gt;`,
];
const LINKS = [
  "javascript:", "JaVaScRiPt:", " javascript:", "java\tscript:", "java\nscript:", "javascript&colon;", "&#106;avascript:", "&#x6A;avascript:", "\u0001javascript:", "vbscript:", "data:text/html,", "data:text/html;base64,",
  "data:image/svg+xml,", "blob:", "filesystem:", "file:///etc/", "about:", "view-source:", "ws://", "//example.org/", "\\\\example.org\\", "javascript://%0a", "https://example.org/\"onmouseover=\"", "mailto:x\"onclick=\"",
].flatMap((scheme) => [`[link](${scheme}${RUN})`, `![picture](<${scheme}${RUN}>)`]);
const OTHERS = [
  `| ${RAW[1]} | b |\n|---|---|\n| ${RAW[2]} | <br onclick="${RUN}"> |`, `\`\`\`"><img src=x onerror=${RUN}>\n${RAW[1]}\n\`\`\``, `\`\`\`html\n${RAW[0]}\n\`\`\``, `# ${RAW[1]}`, `- [ ] ${RAW[1]}`, `> ${RAW[2]}`, `\`${RAW[1]}\``,
  `\\(\\href{javascript:${RUN}}{x}\\)`, `\\(\\includegraphics[alt=x]{https://example.org/x.png}\\)`, `\\[\\htmlData{x=y}{z}\\]`, `$\\htmlStyle{background:url(https://example.org/)}{x}$`, `\\(\\html@mathml{${RAW[1]}}{}\\)`,
  `$$\\text{${RAW[1]}}$$`, `\\(\\unicode{<img>}\\)`, `\\(\\def\\x{\\x\\x}\\x\\)`, `\\(\\rule{99999em}{99999em}\\)`, `<javascript:${RUN}>`, `https://example.org/"onmouseover="${RUN}`, `[x]: javascript:${RUN}\n\n[x]`,
  `[ref][y]\n\n[y]: data:text/html,<script>${RUN}</script>`, `**${RAW[1]}**`, `~~${RAW[2]}~~`, `[${RAW[1]}](https://example.org/)`, `[x](https://example.org/ "${RAW[1].replaceAll('"', "&quot;")}")`,
];

export async function attacks({ url }) {
  const all = [...RAW, ...LINKS, ...OTHERS];
  assert.ok(all.length >= 100);
  const stand = await standIn(url);
  stand.models = [stand.model("<img src=x onerror=globalThis.attacked=1>")];
  const context = await profile();
  const page = await tab(context, stand.url);
  const clean = async (what) => {
    const found = await page.evaluate(() => ({
      attacked: globalThis.attacked,
      foreign: [...document.querySelectorAll("#column script, #column iframe, #column object, #column embed, #column style, #column base, #column form, #column [srcdoc], #list script, #list img")].map((node) => node.outerHTML),
      handlers: [...document.querySelectorAll("*")].flatMap((node) => [...node.attributes].filter(({ name }) => /^on/i.test(name)).map(({ name }) => `${node.tagName} ${name}`)),
      links: [...document.querySelectorAll("#column a[href]")].map((node) => node.protocol).filter((protocol) => !/^(https?|mailto):$/.test(protocol)),
      pictures: [...document.querySelectorAll("#column img")].map((node) => node.src),
    }));
    assert.deepEqual(found, { attacked: undefined, foreign: [], handlers: [], links: [], pictures: [] }, what);
  };
  // As answers, all in one and piece by piece, with thoughts and calls of the same.
  stand.chat = async (body, answer) => {
    for (const one of all) { answer.think(`${one}\n\n`); answer.say(`${one}\n\n`); }
    answer.send({ tool_calls: [{ index: 0, function: { name: RAW[1], arguments: RAW[0] } }] });
    answer.end("tool_calls");
  };
  await ask(page, all.join("\n"));
  await answered(page);
  await page.getByText("Thought for").click();
  await page.waitForTimeout(500);
  await clean("an answer");
  // A click on what looks like a link leads nowhere.
  await page.locator("#column span.link").first().click();
  // As titles and questions, found again by search.
  stand.chat = async ({ messages }, answer) => { answer.say(messages.at(-1).content); answer.end(); };
  for (const one of [RAW[1], RAW[2], OTHERS[0]]) {
    await page.keyboard.press("Control+k");
    await ask(page, one);
    await answered(page);
    await clean(one);
  }
  await page.locator("#search").fill("onerror");
  await clean("a search");
  // As a file that is imported: every field is text, wherever it stands.
  const evil = RAW[1];
  const message = (id, parent, role) => ({ id, parent, role, content: all.join("\n\n"), reasoning: evil, model: evil, error: evil, code: evil, finish: evil, calls: [{ name: evil, arguments: evil }],
    files: [{ name: evil, text: evil }], pictures: [evil, "x"], stats: { tokens: evil, first: evil }, created: evil, updated: evil, thought: evil, gone: evil, onclick: evil });
  const file = { format: "ml-conversations", version: 1, conversations: [{ id: evil, title: evil, options: { system: evil, temperature: evil, onload: evil }, messages: { a: message("a", null, "user"), b: message("b", "a", "assistant") }, chosen: { __proto__: evil } }],
    files: [{ id: "x", data: `javascript:${RUN}` }, { id: evil, data: `data:text/html,<script>${RUN}</script>` }] };
  await page.locator("#import-files").setInputFiles({ name: `${evil.replaceAll("/", "")}.json`, mimeType: "application/json", buffer: Buffer.from(JSON.stringify(file)) });
  await page.getByText("1 conversation imported.").waitFor();
  await page.waitForTimeout(300);
  await clean("a file");
  assert.deepEqual(faults, [], "nothing was blocked, since nothing tried");
  // And the policy: no script but the page's own runs, and no text becomes HTML.
  const blocked = await page.evaluate(async () => {
    const tried = {};
    try { document.body.innerHTML = "<b>x</b>"; tried.html = "set"; } catch (error) { tried.html = error.name; }
    const script = document.createElement("script");
    try { script.textContent = "globalThis.attacked = 2"; document.head.append(script); } catch (error) { tried.script = error.name; }
    await new Promise((resolve) => setTimeout(resolve, 100));
    return { ...tried, attacked: globalThis.attacked };
  });
  assert.equal(blocked.html, "TypeError");
  assert.equal(blocked.attacked, undefined);
  faults.splice(0, faults.length, ...faults.filter((text) => !/Content Security Policy|TrustedHTML|TrustedScript|requires 'Trusted/.test(text)));
  await context.close();
  stand.close();
  return `${all.length} attempts, none ran`;
}
