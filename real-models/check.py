"""Holds real checkpoints to their goldens, through the program and the server: check.py FOLDER, with what fetch.py left
there and the program in ML_PROGRAM. Weights are computed in float32 here, as the references do."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import sounds

HERE = Path(__file__).parent
PROGRAM = os.environ["ML_PROGRAM"]
FOLDER = Path(sys.argv[1])
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("ML_")}
VECTORS = 2e-6


def golden(name):
    return json.loads((HERE / "goldens" / f"{name}.json").read_text())


def program(*args, stdin=None):
    told = subprocess.run([PROGRAM, *map(str, args)], input=stdin, capture_output=True, text=True, env=ENVIRONMENT)
    assert told.returncode == 0, (args, told.returncode, told.stderr)
    return told.stdout


class Server:
    """`ml serve`, until the block ends."""

    def __init__(self, *args):
        self.args = [PROGRAM, "serve", "--port", "0", *map(str, args)]

    def __enter__(self):
        quiet = ENVIRONMENT | {"ML_SERVE_LOG": "off"}
        self.process = subprocess.Popen(self.args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=quiet)
        said = []
        for line in self.process.stderr:
            said.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                self.url = found[0]
                return self
        raise AssertionError("".join(said))

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=60)

    def post(self, path, body):
        data, kind = (body, "multipart/form-data; boundary=part") if isinstance(body, bytes) else (json.dumps(body).encode(), "application/json")
        request = urllib.request.Request(self.url + path, data, {"content-type": kind})
        for _ in range(600):
            try:
                with urllib.request.urlopen(request, timeout=600) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                said = error.read().decode()
                # A model that is being loaded is waited for.
                assert error.code == 503 and "model_loading" in said, (path, error.code, said)
                time.sleep(0.5)
        raise AssertionError((path, said))


def agrees(said, expected, what):
    # A character whose last bytes are missing has another form in each.
    assert said.rstrip("\ufffd").startswith(expected.rstrip("\ufffd")), (what, said, expected)


def near(made, expected, what):
    assert len(made) == len(expected), (what, len(made))
    distance = max(abs(one - other) for one, other in zip(made, expected))
    assert distance <= VECTORS, (what, distance)


def check_texts(name, server):
    """Each prompt and each conversation over HTTP; some of them, all at once, by the program."""
    known = golden(name)
    for case in known["prompts"]:
        ids = server.post("/tokenize", {"model": name, "prompt": case["text"]})["tokens"]
        assert ids == case["ids"], (name, case["name"], ids)
        if not case["tokens"]:
            continue
        asked = {"model": name, "prompt": case["text"], "max_tokens": len(case["tokens"]), "temperature": 0}
        said = server.post("/v1/completions", asked)["choices"][0]["text"]
        agrees(said, case["said"], (name, case["name"]))
    for case in known["chats"]:
        ids = server.post("/tokenize", {"model": name, "messages": case["messages"]})["tokens"]
        assert ids == case["ids"], (name, case["name"], ids)
        asked = {"model": name, "messages": case["messages"], "max_tokens": len(case["tokens"]), "temperature": 0}
        answer = server.post("/v1/chat/completions", asked)["choices"][0]
        agrees(answer["message"]["content"], case["said"], (name, case["name"]))

    lines = "".join(json.dumps({"prompt": case["text"]}) + "\n" for case in known["prompts"][:6])
    model = ["--model", FOLDER / known["file"], "--dtype", "f32"]
    told = program("generate", *model, "--raw", "--temperature", 0, "-n", 32, "--json", "--batch", "-", stdin=lines)
    for case, line in zip(known["prompts"], told.splitlines()):
        agrees(json.loads(line)["text"], case["said"], (name, case["name"], "batch"))
    return len(known["prompts"]) + len(known["chats"])


def check_ends(name, server):
    """A stop string, and a schema that is held to."""
    case = next(case for case in golden(name)["prompts"] if case["name"] == "numbers")
    end = case["said"][len(case["said"]) // 2 :][:4]
    asked = {"model": name, "prompt": case["text"], "max_tokens": 32, "temperature": 0, "stop": [end]}
    choice = server.post("/v1/completions", asked)["choices"][0]
    assert choice["text"] == case["said"].partition(end)[0] and choice["finish_reason"] == "stop", (choice, end)
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
    }
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    words = [{"role": "user", "content": "Describe a person called Tom, who is 41."}]
    asked = {"model": name, "messages": words, "max_tokens": 100, "temperature": 0, "response_format": form}
    choice = server.post("/v1/chat/completions", asked)["choices"][0]
    person = json.loads(choice["message"]["content"])
    assert set(person) == {"name", "age"} and isinstance(person["age"], int), choice


def check_vectors(server):
    known = golden("minilm")
    sentences, vectors = known["sentences"], known["vectors"]
    made = server.post("/v1/embeddings", {"model": known["folder"], "input": sentences[:-1]})["data"]
    for one, expected, text in zip(made, vectors, sentences):
        near(one["embedding"], expected, text[:40])
    # The reference cuts a text that is too long, and nothing is cut here unless it is asked for.
    model = ["--model", FOLDER / known["folder"], "--truncate", "end"]
    told = program("embed", *model, "--file", "-", stdin="\n".join(sentences)).splitlines()
    for line, expected, text in zip(told, vectors, sentences, strict=True):
        line = json.loads(line)
        near(line["embedding"] if isinstance(line, dict) else line, expected, text[:40])
    return len(sentences)


def check_sounds(server, folder):
    known = golden("whisper")
    model = FOLDER / known["folder"]
    for (name, samples), case in zip(sounds.all(), known["sounds"], strict=True):
        path = folder / f"{name}.wav"
        sounds.write(path, samples)
        told = json.loads(program("transcribe", "--model", model, "--dtype", "f32", "--format", "json", path))
        fields = {"model": known["folder"], "response_format": "verbose_json", "temperature": "0"}
        parts = [f'--part\r\ncontent-disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode() for key, value in fields.items()]
        head = f'--part\r\ncontent-disposition: form-data; name="file"; filename="{path.name}"\r\n\r\n'.encode()
        served = server.post("/v1/audio/transcriptions", b"".join([*parts, head, path.read_bytes(), b"\r\n--part--\r\n"]))
        for heard in (told, served):
            segments = [(segment["start"], segment["end"], segment["text"].strip()) for segment in heard["segments"]]
            expected = [(segment["start"], segment["end"], segment["text"]) for segment in case["segments"]]
            assert segments == expected, (name, segments, expected)
    return len(known["sounds"])


def main():
    models = [f"{name}={FOLDER / golden(name)['file']}" for name in ("smollm2", "gemma3")]
    args = [arg for model in models for arg in ("--model", model)]
    args += ["--embedding-model", FOLDER / golden("minilm")["folder"]]
    args += ["--transcription-model", FOLDER / golden("whisper")["folder"], "--dtype", "f32"]
    with Server(*args) as server, tempfile.TemporaryDirectory() as folder:
        texts = {name: check_texts(name, server) for name in ("smollm2", "gemma3")}
        check_ends("smollm2", server)
        vectors, heard = check_vectors(server), check_sounds(server, Path(folder))
    print(f"as the references compute them: {texts} texts, {vectors} vectors, {heard} sounds")


main()
