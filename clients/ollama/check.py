"""Ollama's package for Python against a server: check.py URL KEYED_URL KEY."""

import base64
import json
import os
import sys

import importlib.metadata
from ollama import Client, ResponseError
from ollama import _types as types
from pydantic import BaseModel

URL, KEYED_URL, KEY = sys.argv[1:]
STORY = [{"role": "user", "content": "Tell me a story about a fox"}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEElEQVR4nGM4IScHQQxwFgBBAAYZPEVBlgAAAABJRU5ErkJggg==")
LENGTH = 40

client = Client(host=URL)
MODEL = client.list().models[0].model
shown = client.show(MODEL)
SHORT = {"num_predict": LENGTH, "temperature": 0}


def chat(**more):
    return client.chat(**{"model": MODEL, "messages": STORY, "options": SHORT, **more})


def fails(status, param, call):
    try:
        result = call()
        if not isinstance(result, BaseModel):
            list(result)
    except ResponseError as error:
        assert error.status_code == status and param in error.error, (error, param)
        return error.error
    raise AssertionError(f"expected a {status} about `{param}`")


def check_models():
    assert len(client.list().models) == 1
    model, running = client.list().models[0], client.ps().models[0]
    assert model.digest == running.digest and model.details.format == "safetensors"
    assert running.context_length > 0 and running.expires_at.year == 9999
    assert {"completion", "tools"} <= set(shown.capabilities), shown
    assert shown.modelinfo["general.parameter_count"] > 0
    fails(404, "does not exist", lambda: client.show("gpt-4"))


def check_chat_whole_and_in_lines():
    whole = chat()
    assert whole.done and whole.done_reason == "length" and whole.eval_count == LENGTH, whole
    assert whole.total_duration > whole.eval_duration > 0, whole
    parts = list(chat(stream=True))
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].done_reason == "length" and parts[-1].eval_count == LENGTH
    assert chat(model=f"{MODEL}:latest").message.content == whole.message.content
    stopped = chat(options={**SHORT, "stop": [" fox"]})
    assert stopped.done_reason == "stop" and " fox" not in stopped.message.content
    drawn = [chat(options={"num_predict": 12, "temperature": 0.9, "seed": 5}).message.content for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert chat(messages=[]).done_reason == "load"


def check_a_chat_is_that_of_openais_protocol():
    import urllib.request
    body = {"messages": STORY, "max_tokens": LENGTH, "temperature": 0}
    ask = urllib.request.Request(f"{URL}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    answer = json.load(urllib.request.urlopen(ask))
    assert answer["choices"][0]["message"]["content"] == chat().message.content
    assert answer["usage"]["prompt_tokens"] == chat().prompt_eval_count


def check_prompts():
    whole = client.generate(model=MODEL, prompt=STORY[0]["content"], options=SHORT)
    assert whole.response == chat().message.content
    raw = client.generate(model=MODEL, prompt="Once upon a time", raw=True, options=SHORT)
    parts = list(client.generate(model=MODEL, prompt="Once upon a time", raw=True, options=SHORT, stream=True))
    assert "".join(part.response for part in parts) == raw.response != whole.response
    assert client.generate(model=MODEL).done_reason == "load"


def check_tools():
    def get_weather(city: str) -> str:
        """Get the weather of a city.

        Args:
            city: The city.
        """
        return json.dumps({"city": city, "temperature": 21, "condition": "sunny"})

    free = {"temperature": 0}
    whole = chat(messages=WEATHER, tools=[get_weather], options=free)
    call = whole.message.tool_calls[0].function
    assert (call.name, call.arguments) == ("get_weather", {"city": "Paris"}), whole
    parts = chat(messages=WEATHER, tools=[get_weather], options=free, stream=True)
    streamed = [call.function for part in parts for call in part.message.tool_calls or []]
    assert streamed == [call], streamed
    result = {"role": "tool", "tool_name": call.name, "content": get_weather(**call.arguments)}
    answer = chat(messages=[*WEATHER, whole.message, result], tools=[get_weather], options=free)
    assert "Paris" in answer.message.content and not answer.message.tool_calls, answer


def check_schemas():
    class Person(BaseModel):
        name: str
        age: int

    schema = Person.model_json_schema()
    schema["properties"]["name"]["maxLength"] = 20
    schema["properties"]["age"].update(minimum=0, maximum=120)
    Person.model_validate_json(chat(format=schema, options={"num_predict": 200, "temperature": 0}).message.content)
    assert isinstance(json.loads(chat(format="json", options={"num_predict": 300, "temperature": 0}).message.content), dict)


def check_log_probabilities():
    whole = chat(logprobs=True, top_logprobs=2)
    assert "".join(entry.token for entry in whole.logprobs) == whole.message.content
    assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 2 for entry in whole.logprobs)


def check_pictures():
    """On a server whose model sees; a picture is four tokens there."""
    seeing = Client(host=os.environ["ML_SEEING"])
    message = {"role": "user", "content": "What?", "images": [PNG]}
    answer = seeing.chat(model="scripted", messages=[message])
    assert answer.message.content == "ok" and answer.prompt_eval_count == len("<user>What?") + 4, answer
    assert seeing.generate(model="scripted", prompt="What?", images=[PNG]).response == "ok"
    wrong = {**message, "images": [base64.b64encode(b"hello").decode()]}
    fails(400, "messages[0].images[0]", lambda: seeing.chat(model="scripted", messages=[wrong]))
    fails(400, "messages[0].images", lambda: chat(messages=[message]))


def check_vectors():
    embedding = Client(host=os.environ["ML_EMBEDDING"])
    made = embedding.embed(model="bert", input=["a fox", "snow"])
    assert [len(vector) for vector in made.embeddings] == [32, 32] and made.prompt_eval_count > 2
    one = embedding.embed(model="bert:latest", input="a fox", dimensions=8).embeddings[0]
    assert len(one) == 8 and abs(sum(value * value for value in one) - 1) < 1e-5
    assert embedding.embeddings(model="bert", prompt="a fox").embedding == made.embeddings[0]
    assert len(embedding.embed(model="bert", input="fox " * 100).embeddings) == 1
    fails(400, "102 tokens", lambda: embedding.embed(model="bert", input="fox " * 100, truncate=False))
    bounded = embedding.embed(model="bert", input="fox " * 100, options={"num_ctx": 5, "temperature": 0})
    assert bounded.prompt_eval_count == 5, bounded.prompt_eval_count
    fails(400, "mirostat", lambda: embedding.embed(model="bert", input="a", options={"mirostat": 2}))


def check_errors():
    fails(404, "gpt-4", lambda: chat(model="gpt-4"))
    fails(404, "gpt-4", lambda: chat(model="gpt-4", stream=True))
    # Hints of how a model is loaded change no answer.
    assert chat(options={**SHORT, "num_gpu": 1, "num_thread": 2}, keep_alive=0).message == chat().message
    fails(400, "options.mirostat", lambda: chat(options={"mirostat": 1}))
    assert chat(keep_alive="5m").done
    fails(400, "think", lambda: chat(think="deeply"))
    fails(400, "the context takes 2", lambda: chat(options={"num_ctx": 2}))
    for call in [lambda: client.pull("a"), lambda: client.push("a"), lambda: client.create("a", from_="b")]:
        assert "a server changes no models" in fails(400, "/api/", call)
    for call in [lambda: client.copy("a", "b"), lambda: client.delete("a")]:
        assert "a server changes no models" in fails(400, "/api/", call)
    fails(401, "key", Client(host=KEYED_URL).list)
    assert Client(host=KEYED_URL, headers={"authorization": f"Bearer {KEY}"}).list().models


def check_every_field_is_known():
    """What the package may send is honoured, refused for a reason, or told to change nothing; nothing is unknown."""
    requests = {"chat": types.ChatRequest, "generate": types.GenerateRequest, "embed": types.EmbedRequest,
                "embeddings": types.EmbeddingsRequest, "show": types.ShowRequest}
    bodies = {"chat": {"messages": STORY}, "generate": {"prompt": "a"}, "embed": {"input": "a"},
              "embeddings": {"prompt": "a"}, "show": {}}
    url = os.environ["ML_EMBEDDING"]

    def refused(path, body):
        answer = client._client.post(f"{url}/api/{path}", json=body)
        told = answer.headers.get("x-ml-ignored")
        if answer.status_code == 200 and told:
            return told
        assert answer.status_code in (400, 404), (path, body, answer.text)
        error = answer.json()
        assert "unknown field" not in error["error"], error
        return error["param"]

    for path, kind in requests.items():
        model = "bert" if path.startswith("embed") else MODEL
        for name in kind.model_fields:
            # Of no field's type.
            param = refused(path, {"model": model, **bodies[path], name: [[1.5]]})
            assert param.startswith(name), (path, name, param)
    assert len(types.Options.model_fields) > 25
    for name in types.Options.model_fields:
        param = refused("chat", {"model": MODEL, "messages": STORY, "options": {name: [[1.5]]}})
        assert param.startswith(f"options.{name}"), (name, param)


checks = [check for name, check in list(globals().items()) if name.startswith("check_")]
for check in checks:
    check()
print(f"ollama {importlib.metadata.version('ollama')}: {len(checks)} checks")
