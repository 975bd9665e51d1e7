"""anthropic's package for Python against a server: check.py URL KEYED_URL KEY."""

import json
import os
import pathlib
import sys
import time
import urllib.request

import anthropic
from anthropic import Anthropic, types

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import fields

URL, KEYED_URL, KEY = sys.argv[1:]
STORY = [{"role": "user", "content": "Tell me a story about a fox"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        "additionalProperties": False}
TOOL = {"name": "get_weather", "description": "Get the weather of a city.", "input_schema": CITY}
LENGTH = 40

client = Anthropic(base_url=URL, api_key="none", max_retries=0)
served = json.load(urllib.request.urlopen(f"{URL}/v1/models"))["data"][0]
MODEL = served["id"]
held = served["capabilities"]["constraint"]["supported"]
left_out = [] if held else ["forced calls and schemas"]


def message(**more):
    temperature = {"temperature": 0}
    return client.messages.create(
        **{"model": MODEL, "messages": STORY, "max_tokens": LENGTH, "extra_body": temperature, **more})


def text_of(answer):
    """An answer's first text: thoughts may come before it."""
    return next(block.text for block in answer.content if block.type == "text")


def fails(kind, words, call):
    try:
        call()
    except kind as error:
        assert type(error) is kind, error
        assert error.body["type"] == "error" and words in error.body["error"]["message"], error.body
        assert error.request_id, error
        return
    raise AssertionError(f"expected {kind.__name__}")


def check_message_whole_and_streamed():
    whole = message()
    assert whole.type == "message" and whole.role == "assistant" and whole.model == MODEL
    assert whole.stop_reason == "max_tokens" and whole.usage.output_tokens == LENGTH
    text = "".join(block.text for block in whole.content if block.type == "text")
    assert len(text) > 20, whole
    with client.messages.stream(
            model=MODEL, messages=STORY, max_tokens=LENGTH, extra_body={"temperature": 0}) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert len(pieces) > 1 and "".join(pieces) == text, (pieces, text)
    assert final.stop_reason == "max_tokens" and final.usage.output_tokens == LENGTH
    read = final.usage.input_tokens + final.usage.cache_read_input_tokens
    assert read == whole.usage.input_tokens + whole.usage.cache_read_input_tokens


def check_events_in_order():
    kinds = [event.type for event in message(stream=True)]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") >= 1, kinds


def check_tokens_counted():
    count = client.messages.count_tokens(model=MODEL, messages=STORY).input_tokens
    usage = message(max_tokens=1).usage
    assert count == usage.input_tokens + usage.cache_read_input_tokens, (count, usage)
    # A template may have instructions of its own, which those of a request replace.
    brief, long = [client.messages.count_tokens(model=MODEL, messages=STORY, system=system).input_tokens
                   for system in ["Be kind.", "Be kind. " * 20]]
    assert long > brief, (brief, long)


def check_stop_sequences():
    text = text_of(message(max_tokens=200))
    word = text.split()[5]
    stopped = message(max_tokens=200, stop_sequences=[word])
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == word, stopped
    before = text_of(stopped)
    assert text.startswith(before) and word not in before


def check_system_wherever_it_stands():
    first = message(system="Be brief.")
    blocks = message(system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}])
    assert first.content == blocks.content
    turns = [*STORY, {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go on."}]
    assert message(messages=turns).content


def check_tools():
    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    try:
        free = message(messages=asked, tools=[TOOL])
    except anthropic.BadRequestError as error:
        assert "`tools`" in error.body["error"]["message"], error.body
        left_out.append("tools")
        return
    assert free.content
    if not held:
        return
    for choice in [{"type": "any"}, {"type": "tool", "name": "get_weather"}]:
        called = message(messages=asked, tools=[TOOL], tool_choice=choice, max_tokens=200)
        assert called.stop_reason == "tool_use", called
        call = next(block for block in called.content if block.type == "tool_use")
        assert call.name == "get_weather" and isinstance(call.input["city"], str), call
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Sunny."}
    turns = [*asked, called.to_param(), {"role": "user", "content": [result]}]
    assert message(messages=turns, tools=[TOOL]).content
    with client.messages.stream(model=MODEL, messages=asked, tools=[TOOL], max_tokens=200,
                                tool_choice={"type": "any", "disable_parallel_tool_use": True}) as stream:
        final = stream.get_final_message()
    calls = [block for block in final.content if block.type == "tool_use"]
    assert len(calls) == 1 and isinstance(calls[0].input["city"], str), final


def check_output_of_a_schema():
    if not held:
        return
    config = {"format": {"type": "json_schema", "schema": CITY}}
    answer = message(output_config=config, max_tokens=200)
    assert isinstance(json.loads(text_of(answer))["city"], str), answer


def check_errors():
    fails(anthropic.BadRequestError, "`temperature`", lambda: message(extra_body={"temperature": 3}))
    fails(anthropic.BadRequestError, "`container`", lambda: message(container="a"))
    fails(anthropic.BadRequestError, "unknown field `x`", lambda: message(extra_body={"x": 1}))
    fails(anthropic.NotFoundError, "other", lambda: message(model="other"))
    long = [{"role": "user", "content": "word " * 20_000}]
    fails(anthropic.BadRequestError, "prompt is too long: ", lambda: message(messages=long))
    image = {"type": "image", "source": {"type": "url", "url": "http://a/b.png"}}
    turn = [{"role": "user", "content": [image]}]
    fails(anthropic.BadRequestError, "`messages[0].content[0].type`", lambda: message(messages=turn))


def check_tool_runner():
    """It begins with a thread, and goes on without one."""
    if "tools" in left_out:
        return
    ran = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Get the weather of a city.

        Args:
            city: The city.
        """
        ran.append(city)
        return json.dumps({"city": city, "temperature": 21, "condition": "sunny"})

    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    runner = client.beta.messages.tool_runner(model=MODEL, max_tokens=200, messages=asked, tools=[get_weather])
    assert [turn.stop_reason for turn in runner] == ["tool_use", "end_turn"] and ran == ["Paris"], ran


def check_every_field_is_honoured_or_refused():
    """The request's fields, and those of the objects in them."""
    call = {"type": "tool_use", "id": "a", "name": "get_weather", "input": {}}
    before = [*STORY, {"role": "assistant", "content": [call]}]
    with_tools = lambda name, value: {name: value, "tools": [TOOL]}
    more = {
        "examples": {"ToolUseBlockParam": call, "ToolChoiceToolParam": {"type": "tool", "name": "get_weather"},
                     "JSONOutputFormatParam": {"type": "json_schema", "schema": CITY}},
        "around": {
            "AssistantMessageParam": lambda name, value: {name: [*STORY, *value, *STORY]},
            "UserMessageParam": lambda name, value: {name: [*before, *value]},
            "ToolChoiceAnyParam": with_tools,
            "ToolChoiceToolParam": with_tools,
        },
        "taken": {"AssistantMessageParam", "CacheControlEphemeralParam", "MetadataParam", "TextBlockParam",
                  "ThinkingBlockParam", "ToolChoiceAutoParam", "ToolParam", "ToolResultBlockParam", "ToolUseBlockParam",
                  "UserMessageParam"},
        # A schema is the user's own.
        "free": {"InputSchemaTyped"},
    }
    if held:
        more["taken"] |= {"JSONOutputFormatParam", "ToolChoiceAnyParam", "ToolChoiceToolParam"}
    base = {"model": MODEL, "messages": STORY}
    create = types.message_create_params.MessageCreateParamsNonStreaming
    count = fields.walk(create, fields.sender(f"{URL}/v1/messages", {**base, "max_tokens": 1}), **more)
    more["taken"] -= {"MetadataParam"}
    counted = fields.walk(types.message_count_tokens_params.MessageCountTokensParams,
                          fields.sender(f"{URL}/v1/messages/count_tokens", base), **more)
    assert count > 80 and counted > 60, (count, counted)


def check_every_field_of_shown_pictures_is_honoured_or_refused():
    """On a server whose model sees."""
    url = os.environ["ML_SEEING"]
    model = json.load(urllib.request.urlopen(f"{url}/v1/models"))["data"][0]["id"]
    create = types.message_create_params.MessageCreateParamsNonStreaming
    base = {"model": model, "messages": STORY, "max_tokens": 1}
    data = {"type": "base64", "media_type": "image/png", "data": PNG}
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "a", "input": {}}]}
    count = fields.walk(create, fields.sender(f"{url}/v1/messages", base), only={"messages"},
                        examples={"ImageBlockParam": {"type": "image", "source": data}, "Base64ImageSourceParam": data,
                                  "ToolResultBlockParam": {"type": "tool_result", "tool_use_id": "a"},
                                  "URLImageSourceParam": {"type": "url", "url": f"data:image/png;base64,{PNG}"}},
                        around={"AssistantMessageParam": lambda name, value: {name: [*STORY, *value, *STORY]},
                                "UserMessageParam": lambda name, value: {name: [*STORY, call, *value]}},
                        taken={"Base64ImageSourceParam", "ImageBlockParam", "URLImageSourceParam"})
    assert count > 20, count


