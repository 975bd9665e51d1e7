//! The endpoints of llama.cpp's server.

use std::time::Duration;

use fake_model::{FIRST_MARK, FakeModel as Fake};
use inference_core::Prompt;
use serde_json::{Value as Json, json};

use crate::{TestServer, chat};

#[test]
fn a_stream_tells_how_far_its_prompt_is_read() {
    let slow = Fake { delay: Duration::from_millis(1500), ..Fake::says(&["fox"]) };
    let server = TestServer::with(slow, |_| {});
    let conversation = chat(json!({"stream": true, "return_progress": true}));
    let completion = json!({"prompt": "abcd", "stream": true, "return_progress": true});
    for (path, body, total) in [
        ("/v1/chat/completions", conversation, None),
        ("/v1/completions", completion.clone(), Some(4)),
        ("/completion", completion, Some(4)),
    ] {
        let answer = server.post(path, &body);
        let read = |event: &String| serde_json::from_str::<Json>(event).ok();
        let events: Vec<Json> = answer.events().iter().filter_map(read).collect();
        let told: Vec<&Json> =
            events.iter().filter(|event| !event["prompt_progress"].is_null()).collect();
        // What a cache held, how far it was after a while, which is not told again, and the end.
        assert_eq!(told.len(), 3, "{path}: {events:?}");
        let of = |at: usize, field: &str| told[at]["prompt_progress"][field].as_u64().unwrap();
        assert_eq!((of(0, "processed"), of(0, "cache"), of(0, "time_ms")), (1, 1, 0));
        assert_eq!((of(1, "cache"), of(1, "time_ms")), (1, 250));
        assert_eq!(of(1, "processed"), of(1, "total") / 2);
        assert_eq!(of(2, "processed"), of(2, "total"));
        let progress = &told[0]["prompt_progress"];
        assert!(total.is_none_or(|total| progress["total"] == total));
        let said = events.iter().position(|event| event.to_string().contains("fox")).unwrap();
        let at = events.iter().position(|event| !event["prompt_progress"].is_null()).unwrap();
        assert!(at < said, "{path}");
    }
    // A whole answer has nothing to tell it in.
    let body = json!({"prompt": "abcd", "return_progress": true});
    let whole = server.post("/v1/completions", &body);
    assert_eq!(whole.header("x-ml-ignored"), Some("return_progress"));
}

#[test]
fn a_completion_is_told_in_llama_cpps_words() {
    let server = TestServer::start();
    let body = json!({"prompt": "hi", "n_predict": 8, "temperature": 0, "cache_prompt": true});
    let answer = server.post("/completion", &body);
    assert_eq!(answer.status, 200, "{}", answer.text);
    let told = answer.json();
    assert_eq!((&told["content"], &told["stop"]), (&json!("The fox ran."), &json!(true)));
    assert_eq!((&told["stop_type"], &told["prompt"]), (&json!("eos"), &json!("hi")));
    assert_eq!(told["generation_settings"]["n_predict"], 8);
    for count in ["tokens_predicted", "tokens_evaluated"] {
        assert!(told[count].as_u64().unwrap() > 0, "{count}");
    }
    assert!(told["timings"]["predicted_per_second"].as_f64().unwrap() > 0.0);

    let short = server.post("/completion", &json!({"prompt": [104, 105], "n_predict": 2})).json();
    assert_eq!((&short["stop_type"], &short["tokens_predicted"]), (&json!("limit"), &json!(2)));
    assert_eq!(short["prompt"], "hi");
    let streamed = server.post("/completion", &json!({"prompt": "hi", "stream": true}));
    let events: Vec<Json> =
        streamed.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let (last, pieces) = events.split_last().unwrap();
    let text: String = pieces.iter().map(|piece| piece["content"].as_str().unwrap()).collect();
    assert_eq!((text.as_str(), &last["stop"]), ("The fox ran.", &json!(true)));
    assert!(pieces.iter().all(|piece| piece["stop"] == false));

    for (body, param) in [
        (json!({}), "prompt"),
        (json!({"prompt": vec!["a"; 1000]}), "prompt"),
        (json!({"prompt": "a", "n_cmpl": 1000}), "n_cmpl"),
        (json!({"prompt": "a", "post_sampling_probs": true}), "post_sampling_probs"),
        (json!({"prompt": "a", "t_max_predict_ms": 9}), "t_max_predict_ms"),
        (json!({"prompt": "a", "response_fields": [1]}), "response_fields[0]"),
        (json!({"prompt": "a", "logit_bias": {"b": 101}}), "logit_bias.b"),
        (json!({"prompt": "a", "mirostat": 1}), "mirostat"),
        (json!({"prompt": "a", "image_data": [{}]}), "image_data"),
    ] {
        let answer = server.post("/completion", &body);
        assert_eq!((answer.status, answer.error("param").as_str()), (400, param), "{body}");
    }
}

