"""`/chat/completions`, `/apply-template`, and tools."""

import json
import re
import time

import serving
from cases import URL, cases, ok, post, refused

CASES, case = cases()
# Draws are greedy where a text is looked at: others may think first.
PATH = "/chat/completions"
BOOK = [{"role": "system", "content": "Book"}, {"role": "user", "content": "What is the best book"}]
CODER = [{"role": "system", "content": "You are a coding assistant."}, {"role": "user", "content": "Write an example"}]
PARTS = [BOOK[0], {"role": "user", "content": [{"type": "text", "text": "What is"},
                                               {"type": "text", "text": "the best book"}]}]
HELLO = [{"role": "user", "content": "say hello world with python"}]


def tool(name, properties):
    return {"type": "function", "function": {"name": name, "description": "", "parameters": {
        "type": "object", "properties": properties, "required": list(properties)}}}


TEST = tool("test", {"success": {"type": "boolean", "const": True}})
PYTHON = tool("python", {"code": {"type": "string", "description": "The code to run."}})


@case((BOOK, 8), (PARTS, 8), (CODER, 32))
def a_conversation_goes_on(value):
    messages, length = value
    asked = {"messages": messages, "max_tokens": length, "model": None, "ignore_eos": True, "temperature": 0}
    told = ok(post(PATH, asked))
    choice = told["choices"][0]
    assert "cmpl" in told["id"] and told["system_fingerprint"], told
    assert told["usage"]["prompt_tokens"] == len(ok(post("/apply-template", {"messages": messages}))["tokens"])
    assert told["usage"]["completion_tokens"] == length and choice["finish_reason"] == "length", told
    assert choice["message"]["role"] == "assistant" and choice["message"]["content"], told


@case((BOOK, 8), (CODER, 32))
def it_is_streamed(value):
    messages, length = value
    text, ids, seen = "", set(), {}
    asked = {"messages": messages, "max_tokens": length, "ignore_eos": True, "temperature": 0,
             "stream_options": {"include_usage": True}}
    for at, event in enumerate(serving.stream(URL, PATH, asked)):
        ids.add(event["id"])
        assert event["system_fingerprint"] and event["model"], event
        if not event["choices"]:
            seen = event["usage"]
            continue
        choice = event["choices"][0]
        if at == 0:
            assert choice["delta"]["role"] == "assistant" and not choice["delta"]["content"], choice
        else:
            assert "role" not in choice["delta"], choice
        if choice["finish_reason"]:
            assert choice["finish_reason"] == "length" and "content" not in choice["delta"], choice
        else:
            text += choice["delta"].get("content") or ""
    assert len(ids) == 1 and text and seen["completion_tokens"] == length, (ids, text, seen)


@case("Whill", [{"type": "text", "text": "Wh"}, {"type": "text", "text": "ill"}])
def the_assistants_last_message_goes_on(content):
    messages = [*BOOK, {"role": "assistant", "content": content}]
    prompt = ok(post("/apply-template", {"messages": messages}))["prompt"]
    assert prompt.endswith("assistant\nWhill"), prompt
    told = ok(post(PATH, {"messages": messages, "max_tokens": 8}))
    assert told["usage"]["prompt_tokens"] == len(ok(post("/apply-template", {"messages": messages}))["tokens"])


@case(True, False)
def a_template_may_begin_the_answer(begins):
    prompt = ok(post("/apply-template", {"messages": BOOK, "add_generation_prompt": begins}))["prompt"]
    assert prompt.endswith("assistant\n") == begins and "What is the best book" in prompt, prompt


@case(None, [], [TEST])
def a_template_takes_tools(tools):
    prompt = ok(post("/apply-template", {"messages": BOOK, "tools": tools}))["prompt"]
    assert ('"success"' in prompt) == bool(tools), prompt


@case(({"type": "json_object", "schema": {"const": "42"}}, 8, r'^"42"$'),
      ({"type": "json_object", "schema": {"items": [{"type": "integer"}]}}, 10, r"."),
      ({"type": "json_schema", "json_schema": {"schema": {"const": "foooooo"}}}, 16, r'^"foooooo"$'),
      ({"type": "json_object"}, 10, r"^\s*\{"),
      ({"type": "sound"}, 1, None),
      ({"type": "json_object", "schema": 123}, 1, None),
      ({"type": "json_object", "schema": {"type": 123}}, 1, None),
      ({"type": "json_object", "schema": {"type": "hiccup"}}, 1, None))
def answers_have_a_form(value):
    form, length, pattern = value
    asked = {"messages": CODER, "max_tokens": length, "temperature": 0}
    answer = post(PATH, {**asked, "response_format": form})
    if pattern is None:
        refused(answer)
    else:
        assert re.search(pattern, ok(answer)["choices"][0]["message"]["content"]), answer.text


@case(({"json_schema": {"const": "42"}}, '"42"'), ({"grammar": 'root ::= "a"{5,5}'}, "aaaaa"))
def answers_are_held(value):
    more, text = value
    told = ok(post(PATH, {"messages": CODER, "max_tokens": 16, "temperature": 0, **more}))
    assert told["choices"][0]["message"]["content"].strip() == text, told


@case(None, "string", [123], [{}], [{"role": 123}], [{"role": "system", "content": 123}],
      [{"role": "system", "content": "test"}, {}])
