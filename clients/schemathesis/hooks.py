"""Brings requests past the door and keeps generations short, so that many of them are made."""

import json
import os
import urllib.request

import schemathesis

MODEL = os.environ["SERVED_MODEL"]
# Paths that other models answer.
OTHERS = {"/v1/embeddings": "bert", "/v1/rerank": "qwen3_reranker", "/v2/rerank": "qwen3_reranker",
          "/api/embed": "bert", "/api/embeddings": "bert"}
MOST = 4
# A response that is there to be asked for.
STORED = json.load(urllib.request.urlopen(urllib.request.Request(
    f"{os.environ['SERVER_URL']}/v1/responses", headers={"Content-Type": "application/json"},
    data=json.dumps({"input": "Hi", "max_output_tokens": MOST}).encode())))["id"]


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.method == "GET" and case.path.startswith("/v1/responses/{id}"):
        case.path_parameters = {"id": STORED}
    if not isinstance(case.body, dict):
        return
    body = dict(case.body)
    # Any other name is a 404 before the rest of the request is looked at.
    if isinstance(body.get("model"), str):
        body["model"] = OTHERS.get(case.path, MODEL)
    if case.path.endswith("/completions"):
        names = [name for name in ("max_completion_tokens", "max_tokens") if name in body]
        for name in names or ["max_tokens"]:
            length = body.get(name)
            # What is not a length stays: it is there to be refused.
            if length is None or (type(length) is int and length > MOST):
                body[name] = MOST
    if case.path in ("/api/chat", "/api/generate") and isinstance(body.get("options") or {}, dict):
        options = dict(body.get("options") or {})
        length = options.get("num_predict")
        if length is None or (type(length) is int and (length > MOST or length in (-1, -2))):
            options["num_predict"] = MOST
        body["options"] = options
    if case.path == "/v1/responses":
        length = body.get("max_output_tokens")
        if length is None or (type(length) is int and length > MOST):
            body["max_output_tokens"] = MOST
        # The one that is asked for shall not give way to so many.
        if body.get("store") in (None, True):
            body["store"] = False
    case.body = body
