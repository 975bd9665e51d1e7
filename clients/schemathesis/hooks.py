"""Brings requests past the door and keeps generations short, so that many of them are made."""

import os

import schemathesis

MODEL = os.environ["SERVED_MODEL"]
MOST = 4


@schemathesis.hook
def before_call(context, case, kwargs):
    if not isinstance(case.body, dict):
        return
    body = dict(case.body)
    # Any other name is a 404 before the rest of the request is looked at.
    if isinstance(body.get("model"), str):
        body["model"] = MODEL
    if case.path.endswith("/completions"):
        names = [name for name in ("max_completion_tokens", "max_tokens") if name in body]
        for name in names or ["max_tokens"]:
            length = body.get(name)
            # What is not a length stays: it is there to be refused.
            if length is None or (type(length) is int and length > MOST):
                body[name] = MOST
    case.body = body
