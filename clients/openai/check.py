"""openai's package for Python, versions 2 and 3, against a server: check.py URL KEYED_URL KEY."""

import base64
import io
import json
import math
import os
import pathlib
import struct
import sys
import time
import wave

import openai
from openai import OpenAI
from openai.types import completion_create_params, embedding_create_params, image_edit_params, image_generate_params
from openai.types.audio import speech_create_params, transcription_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import fields

URL, KEYED_URL, KEY = sys.argv[1:]
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
STORY = [{"role": "user", "content": "Tell me a story about a fox"}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city.",
                                         "parameters": CITY}}
LENGTH = 40

client = OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
models = client.models.list().data
MODEL = models[0].id
held = models[0].capabilities["constraint"]["supported"]


def chat(**more):
    return client.chat.completions.create(
        **{"model": MODEL, "messages": STORY, "max_tokens": LENGTH, "temperature": 0, **more})


def fails(kind, param, call):
    try:
        call()
    except kind as error:
        assert type(error) is kind, error
        assert error.param == param, (error.param, param)
        assert error.body["message"] and error.request_id, error
        return
    raise AssertionError(f"expected {kind.__name__}")


def check_models():
    assert len(models) == 1 and models[0].object == "model"
    assert client.models.retrieve(MODEL).id == MODEL


def check_chat_whole_and_streamed():
    whole = chat()
    choice, usage = whole.choices[0], whole.usage
    assert len(choice.message.content) > 20 and choice.finish_reason == "length"
    assert usage.completion_tokens == LENGTH
    assert usage.total_tokens == usage.prompt_tokens + LENGTH
    text, reasons, usages = "", [], []
    for chunk in chat(stream=True, stream_options={"include_usage": True}):
        for part in chunk.choices:
            text += part.delta.content or ""
            reasons += [part.finish_reason] if part.finish_reason else []
        usages += [chunk.usage] if chunk.usage else []
    assert text == choice.message.content, (text, choice.message.content)
    assert reasons == ["length"], reasons
    # The prompt of the second request is in the cache.
    assert [u.completion_tokens for u in usages] == [LENGTH]
    assert usages[0].prompt_tokens == usage.prompt_tokens


def check_the_packages_own_stream():
    # It takes an answer that was cut off for a failure, so this one is as long as it wants to be.
    with client.chat.completions.stream(
            model=MODEL, messages=STORY, temperature=0, logprobs=True, top_logprobs=3) as stream:
        final = stream.get_final_completion()
    whole = chat(logprobs=True, top_logprobs=3, max_tokens=None)
    assert final.choices[0].message.content == whole.choices[0].message.content
    entries = whole.choices[0].logprobs.content
    assert [entry.token for entry in entries] == [e.token for e in final.choices[0].logprobs.content]
    assert LENGTH < len(entries) <= whole.usage.completion_tokens
    for entry in entries:
        assert entry.logprob <= 0 and len(entry.top_logprobs) == 3
        # Greedy: what was chosen is the likeliest.
        assert entry.top_logprobs[0].token == entry.token, entry
        assert bytes(entry.bytes).decode(errors="replace") == entry.token
    joined = b"".join(bytes(entry.bytes) for entry in entries)
    assert joined.decode() == whole.choices[0].message.content


def check_choices_and_seeds():
    ask = {"n": 3, "seed": 5, "temperature": 0.9, "max_tokens": 12}
    texts = [[c.message.content for c in chat(**ask).choices] for _ in range(2)]
    assert texts[0] == texts[1] and len(set(texts[0])) > 1, texts
    stop = chat(stop=[" fox"]).choices[0]
    assert stop.finish_reason == "stop" and " fox" not in stop.message.content


