"""Requests to a server, and servers of the check's own."""

import contextlib
import json
import os
import subprocess
import time
import urllib.error
import urllib.request


class Answer:
    def __init__(self, status, headers, text):
        self.status, self.headers, self.text = status, headers, text
        try:
            self.body = json.loads(text)
        except ValueError:
            self.body = None


def ask(url, method, path, body=None, headers=None, timeout=60):
    """One request; an error is an answer, too."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json", **(headers or {})}
    request = urllib.request.Request(url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return Answer(answer.status, answer.headers, answer.read().decode())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.headers, error.read().decode())


class Failed(Exception):
    """A stream that did not begin."""

    def __init__(self, answer):
        super().__init__(answer.status)
        self.answer = answer


def stream(url, path, body):
    """The events of a stream."""
    data = json.dumps({**body, "stream": True}).encode()
    request = urllib.request.Request(url + path, data, {"content-type": "application/json"})
    try:
        answer = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        raise Failed(Answer(error.code, error.headers, error.read().decode())) from None
    with answer:
        for line in answer:
            text = line.decode().removeprefix("data:").strip()
            if line.startswith(b"data:") and text != "[DONE]":
                yield json.loads(text)


@contextlib.contextmanager
def served(*options, model):
    """A server with `options` on a port of its own."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("ML_")}
    command = [os.environ["ML_PROGRAM"], "serve", "--model", model, "--port", "0", *options]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, env={**bare, "ML_SERVE_LOG": "off"})
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            found = [word for word in line.split() if word.startswith("http://")]
            if found:
                break
        else:
            raise AssertionError(f"the server did not start: {''.join(said)}")
        url = found[0].rstrip("/.,")
        while ask(url, "GET", "/health").status == 503:
            time.sleep(0.05)
        yield url
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
