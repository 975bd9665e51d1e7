"""`/completion` and `/infill`."""

import concurrent.futures
import re
import time

import serving
from cases import LIFE, LONG, MODEL, URL, cases, get, ok, post, refused

CASES, case = cases()
WORDS = ("i I the The to a an be is was but But and And so So you You he He she She we We they They it It his His her "
         "Her book Book").split()


def count(text):
    return len(ok(post("/tokenize", {"content": text, "add_special": True}))["tokens"])


@case((LIFE, 8, False), (LONG, 64, True))
def a_text_goes_on(value):
    prompt, length, tokens = value
    told = ok(post("/completion", {"n_predict": length, "prompt": prompt, "return_tokens": tokens, "ignore_eos": True}))
    timings = told["timings"]
    assert timings["prompt_n"] + timings["cache_n"] == count(prompt) == told["tokens_evaluated"], told
    assert timings["predicted_n"] == length and told["truncated"] is False and told["content"], told
    assert isinstance(told["has_new_line"], bool) and told["stop_type"] == "limit", told
    assert len(told["tokens"]) == (length if tokens else 0), told["tokens"]
    assert all(isinstance(token, int) for token in told["tokens"])
    if tokens:
        back = ok(post("/detokenize", {"tokens": told["tokens"]}))["content"]
        # The ids of special tokens are among them, whose names the text does not have.
        assert re.sub(r"<\|\w+\|>", "", back) == told["content"], (back, told["content"])


@case((LIFE, 8), (LONG, 64))
def a_stream_has_pieces(value):
    prompt, length = value
    text, ids = "", []
    for piece in serving.stream(URL, "/completion", {"n_predict": length, "prompt": prompt, "seed": 42,
                                                     "ignore_eos": True}):
        if piece["stop"]:
            timings, settings = piece["timings"], piece["generation_settings"]
            assert timings["prompt_n"] + timings["cache_n"] == count(prompt), timings
            assert timings["predicted_n"] == length and piece["stop_type"] == "limit", piece
            assert piece["truncated"] is False and isinstance(piece["has_new_line"], bool), piece
            assert settings["n_predict"] == length and settings["seed"] == 42, settings
            assert piece["tokens"] == [] and text, piece
        else:
            assert piece["tokens"] and all(isinstance(token, int) for token in piece["tokens"]), piece
            text += piece["content"]
            ids += piece["tokens"]
    assert len(ids) == length, ids


@case("/completion", "/completions", "/v1/completions")
def a_stream_says_what_a_whole_answer_does(path):
    asked = {"max_tokens": 8, "prompt": LIFE, "temperature": 0}
    whole = ok(post(path, asked))
    pieces = list(serving.stream(URL, path, asked))
    if path == "/completion":
        assert whole["content"] == "".join(piece["content"] for piece in pieces)
        return
    # Without a version it is OpenAI's, whose clients have base addresses without it.
    assert whole["choices"][0]["text"] == "".join(piece["choices"][0]["text"] for piece in pieces)
    assert whole["choices"][0]["finish_reason"] == "length" and whole["system_fingerprint"], whole


@case()
def a_stop_ends_it():
    free = ok(post("/completion", {"prompt": LIFE, "n_predict": 24, "temperature": 0}))["content"]
    word = re.findall(r"\w+", free)[3]
    told = ok(post("/completion", {"prompt": LIFE, "n_predict": 24, "temperature": 0, "stop": [word]}))
    assert told["stop_type"] == "word" and told["stopping_word"] == word, told
    assert free.startswith(told["content"]) and word not in told["content"], (free, told)


@case(1, 2, 3, 4)
def a_seed_repeats(at):
    asked = {"prompt": LIFE, "seed": 42, "temperature": 0.0 if at % 2 else 1.0, "cache_prompt": False, "n_predict": 16}
    texts = {ok(post("/completion", asked))["content"] for _ in range(3)}
    assert len(texts) == 1, texts


