// Vercel's AI SDK with its provider for OpenAI's protocol: check.mjs URL KEYED_URL KEY.

import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, Output, generateText, isStepCount, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [url, keyedUrl, key] = process.argv.slice(2);
const provider = (base, apiKey) =>
  createOpenAICompatible({ name: "ml", baseURL: `${base}/v1`, apiKey, includeUsage: true, supportsStructuredOutputs: true });
const listed = (await (await fetch(`${url}/v1/models`)).json()).data[0];
const held = listed.capabilities.constraint.supported;
const model = provider(url, "none")(listed.id);
const ask = { model, prompt: "Tell me a story about a fox", temperature: 0, maxOutputTokens: 40, maxRetries: 0 };

// Whole and streamed say the same.
const whole = await generateText(ask);
assert.equal(whole.finishReason, "length");
assert.equal(whole.usage.outputTokens, 40);
const stream = streamText(ask);
let streamed = "";
for await (const part of stream.textStream) streamed += part;
assert.equal(streamed, whole.text);
assert.equal((await stream.usage).outputTokens, 40);

// A tool is called, run, and its result answered from, whole and streamed.
const tools = {
  get_weather: tool({
    description: "Get the weather of a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => ({ city, temperature: 21, condition: "sunny" }),
  }),
};
const steps = (isStepCount ?? stepCountIs)(3);
const weather = { model, prompt: "What is the weather in Paris?", temperature: 0, maxRetries: 0, tools, stopWhen: steps };
const answer = await generateText(weather);
assert.deepEqual(answer.steps[0].toolCalls.map((call) => call.input), [{ city: "Paris" }]);
assert.match(answer.text, /Paris/);
const answering = streamText(weather);
assert.equal(await answering.text, answer.text);

if (held) {
  const forced = await generateText({ ...ask, tools, toolChoice: "required", maxOutputTokens: 200 });
  assert.equal(forced.toolCalls[0].toolName, "get_weather");
  const schema = z.object({ name: z.string().max(20), age: z.number().int().min(0).max(120) });
  const person = await generateText({ ...ask, maxOutputTokens: 200, output: Output.object({ schema }) });
  assert.ok(schema.parse(person.output));
} else {
  console.log("left out: forced tool calls and schemas, which this model does not honour");
}

const fails = (promise, status, said) =>
  assert.rejects(promise, (error) => APICallError.isInstance(error) && error.statusCode === status && said.test(error.message));
await fails(generateText({ ...ask, model: provider(url, "none")("gpt-4") }), 404, /gpt-4/);
await fails(generateText({ ...ask, temperature: 3 }), 400, /temperature/);
await fails(generateText({ ...ask, model: provider(keyedUrl, "wrong")(listed.id) }), 401, /key/);
assert.equal((await generateText({ ...ask, model: provider(keyedUrl, key)(listed.id) })).text, whole.text);
// On a server whose model sees, a picture is four tokens.
const see = (image) => generateText({
  model: provider(process.env.ML_SEEING, "none")("scripted"), maxRetries: 0,
  messages: [{ role: "user", content: [{ type: "text", text: "What?" }, { type: "file", mediaType: "image/png", data: image }] }],
});
const seen = await see("iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEElEQVR4nGM4IScHQQxwFgBBAAYZPEVBlgAAAABJRU5ErkJggg==");
assert.equal(seen.text, "ok");
assert.equal(seen.usage.inputTokens, "<user>What?".length + 4);
await fails(see("aGVsbG8="), 400, /messages\[0\]\.content\[1\]/);
console.log("ai: passed");
