/* The request that a conversation becomes. */

import { fileData } from "./conversations.js";
import { textModel } from "./server.js";
import { NUMBERS } from "./settings.js";
import { messagesOf } from "./tree.js";

/** The text of a message with its files, as a model is given it. */
export function withFiles({ content, files }) {
  if (!files?.length) return content;
  // A fence that is longer than those inside does not end early.
  const parts = files.map(({ name, text }) => {
    const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
    const fence = "`".repeat(longest + 1);
    return `File ${name}:\n${fence}\n${text}\n${fence}`;
  });
  return [...parts, content].filter(Boolean).join("\n\n");
}

async function parts(pictures, text) {
  const urls = (await Promise.all(pictures.map(fileData))).filter(Boolean);
  return [...urls.map((url) => ({ type: "image_url", image_url: { url } })), ...(text ? [{ type: "text", text }] : [])];
}

/** The messages up to `until`, from where the conversation begins for the model. */
async function messages(chat, until, goesOn) {
  const list = messagesOf(chat);
  const end = until === null ? list.length : list.findIndex(({ id }) => id === until) + (goesOn ? 1 : 0);
  const from = Math.max(0, list.findIndex(({ id }) => id === chat.from));
  const sent = list.slice(from, end).filter((message) => message.role === "user" || message.content);
  return Promise.all(sent.map(async (message) => {
    const content = withFiles(message);
    if (message.role === "user" && message.pictures?.length) return { role: "user", content: await parts(message.pictures, content) };
    const thoughts = goesOn && message.id === until && message.reasoning;
    return { role: message.role, content, ...(thoughts && { reasoning_content: message.reasoning }) };
  }));
}

/** The body of the request for the answer `until`, which goes on where `goesOn`. */
export async function request(chat, until, goesOn) {
  const own = chat.options || {};
  const list = await messages(chat, until, goesOn);
  if (own.system?.trim()) list.unshift({ role: "system", content: own.system });
  const numbers = NUMBERS.filter((name) => (own[name] ?? "") !== "" && Number.isFinite(Number(own[name])));
  return {
    ...(textModel() && { model: textModel() }), messages: list, stream: true, stream_options: { include_usage: true },
    ...Object.fromEntries(numbers.map((name) => [name, Number(own[name])])),
    ...(own.reasoning_effort && { reasoning_effort: own.reasoning_effort }),
    ...(own.schema?.trim() && !goesOn && { response_format: { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(own.schema) } } }),
    ...(goesOn && { continue_final_message: true }),
  };
}