#[test]
fn several_prompts_and_answers_are_a_list() {
    let server = TestServer::start();
    let body = json!({"prompt": ["ab", [99, "d", 101]], "n_cmpl": 2, "seed": 7});
    let told = server.post("/completion", &body).json();
    let of = |field: &str| -> Vec<Json> {
        told.as_array().unwrap().iter().map(|one| one[field].clone()).collect()
    };
    assert_eq!(of("index"), [0, 1, 2, 3]);
    assert_eq!(of("prompt"), ["ab", "ab", "cde", "cde"]);
    assert_eq!(of("tokens_evaluated"), [2, 2, 3, 3]);
    let seeds: Vec<Json> =
        of("generation_settings").iter().map(|settings| settings["seed"].clone()).collect();
    assert_eq!(seeds, [7, 8, 7, 8]);
    let body = json!({"prompt": [{"prompt_string": "ab"}, "c"], "stream": true});
    let streamed = server.post("/completion", &body);
    let events: Vec<Json> =
        streamed.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    for index in 0..2 {
        let own: Vec<&Json> = events.iter().filter(|event| event["index"] == index).collect();
        let text: String = own.iter().filter_map(|event| event["content"].as_str()).collect();
        assert_eq!(text, "The fox ran.");
        let (last, pieces) = own.split_last().unwrap();
        assert_eq!(last["stop"], true);
        let ids = pieces.iter().map(|piece| piece["tokens"].as_array().unwrap().len());
        assert_eq!(Some(ids.sum::<usize>() as u64), last["tokens_predicted"].as_u64());
    }
}

#[test]
fn an_answer_tells_what_is_asked_of_it() {
    let server = TestServer::start();
    let body = json!({"prompt": "a", "return_tokens": true,
        "response_fields": ["content", "tokens", "generation_settings/n_predict", "none/such"]});
    let told = server.post("/completion", &body).json();
    assert_eq!(told["generation_settings/n_predict"], -1);
    assert!(!told["tokens"].as_array().unwrap().is_empty(), "{told}");
    assert_eq!(told.as_object().unwrap().len(), 3, "{told}");

    let told = server.post("/completion", &json!({"prompt": "a", "n_probs": 2})).json();
    assert_eq!(told["tokens"], json!([]));
    let tokens = told["completion_probabilities"].as_array().unwrap();
    assert_eq!(Some(tokens.len() as u64), told["tokens_predicted"].as_u64());
    for token in tokens {
        assert!(token["id"].is_u64() && token["bytes"].is_array(), "{token}");
        assert!(token["logprob"].as_f64().is_some_and(|logprob| logprob <= 0.0), "{token}");
        assert_eq!(token["top_logprobs"].as_array().unwrap().len(), 2, "{token}");
    }
}

#[test]
fn a_bias_may_be_of_a_text() {
    let server = TestServer::start();
    let biases = || server.model.options.lock().unwrap().last().unwrap().logit_bias.clone();
    for bias in [json!({"ab": -100, "5": 1.5}), json!([["ab", false], [5, 1.5]])] {
        let body = json!({"prompt": "a", "logit_bias": bias, "ignore_eos": true});
        let told = server.post("/completion", &body);
        assert_eq!(told.status, 200, "{}", told.text);
        let never = f32::NEG_INFINITY;
        assert_eq!(biases().into_iter().collect::<Vec<_>>(), [(5, 1.5), (97, never), (98, never)]);
        let told = told.json()["generation_settings"]["logit_bias"].clone();
        assert_eq!((&told[0], &told[1]["bias"]), (&json!({"token": 5, "bias": 1.5}), &Json::Null));
    }
    // OpenAI's keys are ids.
    let answer = server.chat(json!({"logit_bias": {"ab": 1}}));
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "logit_bias"));
}