def check_tools():
    whole = chat(messages=WEATHER, tools=[TOOL])
    choice = whole.choices[0]
    call = choice.message.tool_calls[0]
    assert choice.finish_reason == "tool_calls" and call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}, call
    with client.chat.completions.stream(
            model=MODEL, messages=WEATHER, tools=[TOOL], temperature=0, max_tokens=LENGTH) as stream:
        final = stream.get_final_completion().choices[0]
    streamed = final.message.tool_calls[0].function
    assert final.finish_reason == "tool_calls"
    assert (streamed.name, streamed.arguments) == (call.function.name, call.function.arguments)
    result = {"role": "tool", "tool_call_id": call.id,
              "content": json.dumps({"city": "Paris", "temperature": 21, "condition": "sunny"})}
    spoken = choice.message.model_dump(exclude_none=True)
    answer = chat(messages=[*WEATHER, spoken, result], tools=[TOOL]).choices[0]
    assert answer.finish_reason == "stop" and "Paris" in answer.message.content, answer
    none = chat(messages=WEATHER, tools=[TOOL], tool_choice="none").choices[0]
    assert not none.message.tool_calls and none.message.content


def check_forced_tools():
    for choice in ["required", {"type": "function", "function": {"name": "get_weather"}}]:
        answer = chat(tools=[TOOL], tool_choice=choice, max_tokens=200).choices[0]
        call = answer.message.tool_calls[0].function
        assert answer.finish_reason == "tool_calls" and call.name == "get_weather"
        assert isinstance(json.loads(call.arguments)["city"], str)


def check_schemas():
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20},
                                               "age": {"type": "integer", "minimum": 0, "maximum": 120}},
              "required": ["name", "age"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}}
    person = json.loads(chat(response_format=form, max_tokens=200).choices[0].message.content)
    assert set(person) == {"name", "age"} and type(person["age"]) is int, person
    assert isinstance(json.loads(
        chat(response_format={"type": "json_object"}, max_tokens=300,
             messages=[{"role": "user", "content": "Extract the name, age and city as JSON: Mara is 31 and lives in Oslo."}])
        .choices[0].message.content), dict)


def check_schemas_are_refused_by_name():
    fails(openai.BadRequestError, "response_format", lambda: chat(response_format={"type": "json_object"}))
    fails(openai.BadRequestError, "tool_choice", lambda: chat(tools=[TOOL], tool_choice="required"))


def check_completions():
    def complete(**more):
        return client.completions.create(
            **{"model": MODEL, "prompt": "Once", "max_tokens": 10, "temperature": 0, **more})

    whole = complete(logprobs=2)
    choice = whole.choices[0]
    assert whole.usage.completion_tokens == len(choice.logprobs.tokens) == 10
    assert "".join(choice.logprobs.tokens) == choice.text
    offsets = [len("Once")]
    for token in choice.logprobs.tokens[:-1]:
        offsets.append(offsets[-1] + len(token))
    assert choice.logprobs.text_offset == offsets
    assert all(len(top) in (2, 3) for top in choice.logprobs.top_logprobs)
    assert "".join(chunk.choices[0].text for chunk in complete(stream=True)) == choice.text
    several = complete(prompt=["Once", "The fox"], n=2, echo=True).choices
    assert [c.index for c in several] == [0, 1, 2, 3]
    assert several[0].text == several[1].text == "Once" + choice.text
    assert several[2].text.startswith("The fox")


def respond(**more):
    return client.responses.create(
        **{"model": MODEL, "input": STORY[0]["content"], "max_output_tokens": LENGTH, "temperature": 0, **more})


def check_responses_whole_and_streamed():
    whole = respond()
    assert whole.status == "incomplete" and whole.incomplete_details.reason == "max_output_tokens"
    assert whole.usage.output_tokens == LENGTH and whole.usage.input_tokens > 0
    # The same conversation is the same prompt, and has the same answer.
    assert whole.output_text == chat().choices[0].message.content
    assert whole.usage.input_tokens == chat().usage.prompt_tokens
    text, names = "", []
    for event in respond(stream=True):
        assert event.sequence_number == len(names)
        names.append(event.type)
        text += event.delta if event.type == "response.output_text.delta" else ""
    assert text == whole.output_text
    assert names[:4] == ["response.created", "response.in_progress", "response.output_item.added",
                         "response.content_part.added"], names[:4]
    assert names[-4:] == ["response.output_text.done", "response.content_part.done",
                          "response.output_item.done", "response.incomplete"], names[-4:]
    # The package's own stream puts the pieces together, and checks them against the whole.
    with client.responses.stream(model=MODEL, input="Hi", temperature=0) as stream:
        final = stream.get_final_response()
    assert final.status == "completed"
    assert final.output_text == respond(input="Hi", max_output_tokens=None).output_text
    counted = client.responses.input_tokens.count(model=MODEL, input=STORY[0]["content"])
    assert counted.input_tokens == whole.usage.input_tokens


