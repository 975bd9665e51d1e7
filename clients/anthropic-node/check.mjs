// Anthropic's package for Node against a server: check.mjs URL KEYED_URL KEY.

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";

const [url, keyedUrl, key] = process.argv.slice(2);
const served = (await (await fetch(`${url}/v1/models`)).json()).data[0];
const model = served.id;
const held = served.capabilities.constraint.supported;
const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
const story = [{ role: "user", content: "Tell me a story about a fox" }];
const weather = [{ role: "user", content: "What is the weather in Paris?" }];
const city = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const tool = { name: "get_weather", description: "Get the weather of a city.", input_schema: city };
// Greedy; its types know of no temperature any more.
const ask = (more = {}) =>
  client.messages.create({ model, messages: story, max_tokens: 40, temperature: 0, ...more });
const textOf = (message) => message.content.find((block) => block.type === "text").text;

// Whole and streamed say the same.
const whole = await ask();
assert.equal(whole.stop_reason, "max_tokens");
assert.equal(whole.usage.output_tokens, 40);
let streamed = "";
for await (const event of await ask({ stream: true })) {
  if (event.type === "content_block_delta" && event.delta.type === "text_delta") streamed += event.delta.text;
}
assert.equal(streamed, textOf(whole));
const helper = client.messages.stream({ model, messages: story, max_tokens: 40, temperature: 0 });
assert.equal(textOf(await helper.finalMessage()), textOf(whole));
const counted = await client.messages.countTokens({ model, messages: story });
assert.equal(counted.input_tokens, whole.usage.input_tokens + whole.usage.cache_read_input_tokens);

// A client that leaves is no harm to the next one.
const left = await ask({ stream: true, max_tokens: 400 });
for await (const _ of left) {
  left.controller.abort();
  break;
}

// Tools: called, and answered from their result.
const asked = await ask({ messages: weather, tools: [tool] });
assert.equal(asked.stop_reason, "tool_use");
const call = asked.content.find((block) => block.type === "tool_use");
assert.deepEqual([call.name, call.input], ["get_weather", { city: "Paris" }]);
const result = JSON.stringify({ city: "Paris", temperature: 21, condition: "sunny" });
const told = await ask({
  tools: [tool],
  messages: [
    ...weather,
    { role: "assistant", content: asked.content },
    { role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: result }] },
  ],
});
assert.equal(told.stop_reason, "end_turn");
assert.match(textOf(told), /Paris/);
if (held) {
  const forced = await ask({ tools: [tool], tool_choice: { type: "any" }, max_tokens: 200 });
  assert.equal(typeof forced.content.at(-1).input.city, "string");
  const format = { type: "json_schema", schema: city };
  const place = await ask({ output_config: { format }, max_tokens: 200 });
  assert.deepEqual(Object.keys(JSON.parse(textOf(place))), ["city"]);
} else {
  console.log("left out: forced tool calls and schemas, which this model does not honour");
}

// Its tool runner begins with a thread, and goes on without one.
const ran = [];
const runner = client.beta.messages.toolRunner({
  model,
  max_tokens: 200,
  messages: weather,
  tools: [
    {
      name: tool.name,
      description: tool.description,
      input_schema: tool.input_schema,
      run: (input) => {
        ran.push(input);
        return result;
      },
      parse: (input) => input,
    },
  ],
});
assert.equal((await runner).stop_reason, "end_turn");
assert.deepEqual(ran, [{ city: "Paris" }]);

// Errors have their classes and name the field.
const fails = (promise, kind, words) =>
  assert.rejects(
    promise,
    (error) => error instanceof kind && error.message.includes(words) && Boolean(error.requestID),
  );
await fails(ask({ model: "claude-9" }), Anthropic.NotFoundError, "claude-9");
await fails(ask({ temperature: 3 }), Anthropic.BadRequestError, "temperature");
await fails(ask({ frobnicate: 1 }), Anthropic.BadRequestError, "frobnicate");
await fails(ask({ temperature: 3, stream: true }), Anthropic.BadRequestError, "temperature");
const keyed = (apiKey) => new Anthropic({ baseURL: keyedUrl, apiKey, maxRetries: 0 });
const one = { model, messages: story, max_tokens: 1 };
await assert.rejects(keyed("wrong").messages.create(one), Anthropic.AuthenticationError);
assert.equal((await keyed(key).messages.create(one)).usage.output_tokens, 1);
console.log("anthropic for Node: passed");
