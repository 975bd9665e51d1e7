"""`/embeddings` and `/rerank`."""

import base64
import os
import struct

from cases import LIFE, LONG, cases, get, ok, post, refused

CASES, case = cases()
URL = os.environ["ML_EMBEDDING"]
DOCUMENTS = [
    "A machine is a physical system that uses power to apply forces and control movement.",
    "Learning is the process of acquiring new understanding, knowledge and skills.",
    "Machine learning is a field of study in artificial intelligence.",
    "Paris, capitale de la France, est une grande ville.",
]
QUERY = "Machine learning is"


def vectors(given, path="/v1/embeddings", **more):
    return [one["embedding"] for one in ok(post(path, {"input": given, **more}, URL))["data"]]


def near(one, other):
    return all(abs(a - b) < 1e-3 for a, b in zip(one, other, strict=True))


@case("/v1/embeddings", "/embeddings")
def a_text_has_a_vector_of_length_one(path):
    (vector,) = vectors(LIFE, path)
    assert len(vector) > 1 and abs(sum(x * x for x in vector) - 1) < 1e-3


@case([LIFE, LONG, "This is a test", "This is another test"], ["a " * 25, "b " * 25, "c " * 25], [LIFE] * 5)
def each_text_has_one(texts):
    made = vectors(texts)
    assert len(made) == len(texts)
    assert all(near(made[0], one) for one in made) == (len(set(texts)) == 1)


@case(("string", None), ([12, 34, 56], None), (["string1", "string2"], 2),
      (["string1", [12, 34, 56]], 2), ([[12, 34, 56], [12, 34, 56]], 2),
      ({"prompt_string": "string"}, None), ({"content": [{"type": "text", "text": "string"}]}, None),
      (["string1", {"prompt_string": "string2"}, {"content": [{"type": "text", "text": "string3"}]}], 3), ("", None))
def texts_and_tokens_are_taken(value):
    given, several = value
    made = vectors(given)
    assert len(made) == (several or 1) and all(len(one) > 1 for one in made)


@case("/v1/embeddings", "/embeddings", "/embedding")
def the_older_name_of_the_input_is_known(path):
    told = ok(post(path, {"content": LIFE}, URL))
    assert near(told["data"][0]["embedding"], vectors(LIFE)[0])


@case()
def parts_are_one_text():
    whole, parts = vectors(["hello world", {"content": [{"type": "text", "text": "hello "},
                                                        {"type": "text", "text": "world"}]}])
    assert whole == parts


@case([12, 34, "string", 56, 78], [[12, 34, 56], [12, "string", 34, 56]], [], {"content": "string"},
      {"content": [{"type": "input_audio", "input_audio": {}}]},
      {"content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
      {"prompt_string": "a", "multimodal_data": ["AAAA"]}, {"prompt_string": 1}, [True], {"text": "a"})
def what_is_no_input_is_refused(given):
    refused(post("/v1/embeddings", {"input": given}, URL))


@case()
def vectors_need_not_be_of_length_one():
    (one,) = vectors(LIFE, normalize=False)
    assert abs(sum(x * x for x in one) - 1) > 1e-3
    assert near(vectors(LIFE, embd_normalize=-1)[0], one)


@case()
def another_name_of_the_model_is_told():
    refused(post("/v1/embeddings", {"input": LIFE, "model": "text-embedding-3-small"}, URL), 404)


@case()
def a_text_may_be_too_long():
    error = refused(post("/v1/embeddings", {"input": "This is a test " * 512}, URL))
    assert error["n_prompt_tokens"] > error["n_ctx"] > 0, error


@case([LIFE], [LIFE, LIFE])
def tokens_are_counted(texts):
    usage = ok(post("/v1/embeddings", {"input": texts}, URL))["usage"]
    assert usage["prompt_tokens"] == usage["total_tokens"] > len(texts) and usage["prompt_tokens"] % len(texts) == 0


@case()
def a_vector_may_be_base64():
    (vector,), (text,) = vectors(LIFE), vectors(LIFE, encoding_format="base64")
    data = base64.b64decode(text)
    assert near(struct.unpack(f"<{len(data) // 4}f", data), vector)


@case("/rerank", "/reranking", "/v1/rerank", "/v1/reranking")
def documents_are_ordered(path):
    told = ok(post(path, {"query": QUERY, "documents": DOCUMENTS}, URL))
    scores = [one["relevance_score"] for one in told["results"]]
    assert len(scores) == 4 and scores == sorted(scores, reverse=True) and scores[0] > scores[-1], told
    assert told["usage"]["prompt_tokens"] == told["usage"]["total_tokens"] > 0


@case("/rerank", "/v1/rerank")
def the_form_of_text_embeddings_inference_is_known(path):
    told = ok(post(path, {"query": QUERY, "texts": DOCUMENTS}, URL))
    cohere = ok(post(path, {"query": QUERY, "documents": DOCUMENTS}, URL))["results"]
    assert [(one["index"], one["score"]) for one in told] == [
        (one["index"], one["relevance_score"]) for one in cohere], told
    shown = ok(post(path, {"query": QUERY, "texts": DOCUMENTS, "return_text": True, "top_n": 1}, URL))
    assert [one["text"] for one in shown] == [DOCUMENTS[told[0]["index"]]], shown


@case(*[(field, documents) for field in ("documents", "texts") for documents in ([], None, 123, [1, 2, 3])])
def what_is_no_document_is_refused(value):
    field, documents = value
    refused(post("/rerank", {"query": QUERY, field: documents}, URL))


@case(*[(field, top, count) for field in ("documents", "texts") for top, count in ((None, 4), (2, 2), (4, 4), (99, 4))])
def the_best_are_told(value):
    field, top, count = value
    told = ok(post("/rerank", {"query": QUERY, field: DOCUMENTS, "top_n": top}, URL))
    assert len(told if field == "texts" else told["results"]) == count, told


@case(("Machine learning is", "A machine", "Learning is"), ("Which city?", "Machine learning is ", "Paris, capitale"))
def pairs_are_counted(value):
    query, *documents = value
    both = ok(post("/rerank", {"query": query, "documents": documents}, URL))["usage"]["prompt_tokens"]
    alone = [ok(post("/rerank", {"query": query, "documents": [one]}, URL))["usage"]["prompt_tokens"]
             for one in documents]
    assert both == sum(alone), (both, alone)


@case("/embeddings", "/v1/embeddings")
def a_reranker_makes_no_vectors(path):
    name = next(one["id"] for one in ok(get("/v1/models", URL))["data"] if "rerank" in one["id"])
    error = refused(post(path, {"input": "hello", "model": name}, URL), 404)
    assert "rerank" in error["message"], error
