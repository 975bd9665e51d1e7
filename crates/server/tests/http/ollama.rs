//! Ollama's endpoints: lines, calls, options, and models that are kept for as long as requests say.

use std::time::Duration;

use fake_model::FakeModel as Fake;
use inference_core::{Constraint, EmbeddingModelInfo, ModelInfo, Role, StoredAs};
use inference_server::{Described, Entry, Loader, Makes, Model, Models};
use serde_json::{Value as Json, json};

use crate::client::Answer;
use crate::{TestServer, merge, server_that_says as server};

const SAID: &[&str] = &[
    "<think>hm</think>",
    "fox",
    " ran",
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\"",
    ": 1}}\n</tool_call>",
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
];

fn chat(server: &TestServer, more: Json) -> Answer {
    let mut body = json!({"model": "fake", "messages": [{"role": "user", "content": "hi"}]});
    merge(&mut body, more);
    server.post("/api/chat", &body)
}

fn generate(server: &TestServer, more: Json) -> Answer {
    let mut body = json!({"model": "fake:latest", "prompt": "hi"});
    merge(&mut body, more);
    server.post("/api/generate", &body)
}

fn tools() -> Json {
    json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])
}

fn lines(answer: &Answer) -> Vec<Json> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The status and the field of an error.
fn refused(answer: &Answer) -> (u16, String) {
    let body = answer.json();
    assert!(body["error"].is_string(), "{}", answer.text);
    (answer.status, body["param"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_chat_is_answered_in_lines_and_as_a_whole_alike() {
    let server = server(SAID);
    let streamed = lines(&chat(&server, json!({"tools": tools()})));
    let text = |field: &str| -> String {
        streamed.iter().filter_map(|line| line["message"][field].as_str()).collect()
    };
    assert_eq!((text("content").as_str(), text("thinking").as_str()), ("fox ran", "hm"));
    let calls: Vec<Json> = streamed
        .iter()
        .filter_map(|line| line["message"]["tool_calls"].as_array().cloned())
        .flatten()
        .collect();
    let functions: Vec<_> = calls.iter().map(|call| call["function"].clone()).collect();
    let call =
        |index: u8, arguments: Json| json!({"index": index, "name": "f", "arguments": arguments});
    assert_eq!(functions, [call(0, json!({"x": 1})), call(1, json!({}))]);
    let (last, others) = streamed.split_last().unwrap();
    assert!(others.iter().all(|line| line["done"] == false && line["created_at"].is_string()));
    assert_eq!((&last["done"], &last["done_reason"]), (&json!(true), &json!("stop")));

    let whole = chat(&server, json!({"tools": tools(), "stream": false})).json();
    assert_eq!(whole["model"], "fake");
    assert_eq!(whole["message"]["content"], "fox ran");
    assert_eq!(whole["message"]["thinking"], "hm");
    let of_whole = whole["message"]["tool_calls"].as_array().unwrap();
    assert!(of_whole.iter().zip(&calls).all(|(one, other)| one["function"] == other["function"]));
    for (name, is_there) in [("prompt_eval_count", true), ("eval_count", true)] {
        assert_eq!(whole[name].as_u64().is_some_and(|count| count > 0), is_there, "{whole}");
        assert_eq!(whole[name], last[name]);
    }
    assert!(whole["total_duration"].as_u64() > Some(0), "{whole}");
    assert!(whole["load_duration"].is_u64() && whole["eval_duration"].is_u64(), "{whole}");
}

#[test]
fn bodies_are_json_whatever_they_are_declared_as() {
    let server = server(&["fox"]);
    let body = r#"{"model": "fake", "prompt": "hi", "stream": false}"#;
    // As `curl -d` and litellm send them.
    for headers in [
        &[][..],
        &[("content-type", "application/x-www-form-urlencoded")],
        &[("content-type", "text/plain")],
    ] {
        let client = crate::client::Client::connect(server.address);
        let answer = client.request("POST", "/api/generate", headers, body);
        assert_eq!(
            (answer.status, &answer.json()["response"]),
            (200, &json!("fox")),
            "{headers:?}"
        );
    }
    let page = [("content-type", "text/plain"), ("origin", "http://evil.example")];
    let client = crate::client::Client::connect(server.address);
    assert_eq!(client.request("POST", "/api/generate", &page, body).status, 403);
}

#[test]
fn a_prompt_is_answered_with_instructions_or_continued_as_it_is() {
    let server = server(&["<think>hm</think>", "fox"]);
    let whole = generate(&server, json!({"stream": false, "system": "be brief"})).json();
    assert_eq!((&whole["response"], &whole["thinking"]), (&json!("fox"), &json!("hm")));
    assert_eq!((&whole["model"], &whole["done"]), (&json!("fake"), &json!(true)));
    {
        let chats = server.model.chats.lock().unwrap();
        let roles: Vec<_> = chats.last().unwrap().0.iter().map(|m| m.role.clone()).collect();
        assert_eq!(roles, [Role::System, Role::User]);
    }
    let raw = lines(&generate(&server, json!({"raw": true})));
    let text: String = raw.iter().filter_map(|line| line["response"].as_str()).collect();
    assert_eq!(text, "<think>hm</think>fox");
    assert_eq!(
        refused(&generate(&server, json!({"raw": true, "system": "a"}))),
        (400, "system".into())
    );
}

#[test]
fn options_reach_the_model() {
    let server = server(&["fox"]);
    let options = json!({"temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.7, "seed": 7,
        "num_predict": 5, "stop": ["x"], "repeat_penalty": 1.2, "repeat_last_n": 8,
        "presence_penalty": 0.1, "frequency_penalty": 0.2, "num_keep": 4, "mirostat": 0});
    let schema = json!({"type": "object", "properties": {}});
    assert_eq!(chat(&server, json!({"options": options, "format": schema})).status, 200);
    let asked = server.model.options.lock().unwrap().last().unwrap().clone();
    assert_eq!((asked.temperature, asked.top_k, asked.top_p), (Some(0.5), Some(3), Some(0.9)));
    assert_eq!(asked.typical_p, Some(0.7));
    assert_eq!((asked.min_p, asked.seed, asked.max_tokens), (Some(0.1), Some(7), Some(5)));
    assert_eq!((asked.repetition_penalty, asked.penalty_window), (Some(1.2), Some(8)));
    assert_eq!((asked.presence_penalty, asked.frequency_penalty), (Some(0.1), Some(0.2)));
    assert_eq!(asked.stop, ["x"]);
    // The schema, behind thoughts.
    assert!(
        matches!(&asked.constraint, Some(Constraint::Lark(text)) if text.contains("%json")),
        "{asked:?}"
    );

    let free = json!({"num_predict": -1, "seed": -1, "repeat_penalty": 1.2, "repeat_last_n": 0});
    assert_eq!(chat(&server, json!({"options": free, "format": ""})).status, 200);
    let asked = server.model.options.lock().unwrap().last().unwrap().clone();
    assert_eq!((asked.max_tokens, asked.seed, asked.constraint), (None, None, None));
    // Off, also where the model's own file has one.
    assert_eq!((asked.repetition_penalty, asked.presence_penalty), (Some(1.0), Some(0.0)));
}

#[test]
fn num_ctx_bounds_the_prompt_with_its_answer() {
    let server = server(&["fox"]);
    let tokens = "<user>hi".len();
    let with =
        |context: usize| chat(&server, json!({"options": {"num_ctx": context}, "stream": false}));
    assert_eq!(with(tokens + 3).status, 200);
    let asked = server.model.options.lock().unwrap().last().unwrap().max_tokens;
    assert_eq!(asked, Some(3));
    assert_eq!(refused(&with(tokens)), (400, "messages".to_owned()));
}

#[test]
fn thinking_reaches_the_template_or_is_refused() {
    let server = server(&["fox"]);
    for (think, expected) in [(json!(true), "Bool(true)"), (json!(false), "Bool(false)")] {
        assert_eq!(chat(&server, json!({"think": think})).status, 200);
        let chats = server.model.chats.lock().unwrap();
        let variables = format!("{:?}", chats.last().unwrap().1.template_kwargs);
        assert!(
            variables.contains("enable_thinking") && variables.contains(expected),
            "{variables}"
        );
    }
    assert_eq!(refused(&chat(&server, json!({"think": "deeply"}))), (400, "think".to_owned()));
    let plain = TestServer::start();
    assert_eq!(chat(&plain, json!({"think": false})).status, 200);
    let answer = chat(&plain, json!({"think": true}));
    assert_eq!((answer.status, answer.header("x-ml-ignored")), (200, Some("think")));
    let strict = TestServer::with(Fake::default(), |config| config.strict_fields = true);
    assert_eq!(refused(&chat(&strict, json!({"think": true}))), (400, "think".to_owned()));
}

#[test]
fn calls_and_their_results_become_messages() {
    let server = server(&["a"]);
    let call = |x: u8| json!({"function": {"name": "f", "index": x, "arguments": {"x": x}}});
    let messages = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "thinking": "hm", "tool_calls": [call(0), call(1)]},
        {"role": "tool", "content": "zero", "tool_name": "f"},
        {"role": "tool", "content": "one"},
    ]);
    let answer = chat(&server, json!({"messages": messages, "tools": tools()}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let chats = server.model.chats.lock().unwrap();
    let read = &chats.last().unwrap().0;
    let field = |index: usize, name: &str| {
        let fields = &read[index].fields;
        fields.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
    };
    assert_eq!(field(1, "reasoning_content").unwrap().as_str(), Some("hm"));
    let calls = format!("{:?}", field(1, "tool_calls").unwrap());
    for index in [2, 3] {
        let id = field(index, "tool_call_id").unwrap();
        assert!(calls.contains(id.as_str().unwrap()), "{calls}: {id:?}");
        assert_eq!(field(index, "name").unwrap().as_str(), Some("f"));
    }
    assert_ne!(field(2, "tool_call_id"), field(3, "tool_call_id"));
}

#[test]
fn log_probabilities_are_told_of_every_token() {
    let server = TestServer::with(Fake::says(&["fox", " ran"]), |_| {});
    let whole = chat(&server, json!({"logprobs": true, "stream": false})).json();
    let count = whole["logprobs"].as_array().unwrap().len();
    assert_eq!(json!(count), whole["eval_count"]);
    let streamed = lines(&chat(&server, json!({"logprobs": true})));
    let told = streamed.iter().filter_map(|line| line["logprobs"].as_array()).map(Vec::len);
    assert_eq!(told.sum::<usize>(), count);
}

#[test]
fn what_is_not_honoured_is_named() {
    let fake = Fake { calls: true, thinks: true, ..Fake::default() };
    let server = TestServer::with(fake, |config| config.strict_fields = true);
    for (more, status, param) in [
        (json!({"model": "other"}), 404, "model"),
        (json!({"model": null}), 400, "model"),
        (json!({"frobnicate": 1}), 400, "frobnicate"),
        (json!({"options": {"frobnicate": 1}}), 400, "options.frobnicate"),
        (json!({"options": {"num_gpu": 1}}), 400, "options.num_gpu"),
        (json!({"options": {"mirostat": 1}}), 400, "options.mirostat"),
        (json!({"options": {"top_p": 2}}), 400, "options.top_p"),
        (json!({"options": {"stop": [1]}}), 400, "options.stop[0]"),
        (json!({"options": 1}), 400, "options"),
        (json!({"messages": [], "options": {"stop": [""]}}), 400, "options.stop"),
        (json!({"format": "xml"}), 400, "format"),
        (json!({"top_logprobs": 2}), 400, "top_logprobs"),
        (json!({"keep_alive": "soon"}), 400, "keep_alive"),
        // The only model stays.
        (json!({"keep_alive": 0}), 400, "keep_alive"),
        (json!({"shift": true}), 400, "shift"),
        (json!({"messages": [{"role": "root"}]}), 400, "messages[0].role"),
        (json!({"messages": [{"role": "user", "x": 1}]}), 400, "messages[0].x"),
        (json!({"messages": [{"role": "tool", "content": "a"}]}), 400, "messages[0].tool_name"),
        (json!({"messages": [{"role": "user", "images": ["a b"]}]}), 400, "messages[0].images[0]"),
    ] {
        assert_eq!(refused(&chat(&server, more.clone())), (status, param.to_owned()), "{more}");
    }
    for (more, param) in [
        (json!({"suffix": "a"}), "suffix"),
        (json!({"template": "a"}), "template"),
        (json!({"context": [1]}), "context"),
        (json!({"width": 64}), "width"),
        (json!({"prompt": null, "images": [null]}), "images"),
        (json!({"prompt": "", "system": "be brief"}), "system"),
    ] {
        assert_eq!(refused(&generate(&server, more)), (400, param.to_owned()));
    }
    for path in ["pull", "push", "create", "copy", "delete", "blobs/sha256:00"] {
        let path = format!("/api/{path}");
        let answer = server.post(&path, &json!({"model": "a"}));
        assert_eq!(refused(&answer), (400, path.clone()));
        assert!(answer.text.contains("a server changes no models; "), "{}", answer.text);
    }
    assert_eq!(server.get("/api/nothing").status, 404);
}

#[test]
fn a_failure_in_a_stream_is_its_last_line() {
    let failure = Some(inference_core::Error::Engine("device lost".into()));
    let server = TestServer::with(Fake { failure, ..Fake::says(&["fox"]) }, |_| {});
    let lines = lines(&chat(&server, json!({})));
    assert_eq!(lines[0]["message"]["content"], "fox");
    assert!(lines.last().unwrap()["error"].as_str().is_some(), "{lines:?}");
}

#[test]
fn models_are_listed_and_shown() {
    let server = server(&["a"]);
    assert!(server.get("/api/version").json()["version"].as_str().unwrap().starts_with("0."));
    let tags = server.get("/api/tags").json();
    let model = &tags["models"][0];
    assert_eq!((&model["name"], &model["model"]), (&json!("fake"), &json!("fake")));
    assert_eq!(model["digest"].as_str().map(str::len), Some(64));
    let running = server.get("/api/ps").json();
    assert_eq!(running["models"][0]["digest"], model["digest"]);
    // One that stays never expires.
    assert!(running["models"][0]["expires_at"].as_str().unwrap().starts_with("9999-"), "{running}");
    let shown = server.post("/api/show", &json!({"model": "fake:latest"})).json();
    let can: Vec<_> =
        shown["capabilities"].as_array().unwrap().iter().filter_map(Json::as_str).collect();
    assert!(["completion", "tools", "thinking"].iter().all(|one| can.contains(one)), "{shown}");
    let family = shown["model_info"]["general.architecture"].as_str().unwrap();
    assert!(shown["model_info"][format!("{family}.context_length")].as_u64() > Some(0), "{shown}");
    assert_eq!(server.post("/api/show", &json!({"name": "fake"})).json(), shown);
    let show = |body| refused(&server.post("/api/show", &body));
    assert_eq!(show(json!({"model": "other", "name": "fake"})), (404, "model".into()));
    assert_eq!(show(json!({})), (400, "model".into()));
}

/// Loads nothing: what is known of its models is known from their files.
struct Never;

impl Loader for Never {
    fn needs(&self, _: usize) -> inference_core::Result<u64> {
        Ok(1)
    }

    fn load(&self, _: usize) -> inference_core::Result<Model> {
        Err(inference_core::Error::Closed)
    }
}

/// A server that has these models, none of them loaded.
fn unloaded(models: impl IntoIterator<Item = (Makes, Described)>) -> TestServer {
    let entry = |(index, (makes, described)): (usize, (Makes, Described))| Entry {
        makes,
        described: Some(described),
        ..Entry::text(format!("m{index}"))
    };
    let entries = models.into_iter().enumerate().map(entry).collect();
    let (loader, wait) = (Box::new(Never), Duration::from_secs(1));
    let models = Models { entries, loader, memory: 100, idle: None, waiting: 1, wait };
    let server = TestServer::many(models, |_| {});
    while server.get("/health").status != 200 {
        std::thread::yield_now();
    }
    server
}

#[test]
fn files_are_called_as_they_call_themselves_whether_a_model_is_loaded_or_not() {
    let stored = |format: &str, quantization: &str| StoredAs {
        format: format.into(),
        quantization: quantization.into(),
    };
    let told = [
        (stored("gguf", "Q4_K_M"), 8, "gguf", "Q4_K_M"),
        (stored("safetensors", ""), 4, "safetensors", "4-bit"),
        (stored("safetensors", ""), 0, "safetensors", ""),
        (StoredAs::default(), 0, "", ""),
    ];
    for (stored_as, quant_bits, format, level) in told {
        let info = ModelInfo {
            architecture: "fake".into(),
            num_parameters: 7_000_000,
            stored_as: stored_as.clone(),
            quant_bits,
            ..ModelInfo::default()
        };
        let vectors = EmbeddingModelInfo {
            architecture: "bert".into(),
            num_parameters: 7_000_000,
            num_layers: 6,
            max_tokens: 512,
            stored_as,
            quant_bits,
            ..EmbeddingModelInfo::default()
        };
        let loaded = TestServer::with(Fake { info: info.clone(), ..Fake::default() }, |_| {});
        let all = unloaded([
            (Makes::Text, Described::Text(Box::new(info), Fake::default().capabilities)),
            (Makes::Vectors, Described::Embedding(Box::new(vectors))),
        ]);
        let shown = |server: &TestServer, name: &str| {
            server.post("/api/show", &json!({"model": name})).json()
        };
        for (shown, family) in [
            (shown(&loaded, "fake"), "fake"),
            (shown(&all, "m0"), "fake"),
            (shown(&all, "m1"), "bert"),
        ] {
            let details = &shown["details"];
            let found = (&details["format"], &details["quantization_level"], &details["family"]);
            assert_eq!(found, (&json!(format), &json!(level), &json!(family)));
            assert_eq!(details["parameter_size"], "7.0M");
        }
        let vectors = shown(&all, "m1");
        assert_eq!(vectors["capabilities"], json!(["embedding"]));
        assert_eq!(vectors["model_info"]["bert.context_length"], 512);
        let tags = all.get("/api/tags").json();
        assert_eq!(tags["models"][1]["details"], vectors["details"]);
        let running = loaded.get("/api/ps").json();
        assert_eq!(running["models"][0]["details"]["format"], format);
        let model = all.get("/v1/models/m1").json();
        assert_eq!(model["info"]["file_format"], format);
        assert_eq!(
            (&model["state"], &model["info"]["num_layers"]),
            (&json!("unloaded"), &json!(6))
        );
    }
}
