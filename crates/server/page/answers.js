/* Answers on their way: one for each conversation, any number side by side. */

import { emit, newId, on, say } from "./dom.js";
import { change, chats, save, writing } from "./conversations.js";
import { address, events, headers, isWaiting, refresh, refusal, server, textModel, untilReady } from "./server.js";
import { request } from "./request.js";
import { add, leaf, messagesOf, touch } from "./tree.js";

/** By the ids of their conversations: `{chat, message, abort, waits}`; `waits` is what the answer waits for. */
export const running = new Map();

export const stop = (chat) => running.get(chat?.id)?.abort.abort();
export const isBusy = (chat) => running.has(chat.id);

/** Answers what the conversation ends with. */
export function answer(chat) {
  const message = add(chat, { id: newId(), parent: leaf(chat), role: "assistant", content: "", model: textModel() });
  return run(chat, message, false);
}

/** Another version of an answer; one that came to nothing is tried again in its place. */
export function again(chat, message) {
  if (isBusy(chat)) return undefined;
  if (message.error && !message.content && !message.reasoning) return run(chat, message, false);
  const version = add(chat, { id: newId(), parent: message.parent, role: "assistant", content: "", model: textModel() });
  return run(chat, version, false);
}

/** Begins the conversation for the model later, by half of its turns. Tells whether there was more than one. */
function dropOldest(chat) {
  const list = messagesOf(chat);
  const from = Math.max(0, list.findIndex(({ id }) => id === chat.from));
  const turns = list.slice(from).filter(({ role }) => role === "user");
  if (turns.length < 2) return false;
  change(chat, { from: turns[Math.ceil(turns.length / 2)].id });
  return true;
}

/** Answers anew without the oldest turns, as many as it takes. */
export function againShorter(chat, message) {
  if (isBusy(chat) || !dropOldest(chat)) return false;
  drops.add(chat.id);
  again(chat, message);
  return true;
}
const drops = new Set();

/** Goes on with an answer that was cut or stopped. */
export const goOn = (chat, message) => isBusy(chat) ? undefined : run(chat, message, true);

/** How often an answer that grows is kept, in milliseconds. */
const KEEPING = 1000;

/** Keeps what is there of an answer: it outlives a reload, and other tabs see it grow. */
function keep(job) {
  job.kept = performance.now();
  touch(job.message);
  save(job.chat);
}

async function run(chat, message, goesOn) {
  const abort = new AbortController();
  const job = { chat, message, abort, waits: isWaiting(server.models.get(textModel())) ? "loading" : "", kept: performance.now() };
  for (const name of ["error", "code", "finish", "stopped"]) delete message[name];
  message.running = true;
  touch(message);
  running.set(chat.id, job);
  writing.add(message.id);
  chats.set(chat.id, chat);
  // Another tab may have deleted what is gone on with here.
  if (chat.deleted) change(chat, { deleted: undefined });
  emit("chat", chat);
  emit("end");
  say(job.waits ? "Loading the model" : "Answering");
  // How far the load is is told soon after it has begun.
  if (job.waits) setTimeout(refresh, 300);
  save(chat);
  const saving = setInterval(() => keep(job), KEEPING);
  const count = { sent: 0, first: 0, last: 0, thoughtEnd: 0, deltas: 0, usage: null };
  try {
    const response = await ask(job, goesOn, count);
    await read(job, response, count);
  } catch (error) {
    tell(message, error);
  }
  clearInterval(saving);
  tally(message, count, goesOn);
  delete message.running;
  chat.updated = Date.now();
  running.delete(chat.id);
  drops.delete(chat.id);
  touch(message);
  save(chat).then(() => writing.delete(message.id));
  emit("chat", chat);
  say(message.error ? "The answer failed: " + message.error : message.stopped ? "Stopped" : "The answer is complete");
}

