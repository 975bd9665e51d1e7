"""Two hundred greedy requests to `ml serve` and to `mlx_lm.server`, on one float32 checkpoint.

compare.py ML_PROGRAM [MODEL_FOLDER], with a Python that has mlx-lm 0.32.2. Without a folder, it is
the built-in demo model. Text, finish reason and usage are compared, after what mlx_lm.server does
its own way was set right:

- it drops the space that a continuation begins with, which `ml` keeps, so that prompt and text
  can be put together;
- it counts the token that ends a text as one of the completion, which OpenAI does not;
- where a text ends by itself and its last characters could have begun a stop string, it drops them;
- a stop string ends its text only where the string is cut into tokens as by itself; elsewhere it
  cuts the string out and goes on.

Prints how often each was seen, and every difference beside. Fails where there is one.
"""

import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mlx_lm import convert

ROOT = Path(__file__).resolve().parents[2]
COUNT = 200
ANIMALS = ["fox", "rabbit", "bear", "mouse", "owl", "cat", "dog", "hedgehog"]
QUESTIONS = ["What is a token?", "What is MLX?", "Who are you?", "What is 3 + 4?", "What is 12 - 5?", "Say hello.",
             "What is quantisation?", "Classify the sentiment: I love this film.", "What is the weather?",
             "Extract the name, age and city as JSON: Mara is 31 and lives in Oslo."]
TEXT = ("Once upon a time there was a small fox who lived at the edge of a wood. Every morning it walked to the "
        "river and looked for stones that shone. One day it found a key, and it asked the owl what it was for. ")
STOPS = [["."], [" the"], [", "], ["\n"], [" and", "!"], ["ox w"], ["never said"]]


def requests():
    draw = random.Random(7)
    for index in range(COUNT):
        ask = {"temperature": 0.0, "max_tokens": draw.choice([1, 2, 7, 16, 33, 64, 110])}
        if draw.random() < 0.3:
            ask["stop"] = draw.choice(STOPS)
        if index % 2:
            question = draw.choice([*QUESTIONS, *(f"Tell me a story about a {animal}" for animal in ANIMALS)])
            turns = [{"role": "user", "content": question}]
            if draw.random() < 0.3:
                before = [{"role": "user", "content": "My name is Ada."}, {"role": "assistant", "content": "Hello Ada!"}]
                turns = before + turns
            yield "/v1/chat/completions", {**ask, "messages": turns}
        else:
            length = draw.choice([3, 12, 40, 90, 200, 700, 1500])
            start = draw.randrange(len(TEXT))
            text = (TEXT * 20)[start:start + length].strip() or "Once"
            yield "/v1/completions", {**ask, "prompt": text}


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    answer = json.load(urllib.request.urlopen(request, timeout=300))
    choice, usage = answer["choices"][0], answer["usage"]
    text = choice["text"] if "text" in choice else choice["message"]["content"]
    return {"text": text, "finish_reason": choice["finish_reason"], "prompt_tokens": usage["prompt_tokens"],
            "completion_tokens": usage["completion_tokens"]}


def explain(body, ours, theirs):
    """In which of the known ways the answers differ."""
    ways = []
    if ours["text"].startswith(" ") and not theirs["text"].startswith(" "):
        ways.append("first space")
        theirs = {**theirs, "text": " " + theirs["text"]}
    stops = body.get("stop", [])
    if ours != theirs and ours["finish_reason"] == "stop":
        lost = ours["text"].removeprefix(theirs["text"])
        if lost != ours["text"] and lost and any(stop.startswith(lost) for stop in stops):
            ways.append("held text lost")
            theirs = {**theirs, "text": ours["text"]}
        longer = {**ours, "completion_tokens": ours["completion_tokens"] + 1}
        if longer == theirs:
            return [*ways, "end counted"]
        # What follows the stop string: theirs went on, so ours must be how theirs begins.
        if stops and theirs["text"].startswith(ours["text"]):
            return [*ways, "stop string overrun"]
    return ways if ours == theirs else [*ways, "unexplained"]


def ours(program, folder):
    process = subprocess.Popen([program, "serve", "--port", "0", "--model", folder], stderr=subprocess.PIPE,
                               stdout=subprocess.DEVNULL, text=True, env={**os.environ, "ML_SERVE_LOG": "off"})
    url = next(found[0] for line in process.stderr if (found := re.search(r"http://[\d.:]+", line)))
    threading.Thread(target=process.stderr.read, daemon=True).start()
    return process, url


def theirs(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "mlx_lm", "server", "--model", folder, "--port", str(port),
                                "--log-level", "ERROR"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return process, f"http://127.0.0.1:{port}"


def ready(url, path):
    for _ in range(600):
        try:
            urllib.request.urlopen(url + path)
            return
        except OSError:
            time.sleep(0.2)
    sys.exit(f"{url} does not answer")


def main():
    program = str(Path(sys.argv[1]).resolve())
    folder = sys.argv[2] if len(sys.argv) > 2 else str(ROOT / "crates/cli/demo-model")
    with tempfile.TemporaryDirectory() as place:
        plain = f"{place}/model"
        quantised = "quantization" in json.loads(Path(folder, "config.json").read_text())
        convert(folder, plain, dequantize=quantised, dtype="float32")
        servers = [ours(program, plain), theirs(plain)]
        try:
            (_, one), (_, other) = servers
            ready(one, "/health")
            ready(other, "/v1/models")
            seen, faults = Counter(), 0
            for path, body in requests():
                asks = [(one, path, body), (other, path, {**body, "model": plain})]
                with ThreadPoolExecutor(2) as pool:
                    answers = list(pool.map(lambda ask: post(*ask), asks))
                seen[f"ends with {answers[0]['finish_reason']}"] += 1
                known = explain(body, *answers)
                seen.update(known or ["equal"])
                if "unexplained" in known:
                    faults += 1
                    print(json.dumps({"request": body, "ours": answers[0], "theirs": answers[1]}))
            print(f"{COUNT} requests, {faults} unexplained: {dict(seen)}")
            sys.exit(faults > 0)
        finally:
            for process, _ in servers:
                process.terminate()
                process.wait()


if __name__ == "__main__":
    main()