def check_keys():
    keyed = Anthropic(base_url=KEYED_URL, api_key=KEY, max_retries=0)
    token = Anthropic(base_url=KEYED_URL, auth_token=KEY, api_key=None, max_retries=0)
    wrong = Anthropic(base_url=KEYED_URL, api_key="other", max_retries=0)
    for one in [keyed, token]:
        assert one.messages.count_tokens(model=MODEL, messages=STORY).input_tokens > 0
    fails(anthropic.AuthenticationError, "API key",
          lambda: wrong.messages.count_tokens(model=MODEL, messages=STORY))


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEElEQVR4nGM4IScHQQxwFgBBAAYZPEVBlgAAAABJRU5ErkJggg=="


def check_pictures():
    """On a server whose model sees; a picture is four tokens there."""
    seeing = Anthropic(base_url=os.environ["ML_SEEING"], api_key="none", max_retries=0)

    def ask(media_type, data=PNG):
        source = {"type": "base64", "media_type": media_type, "data": data}
        content = [{"type": "image", "source": source}, {"type": "text", "text": "What?"}]
        messages = [{"role": "user", "content": content}]
        count = seeing.messages.count_tokens(model="scripted", messages=messages).input_tokens
        assert count == len("<user>What?") + 4, count
        return seeing.messages.create(model="scripted", messages=messages, max_tokens=9)

    assert text_of(ask("image/png")) == "ok"
    fails(anthropic.BadRequestError, "messages[0].content[0]", lambda: ask("image/jpeg"))
    fails(anthropic.BadRequestError, "messages[0].content[0]", lambda: ask("image/png", "aGVsbG8="))


