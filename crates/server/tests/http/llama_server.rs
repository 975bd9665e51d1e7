//! The endpoints of llama.cpp's server.

use fake_model::FakeModel as Fake;
use serde_json::{Value as Json, json};

use crate::TestServer;

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