/** The response to the request; while the server is loading, gone or wants a key, it waits and asks again. */
async function ask(job, goesOn, count) {
  const { chat, message, abort } = job;
  for (let tries = 0; ; tries++) {
    let failed;
    try {
      const order = await request(chat, message.id, goesOn);
      const body = JSON.stringify(order);
      count.sent = performance.now();
      const response = await fetch(address("v1/chat/completions"), { method: "POST", headers: headers(), body, signal: abort.signal });
      if (response.ok) {
        message.model = order.model || message.model;
        if (job.waits) refresh();
        job.waits = "";
        emit("growing", job);
        return response;
      }
      failed = await refusal(response);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      failed = error;
    }
    if (failed.code === "model_not_found" && tries < 2) {
      await refresh();
      continue;
    }
    if (failed.code === "context_length_exceeded" && drops.has(chat.id) && dropOldest(chat)) continue;
    const waits = failed instanceof TypeError || failed.code === "draining" ? "gone" : failed.status === 401 ? "key" : failed.code === "model_loading" ? "loading" : "";
    if (!waits) throw failed;
    job.waits = waits;
    emit("growing", job);
    await untilReady(abort.signal);
    // A server that says it is ready and then refuses shall not be asked without a pause.
    if (tries) await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

async function read(job, response, count) {
  const { message } = job;
  let ended = false;
  for await (const data of events(response.body)) {
    if (data === "[DONE]") { ended = true; break; }
    let chunk;
    try { chunk = JSON.parse(data); } catch { continue; }
    if (chunk.error) throw new Error(chunk.error.message || "The server ended the answer with an error.");
    if (chunk.usage) count.usage = chunk.usage;
    const choice = (chunk.choices || [])[0];
    if (!choice) continue;
    take(message, choice, count);
    emit("growing", job);
    // A page in the background has its timers only once a minute.
    if (performance.now() - job.kept > KEEPING) keep(job);
  }
  if (!ended && !message.finish) throw new TypeError("ended early");
}

function take(message, { delta = {}, finish_reason: finish }, count) {
  const reasoning = delta.reasoning_content ?? delta.reasoning ?? "";
  if (reasoning || delta.content || delta.tool_calls) {
    count.last = performance.now();
    count.first ||= count.last;
    count.deltas++;
  }
  if (reasoning) message.reasoning = (message.reasoning || "") + reasoning;
  if (delta.content) {
    if (message.reasoning && !count.thoughtEnd) count.thoughtEnd = count.last;
    message.content += delta.content;
  }
  for (const call of delta.tool_calls || []) {
    message.calls ||= [];
    const known = message.calls[call.index ?? 0] ||= { name: "", arguments: "" };
    known.name += call.function?.name || "";
    known.arguments += call.function?.arguments || "";
  }
  if (finish) message.finish = finish;
}

function tell(message, error) {
  if (error.name === "AbortError") message.stopped = true;
  else if (error instanceof TypeError) message.error = "The connection to the server was lost in the middle of the answer.";
  else {
    message.error = error.message;
    message.code = error.code;
  }
  if (error instanceof TypeError) refresh();
}

function tally(message, { sent, first, last, thoughtEnd, deltas, usage }, goesOn) {
  if (!first) return;
  const before = goesOn && message.stats?.tokens || 0;
  const tokens = usage?.completion_tokens ?? deltas;
  const time = (last - first) / 1000;
  message.stats = {
    tokens: before + tokens, exact: Boolean(usage), first: (first - sent) / 1000,
    rate: tokens > 1 && time > 0.01 ? (tokens - 1) / time : null,
    // What a continued answer had before is in its prompt already.
    prompt: usage ? usage.prompt_tokens - before : undefined, total: usage?.total_tokens,
  };
  if (message.reasoning && !goesOn) message.thought = ((thoughtEnd || last) - first) / 1000;
}

on("stop", stop);
on("models", () => { for (const job of running.values()) if (job.waits === "loading") emit("growing", job); });
on("leave", () => { for (const { chat, message } of running.values()) { touch(message); save(chat); } });
