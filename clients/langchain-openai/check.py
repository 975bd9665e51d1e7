"""langchain-openai against a server: check.py URL KEYED_URL KEY."""

import os
import sys

import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel, Field

URL, KEYED_URL, KEY = sys.argv[1:]
listed = openai.OpenAI(base_url=f"{URL}/v1", api_key="none").models.list().data[0]


def model(base=URL, **more):
    ask = {"model": listed.id, "base_url": f"{base}/v1", "api_key": "none", "temperature": 0, "max_tokens": 40,
           "max_retries": 0}
    return ChatOpenAI(**{**ask, **more})


@tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f'{{"city": "{city}", "temperature": 21, "condition": "sunny"}}'


class Person(BaseModel):
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


def fails(kind, call):
    try:
        call()
    except kind:
        return
    raise AssertionError(f"expected {kind.__name__}")


STORY = "Tell me a story about a fox"
whole = model().invoke(STORY)
assert whole.response_metadata["finish_reason"] == "length"
assert whole.usage_metadata["output_tokens"] == 40
parts = list(model(stream_usage=True).stream(STORY))
joined = parts[0]
for part in parts[1:]:
    joined += part
assert joined.content == whole.content
assert joined.usage_metadata["output_tokens"] == 40
entries = model(logprobs=True, top_logprobs=2).invoke(STORY).response_metadata["logprobs"]["content"]
assert "".join(entry["token"] for entry in entries) == whole.content

# A tool is called, run, and its result answered from.
able = model().bind_tools([get_weather])
asked = HumanMessage("What is the weather in Paris?")
call = able.invoke([asked])
assert [(c["name"], c["args"]) for c in call.tool_calls] == [("get_weather", {"city": "Paris"})], call
streamed = None
for part in able.stream([asked]):
    streamed = part if streamed is None else streamed + part
assert [c["args"] for c in streamed.tool_calls] == [{"city": "Paris"}]
result = get_weather.invoke(call.tool_calls[0])
assert isinstance(result, ToolMessage)
assert "Paris" in able.invoke([asked, call, result]).content

if listed.capabilities["constraint"]["supported"]:
    forced = model(max_tokens=200).bind_tools([get_weather], tool_choice="get_weather").invoke(STORY)
    assert forced.tool_calls[0]["name"] == "get_weather"
    for method in ["json_schema", "function_calling"]:
        assert isinstance(model(max_tokens=200).with_structured_output(Person, method=method).invoke(STORY), Person)
else:
    fails(openai.BadRequestError, lambda: model().with_structured_output(Person).invoke(STORY))
    print("left out: forced tool calls and schemas, which this model does not honour")

plain = OpenAI(model=listed.id, base_url=f"{URL}/v1", api_key="none", temperature=0, max_tokens=8, max_retries=0)
assert plain.invoke("Once") == "".join(plain.stream("Once"))
assert plain.batch(["Once", "The fox"])[0] == plain.invoke("Once")

fails(openai.NotFoundError, lambda: model(model="gpt-4").invoke(STORY))
fails(openai.BadRequestError, lambda: model(temperature=3).invoke(STORY))
fails(openai.AuthenticationError, lambda: model(KEYED_URL, api_key="wrong").invoke(STORY))
assert model(KEYED_URL, api_key=KEY).invoke(STORY).content == whole.content
# On a server whose model sees, a picture is four tokens; its part is written in langchain's own form.
picture = {"type": "image", "base64": "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEElEQVR4nGM4IScHQQxwFgBBAAYZPEVBlgAAAABJRU5ErkJggg==",
           "mime_type": "image/png"}
shown = HumanMessage([{"type": "text", "text": "What?"}, picture])
seen = model(os.environ["ML_SEEING"], model="scripted").invoke([shown])
assert seen.content == "ok" and seen.usage_metadata["input_tokens"] == len("<user>What?") + 4, seen
print("langchain-openai: passed")
