/* Export and import of conversations, as files. */

import { $, emit, fileName, on, toFile, toast } from "./dom.js";
import { chats, fileData, isDeleted, saveAll } from "./conversations.js";
import { conversationsOf, FORMAT } from "./import.js";
import { withFiles } from "./request.js";
import { messagesOf, withoutDeleted } from "./tree.js";

async function asMarkdown(chat) {
  const parts = await Promise.all(messagesOf(chat).map(async (message) => {
    const calls = (message.calls || []).map((call) => `\n\n\`\`\`json\n${call.name} ${call.arguments}\n\`\`\``).join("");
    const thought = message.reasoning ? `<details><summary>Thinking</summary>\n\n${message.reasoning}\n\n</details>\n\n` : "";
    const urls = await Promise.all((message.pictures || []).map(fileData));
    const shown = urls.map((url) => `![picture](${url})\n\n`).join("");
    return `## ${message.role === "user" ? "You" : message.model || "Assistant"}\n\n${shown}${thought}${withFiles(message)}${calls}`;
  }));
  return `# ${chat.title}\n\n${parts.join("\n\n")}\n`;
}

async function asJson(chosen) {
  const list = chosen.map((chat) => ({ ...chat, messages: withoutDeleted(chat.messages) }));
  const ids = list.flatMap((chat) => Object.values(chat.messages).flatMap((message) => (message.pictures || []).map((id) => [id, chat.id])));
  const files = await Promise.all(ids.map(async ([id, chat]) => ({ id, chat, data: await fileData(id) })));
  return JSON.stringify({ format: FORMAT, version: 1, conversations: list, files: files.filter(({ data }) => data) }, null, 1);
}

export async function download(chat, kind) {
  const text = kind === "json" ? await asJson([chat]) : await asMarkdown(chat);
  toFile(new Blob([text], { type: kind === "json" ? "application/json" : "text/markdown" }), `${fileName(chat.title) || "chat"}.${kind}`);
}

async function downloadAll() {
  const list = [...chats.values()].filter((chat) => !isDeleted(chat));
  if (!list.length) return toast("There are no conversations yet.");
  return toFile(new Blob([await asJson(list)], { type: "application/json" }), `conversations-${new Date().toISOString().slice(0, 10)}.json`);
}

async function importFiles(list) {
  for (const file of list) {
    const files = [];
    let taken;
    try {
      taken = conversationsOf(await file.text(), files);
    } catch (error) {
      toast(`${file.name} cannot be read: ${error.message}`);
      continue;
    }
    if (!taken.length) toast(`${file.name} has no conversations in a form that is known here.`);
    else if (await saveAll(taken, files)) {
      toast(taken.length === 1 ? "1 conversation imported." : `${taken.length} conversations imported.`);
      if (taken.length === 1) emit("open", taken[0]);
    }
  }
}

on("start", () => {
  on("export-all", downloadAll);
  $("export-all").addEventListener("click", downloadAll);
  $("import").addEventListener("click", () => $("import-files").click());
  $("import-files").addEventListener("change", () => {
    const list = [...$("import-files").files];
    $("import-files").value = "";
    $("settings").close("cancel");
    importFiles(list);
  });
});