def check_responses_tell_log_probabilities():
    whole = respond(include=["message.output_text.logprobs"], top_logprobs=2)
    entries = whole.output[0].content[0].logprobs
    assert "".join(entry.token for entry in entries) == whole.output_text
    assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 2 for entry in entries)


def check_responses_call_tools():
    tool = {"type": "function", "strict": False, **TOOL["function"]}
    question = WEATHER[0]["content"]
    whole = respond(input=question, tools=[tool])
    call = next(item for item in whole.output if item.type == "function_call")
    assert call.name == "get_weather" and json.loads(call.arguments) == {"city": "Paris"}, call
    with client.responses.stream(model=MODEL, input=question, tools=[tool], temperature=0) as stream:
        streamed = next(item for item in stream.get_final_response().output if item.type == "function_call")
    assert (streamed.name, streamed.arguments) == (call.name, call.arguments)
    output = {"type": "function_call_output", "call_id": call.call_id,
              "output": json.dumps({"city": "Paris", "temperature": 21, "condition": "sunny"})}
    by_hand = respond(input=[{"role": "user", "content": question}, *whole.output, output], tools=[tool])
    kept = respond(input=[output], previous_response_id=whole.id, tools=[tool])
    assert "Paris" in by_hand.output_text and by_hand.output_text == kept.output_text


def check_responses_are_kept():
    first = respond(input="Hello")
    second = respond(input="And then?", previous_response_id=first.id)
    items = list(client.responses.input_items.list(second.id, order="asc", limit=1))
    assert [item.type for item in items] == ["message"] * 3, items
    assert [item.role for item in items] == ["user", "assistant", "user"]
    told = client.responses.retrieve(first.id)
    assert told.output_text == first.output_text and told.id == first.id
    fails(openai.BadRequestError, None, lambda: client.responses.cancel(first.id))
    client.responses.delete(first.id)
    fails(openai.NotFoundError, None, lambda: client.responses.retrieve(first.id))
    fails(openai.BadRequestError, "previous_response_id", lambda: respond(previous_response_id=first.id))
    unkept = respond(input="Hello", store=False)
    fails(openai.NotFoundError, None, lambda: client.responses.retrieve(unkept.id))


def check_responses_hold_to_schemas():
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}},
              "required": ["name"], "additionalProperties": False}
    form = {"format": {"type": "json_schema", "name": "person", "strict": True, "schema": schema}}
    person = json.loads(respond(text=form, max_output_tokens=200).output_text)
    assert set(person) == {"name"}, person
    tool = {"type": "function", "strict": True, **TOOL["function"]}
    forced = respond(tools=[tool], tool_choice="required", max_output_tokens=200).output
    assert isinstance(json.loads(forced[-1].arguments)["city"], str)
    form = {"type": "grammar", "syntax": "regex", "definition": "[0-9]{2}:[0-9]{2}"}
    clock = {"type": "custom", "name": "clock", "description": "Sets the clock.", "format": form}
    forced = respond(tools=[clock], tool_choice="required", max_output_tokens=200).output[-1]
    assert forced.type == "custom_tool_call" and len(forced.input) == 5 and forced.input[2] == ":", forced


def walked(path, params, base, known=True, url=URL, **more):
    return fields.walk(params, fields.sender(f"{url}/v1/{path}", base), known, **more)