@case(1, 2)
def other_seeds_differ(_):
    asked = {"prompt": LIFE, "temperature": 1.0, "cache_prompt": False, "n_predict": 32}
    texts = [ok(post("/completion", {**asked, "seed": seed}))["content"] for seed in range(4)]
    assert all(one != other for one, other in zip(texts, texts[1:])), texts


@case()
def a_cached_prompt_is_not_read_again():
    asked = {"prompt": f"{time.time_ns()} {LONG * 10}", "temperature": 0, "n_predict": 4}
    first, second = ok(post("/completion", asked)), ok(post("/completion", asked))
    assert second["content"] == first["content"] and second["tokens_evaluated"] == first["tokens_evaluated"]
    # The prefix cache has blocks of 64 tokens.
    assert second["timings"]["prompt_n"] <= 64 < second["timings"]["cache_n"], second["timings"]
    fresh = ok(post("/completion", {**asked, "cache_prompt": False}))
    assert fresh["content"] == first["content"]


@case()
def tokens_are_taken_for_text():
    ids = ok(post("/tokenize", {"content": LIFE, "add_special": True}))["tokens"]
    asked = {"n_predict": 8, "temperature": 0}
    one = ok(post("/completion", {**asked, "prompt": ids}))
    assert one["content"] == ok(post("/completion", {**asked, "prompt": LIFE}))["content"]


@case("ids", "mixed")
def several_prompts_have_several_answers(kind):
    ids = ok(post("/tokenize", {"content": LIFE, "add_special": True}))["tokens"]
    prompts = [ids, ids if kind == "ids" else LIFE]
    told = ok(post("/completion", {"n_predict": 8, "temperature": 0, "prompt": prompts}))
    assert isinstance(told, list) and [one["index"] for one in told] == [0, 1], told
    assert told[0]["content"] == told[1]["content"]


@case()
def several_prompts_are_streamed_by_their_places():
    asked = {"n_predict": 6, "temperature": 0, "prompt": [LIFE, LONG], "ignore_eos": True}
    whole = ok(post("/completion", asked))
    texts, ends = ["", ""], []
    for piece in serving.stream(URL, "/completion", asked):
        texts[piece["index"]] += piece["content"]
        ends += [piece["index"]] if piece["stop"] else []
    assert texts == [one["content"] for one in whole] and sorted(ends) == [0, 1], (texts, ends)


@case()
def a_prompt_may_be_tokens_and_texts():
    told = ok(post("/completion", {"n_predict": 4, "prompt": [1, 2, 3, LIFE, 7, 8, LIFE]}))
    assert isinstance(told["content"], str) and told["tokens_evaluated"] > 2 * count(LIFE) - 4, told


@case({"prompt_string": LIFE}, [{"prompt_string": LIFE}])
def a_prompt_may_be_an_object(prompt):
    assert ok(post("/completion", {"n_predict": 4, "prompt": prompt, "temperature": 0})) != []


@case({"prompt_string": LIFE, "multimodal_data": ["AAAA"]}, {"prompt": LIFE}, 5, [[]], [LIFE, True])
def other_prompts_are_none(prompt):
    refused(post("/completion", {"n_predict": 4, "prompt": prompt}))


@case((1, 3), (2, 2), (2, 4), (4, 2), (4, 6))
def slots_are_filled(value):
    slots, requests = value
    with serving.served("--parallel", str(slots), model=MODEL) as url:
        def complete(at):
            return ok(post("/completion", {"prompt": f"Write a very long book {at}.", "seed": 42, "temperature": 1.0,
                                           "n_predict": 40, "ignore_eos": True}, url))
        with concurrent.futures.ThreadPoolExecutor(requests) as pool:
            asked = [pool.submit(complete, at) for at in range(requests)]
            most = 0
            while not all(one.done() for one in asked):
                busy = [slot["is_processing"] for slot in ok(get("/slots", url))]
                assert len(busy) == slots, busy
                most = max(most, sum(busy))
            assert all(len(one.result()["content"]) > 10 for one in asked)
            assert 0 < most <= min(slots, requests), most


