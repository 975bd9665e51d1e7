"""Google's package for Python against a server: check.py URL KEYED_URL KEY."""

import importlib.metadata
import json
import sys
import urllib.error
import urllib.request

from google import genai
from google.genai import errors, types
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

URL, KEYED_URL, KEY = sys.argv[1:]
STORY = "Tell me a story about a fox"
WEATHER = "What is the weather in Paris?"
LENGTH = 40
SHORT = {"max_output_tokens": LENGTH, "temperature": 0}
# The package asks under /v1 by itself; other clients do under /v1beta.
VERSIONS = ["v1", "v1beta"]


def connect(url, key="none", version="v1"):
    return genai.Client(api_key=key, http_options=types.HttpOptions(base_url=url, api_version=version))


client = connect(URL)
served = next(iter(client.models.list()))
MODEL = served.name
told = json.load(urllib.request.urlopen(f"{URL}/v1/models"))["data"][0]["capabilities"]
held = told["constraint"]["supported"]
left_out = [] if held else ["forced calls and schemas"]


def generate(contents=STORY, client=client, model=MODEL, **more):
    return client.models.generate_content(model=model, contents=contents, config={**SHORT, **more})


def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"It is sunny in {city}."


def by_hand(**more):
    return {"tools": [get_weather], "automatic_function_calling": {"disable": True}, **more}


def fails(status, word, words, call):
    try:
        call()
    except errors.APIError as error:
        assert (error.code, error.status) == (status, word) and words in error.message, error
        return
    raise AssertionError(f"expected a {status} about `{words}`")


def check_models():
    assert served.input_token_limit > 0 and "generateContent" in served.supported_actions, served
    for version in VERSIONS:
        asked = connect(URL, version=version)
        assert [model.name for model in asked.models.list(config={"page_size": 1})] == [MODEL]
        assert asked.models.get(model=MODEL).display_name == MODEL.removeprefix("models/")
    fails(404, "NOT_FOUND", "does not exist", lambda: client.models.get(model="gemini"))


def check_answers_whole_and_streamed():
    whole = generate()
    usage = whole.usage_metadata
    assert len(whole.text) > 20 and whole.model_version == MODEL.removeprefix("models/"), whole
    assert whole.candidates[0].finish_reason == types.FinishReason.MAX_TOKENS
    assert usage.total_token_count == usage.prompt_token_count + LENGTH, usage
    for version in VERSIONS:
        asked = connect(URL, version=version)
        pieces = list(asked.models.generate_content_stream(model=MODEL, contents=STORY, config=SHORT))
        assert "".join(piece.text or "" for piece in pieces) == whole.text and len(pieces) > 5
        assert pieces[-1].candidates[0].finish_reason == types.FinishReason.MAX_TOKENS
        assert pieces[-1].usage_metadata.total_token_count == usage.total_token_count
    stopped = generate(stop_sequences=[" fox"])
    assert stopped.candidates[0].finish_reason == types.FinishReason.STOP and " fox" not in stopped.text
    drawn = [generate(temperature=0.9, seed=5).text for _ in range(2)]
    assert drawn[0] == drawn[1]
    instructed = generate(system_instruction="Answer in one word. " * 20).usage_metadata
    assert instructed.prompt_token_count > usage.prompt_token_count