def check_batches():
    def request(custom_id, **more):
        params = {"model": MODEL, "max_tokens": 8, "temperature": 0, "messages": STORY, **more}
        return {"custom_id": custom_id, "params": params}

    def over(batch):
        deadline = time.monotonic() + 60
        while batch.processing_status != "ended":
            assert time.monotonic() < deadline, batch
            time.sleep(0.05)
            batch = client.messages.batches.retrieve(batch.id)
        return batch

    batch = client.messages.batches.create(
        requests=[request("one"), request("wrong", model="none"), request("two")])
    assert batch.type == "message_batch" and batch.request_counts.processing == 3, batch
    batch = over(batch)
    counts = batch.request_counts
    assert (counts.succeeded, counts.errored, counts.processing) == (2, 1, 0), counts
    results = {line.custom_id: line.result for line in client.messages.batches.results(batch.id)}
    assert text_of(results["one"].message) == text_of(results["two"].message) != "", results
    assert results["wrong"].error.error.type == "not_found_error", results
    assert batch.id in [other.id for other in client.messages.batches.list(limit=1)]
    assert client.messages.batches.delete(batch.id).type == "message_batch_deleted"
    fails(anthropic.NotFoundError, batch.id, lambda: client.messages.batches.retrieve(batch.id))
    fails(anthropic.BadRequestError, "is there twice",
          lambda: client.messages.batches.create(requests=[request("a"), request("a")]))

    many = [request(f"n{n}", max_tokens=200) for n in range(100)]
    batch = client.messages.batches.create(requests=many)
    batch = over(client.messages.batches.cancel(batch.id))
    counts = batch.request_counts
    assert counts.canceled > 0 and counts.canceled + counts.succeeded == 100, counts


checks = [check for name, check in list(globals().items()) if name.startswith("check_")]
for check in checks:
    check()
print(f"anthropic {anthropic.__version__}: {len(checks)} checks")
if left_out:
    print(f"left out: {', '.join(left_out)}")