@case([], ["content", "generation_settings/n_predict", "prompt"])
def fields_of_the_answer_are_chosen(fields):
    told = ok(post("/completion", {"n_predict": 8, "prompt": LIFE, "response_fields": fields}))
    assert isinstance(told["content"], str) and told["content"], told
    if fields:
        assert set(told) == set(fields) and told["generation_settings/n_predict"] == 8 and told["prompt"] == LIFE, told
    else:
        assert "generation_settings" in told


def check_probabilities(tokens, own, top):
    for token in tokens:
        for one in [token, *token[top]]:
            assert one["id"] >= 0 and isinstance(one["token"], str) and isinstance(one["bytes"], list), one
            assert one[own] <= 0 if own == "logprob" else 0 <= one[own] <= 1, one
        assert len(token[top]) == 10, token
        assert [one[own] for one in token[top]] == sorted((one[own] for one in token[top]), reverse=True), token


@case()
def probabilities_are_told():
    asked = {"prompt": LIFE, "n_probs": 10, "temperature": 0.0, "n_predict": 5, "ignore_eos": True}
    told = ok(post("/completion", asked))
    assert len(told["completion_probabilities"]) == 5
    check_probabilities(told["completion_probabilities"], "logprob", "top_logprobs")
    assert all(token["id"] == token["top_logprobs"][0]["id"] for token in told["completion_probabilities"])


@case()
def probabilities_are_streamed():
    asked = {"prompt": LIFE, "n_probs": 10, "temperature": 0.0, "n_predict": 5, "ignore_eos": True}
    seen = []
    for piece in serving.stream(URL, "/completion", asked):
        if not piece["stop"]:
            assert len(piece["completion_probabilities"]) == len(piece["tokens"]) > 0, piece
            seen += piece["completion_probabilities"]
    check_probabilities(seen, "logprob", "top_logprobs")
    assert len(seen) == 5, seen


@case()
def probabilities_behind_filters_are_refused():
    error = refused(post("/completion", {"prompt": LIFE, "n_probs": 10, "post_sampling_probs": True}))
    assert error["param"] == "post_sampling_probs", error


@case((False, False), (False, True), (True, False), (True, True))
def tokens_are_excluded(value):
    by_ids, as_object = value
    if by_ids:
        keys = set(ok(post("/tokenize", {"content": " " + " ".join(WORDS) + " "}))["tokens"])
    else:
        keys = [f" {word} " for word in WORDS]
    bias = {str(key): -100 for key in keys} if as_object else [[key, -100] for key in keys]
    text = ok(post("/completion", {"n_predict": 48, "prompt": "What is the best book", "logit_bias": bias,
                                   "temperature": 0.0}))["content"]
    assert all(f" {word} " not in text for word in WORDS), text


@case([[1, False]], {"1": -5.5}, {"0": None})
def a_bias_is_a_number_or_false(bias):
    answer = post("/completion", {"prompt": LIFE, "n_predict": 2, "logit_bias": bias})
    refused(answer) if bias == {"0": None} else ok(answer)


@case()
def who_leaves_frees_the_slot():
    asked = {"prompt": LIFE, "n_predict": -1, "ignore_eos": True}
    # Others ask the check's first server.
    with serving.served(model=MODEL) as url:
        try:
            post("/completion", asked, url, timeout=0.1)
            raise AssertionError("it was too fast to be left")
        except TimeoutError:
            pass
        deadline = time.monotonic() + 60
        while any(slot["is_processing"] for slot in ok(get("/slots", url))):
            assert time.monotonic() < deadline, "the slot stays busy"
            time.sleep(0.05)