#[test]
fn errors_are_those_of_the_path() {
    let server = TestServer::start();
    let long = json!({"prompt": "a".repeat(5000)});
    let own = server.post("/completion", &long);
    assert_eq!((own.status, own.error("type").as_str()), (400, "exceed_context_size_error"));
    assert_eq!(own.json()["error"]["code"], 400);
    let openais = server.post("/v1/completions", &long);
    assert_eq!(openais.error("code"), "context_length_exceeded");
    for answer in [own, openais] {
        let error = &answer.json()["error"];
        assert_eq!((&error["n_prompt_tokens"], &error["n_ctx"]), (&json!(5000), &json!(4096)));
    }
    let saved = server.post("/slots/0?action=save", &json!({"filename": "a"}));
    assert_eq!((saved.status, saved.error("type").as_str()), (501, "not_supported_error"));
    let unloaded = server.post("/models/unload", &json!({"model": "fake"}));
    assert_eq!((unloaded.status, unloaded.error("param").as_str()), (400, "model"));
    assert_eq!(server.post("/models/load", &json!({"model": "none"})).status, 404);
    assert_eq!(server.post("/models/load", &json!({"model": "fake"})).json()["success"], true);
}

#[test]
fn a_model_without_marks_fills_nothing_in() {
    let server = TestServer::start();
    let infill = json!({"input_prefix": "a", "input_suffix": "b", "input_extra": [{"text": "c"}]});
    let answer = server.post("/infill", &infill);
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "input_suffix"));
    for (path, body) in [
        ("/v1/completions", json!({"prompt": "a", "suffix": "b"})),
        ("/v1/completions", json!({"prompt": [1], "suffix": "b"})),
    ] {
        let answer = server.post(path, &body);
        assert_eq!((answer.status, answer.error("param").as_str()), (400, "suffix"));
    }
    let none = server.post("/v1/completions", &json!({"prompt": "a", "suffix": ""}));
    assert_eq!(none.status, 200);
}

/// The prompt that a server's model got last, with a sign for each mark.
fn filled(server: &TestServer) -> String {
    let prompts = server.model.prompts.lock().unwrap();
    let Some(Prompt::Ids(ids)) = prompts.last().cloned() else { panic!("ids") };
    let letter = |id: &u32| match id.checked_sub(FIRST_MARK) {
        Some(mark) => char::from(b'0' + mark as u8),
        None => char::from_u32(*id).unwrap(),
    };
    ids.iter().map(letter).collect()
}

#[test]
fn a_text_is_filled_in_between_two_others_in_the_models_order() {
    let marked = |marks| TestServer::with(Fake { marks, ..Fake::default() }, |_| {});
    let server = marked(&[
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        "<|file_sep|>",
        "<|repo_name|>",
        "<|endoftext|>",
    ]);
    let body = json!({"prompt": "a", "suffix": "b", "echo": true, "n": 2});
    let answer = server.post("/v1/completions", &body);
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(filled(&server), "0a1b2");
    let choices = answer.json()["choices"].clone();
    assert_eq!((&choices[0]["text"], &choices[1]["index"]), (&json!("aThe fox ran."), &json!(1)));
    assert_eq!(answer.json()["usage"]["prompt_tokens"], 5, "marks and texts, once");
    let ends = server.model.options.lock().unwrap().last().unwrap().stop_token_ids.clone();
    assert_eq!(ends, [4, 3, 5].map(|mark| FIRST_MARK + mark));

    let infill = json!({"input_prefix": "a", "prompt": "c", "input_suffix": "b",
        "input_extra": [{"filename": "x.rs", "text": "y"}]});
    let told = server.post("/infill", &infill);
    assert_eq!((told.status, &told.json()["content"]), (200, &json!("The fox ran.")));
    assert_eq!(filled(&server), "4repository\n3x.rs\ny\n30ac1b2");
    let ollama = json!({"model": "fake", "prompt": "a", "suffix": "b", "stream": false});
    assert_eq!(server.post("/api/generate", &ollama).status, 200);
    assert_eq!(filled(&server), "0a1b2");
    // Such a text would end the part that it is in.
    let marked_text = json!({"prompt": "a<|fim_middle|>", "suffix": "b"});
    let answer = server.post("/v1/completions", &marked_text);
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "suffix"));

    let server = marked(&["[PREFIX]", "[SUFFIX]"]);
    assert_eq!(server.post("/v1/completions", &json!({"prompt": "a", "suffix": "b"})).status, 200);
    assert_eq!(filled(&server), "1b0a");
}

