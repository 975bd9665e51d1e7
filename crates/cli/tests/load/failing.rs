//! Steps of the engine that fail: each is one request's error.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::alone;
use crate::client::{Client, Reply, chat};
use crate::server::Server;

const PATH: &str = "/v1/completions";

/// The id whose embedding is no number.
const DAMAGED: usize = 4000;

/// The demo model with an embedding that makes a step fail for whoever has its id in the prompt. An
/// output layer of its own keeps the damage from all others.
fn damaged_model() -> TempDir {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo-model");
    let folder = tempfile::tempdir().unwrap();
    for name in
        ["chat_template.jinja", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]
    {
        fs::copy(demo.join(name), folder.path().join(name)).unwrap();
    }
    let config = fs::read_to_string(demo.join("config.json")).unwrap();
    let mut config: Json = serde_json::from_str(&config).unwrap();
    config["tie_word_embeddings"] = json!(false);
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();

    let file = fs::read(demo.join("model.safetensors")).unwrap();
    let mut tensors: BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)> = BTreeMap::new();
    for (name, tensor) in SafeTensors::deserialize(&file).unwrap().tensors() {
        let mut data = tensor.data().to_vec();
        if let Some(part) = name.strip_prefix("model.embed_tokens.") {
            let head = (tensor.dtype(), tensor.shape().to_vec(), data.clone());
            tensors.insert(format!("lm_head.{part}"), head);
            if part == "scales" {
                assert_eq!(tensor.dtype(), Dtype::BF16);
                let row = 2 * tensor.shape()[1];
                let nan = 0x7fc0_u16.to_le_bytes().repeat(tensor.shape()[1]);
                data[DAMAGED * row..(DAMAGED + 1) * row].copy_from_slice(&nan);
            }
        }
        tensors.insert(name, (tensor.dtype(), tensor.shape().to_vec(), data));
    }
    let views = tensors.iter().map(|(name, (dtype, shape, data))| {
        (name, TensorView::new(*dtype, shape.clone(), data).unwrap())
    });
    let whole = safetensors::serialize(views, None).unwrap();
    fs::write(folder.path().join("model.safetensors"), whole).unwrap();
    folder
}

/// The error that a stream which has begun ends with.
fn last_error(reply: &Reply) -> Json {
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert!(!reply.body.contains("[DONE]"), "{}", reply.body);
    let events: Vec<Json> = reply
        .body
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
        .collect();
    let (last, before) = events.split_last().unwrap();
    assert!(!before.is_empty() && before.iter().all(|event| event.get("error").is_none()));
    last["error"].clone()
}

#[test]
fn a_step_that_fails_is_one_requests_error_and_the_others_go_on() {
    let _alone = alone();
    let model = damaged_model();
    let server = Server::start(&["--model", model.path().to_str().unwrap(), "--prefix-cache", "0"]);
    let more = |seed: u64| json!({"stream": true, "max_tokens": 120, "ignore_eos": true, "seed": seed, "temperature": 0.8});
    let witnesses: Vec<Json> = ["fox", "king", "ship"]
        .iter()
        .zip(1..)
        .map(|(topic, seed)| chat(topic, more(seed)))
        .collect();
    let path = "/v1/chat/completions";
    let expected: Vec<String> =
        witnesses.iter().map(|body| server.post(path, body).text()).collect();
    let nine = server.post("/tokenize", &json!({"prompt": "9"})).json()["tokens"][0].to_string();
    let far = [vec![50; 700], vec![DAMAGED]].concat();

    thread::scope(|scope| {
        for (body, expected) in witnesses.iter().zip(&expected) {
            let server = &server;
            let mut client =
                Client::send(&server.address, "POST", path, &body.to_string()).unwrap();
            assert!(client.read_events(2), "it decodes when the others fail");
            scope.spawn(move || assert_eq!(client.reply().text(), *expected));
        }
        for body in [
            json!({"prompt": [DAMAGED]}),
            json!({"prompt": [50, DAMAGED, 51], "n": 3, "seed": 1, "temperature": 1}),
            json!({"prompt": [50, DAMAGED, 51], "stream": true}),
            json!({"prompt": [[50, 51], far], "max_tokens": 4}),
            json!({"prompt": [50, DAMAGED, 51], "echo": true, "logprobs": 1, "max_tokens": 0}),
            json!({"prompt": [50, DAMAGED, 51], "regex": "[a-z]{9}"}),
        ] {
            let reply = server.post(PATH, &body);
            assert_eq!(reply.status, 500, "{body}: {}", reply.body);
            let error = &reply.json()["error"];
            assert_eq!(error["code"], "internal_error", "{body}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("logits are no numbers"), "{message}");
        }
        // The other answer of the same request has begun when the step fails.
        let body = json!({"prompt": [[50, 51], far], "max_tokens": 400, "ignore_eos": true, "stream": true});
        assert_eq!(last_error(&server.post(PATH, &body))["code"], "internal_error");
        // In the middle of an answer: nothing may follow but what is forbidden.
        let body = json!({"prompt": "Once", "regex": "[a-z]{12}, [a-z]{12}9", "stream": true,
            "temperature": 0, "max_tokens": 100, "logit_bias": {nine: -100}});
        let error = last_error(&server.post(PATH, &body));
        assert_eq!(
            (&error["param"], &error["code"]),
            (&json!("logit_bias"), &json!("invalid_value"))
        );
    });
    server.wait_until_idle(Duration::from_secs(10));
    assert_eq!(server.post(path, &witnesses[0]).text(), expected[0]);
}
