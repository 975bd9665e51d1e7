"""Anthropic's messages and OpenAI's responses, as llama.cpp's server is tested with them."""

import serving
from cases import URL, cases, get, ok, post, refused

CASES, case = cases()
HELLO = [{"role": "user", "content": "Say hello"}]
PICTURE = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==")
WEATHER = {"name": "get_weather", "description": "Get the weather", "input_schema": {
    "type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}}
MODEL = ok(get("/v1/models"))["data"][0]["id"]


def message(messages=HELLO, **more):
    return post("/v1/messages", {"model": MODEL, "max_tokens": 24, "messages": messages, "temperature": 0, **more})


@case({}, {"system": "You are a helpful assistant."}, {"temperature": 0.5}, {"top_p": 0.9}, {"top_k": 40},
      {"stop_sequences": ["\n", "END"]}, {"metadata": {"user_id": "test_user_123"}}, {"tools": [WEATHER]})
def a_message_is_answered(more):
    told = ok(message(**more))
    assert told["type"] == "message" and told["role"] == "assistant" and isinstance(told["content"], list), told
    assert told["stop_reason"] in ("end_turn", "max_tokens", "stop_sequence", "tool_use"), told
    usage = told["usage"]
    assert all(isinstance(usage[name], int) for name in ("input_tokens", "output_tokens", "cache_read_input_tokens"))
    assert usage["output_tokens"] > 0 and "timings" not in told, told


@case([{"role": "user", "content": [{"type": "text", "text": "What is"}, {"type": "text", "text": " the answer?"}]}],
      [*HELLO, {"role": "assistant", "content": "Hi there!"}, {"role": "user", "content": "How are you?"}])
def conversations_are_taken(messages):
    assert ok(message(messages))["content"]


@case([], [WEATHER])
def a_message_is_streamed(tools):
    asked = {"model": MODEL, "max_tokens": 24, "messages": HELLO, "temperature": 0, **({"tools": tools} if tools else {})}
    events = list(serving.stream(URL, "/v1/messages", asked))
    kinds = [event["type"] for event in events]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds
    start = events[0]["message"]
    assert start["role"] == "assistant" and start["content"] == [] and start["usage"]["input_tokens"] > 0, start
    begun = [event["index"] for event in events if event["type"] == "content_block_start"]
    ended = [event["index"] for event in events if event["type"] == "content_block_stop"]
    assert begun == ended == list(range(len(begun))) and begun, events
    assert events[-2]["usage"]["output_tokens"] > 0 and "timings" not in events[-1], events[-2:]


@case({}, {"system": "You are a helpful assistant."})
def tokens_are_counted(more):
    told = ok(post("/v1/messages/count_tokens", {"model": MODEL, "messages": HELLO, **more}))
    assert told["input_tokens"] > 0 and "output_tokens" not in told, told


@case([], [{"type": "text", "text": "Here are the results:"}])
def results_of_tools_are_taken(text):
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "Sunny, 25°C"}
    call = {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"location": "Paris"}}
    told = ok(message([*HELLO, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result, *text]}]))
    assert told["content"][0]["type"] == "text", told


@case()
def an_error_of_a_tool_is_taken():
    result = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "City not found"}
    call = {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"location": "Nowhere"}}
    ok(message([*HELLO, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]))


@case()
def a_model_that_sees_nothing_says_so():
    source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
    error = refused(message([{"role": "user", "content": [{"type": "image", "source": source}]}]))
    # llama.cpp's server answers with a 500; Anthropic's with a 400.
    assert "messages[0].content[0]" in error["message"] and "vision" in error["message"], error


@case(None, [])
def a_message_needs_messages(messages):
    refused(post("/v1/messages", {"model": MODEL, "max_tokens": 24, "messages": messages}))


@case()
def thoughts_may_have_a_budget():
    # Anthropic's own bounds: 1024 tokens at least, and less than the answer.
    refused(message(thinking={"type": "enabled", "budget_tokens": 50}, max_tokens=100))


@case(({"type": "json_schema", "name": "test", "schema": {"const": "foooooo"}}, 16, '"foooooo"'),
      ({"type": "json_object"}, 10, "{"), ({"type": "text"}, 10, ""), ({"type": "json_schema", "name": "test"}, 1, None))
def responses_have_a_form(value):
    form, length, begins = value
    answer = post("/responses", {"input": "Write an example", "max_output_tokens": length, "temperature": 0,
                                 "text": {"format": form}})
    if begins is None:
        refused(answer)
    else:
        output = next(item for item in ok(answer)["output"] if item["type"] == "message")
        assert output["content"][0]["text"].strip().startswith(begins), output


@case()
def a_response_is_streamed():
    asked = {"input": [{"role": "system", "content": "Book"}, {"role": "user", "content": "What is the best book"}],
             "max_output_tokens": 8, "temperature": 0}
    text, response, item = "", None, None
    for event in serving.stream(URL, "/v1/responses", asked):
        match event["type"]:
            case "response.created":
                response = event["response"]["id"]
            case "response.output_item.added":
                item = event["item"]["id"]
            case "response.output_text.delta":
                text += event["delta"]
                assert event["item_id"] == item, event
            case "response.completed" | "response.incomplete":
                assert event["response"]["id"] == response, event
                said = event["response"]["output"][0]
                assert said["id"] == item and said["content"][0]["text"] == text, said
    assert response.startswith("resp_") and item.startswith("msg_") and text


@case()
def a_response_tells_its_times():
    asked = {"input": "This is a test" * 10, "max_output_tokens": 8, "temperature": 0,
             "timings_per_token": True, "return_progress": True}
    progress, timed, last = [], 0, None
    for event in serving.stream(URL, "/responses", asked):
        if "prompt_progress" in event:
            assert event["type"] == "response.in_progress", event
            progress.append(event["prompt_progress"])
        timed += event["type"] == "response.output_text.delta" and event["timings"]["predicted_n"] > 0
        last = event
    assert progress[0]["processed"] == progress[0]["cache"] and progress[-1]["processed"] == progress[-1]["total"]
    assert timed and last["type"] in ("response.completed", "response.incomplete"), last
    assert last["timings"]["predicted_n"] > 0 and "usage" in last["response"], last