#[test]
fn the_server_tells_what_it_is() {
    let server = TestServer::with(Fake::default(), |config| config.slots = 3);
    let props = server.get("/props").json();
    assert_eq!((&props["total_slots"], &props["model_alias"]), (&json!(3), &json!("fake")));
    assert_eq!(props["default_generation_settings"]["n_ctx"], 4096);
    assert!(props["modalities"]["vision"].is_boolean());
    let slots = server.get("/slots?fail_on_no_slot=1").json();
    assert_eq!((slots.as_array().unwrap().len(), &slots[0]["n_ctx"]), (3, &json!(4096)));
    let models = server.get("/models").json();
    assert_eq!(models["models"][0]["capabilities"][0], "completion");
    assert_eq!(models["data"][0]["status"]["value"], "loaded");
    assert_eq!(server.get("/lora-adapters").json(), json!([]));
    assert_eq!(server.get("/version").json()["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(server.get("/v1/health").json()["status"], "ok");
    let pieces = server.post("/tokenize", &json!({"content": "hi", "with_pieces": true})).json();
    assert_eq!(pieces["tokens"][0], json!({"id": 104, "piece": "h"}));
    let texts = json!({"prompt": "hi", "return_token_strs": true, "add_special": false});
    assert_eq!(server.post("/tokenize", &texts).json()["token_strs"], json!(["h", "i"]));
}

#[test]
fn answers_tell_their_times_where_that_is_asked_for() {
    let slow = Fake { delay: Duration::from_millis(40), ..Fake::says(&["The", " fox", " ran"]) };
    let server = TestServer::with(slow, |_| {});
    let names = [
        "cache_n",
        "prompt_n",
        "prompt_ms",
        "prompt_per_token_ms",
        "prompt_per_second",
        "predicted_n",
        "predicted_ms",
        "predicted_per_token_ms",
        "predicted_per_second",
    ];
    let are_all = |timings: &Json| names.iter().all(|name| timings[name].is_number());
    for (path, body) in [
        ("/v1/chat/completions", chat(json!({"timings_per_token": true}))),
        ("/v1/completions", json!({"prompt": "abcd", "timings_per_token": true})),
        ("/completion", json!({"prompt": "abcd", "timings_per_token": true})),
        ("/v1/responses", json!({"model": "fake", "input": "abcd", "timings_per_token": true})),
    ] {
        let whole = server.post(path, &body);
        assert_eq!((whole.status, whole.header("x-ml-ignored")), (200, None));
        let timings = &whole.json()["timings"];
        assert!(are_all(timings), "{path}: {timings}");
        assert_eq!((&timings["predicted_n"], &timings["predicted_ms"]), (&json!(3), &json!(250.0)));
        assert_eq!(timings["predicted_per_second"], 12.0);

        let mut body = body;
        body["stream"] = json!(true);
        let answer = server.post(path, &body);
        let read = |event: &String| serde_json::from_str::<Json>(event).ok();
        let events: Vec<Json> = answer.events().iter().filter_map(read).collect();
        let told: Vec<&Json> =
            events.iter().map(|event| &event["timings"]).filter(|times| are_all(times)).collect();
        let counts: Vec<u64> =
            told.iter().filter_map(|timings| timings["predicted_n"].as_u64()).collect();
        assert_eq!(counts, [1, 2, 3, 3], "{path}: {events:?}");
        assert_eq!(
            (&told[0]["predicted_ms"], told[0]["prompt_n"].as_u64()),
            (&json!(0.0), told[3]["prompt_n"].as_u64())
        );
        // Of a machine that is busy, the first one may be late.
        assert!(told[2]["predicted_ms"].as_f64().is_some_and(|time| time >= 4.0), "{path}");
        assert_eq!(told[3]["predicted_ms"], 250.0, "the last tells the engine's own");

        body["timings_per_token"] = json!(false);
        let untold = server.post(path, &body);
        assert!(path == "/completion" || !untold.text.contains("timings"), "{}", untold.text);
    }
    let wrong = server.chat(json!({"timings_per_token": 1}));
    assert_eq!((wrong.status, wrong.error("param").as_str()), (400, "timings_per_token"));
}