def with_stream(name, value):
    return {name: value, "stream": True}


def behind_its_call(name, value):
    """A result, which must be that of a call."""
    function = {"name": "get_weather", "arguments": "{}"}
    return {name: [{"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": function}]}] + value}


def check_every_field_of_chats_is_honoured_or_refused():
    """What the package may send is honoured, or refused for a reason: the request's fields, and those of the objects in
    them."""
    schema = {"name": "city", "schema": CITY}
    examples = {
        "ChatCompletionAssistantMessageParam": {"role": "assistant", "content": "a"},
        "JSONSchema": schema,
        "ResponseFormatJSONSchema": {"type": "json_schema", "json_schema": schema},
        "ChatCompletionNamedToolChoiceParam": {"type": "function", "function": {"name": "get_weather"}},
    }
    around = {
        "ChatCompletionStreamOptionsParam": with_stream,
        "ChatCompletionToolMessageParam": behind_its_call,
        "ChatCompletionNamedToolChoiceParam": lambda name, value: {name: value, "tools": [TOOL]},
    }
    taken = {
        "ChatCompletionAssistantMessageParam", "ChatCompletionContentPartTextParam", "ChatCompletionFunctionToolParam",
        "ChatCompletionStreamOptionsParam", "ChatCompletionSystemMessageParam", "ChatCompletionToolMessageParam",
        "ChatCompletionUserMessageParam", "FunctionDefinition", "ResponseFormatText",
    }
    if held:
        taken |= {"ChatCompletionNamedToolChoiceParam", "JSONSchema", "ResponseFormatJSONObject",
                  "ResponseFormatJSONSchema"}
    base = {"model": MODEL, "max_tokens": 1, "messages": STORY}
    count = walked("chat/completions", chat_create_params.CompletionCreateParamsNonStreaming, base,
                   examples=examples, around=around, taken=taken)
    assert count > 80, count
    base = {"model": MODEL, "max_tokens": 1, "prompt": "a"}
    count = walked("completions", completion_create_params.CompletionCreateParamsNonStreaming, base,
                   around=around, taken={"ChatCompletionStreamOptionsParam"})
    assert count > 16, count


def check_every_field_of_responses_is_honoured_or_refused():
    tool = {"type": "function", **TOOL["function"]}
    custom = {"type": "custom", "name": "clock"}
    call = {"type": "function_call", "call_id": "a", "name": "get_weather", "arguments": "{}"}
    custom_call = {"type": "custom_tool_call", "call_id": "a", "name": "clock", "input": "a"}
    text = {"type": "output_text", "text": "a", "annotations": []}
    examples = {
        "FunctionCallOutput": {"type": "function_call_output", "call_id": "a", "output": "a"},
        "Grammar": {"type": "grammar", "syntax": "regex", "definition": "a"},
        "ResponseFormatTextJSONSchemaConfigParam": {"type": "json_schema", "name": "city", "schema": CITY},
        "ResponseFunctionToolCallParam": call,
        "ResponseCustomToolCallParam": custom_call,
        "ResponseOutputMessageParam": {"type": "message", "role": "assistant", "id": "a", "status": "completed",
                                       "content": [text]},
        "ResponseOutputTextParam": text,
        "ToolChoiceAllowedParam": {"type": "allowed_tools", "mode": "auto",
                                   "tools": [{"type": "function", "name": "get_weather"}]},
        "ToolChoiceCustomParam": {"type": "custom", "name": "clock"},
        "ToolChoiceFunctionParam": {"type": "function", "name": "get_weather"},
    }
    with_tools = lambda name, value: {name: value, "tools": [tool, custom]}
    around = {
        "StreamOptions": with_stream,
        "FunctionCallOutput": lambda name, value: {name: [call] + value},
        "ResponseCustomToolCallOutputParam": lambda name, value: {name: [custom_call] + value},
        "ToolChoiceAllowedParam": with_tools,
        "ToolChoiceCustomParam": with_tools,
        "ToolChoiceFunctionParam": with_tools,
    }
    taken = {"CustomToolParam", "EasyInputMessageParam", "FunctionCallOutput", "FunctionToolParam", "ResponseFormatText",
             "ResponseFunctionToolCallParam", "ResponseInputTextParam", "ResponseOutputMessageParam", "StreamOptions"}
    if held:
        taken |= {"ResponseFormatTextJSONSchemaConfigParam", "ToolChoiceFunctionParam"}
    count = walked("responses", response_create_params.ResponseCreateParamsNonStreaming,
                   {"model": MODEL, "input": "a", "max_output_tokens": 1},
                   examples=examples, around=around, taken=taken)
    assert count > 80, count


