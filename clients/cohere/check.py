"""Cohere's package against a server with a reranker: check.py URL KEYED_URL KEY."""

import inspect
import json
import math
import os
import urllib.request

import cohere
from cohere.core.api_error import ApiError

URL = os.environ["ML_EMBEDDING"]
MODEL = "qwen3_reranker"
QUERY = "where is the fox?"
DOCUMENTS = ["snow", "a fox runs through the snow", "it is noon"]
newer = cohere.ClientV2(api_key="none", base_url=URL)
older = cohere.Client(api_key="none", base_url=URL)


def rank(client=newer, **more):
    return client.rerank(**{"model": MODEL, "query": QUERY, "documents": DOCUMENTS, **more})


def raw(**more):
    body = {"query": QUERY, "documents": DOCUMENTS, **more}
    ask = urllib.request.Request(f"{URL}/v2/rerank", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(ask))["results"]


def fails(param, call, status=400):
    try:
        call()
    except ApiError as error:
        assert error.status_code == status, error
        assert error.body["error"]["param"] == param, error.body
        return
    raise AssertionError(f"expected a {status} about `{param}`")


whole = rank().results
order = [result.index for result in whole]
scores = [result.relevance_score for result in whole]
assert sorted(order) == [0, 1, 2] and scores == sorted(scores, reverse=True), whole
assert all(0 < score < 1 for score in scores), scores
assert [result.index for result in rank(top_n=2).results] == order[:2]
assert [result.index for result in rank(older).results] == order
told = rank(older, return_documents=True, documents=[{"text": text} for text in DOCUMENTS]).results
assert [result.document.text for result in told] == [DOCUMENTS[index] for index in order], told
# A document's score does not depend on those beside it.
for result in whole:
    alone = rank(documents=[DOCUMENTS[result.index]]).results[0].relevance_score
    assert abs(alone - result.relevance_score) < 1e-6, (alone, result)
for result, score in zip(raw(raw_scores=True), scores):
    assert abs(1 / (1 + math.exp(-result["relevance_score"])) - score) < 1e-5, (result, score)

fails("model", lambda: rank(model="rerank-v3.5"), 404)
fails("model", lambda: rank(model="bert"), 404)
fails("documents", lambda: rank(documents=[]))
fails("top_n", lambda: rank(top_n=0))
fails("max_tokens_per_doc", lambda: rank(max_tokens_per_doc=4))
fails("max_chunks_per_doc", lambda: rank(older, max_chunks_per_doc=4))
fails("rank_fields", lambda: rank(older, rank_fields=["text"]))
fails("priority", lambda: rank(priority=1))
rank(priority=0)

# What the packages may send is honoured, or refused for a reason; nothing is unknown.
for client in [newer, older]:
    names = set(inspect.signature(client.rerank).parameters) - {"request_options"}
    assert len(names) >= 7, names
    for name in names:
        try:
            # Of no field's type.
            rank(client, request_options={"additional_body_parameters": {name: {"a": [1.5]}}})
        except ApiError as error:
            error = error.body["error"]
            assert error["code"] != "unknown_parameter" and error["param"].startswith(name), (name, error)
        else:
            raise AssertionError(f"`{name}` takes anything")
print(f"cohere {cohere.__version__}: passed")
