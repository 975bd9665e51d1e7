"""What the server and its model are, who may ask, and which of llama.cpp's endpoints are not there."""

import time

import serving
from cases import KEY, KEYED_URL, MODEL, URL, cases, get, ok, post, refused

CASES, case = cases()


@case("/health", "/v1/health")
def it_is_there(path):
    assert ok(get(path))["status"] == "ok"


@case()
def properties_tell_the_model():
    told = ok(get("/props"))
    settings = told["default_generation_settings"]
    assert told["total_slots"] == len(ok(get("/slots"))) and told["model_path"], told
    assert settings["n_ctx"] > 0 and "seed" in settings["params"], settings
    assert isinstance(told["chat_template"], str) and told["modalities"] == {"vision": False, "audio": False}, told
    assert "bos_token" in told and told["build_info"] and told["is_sleeping"] is False, told


@case()
def properties_are_not_set():
    assert refused(post("/props", {}), 405)["code"] == 405


@case("/models", "/v1/models")
def models_are_told(path):
    told = ok(get(path))
    assert len(told["data"]) == 1 and told["data"][0]["id"], told
    assert "completion" in told["models"][0]["capabilities"] and told["models"][0]["name"], told["models"]
    assert "multimodal" not in told["models"][0]["capabilities"], told["models"]


@case()
def slots_are_told():
    # Others ask the check's first server.
    with serving.served("--parallel", "3", model=MODEL) as url:
        slots = ok(get("/slots", url))
        context = ok(get("/props", url))["default_generation_settings"]["n_ctx"]
        assert [slot["id"] for slot in slots] == [0, 1, 2], slots
        assert all(slot["n_ctx"] == context and slot["is_processing"] is False for slot in slots), slots
        assert "params" not in slots[0]
        assert ok(get("/slots?fail_on_no_slot=1", url)) == slots


@case("save", "restore", "erase")
def slots_are_not_kept(action):
    error = refused(post(f"/slots/0?action={action}", {"filename": "slot.bin"}), 501)
    assert error["type"] == "not_supported_error" and "prefix-cache" in error["message"], error


@case()
def adapters_are_chosen_by_name():
    assert ok(get("/lora-adapters")) == []
    refused(post("/lora-adapters", [{"id": 0, "scale": 1.0}]), 405)
    assert refused(post("/completion", {"prompt": "a", "lora": [{"id": 0, "scale": 1.0}]}))["param"] == "lora"


@case()
def the_page_is_there():
    answer = get("/")
    assert answer.status == 200 and "<!doctype html>" in answer.text


@case()
def aliases_are_told():
    with serving.served("--model-alias", "fim", "--model-alias", "code", model=f"tiny={MODEL}") as url:
        data = ok(get("/models", url))["data"]
        assert len(data) == 1 and {"fim", "code"} <= set(data[0]["aliases"]) and data[0]["tags"] == [], data
        assert ok(post("/completion", {"prompt": "a", "n_predict": 1, "model": "code"}, url))["content"] is not None


@case()
def metrics_are_told():
    # The prefix cache has blocks of 64 tokens.
    request = {"prompt": "I believe the meaning of life is " * 20, "temperature": 0, "n_predict": 8}
    ok(post("/completion", request))
    assert ok(post("/completion", request))["timings"]["cache_n"] > 0
    answer = get("/metrics")
    assert answer.status == 200 and "_total" in answer.text


@case()
def a_model_that_was_unloaded_sleeps_and_wakes():
    with serving.served("--idle-unload", "5", model=MODEL) as url:
        deadline = time.monotonic() + 90
        while not ok(get("/props", url))["is_sleeping"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert len(ok(get("/models", url))["data"]) == 1
        ok(post("/completion", {"n_predict": 1, "prompt": "Hello"}, url))
        assert ok(get("/props", url))["is_sleeping"] is False


@case()
def one_of_several_models_is_asked_by_name():
    with serving.served("--model", f"two={MODEL}", model=f"one={MODEL}") as url:
        assert {model["id"] for model in ok(get("/models", url))["data"]} == {"one", "two"}
        for name in ("one", "two"):
            ok(post("/chat/completions", {"model": name, "max_tokens": 4, "messages": [
                {"role": "user", "content": "hello"}]}, url))
        refused(post("/chat/completions", {"model": "three", "messages": [
            {"role": "user", "content": "hello"}]}, url), 404)


@case()
def models_are_loaded_and_unloaded():
    with serving.served("--load", "one", "--model", f"two={MODEL}", model=f"one={MODEL}") as url:
        def status(name):
            return next(model for model in ok(get("/models", url))["data"] if model["id"] == name)["status"]["value"]
        assert status("one") == "loaded"
        for path, value in (("load", "loaded"), ("unload", "unloaded")):
            assert ok(post(f"/models/{path}", {"model": "two"}, url)) == {"success": True}
            deadline = time.monotonic() + 60
            while status("two") != value:
                assert time.monotonic() < deadline, status("two")
                time.sleep(0.05)
        refused(post("/models/load", {"model": "three"}, url), 404)


@case("/health", "/")
def some_paths_need_no_key(path):
    assert get(path, KEYED_URL).status == 200


@case({}, {"authorization": "Bearer invalid-key"}, {"x-api-key": "invalid-key"})
def others_need_the_right_one(headers):
    error = refused(post("/completion", {"prompt": "a"}, KEYED_URL, headers=headers), 401)
    assert error["type"] == "authentication_error", error
    # Names of models are none of a stranger's business: llama.cpp's server tells them.
    refused(get("/models", KEYED_URL, headers=headers), 401)


@case({"authorization": f"Bearer {KEY}"}, {"x-api-key": KEY}, {"X-Api-Key": KEY})
def with_it_all_is_answered(headers):
    asked = {"prompt": "I believe the meaning of life is", "n_predict": 4}
    assert ok(post("/completion", asked, KEYED_URL, headers=headers))["content"]
    chat = {"max_tokens": 4, "messages": [{"role": "user", "content": "What is the meaning of life?"}]}
    assert len(ok(post("/chat/completions", chat, KEYED_URL, headers=headers))["choices"]) == 1


@case("http://localhost:3000", "https://web.mydomain.fr")
def pages_of_named_origins_may_ask(origin):
    with serving.served("--cors-origin", origin, model=MODEL) as url:
        asked = {"origin": origin, "access-control-request-method": "POST",
                 "access-control-request-headers": "authorization"}
        answer = serving.ask(url, "OPTIONS", "/completions", headers=asked)
        assert answer.status in (200, 204), answer.status
        told = answer.headers
        assert told["access-control-allow-origin"] == origin, dict(told)
        assert "POST" in told["access-control-allow-methods"], dict(told)
        assert "authorization" in told["access-control-allow-headers"].lower(), dict(told)
        other = {**asked, "origin": "https://elsewhere.example"}
        assert serving.ask(url, "OPTIONS", "/completions", headers=other).status == 403
