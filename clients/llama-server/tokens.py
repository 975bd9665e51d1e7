"""`/tokenize` and `/detokenize`."""

from cases import cases, ok, post

CASES, case = cases()
FRANCE = "What is the capital of France ?"


@case()
def tokens_become_the_text():
    ids = ok(post("/tokenize", {"content": FRANCE}))["tokens"]
    assert len(ids) > 5 and ok(post("/detokenize", {"tokens": ids}))["content"].strip() == FRANCE, ids


@case()
def special_tokens_are_added_where_they_are_asked_for():
    plain = ok(post("/tokenize", {"content": FRANCE, "add_special": False}))["tokens"]
    whole = ok(post("/tokenize", {"content": FRANCE, "add_special": True}))["tokens"]
    assert set(plain) <= set(whole) and len(whole) >= len(plain), (plain, whole)


@case()
def tokens_have_pieces():
    text = "This is a test string with unicode 媽 and emoji 🤗"
    tokens = ok(post("/tokenize", {"content": text, "with_pieces": True}))["tokens"]
    assert all(token["id"] >= 0 and token["piece"] for token in tokens), tokens
    whole = b"".join(token["piece"].encode() if isinstance(token["piece"], str) else bytes(token["piece"])
                     for token in tokens)
    assert whole.decode().strip() == text, whole