def check_every_field_of_shown_pictures_is_honoured_or_refused():
    """On a server whose model sees."""
    url = os.environ["ML_SEEING"]
    seeing = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    one = {"model": seeing.models.list().data[0].id}
    data = f"data:image/png;base64,{PNG}"
    count = walked("chat/completions", chat_create_params.CompletionCreateParamsNonStreaming, {**one, "messages": STORY},
                   url=url, only={"messages"}, taken={"ChatCompletionContentPartImageParam", "ImageURL"},
                   around={"ChatCompletionToolMessageParam": behind_its_call},
                   examples={"ChatCompletionAssistantMessageParam": {"role": "assistant", "content": "a"},
                             "ChatCompletionContentPartInputAudioParam": SOUND, "ImageURL": {"url": data},
                             "InputAudio": SOUND["input_audio"]})
    assert count > 20, count
    call = {"type": "function_call", "call_id": "a", "name": "a", "arguments": "{}"}
    custom = {"type": "custom_tool_call", "call_id": "a", "name": "a", "input": "a"}
    picture = {"type": "input_image", "detail": "auto", "image_url": data}
    text = {"type": "output_text", "text": "a", "annotations": []}
    count = walked("responses", response_create_params.ResponseCreateParamsNonStreaming, {**one, "input": "a"},
                   url=url, only={"input"}, taken={"ResponseInputImageParam"},
                   around={"FunctionCallOutput": lambda name, value: {name: [call] + value},
                           "ResponseCustomToolCallOutputParam": lambda name, value: {name: [custom] + value}},
                   examples={"ResponseInputImageParam": picture, "ResponseInputImageContentParam": picture,
                             "ResponseFunctionToolCallParam": call, "ResponseCustomToolCallParam": custom,
                             "FunctionCallOutput": {"type": "function_call_output", "call_id": "a", "output": "a"},
                             "ResponseOutputTextParam": text,
                             "ResponseOutputMessageParam": {"type": "message", "role": "assistant", "id": "a",
                                                            "status": "completed", "content": [text]}})
    assert count > 20, count


def check_every_field_of_pictures_is_honoured_or_refused():
    url = os.environ["ML_PAINTING"]
    ask = {"prompt": "a fox", "size": "32x32", "steps": 1}
    base = {**ask, "model": "z_image"}
    # The package knows fields of newer models, which are unknown here.
    count = walked("images/generations", image_generate_params.ImageGenerateParamsNonStreaming, base, False, url)
    assert count > 12, count
    base = {**ask, "model": "qwen_image_edit", "image": f"data:image/png;base64,{PNG}"}
    count = walked("images/edits", image_edit_params.ImageEditParamsNonStreaming, base, False, url)
    assert count > 12, count