def what_is_no_conversation_is_refused(messages):
    refused(post(PATH, {"messages": messages}))


@case()
def times_are_told_with_each_token():
    asked = {"max_tokens": 10, "messages": HELLO, "stream_options": {"include_usage": True}, "timings_per_token": True}
    last = None
    for at, event in enumerate(serving.stream(URL, PATH, asked)):
        assert ("timings" in event) == (at > 0), (at, event)
        last = event
    assert not last["choices"] and last["timings"]["predicted_n"] <= 10, last
    assert {"prompt_per_second", "predicted_per_second"} <= set(last["timings"])


@case(False, True)
def probabilities_are_told(streams):
    asked = {"messages": BOOK, "temperature": 0, "max_tokens": 5, "logprobs": True, "top_logprobs": 10}
    if streams:
        events = [event["choices"][0] for event in serving.stream(URL, PATH, asked) if event["choices"]]
        text = "".join(event["delta"].get("content") or "" for event in events)
        tokens = [token for event in events for token in (event["logprobs"] or {"content": []})["content"]]
    else:
        choice = ok(post(PATH, asked))["choices"][0]
        text, tokens = choice["message"]["content"], choice["logprobs"]["content"]
    assert text == "".join(token["token"] for token in tokens), (text, tokens)
    assert all(token["logprob"] <= 0 and token["bytes"] is not None and token["top_logprobs"] for token in tokens)


@case()
def tokens_are_excluded():
    ids = ok(post("/tokenize", {"content": " the a is of it "}))["tokens"]
    told = ok(post(PATH, {"messages": BOOK, "temperature": 0, "max_tokens": 48,
                          "logit_bias": {str(id): -100 for id in ids}}))
    text = told["choices"][0]["message"]["content"]
    assert text and not any(f" {word} " in text for word in ("the", "a", "is", "of", "it")), text


@case(False, True)
def a_conversation_may_be_too_long(streams):
    asked = {"messages": BOOK * 20, "num_ctx": 128}
    if streams:
        try:
            list(serving.stream(URL, PATH, asked))
            raise AssertionError("it was answered")
        except serving.Failed as failed:
            error = refused(failed.answer)
    else:
        error = refused(post(PATH, asked))
    # The type and the code are OpenAI's, whose clients read them; the numbers are llama.cpp's.
    assert error["code"] == "context_length_exceeded", error
    assert error["n_prompt_tokens"] > 128 == error["n_ctx"], error


@case(False, True)
def a_stream_tells_how_far_it_read(again):
    asked = {"max_tokens": 4, "return_progress": True,
             "messages": [{"role": "user", "content": f"This is a test {time.time_ns()}" * 10}]}
    events = list(serving.stream(URL, PATH, asked))
    if again:
        events = list(serving.stream(URL, PATH, asked))
    told = [event["prompt_progress"] for event in events if "prompt_progress" in event]
    assert told, "no progress is told"
    assert told[0]["processed"] == told[0]["cache"] and (told[0]["cache"] > 100) == again, told
    assert told[-1]["processed"] == told[-1]["total"] > 0, told


@case(PATH, "/completion")
def several_answers_are_told(path):
    if path == PATH:
        told = ok(post(PATH, {"max_tokens": 8, "n": 2, "messages": BOOK, "ignore_eos": True}))
        assert [choice["finish_reason"] for choice in told["choices"]] == ["length"] * 2, told
    else:
        told = ok(post(path, {"n_predict": 8, "n_cmpl": 2, "prompt": "a", "ignore_eos": True}))
        assert [one["stop_type"] for one in told] == ["limit"] * 2, told


def answer(streams, **asked):
    if not streams:
        return ok(post("/v1/chat/completions", asked))["choices"][0]["message"]
    message = {"content": "", "tool_calls": []}
    for event in serving.stream(URL, "/v1/chat/completions", asked):
        delta = event["choices"][0]["delta"] if event["choices"] else {}
        message["content"] += delta.get("content") or ""
        for call in delta.get("tool_calls") or []:
            if call["index"] == len(message["tool_calls"]):
                message["tool_calls"].append({"function": {"name": "", "arguments": ""}})
            for key, text in call["function"].items():
                message["tool_calls"][call["index"]]["function"][key] += text or ""
    return message


@case(*[(wanted, key, streams) for wanted, key in ((TEST, "success"), (PYTHON, "code")) for streams in (False, True)])
def a_required_tool_is_called(value):
    wanted, key, streams = value
    message = answer(streams, messages=CODER, max_tokens=200, tool_choice="required", tools=[wanted],
                     parallel_tool_calls=False, temperature=0, top_k=1, top_p=1.0)
    assert len(message["tool_calls"]) == 1 and not message.get("content"), message
    called = message["tool_calls"][0]["function"]
    assert called["name"] == wanted["function"]["name"], called
    # A small model may not come to the end of a text.
    if key == "success":
        assert json.loads(called["arguments"]) == {"success": True}, called
    else:
        assert called["arguments"].replace(" ", "").startswith('{"code":"'), called


@case(*[(tools, choice, streams) for tools, choice in (([], None), ([PYTHON], "none")) for streams in (False, True)])
def without_leave_none_is(value):
    tools, choice, streams = value
    message = answer(streams, messages=HELLO, max_tokens=24, tools=tools, tool_choice=choice, temperature=0)
    assert not message.get("tool_calls") and message["content"], message
