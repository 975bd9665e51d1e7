// A server in front of a real one: it says what a test wants it to say, when the test wants it, and
// hands on the rest.

import http from "node:http";

const MODEL = (id) => ({
  id, object: "model", state: "loaded", max_model_len: 4096, input_modalities: ["text"], capabilities: { chat: { supported: true } },
});

export async function standIn(upstream) {
  const requests = [];
  const self = {
    /** The bodies of the chats that came. */
    requests,
    /** `up`, `loading`, `gone`, or the key that is wanted. */
    state: "up",
    /** How much of the model is loaded, in percent, where it is told. */
    percent: undefined,
    models: [MODEL("stand-in")],
    model: MODEL,
    /** Answers a chat: `say(text)`, `think(text)`, `end(finish, usage)`, `refuse(status, code, message)`, `cut()`. */
    chat: async (body, answer) => { answer.say(`Answer to: ${body.messages.at(-1).content}`); answer.end(); },
  };
  const server = http.createServer((request, response) => handle(self, upstream, request, response));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  self.url = `http://127.0.0.1:${server.address().port}/`;
  self.close = () => { server.closeAllConnections(); server.close(); };
  return self;
}

function json(response, status, value) {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(value));
}
const refuse = (response, status, code, message = code) => json(response, status, { error: { message, code, type: "x", param: null } });

async function handle(self, upstream, request, response) {
  const { pathname } = new URL(request.url, "http://x");
  const isApi = /^\/(v1|health|api)/.test(pathname);
  if (!isApi) return pass(upstream, request, response);
  if (self.state === "gone") return request.socket.destroy();
  const isLoading = self.state === "loading";
  const load = isLoading && self.percent !== undefined ? { load: { percent: self.percent } } : {};
  if (pathname === "/health") return json(response, isLoading ? 503 : 200, { status: isLoading ? "loading" : "ok", models: { [self.models[0].id]: load } });
  const key = self.state.startsWith?.("key:") && self.state.slice(4);
  if (key && request.headers.authorization !== `Bearer ${key}`) return refuse(response, 401, "invalid_api_key", "no API key");
  if (pathname === "/v1/models") return json(response, 200, { object: "list", data: self.models.map((one) => ({ ...one, ...(isLoading && { state: "loading" }), ...load })) });
  if (pathname === "/api/chat") { self.loads = [...(self.loads || []), await body(request)]; return json(response, 200, { done: true }); }
  if (pathname !== "/v1/chat/completions") return refuse(response, 404, "not_found");
  if (isLoading) return refuse(response, 503, "model_loading", "the model is being loaded");
  const chat = await body(request);
  self.requests.push(chat);
  if (chat.model && !self.models.some(({ id }) => id === chat.model)) return refuse(response, 404, "model_not_found", `no model ${chat.model}`);
  return self.chat(chat, answers(response, chat));
}

async function body(request) {
  let text = "";
  for await (const piece of request) text += piece;
  return JSON.parse(text);
}

function answers(response, chat) {
  let begun = false;
  const send = (delta, finish_reason = null) => {
    if (!begun) response.writeHead(200, { "content-type": "text/event-stream" });
    begun = true;
    return response.write(`data: ${JSON.stringify({ model: chat.model, choices: [{ index: 0, delta, finish_reason }] })}\n\n`);
  };
  return {
    response,
    say: (content) => send({ content }),
    think: (reasoning_content) => send({ reasoning_content }),
    send,
    end(finish = "stop", usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 }) {
      send({}, finish);
      response.write(`data: ${JSON.stringify({ choices: [], usage })}\n\n`);
      response.end("data: [DONE]\n\n");
    },
    refuse: (status, code, message) => refuse(response, status, code, message),
    cut: () => response.destroy(),
  };
}

function pass(upstream, request, response) {
  const { hostname, port } = new URL(upstream);
  const headers = { ...request.headers, host: `${hostname}:${port}` };
  delete headers.origin;
  const onward = http.request({ hostname, port, path: request.url, method: request.method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  onward.on("error", () => response.destroy());
  request.pipe(onward);
}

export const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** A promise that the test keeps when it wants to. */
export function gate() {
  let open;
  const opened = new Promise((resolve) => { open = resolve; });
  return { open, opened };
}