def check_an_answer_is_that_of_openais_protocol():
    body = {"messages": [{"role": "user", "content": STORY}], "max_tokens": LENGTH, "temperature": 0}
    ask = urllib.request.Request(
        f"{URL}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    answer = json.load(urllib.request.urlopen(ask))
    assert answer["choices"][0]["message"]["content"] == generate().text


def check_chats_keep_what_was_streamed():
    chat = client.chats.create(model=MODEL, config=SHORT)
    first = chat.send_message(STORY)
    second = "".join(piece.text or "" for piece in chat.send_message_stream("And then?"))
    # What the package finds amiss is not in the curated history.
    assert chat.get_history(curated=True) == chat.get_history() and len(chat.get_history()) > 3
    contents = [types.Content(role=role, parts=[types.Part(text=text)])
                for role, text in [("user", STORY), ("model", first.text), ("user", "And then?")]]
    assert generate(contents).text == second


def check_counts():
    counted = client.models.count_tokens(model=MODEL, contents=STORY).total_tokens
    assert counted == generate().usage_metadata.prompt_token_count


def check_log_probabilities():
    told = generate(response_logprobs=True, logprobs=3).candidates[0]
    chosen, top = told.logprobs_result.chosen_candidates, told.logprobs_result.top_candidates
    assert len(chosen) == len(top) == LENGTH and all(len(one.candidates) == 3 for one in top)
    assert chosen[0].token_id == top[0].candidates[0].token_id and told.avg_logprobs < 0


def check_functions():
    if not held:
        return
    mode = {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["get_weather"]}}
    forced = generate(WEATHER, **by_hand(tool_config=mode))
    call = forced.function_calls[0]
    assert call.name == "get_weather" and list(call.args) == ["city"] and call.id, forced
    pieces = list(client.models.generate_content_stream(
        model=MODEL, contents=WEATHER, config={**SHORT, **by_hand(tool_config=mode)}))
    calls = [call for piece in pieces for call in piece.function_calls or []]
    assert [(one.name, one.args) for one in calls] == [(one.name, one.args) for one in forced.function_calls]
    result = types.Part.from_function_response(name=call.name, response={"result": get_weather(**call.args)})
    contents = [WEATHER, forced.candidates[0].content, types.Content(role="user", parts=[result])]
    assert generate(contents, **by_hand()).text
    assert not generate(WEATHER, **by_hand(tool_config={"function_calling_config": {"mode": "NONE"}})).function_calls


def check_the_packages_own_runner():
    chat = client.chats.create(model=MODEL, config={**SHORT, "tools": [get_weather]})
    answer = chat.send_message(WEATHER)
    results = [part for content in chat.get_history() for part in content.parts if part.function_response]
    assert results and answer.text, answer


def check_schemas():
    if not held:
        return

    class Fox(BaseModel):
        name: str
        legs: int

    for schema in [{"response_schema": Fox}, {"response_json_schema": Fox.model_json_schema()}]:
        answer = generate("A fox", max_output_tokens=120, response_mime_type="application/json", **schema)
        assert isinstance(Fox.model_validate_json(answer.text).legs, int)
    choices = {"type": "STRING", "enum": ["red", "grey"]}
    assert generate("A fox is", response_mime_type="text/x.enum", response_schema=choices).text in ["red", "grey"]


def check_errors():
    fails(400, "INVALID_ARGUMENT", "candidateCount", lambda: generate(candidate_count=2))
    fails(400, "INVALID_ARGUMENT", "cachedContent", lambda: generate(cached_content="cachedContents/a"))
    fails(404, "NOT_FOUND", "does not exist", lambda: generate(model="gemini"))
    fails(401, "UNAUTHENTICATED", "key", lambda: generate(client=connect(KEYED_URL)))
    assert generate(client=connect(KEYED_URL, KEY)).text


def check_every_field_is_known():
    def is_seen(body, path):
        ask = urllib.request.Request(
            f"{URL}/v1beta/{MODEL}:generateContent", json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(ask) as answer:
                return path in answer.headers.get("x-ml-ignored", "").split(", ")
        except urllib.error.HTTPError as error:
            told = json.load(error)["error"]
            assert error.code == 400 and "unknown field" not in told["message"], told
            return told["details"][0]["fieldViolations"][0]["field"].startswith(path.replace("[]", "[0]"))

    contents = [{"parts": [{"text": STORY}]}]
    bodies = {
        "generationConfig": (types.GenerationConfig, lambda more: {"contents": contents, "generationConfig": more}),
        "tools[]": (types.Tool, lambda more: {"contents": contents, "tools": [more]}),
        "toolConfig": (types.ToolConfig, lambda more: {"contents": contents, "toolConfig": more}),
        # A note alone is no part.
        "contents[].parts[]": (
            types.Part,
            lambda more: {"contents": [{"parts": [{"text": STORY, **more} if "partMetadata" in more else more]}]}),
        "tools[].functionDeclarations[]": (
            types.FunctionDeclaration,
            lambda more: {"contents": contents, "tools": [{"functionDeclarations": [{"name": "f", **more}]}]}),
    }
    for path, (kind, body) in bodies.items():
        for name in map(to_camel, kind.model_fields):
            # Of no field's type.
            assert is_seen(body({name: [[1.5]]}), f"{path}.{name}"), (path, name)


checks = [check for name, check in list(globals().items()) if name.startswith("check_")]
for check in checks:
    check()
print(f"google-genai {importlib.metadata.version('google-genai')}: {len(checks)} checks")
for what in left_out:
    print(f"left out: {what}")