def check_embeddings():
    """On a server with a model of 32 values that embeds. Unless it is told otherwise, the package asks for base64."""
    embedding = OpenAI(base_url=f"{os.environ['ML_EMBEDDING']}/v1", api_key="none", max_retries=0)

    def embed(texts, **more):
        return embedding.embeddings.create(model="bert", input=texts, **more)

    texts = ["a fox", "a fox runs through the snow"]
    packed, plain = embed(texts), embed(texts, encoding_format="float")
    assert [entry.index for entry in plain.data] == [0, 1] and plain.model == "bert", plain
    for one, other in zip(packed.data, plain.data):
        assert len(one.embedding) == 32
        # Floats of 32 bits in either form, so that nothing is lost.
        assert list(struct.pack("32f", *one.embedding)) == list(struct.pack("32f", *other.embedding))
        assert abs(sum(value * value for value in one.embedding) - 1) < 1e-5
    text = embed(texts[0], encoding_format="base64").data[0].embedding
    raw = struct.unpack("32f", base64.b64decode(text)) if isinstance(text, str) else text
    assert struct.pack("32f", *raw) == struct.pack("32f", *packed.data[0].embedding)
    assert plain.usage.prompt_tokens == plain.usage.total_tokens > len(texts)
    short = embed(texts[0], dimensions=8, encoding_format="float").data[0].embedding
    whole = plain.data[0].embedding[:8]
    length = sum(value * value for value in whole) ** 0.5
    assert all(abs(one - other / length) < 1e-5 for one, other in zip(short, whole)), (short, whole)
    bad = openai.BadRequestError
    fails(bad, "dimensions", lambda: embed(texts, dimensions=33))
    fails(bad, "dimensions", lambda: embed(texts, dimensions=0))
    fails(bad, "encoding_format", lambda: embed(texts, encoding_format="int8"))
    fails(bad, "input", lambda: embed("fox " * 100))
    fails(bad, "input", lambda: embed([]))
    base = {"model": "bert", "input": "a"}
    count = walked("embeddings", embedding_create_params.EmbeddingCreateParams, base, True, os.environ["ML_EMBEDDING"])
    assert count >= 5, count


