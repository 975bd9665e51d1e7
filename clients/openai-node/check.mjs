// OpenAI's package for Node against a server: check.mjs URL KEYED_URL KEY.

import assert from "node:assert/strict";
import OpenAI, { toFile } from "openai";

const [url, keyedUrl, key] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const models = (await client.models.list()).data;
assert.equal(models.length, 1);
const model = models[0].id;
const held = models[0].capabilities.constraint.supported;
const story = [{ role: "user", content: "Tell me a story about a fox" }];
const weather = [{ role: "user", content: "What is the weather in Paris?" }];
const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const tool = {
  type: "function",
  function: { name: "get_weather", description: "Get the weather of a city.", parameters },
};
const chat = (more = {}) =>
  client.chat.completions.create({ model, messages: story, max_tokens: 40, temperature: 0, ...more });

// Whole and streamed say the same.
const whole = await chat({ logprobs: true, top_logprobs: 2 });
const text = whole.choices[0].message.content;
assert.equal(whole.choices[0].finish_reason, "length");
assert.equal(whole.usage.completion_tokens, 40);
assert.equal(whole.choices[0].logprobs.content.map((entry) => entry.token).join(""), text);
let streamed = "";
let usage;
for await (const chunk of await chat({ stream: true, stream_options: { include_usage: true } })) {
  streamed += chunk.choices[0]?.delta.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(streamed, text);
assert.equal(usage.completion_tokens, 40);
const helper = client.chat.completions.stream({ model, messages: story, max_tokens: 40, temperature: 0 });
assert.equal((await helper.finalChatCompletion()).choices[0].message.content, text);

// A client that leaves is no harm to the next one.
const left = await chat({ stream: true, max_tokens: 400 });
for await (const _ of left) {
  left.controller.abort();
  break;
}

// Tools: called, run, and answered from their result.
const runner = client.chat.completions.runTools({
  model,
  messages: weather,
  temperature: 0,
  tools: [
    {
      type: "function",
      function: {
        ...tool.function,
        parse: JSON.parse,
        function: ({ city }) => ({ city, temperature: 21, condition: "sunny" }),
      },
    },
  ],
});
assert.match(await runner.finalContent(), /Paris/);
const called = runner.messages.find((message) => message.tool_calls?.length);
assert.equal(called.tool_calls[0].function.name, "get_weather");
const whether = await chat({ messages: weather, tools: [tool] });
assert.equal(whether.choices[0].finish_reason, "tool_calls");
assert.deepEqual(JSON.parse(whether.choices[0].message.tool_calls[0].function.arguments), { city: "Paris" });

if (held) {
  const forced = await chat({ tools: [tool], tool_choice: "required", max_tokens: 200 });
  assert.equal(typeof JSON.parse(forced.choices[0].message.tool_calls[0].function.arguments).city, "string");
  const format = { type: "json_schema", json_schema: { name: "place", strict: true, schema: parameters } };
  const place = await chat({ response_format: format, max_tokens: 200 });
  assert.deepEqual(Object.keys(JSON.parse(place.choices[0].message.content)), ["city"]);
} else {
  console.log("left out: forced tool calls and schemas, which this model does not honour");
}

const completion = await client.completions.create({ model, prompt: "Once", max_tokens: 5, logprobs: 1, temperature: 0 });
assert.equal(completion.choices[0].logprobs.tokens.join(""), completion.choices[0].text);

// Responses: whole, in events, with tools, and gone on from.
const respond = (more = {}) =>
  client.responses.create({ model, input: story[0].content, max_output_tokens: 40, temperature: 0, ...more });
const response = await respond();
assert.equal(response.output_text, text);
assert.equal(response.status, "incomplete");
assert.equal(response.usage.output_tokens, 40);
let pieces = "";
const numbers = [];
for await (const event of await respond({ stream: true })) {
  numbers.push(event.sequence_number);
  pieces += event.type === "response.output_text.delta" ? event.delta : "";
}
assert.equal(pieces, text);
assert.deepEqual(numbers, [...numbers.keys()]);
const events = client.responses.stream({ model, input: "Hi", temperature: 0 });
const final = await events.finalResponse();
assert.equal(final.output_text, (await respond({ input: "Hi", max_output_tokens: null })).output_text);
const ownTool = { type: "function", strict: false, ...tool.function };
const asked = await respond({ input: weather[0].content, tools: [ownTool] });
const call = asked.output.find((item) => item.type === "function_call");
assert.deepEqual(JSON.parse(call.arguments), { city: "Paris" });
const result = JSON.stringify({ city: "Paris", temperature: 21, condition: "sunny" });
const output = { type: "function_call_output", call_id: call.call_id, output: result };
const told = await respond({ input: [output], previous_response_id: asked.id, tools: [ownTool] });
assert.match(told.output_text, /Paris/);
assert.equal((await client.responses.retrieve(told.id)).output_text, told.output_text);
const items = [];
for await (const item of client.responses.inputItems.list(told.id, { order: "asc", limit: 2 })) items.push(item.type);
assert.deepEqual(items.slice(-2), ["function_call", "function_call_output"]);
await client.responses.delete(told.id);
await assert.rejects(client.responses.retrieve(told.id), OpenAI.NotFoundError);
if (held) {
  const format = { type: "json_schema", name: "place", strict: true, schema: parameters };
  const place = await respond({ text: { format }, max_output_tokens: 200 });
  assert.deepEqual(Object.keys(JSON.parse(place.output_text)), ["city"]);
}

// Errors have their classes and name the field.
const fails = (promise, kind, param) =>
  assert.rejects(promise, (error) => error instanceof kind && error.param === param && Boolean(error.requestID));
await fails(chat({ model: "gpt-4" }), OpenAI.NotFoundError, "model");
await fails(chat({ temperature: 3 }), OpenAI.BadRequestError, "temperature");
await fails(chat({ frobnicate: 1 }), OpenAI.BadRequestError, "frobnicate");
await fails(chat({ temperature: 3, stream: true }), OpenAI.BadRequestError, "temperature");
await fails(respond({ background: true }), OpenAI.BadRequestError, "background");
const searching = await respond({ tools: [{ type: "web_search" }] }).withResponse();
assert.equal(searching.response.headers.get("x-ml-ignored"), "tools[].web_search");
const keyed = (apiKey) => new OpenAI({ baseURL: `${keyedUrl}/v1`, apiKey, maxRetries: 0 });
await assert.rejects(keyed("wrong").models.list(), OpenAI.AuthenticationError);
assert.equal((await keyed(key).models.list()).data[0].id, model);
// On a server whose model sees, a picture is four tokens.
const seeing = new OpenAI({ baseURL: `${process.env.ML_SEEING}/v1`, apiKey: "none", maxRetries: 0 });
const see = (image) => seeing.chat.completions.create({
  model: "scripted",
  messages: [{ role: "user", content: [{ type: "text", text: "What?" }, { type: "image_url", image_url: { url: image } }] }],
});
const seen = await see("data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEElEQVR4nGM4IScHQQxwFgBBAAYZPEVBlgAAAABJRU5ErkJggg==");
assert.equal(seen.choices[0].message.content, "ok");
assert.equal(seen.usage.prompt_tokens, "<user>What?".length + 4);
await fails(see("data:image/png;base64,aGVsbG8="), OpenAI.BadRequestError, "messages[0].content[1]");
// On a server with a model of 32 values that embeds. Left to itself, the package asks for base64.
const embedding = new OpenAI({ baseURL: `${process.env.ML_EMBEDDING}/v1`, apiKey: "none", maxRetries: 0 });
const embed = (more = {}) => embedding.embeddings.create({ model: "bert", input: ["a fox", "snow"], ...more });
const plain = await embed({ encoding_format: "float" });
assert.deepEqual(plain.data.map((entry) => entry.embedding.length), [32, 32]);
const floats = (values) => [...Float32Array.from(values)];
const packed = await embed();
plain.data.forEach((entry, index) => assert.deepEqual(floats(packed.data[index].embedding), floats(entry.embedding)));
const base64 = (await embed({ encoding_format: "base64" })).data[0].embedding;
assert.equal(Buffer.from(base64, "base64").length, 4 * 32);
const short = (await embed({ dimensions: 8, encoding_format: "float" })).data[0].embedding;
assert.equal(short.length, 8);
assert.ok(Math.abs(short.reduce((sum, value) => sum + value * value, 0) - 1) < 1e-5);
await fails(embed({ dimensions: 33 }), OpenAI.BadRequestError, "dimensions");
await fails(embed({ frobnicate: 1 }), OpenAI.BadRequestError, "frobnicate");
await fails(embed({ model: "qwen3_reranker" }), OpenAI.NotFoundError, "model");
// On the same server, with a tiny model that transcribes: its text means nothing, and each way must give the same.
const samples = Int16Array.from({ length: 24000 }, (_, i) => 10000 * Math.sin(i * i * 2e-5));
const head = Buffer.alloc(44);
head.write("RIFF"), head.writeUInt32LE(36 + 48000, 4), head.write("WAVEfmt ", 8), head.writeUInt32LE(16, 16);
head.writeUInt16LE(1, 20), head.writeUInt16LE(1, 22), head.writeUInt32LE(16000, 24), head.writeUInt32LE(32000, 28);
head.writeUInt16LE(2, 32), head.writeUInt16LE(16, 34), head.write("data", 36), head.writeUInt32LE(48000, 40);
const wav = Buffer.concat([head, Buffer.from(samples.buffer)]);
const transcribe = async (more = {}, bytes = wav) => embedding.audio.transcriptions.create({
  model: "multilingual", language: "de", file: await toFile(bytes, "tone.wav"), ...more,
});
const heard = (await transcribe()).text;
assert.ok(heard.length > 0);
const segments = (await transcribe({ response_format: "verbose_json" })).segments;
assert.ok(segments.length > 0 && segments.every((segment) => segment.start <= segment.end));
let said = "";
for await (const event of await transcribe({ stream: true })) {
  said = event.type === "transcript.text.delta" ? said + event.delta : said;
  if (event.type === "transcript.text.done") assert.equal(event.text, heard);
}
assert.equal(said.trim(), heard);
await fails(transcribe({}, Buffer.from("no sound")), OpenAI.BadRequestError, "file");
// And with a tiny model that speaks phonemes: no other program has to make them.
const speak = (more = {}) => embedding.audio.speech.create({
  model: "kokoro", voice: "af_one", input: "h\u0259l\u02c8O", response_format: "pcm", phonemes: true, seed: 7, ...more,
});
const bytes = async (more) => Buffer.from(await (await speak(more)).arrayBuffer());
const spoken = await bytes();
assert.ok(spoken.length > 600 && spoken.some((byte) => byte !== 0));
const file = await speak({ response_format: "wav" });
assert.equal(file.headers.get("content-type"), "audio/wav");
assert.deepEqual(Buffer.from(await file.arrayBuffer()).subarray(44), spoken);
const chunks = [];
for await (const chunk of (await speak()).body) chunks.push(chunk);
assert.deepEqual(Buffer.concat(chunks), spoken);
await fails(speak({ voice: "alloy" }), OpenAI.BadRequestError, "voice");
await fails(speak({ response_format: "mp3" }), OpenAI.BadRequestError, "response_format");
await fails(speak({ model: "tts-1" }), OpenAI.NotFoundError, "model");
console.log("openai for Node: passed");
