// OpenAI's package for Node against a server: check.mjs URL KEYED_URL KEY.

import assert from "node:assert/strict";
import OpenAI from "openai";

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

// Errors have their classes and name the field.
const fails = (promise, kind, param) =>
  assert.rejects(promise, (error) => error instanceof kind && error.param === param && Boolean(error.requestID));
await fails(chat({ model: "gpt-4" }), OpenAI.NotFoundError, "model");
await fails(chat({ temperature: 3 }), OpenAI.BadRequestError, "temperature");
await fails(chat({ frobnicate: 1 }), OpenAI.BadRequestError, "frobnicate");
await fails(chat({ temperature: 3, stream: true }), OpenAI.BadRequestError, "temperature");
const keyed = (apiKey) => new OpenAI({ baseURL: `${keyedUrl}/v1`, apiKey, maxRetries: 0 });
await assert.rejects(keyed("wrong").models.list(), OpenAI.AuthenticationError);
assert.equal((await keyed(key).models.list()).data[0].id, model);
console.log("openai for Node: passed");
