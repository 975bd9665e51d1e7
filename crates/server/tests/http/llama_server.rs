//! The endpoints of llama.cpp's server.

use std::time::Duration;

use fake_model::{FIRST_MARK, FakeModel as Fake};
use inference_core::Prompt;
use serde_json::{Value as Json, json};

use crate::{TestServer, chat};

#[test]
fn a_stream_tells_how_far_its_prompt_is_read() {
    let slow = Fake { delay: Duration::from_millis(700), ..Fake::says(&["fox"]) };
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
        // What was told is not told again.
        assert_eq!(told.len(), 1, "{path}: {events:?}");
        let progress = &told[0]["prompt_progress"];
        assert_eq!((&progress["cache"], &progress["time_ms"]), (&json!(1), &json!(250)));
        let processed = progress["processed"].as_u64().unwrap();
        assert_eq!(processed, progress["total"].as_u64().unwrap() / 2);
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
        (json!({"prompt": ["a", "b"]}), "prompt"),
        (json!({"prompt": "a", "n": 2}), "n"),
        (json!({"prompt": "a", "mirostat": 1}), "mirostat"),
        (json!({"prompt": "a", "image_data": [{}]}), "image_data"),
    ] {
        let answer = server.post("/completion", &body);
        assert_eq!((answer.status, answer.error("param").as_str()), (400, param), "{body}");
    }
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
    assert_eq!(server.get("/slots").json().as_array().unwrap().len(), 3);
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