def sound(seconds=1.5):
    """A WAV of a rising tone."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1), file.setsampwidth(2), file.setframerate(22050)
        levels = (math.sin(i * i * 2e-5) * 0.3 for i in range(int(22050 * seconds)))
        file.writeframes(b"".join(struct.pack("<h", int(level * 32767)) for level in levels))
    return out.getvalue()


def check_transcriptions():
    """On a server with a tiny model that transcribes: its text means nothing, and each way must give the same."""
    url = os.environ["ML_EMBEDDING"]
    audio = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0).audio
    file = ("tone.wav", sound())

    def transcribe(**more):
        return audio.transcriptions.create(**({"model": "multilingual", "file": file, "language": "de"} | more))

    plain = transcribe()
    assert plain.text and plain.usage.type == "duration" and plain.usage.seconds == 2, plain
    assert transcribe(response_format="text").strip() == plain.text
    verbose = transcribe(response_format="verbose_json", timestamp_granularities=["segment", "word"])
    assert verbose.language == "de" and abs(verbose.duration - 1.5) < 0.01, verbose
    assert verbose.segments and all(s.start <= s.end for s in verbose.segments), verbose
    assert verbose.words and all(w.start <= w.end for w in verbose.words), verbose
    assert transcribe(response_format="srt").startswith("1\n00:00:0")
    assert transcribe(response_format="vtt").startswith("WEBVTT\n\n")
    events = list(transcribe(stream=True))
    assert events[-1].type == "transcript.text.done" and events[-1].text == plain.text, events
    assert "".join(e.delta for e in events[:-1]).strip() == plain.text, events
    english = audio.translations.create(model="multilingual", file=file)
    assert english.text and english.text != plain.text, english
    bad = openai.BadRequestError
    fails(bad, "file", lambda: transcribe(file=("a.wav", b"no sound")))
    fails(bad, "language", lambda: transcribe(language="klingon"))
    fails(bad, "temperature", lambda: transcribe(temperature=3))
    fails(openai.NotFoundError, "model", lambda: transcribe(model="whisper-1"))
    base = {"model": "multilingual", "file": "data:audio/wav;base64," + base64.b64encode(sound(0.2)).decode()}
    taken = transcription_create_params.TranscriptionCreateParamsNonStreaming
    count = walked("audio/transcriptions", taken, base, True, url)
    assert count >= 8, count


def check_speech():
    """On the same server, with a tiny model that speaks phonemes: no other program has to make them."""
    url = os.environ["ML_EMBEDDING"]
    audio = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0).audio
    said = {"model": "kokoro", "voice": "af_one", "input": "h\u0259l\u02c8O", "extra_body": {"phonemes": True, "seed": 7}}

    def speak(**more):
        return audio.speech.create(**(said | more))

    whole = speak(response_format="wav")
    assert whole.response.headers["content-type"] == "audio/wav"
    assert whole.content[:4] == b"RIFF" and whole.content[8:16] == b"WAVEfmt ", whole.content[:16]
    samples = whole.content[44:]
    rate = struct.unpack("<I", whole.content[24:28])[0]
    assert rate == 24000 and len(samples) > 600 and any(samples), (rate, len(samples))
    assert speak(response_format="pcm").content == samples
    with audio.speech.with_streaming_response.create(**said, response_format="pcm") as response:
        assert b"".join(response.iter_bytes()) == samples
    assert len(speak(response_format="pcm", speed=4).content) < len(samples)
    assert speak(response_format="pcm", voice="bm_two").content != samples
    bad = openai.BadRequestError
    fails(bad, "voice", lambda: speak(voice="alloy"))
    fails(bad, "response_format", lambda: speak(response_format="mp3"))
    fails(bad, "speed", lambda: speak(speed=9))
    fails(bad, "instructions", lambda: speak(instructions="whisper"))
    fails(openai.NotFoundError, "model", lambda: speak(model="tts-1"))
    base = {"model": "kokoro", "voice": "af_one", "input": "A", "phonemes": True}
    count = walked("audio/speech", speech_create_params.SpeechCreateParams, base, True, url)
    assert count >= 6, count


def check_errors_of_responses():
    bad = openai.BadRequestError
    fails(openai.NotFoundError, "model", lambda: respond(model="gpt-4"))
    fails(bad, "temperature", lambda: respond(temperature=3))
    fails(bad, "background", lambda: respond(background=True))
    searching = client.responses.with_raw_response.create(
        model=MODEL, input="Hi", max_output_tokens=1, tools=[{"type": "web_search"}])
    assert searching.headers["x-ml-ignored"] == "tools[].web_search", searching.headers
    fails(bad, "input", lambda: respond(input="a " * 20000))
    fails(bad, "temperature", lambda: respond(temperature=3, stream=True))


def check_errors():
    bad = openai.BadRequestError
    fails(openai.NotFoundError, "model", lambda: chat(model="gpt-4"))
    fails(openai.NotFoundError, "model", lambda: client.models.retrieve("gpt-4"))
    fails(bad, "temperature", lambda: chat(temperature=3))
    assert chat(store=True).choices
    fails(bad, "frobnicate", lambda: chat(extra_body={"frobnicate": 1}))
    fails(bad, "messages", lambda: chat(messages=[]))
    fails(bad, "messages", lambda: chat(messages=[{"role": "user", "content": "a " * 20000}]))
    fails(bad, "model", lambda: client.embeddings.create(model=MODEL, input="a"))
    fails(bad, "temperature", lambda: chat(temperature=3, stream=True))
    keyed = OpenAI(base_url=f"{KEYED_URL}/v1", api_key="wrong", max_retries=0)
    fails(openai.AuthenticationError, None, keyed.models.list)
    assert OpenAI(base_url=f"{KEYED_URL}/v1", api_key=KEY).models.list().data[0].id == MODEL


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEElEQVR4nGM4IScHQQxwFgBBAAYZPEVBlgAAAABJRU5ErkJggg=="


def check_pictures():
    """On a server whose model sees; a picture is four tokens there."""
    seeing = OpenAI(base_url=f"{os.environ['ML_SEEING']}/v1", api_key="none", max_retries=0)
    model = seeing.models.list().data[0]
    assert model.input_modalities == ["text", "image", "audio"], model

    def ask(url):
        picture = {"type": "image_url", "image_url": {"url": url, "detail": "auto"}}
        content = [{"type": "text", "text": "What?"}, picture]
        return seeing.chat.completions.create(model=model.id, messages=[{"role": "user", "content": content}])

    answer = ask(f"data:image/png;base64,{PNG}")
    assert answer.choices[0].message.content == "ok"
    assert answer.usage.prompt_tokens == len("<user>What?") + 4, answer.usage
    part = "messages[0].content[1]"
    fails(openai.BadRequestError, part, lambda: ask("data:image/png;base64,aGVsbG8="))
    fails(openai.BadRequestError, f"{part}.image_url.url", lambda: ask("https://example.org/fox.png"))
    shown = [{"type": "input_text", "text": "What?"},
             {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"}]
    response = seeing.responses.create(model=model.id, input=[{"role": "user", "content": shown}])
    assert response.output_text == "ok"
    assert response.usage.input_tokens == len("<user>What?") + 4, response.usage


def batch_line(custom_id, **more):
    body = {"model": MODEL, "messages": STORY, "max_tokens": 8, "temperature": 0, **more}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body})


def over(batch):
    deadline = time.monotonic() + 60
    while batch.status in ("validating", "in_progress", "finalizing", "cancelling"):
        assert time.monotonic() < deadline, batch
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    return batch


def check_batches():
    lines = [batch_line("one"), batch_line("wrong", temperature="hot"), batch_line("two")]
    file = client.files.create(file=("in.jsonl", "\n".join(lines).encode()), purpose="batch")
    assert file.object == "file" and file.filename == "in.jsonl" and file.status == "processed", file
    assert client.files.content(file.id).text.splitlines() == lines
    asked = {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = over(client.batches.create(**asked, metadata={"of": "a check"}))
    assert batch.status == "completed" and batch.metadata == {"of": "a check"}, batch
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (3, 2, 1), counts
    answers = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
    assert {line["custom_id"] for line in answers} == {"one", "two"}, answers
    said = chat(max_tokens=8).choices[0].message.content
    assert all(line["response"]["body"]["choices"][0]["message"]["content"] == said for line in answers), answers
    [error] = [json.loads(line) for line in client.files.content(batch.error_file_id).text.splitlines()]
    assert error["response"]["body"]["error"]["param"] == "temperature", error
    assert batch.id in [other.id for other in client.batches.list(limit=1)]
    for kept in (batch.output_file_id, batch.error_file_id, file.id):
        assert client.files.delete(kept).deleted
    fails(openai.NotFoundError, None, lambda: client.files.retrieve(file.id))
    fails(openai.NotFoundError, "input_file_id", lambda: client.batches.create(**asked))
    fails(openai.BadRequestError, "purpose",
          lambda: client.files.create(file=("a.png", b"a"), purpose="vision"))


def check_a_batch_is_cancelled():
    text = "\n".join(batch_line(f"n{n}", max_tokens=200) for n in range(200))
    file = client.files.create(file=("in.jsonl", text.encode()), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    batch = over(client.batches.cancel(batch.id))
    assert batch.status == "cancelled" and batch.cancelled_at, batch
    left = client.files.content(batch.error_file_id).text.splitlines()
    assert json.loads(left[-1])["error"]["code"] == "batch_cancelled", left[-1]


def check_batches_are_refused_without_a_folder():
    keyed = OpenAI(base_url=f"{KEYED_URL}/v1", api_key=KEY, max_retries=0)
    try:
        keyed.files.list()
    except openai.PermissionDeniedError as error:
        assert "--batch-dir" in error.body["message"], error.body
    else:
        raise AssertionError("a server without a folder lists files")


checks = [check for name, check in list(globals().items()) if name.startswith("check_")]
left_out = ([check_schemas_are_refused_by_name] if held
            else [check_forced_tools, check_schemas, check_responses_hold_to_schemas])
for check in checks:
    if check in left_out:
        continue
    check()
print(f"openai {openai.__version__}: {len(checks) - len(left_out)} checks")
if not held:
    print("left out: forced tool calls and schemas, which this model does not honour")
