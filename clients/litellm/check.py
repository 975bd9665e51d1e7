"""litellm against a server: check.py URL KEYED_URL KEY."""

import os
import sys

# Its table of prices comes with it.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import json

import litellm

URL, KEYED_URL, KEY = sys.argv[1:]
litellm.telemetry = False
litellm.suppress_debug_info = True
STORY = [{"role": "user", "content": "Tell me a story about a fox"}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city.",
                                         "parameters": CITY}}

# It lists models with a package of its own, so that the name is asked for plainly.
import urllib.request

listed = json.load(urllib.request.urlopen(f"{URL}/v1/models"))["data"][0]
MODEL = f"openai/{listed['id']}"


def chat(base=URL, **more):
    ask = {"model": MODEL, "messages": STORY, "max_tokens": 40, "temperature": 0, "num_retries": 0,
           "api_base": f"{base}/v1", "api_key": "none"}
    return litellm.completion(**{**ask, **more})


def fails(kind, said, call):
    try:
        call()
    except kind as error:
        assert said in str(error), error
        return
    raise AssertionError(f"expected {kind.__name__}")


whole = chat(logprobs=True, top_logprobs=2)
text = whole.choices[0].message.content
assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 40
assert "".join(entry.token for entry in whole.choices[0].logprobs.content) == text
chunks = list(chat(stream=True, stream_options={"include_usage": True}))
assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text
built = litellm.stream_chunk_builder(chunks, messages=STORY)
assert built.choices[0].message.content == text and built.usage.completion_tokens == 40

answer = chat(messages=WEATHER, tools=[TOOL]).choices[0]
call = answer.message.tool_calls[0].function
assert answer.finish_reason == "tool_calls" and call.name == "get_weather"
assert json.loads(call.arguments) == {"city": "Paris"}
streamed = litellm.stream_chunk_builder(list(chat(messages=WEATHER, tools=[TOOL], stream=True)))
assert streamed.choices[0].message.tool_calls[0].function.arguments == call.arguments

if listed["capabilities"]["constraint"]["supported"]:
    forced = chat(tools=[TOOL], tool_choice="required", max_tokens=200).choices[0].message
    assert set(json.loads(forced.tool_calls[0].function.arguments)) == {"city"}
    form = {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": CITY}}
    assert set(json.loads(chat(response_format=form, max_tokens=200).choices[0].message.content)) == {"city"}
else:
    print("left out: forced tool calls and schemas, which this model does not honour")

plain = litellm.text_completion(model=f"text-completion-{MODEL}", prompt="Once", max_tokens=8, temperature=0,
                                api_base=f"{URL}/v1", api_key="none")
assert plain.choices[0].text and plain.usage.completion_tokens == 8

fails(litellm.NotFoundError, "gpt-4", lambda: chat(model="openai/gpt-4"))
fails(litellm.BadRequestError, "temperature", lambda: chat(temperature=3))
fails(litellm.ContextWindowExceededError, "", lambda: chat(messages=[{"role": "user", "content": "a " * 20000}]))
fails(litellm.AuthenticationError, "key", lambda: chat(KEYED_URL, api_key="wrong"))
assert chat(KEYED_URL, api_key=KEY).choices[0].message.content == text
# On a server whose model sees, a picture is four tokens.
PNG = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEElEQVR4nGM4IScHQQxwFgBBAAYZPEVBlgAAAABJRU5ErkJggg=="


def see(url):
    content = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": url}}]
    return chat(os.environ["ML_SEEING"], model="openai/scripted", messages=[{"role": "user", "content": content}])


seen = see(PNG)
assert seen.choices[0].message.content == "ok"
assert seen.usage.prompt_tokens == len("<user>What?") + 4, seen.usage
fails(litellm.BadRequestError, "messages[0].content[1]", lambda: see("data:image/png;base64,aGVsbG8="))
print("litellm: passed")