@case(True, False)
def the_end_may_be_ignored(ignored):
    told = ok(post("/completion", {"n_predict": 8, "prompt": LIFE, "ignore_eos": ignored, "temperature": 0}))
    biases = told["generation_settings"]["logit_bias"]
    assert bool(biases) == ignored and all(entry["bias"] is None and entry["token"] >= 0 for entry in biases), biases


@case({"n_indent": 4}, {"t_max_predict_ms": 100}, {"image_data": [{}]}, {"samplers": ["top_k"]}, {"mirostat": 1})
def what_would_change_the_answer_is_refused_by_name(more):
    assert refused(post("/completion", {"prompt": LIFE, **more}))["param"] in more


@case({"cache_prompt": True}, {"id_slot": 0}, {"n_keep": 4}, {"n_discard": 2}, {"n_cache_reuse": 8}, {"samplers": None},
      {"mirostat": 0, "mirostat_tau": 5.0}, {"typical_p": 1.0}, {"dynatemp_range": 0.0}, {"min_keep": 0},
      {"penalize_nl": True}, {"lora": []}, {"speculative.p_min": 0.0}, {"top_k": 1}, {"repeat_last_n": 8})
def fields_of_its_clients_are_known(more):
    ok(post("/completion", {"prompt": LIFE, "n_predict": 2, "temperature": 0, **more}))


@case({"json_schema": {"const": "42"}, "n_predict": 16}, {"grammar": 'root ::= "a"{5,5}', "n_predict": 8})
def answers_are_held(more):
    text = ok(post("/completion", {"prompt": "Write an example", **more}))["content"]
    assert text.strip() in ('"42"', "aaaaa"), text


@case()
def a_context_is_not_shifted():
    text = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor. " * 20
    error = refused(post("/completion", {"n_predict": 64, "prompt": text, "num_ctx": 128}))
    assert error["type"] == "exceed_context_size_error" and error["code"] == 400, error
    assert error["n_prompt_tokens"] > 128 == error["n_ctx"], error
    assert "exceeds the available context size" in error["message"], error


@case((64, False), (-1, True))
def an_answer_ends_with_the_context(value):
    length, is_full = value
    asked = {"n_predict": length, "prompt": "Hi how are you", "ignore_eos": True, "num_ctx": 128}
    told = ok(post("/completion", asked))
    assert told["truncated"] is is_full and told["stop_type"] == "limit", told
    assert told["tokens_predicted"] == (128 - told["tokens_evaluated"] if is_full else length), told


@case()
def a_stream_ends_with_the_context():
    asked = {"n_predict": 256, "prompt": "Once", "ignore_eos": True, "num_ctx": 128}
    choices = [event["choices"][0] for event in serving.stream(URL, "/v1/completions", asked)]
    assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
    assert choices[-1]["finish_reason"] == "length" and "".join(choice["text"] for choice in choices)


@case()
def a_draft_changes_no_answer():
    asked = {"prompt": LIFE, "temperature": 0, "top_k": 1, "n_predict": 24}
    plain = ok(post("/completion", asked))["content"]
    for most in (1, 4, 8):
        assert ok(post("/completion", {**asked, "draft_tokens": most}))["content"] == plain
    assert ok(post("/completion", {**asked, "speculative.n_max": 4, "speculative.p_min": 0.0}))["content"] == plain


@case()
def a_model_without_marks_fills_nothing_in():
    asked = {"input_prefix": "int main() {\n", "prompt": "    int n = ", "input_suffix": "}\n"}
    assert refused(post("/infill", asked))["param"] == "input_suffix"


@case({}, {"filename": "ok"}, {"filename": 123}, {"filename": 123, "text": "abc"}, {"filename": 123, "text": 456})
def files_that_are_shown_have_texts(extra):
    refused(post("/infill", {"input_extra": [extra], "input_prefix": "a", "prompt": "b", "input_suffix": "c"}))
