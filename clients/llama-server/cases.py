"""The list of a module's cases, and what they share."""

import os
import pathlib
import sys

import serving

URL, KEYED_URL, KEY = sys.argv[1:4]
# Another model than the built-in one is given by hand.
MODEL = os.environ.get("LLAMA_CHECK_MODEL") or str(pathlib.Path(__file__).parents[2] / "crates/cli/demo-model")
LIFE = "I believe the meaning of life is"
LONG = "Write a joke about AI from a very long prompt which will not be truncated"


def cases():
    """A list, and what puts a function into it: once for each value where there are several."""
    held = []

    def case(*values):
        def put(function):
            name = function.__name__.replace("_", " ")
            if not values:
                held.append((name, function))
            for at, value in enumerate(values):
                held.append((f"{name} [{at}]", lambda value=value: function(value)))
            return function
        return put
    return held, case


def post(path, body, url=URL, **more):
    return serving.ask(url, "POST", path, body, **more)


def get(path, url=URL, **more):
    return serving.ask(url, "GET", path, **more)


def ok(answer):
    assert answer.status == 200, (answer.status, answer.text)
    return answer.body


def refused(answer, status=400):
    assert answer.status == status, (answer.status, answer.text)
    assert "error" in answer.body, answer.text
    return answer.body["error"]
