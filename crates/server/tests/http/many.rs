//! Several models: loaded when a request names them, unloaded when they are idle.

mod keeping;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fake_model::{FakeModel as Fake, Seen};
use inference_core::{Error, Result, WeightsRead};
use inference_server::{Ended, Entry, Loader, Model, Models, ServeError};
use serde_json::{Value as Json, json};

use crate::client::Client;
use crate::{TestServer, chat};

const JSON: (&str, &str) = ("content-type", "application/json");
const CHAT: &str = "/v1/chat/completions";

/// The loads of models, which a test observes and steers.
#[derive(Default)]
struct Loads {
    /// The models that were loaded, in order.
    done: Mutex<Vec<usize>>,
    /// Loads begin, and do not end while this is set.
    held: AtomicBool,
    /// Loads under way.
    running: AtomicUsize,
    /// How often a model was measured.
    measured: AtomicUsize,
    /// Why each load fails, where one is set.
    failure: Mutex<Option<Error>>,
    /// Each load panics.
    panics: AtomicBool,
    /// The record of each model, as it was loaded last.
    seen: Mutex<BTreeMap<usize, Arc<Seen>>>,
}

impl Loads {
    fn seen(&self, index: usize) -> Arc<Seen> {
        Arc::clone(&self.seen.lock().unwrap()[&index])
    }

    fn done(&self) -> Vec<usize> {
        self.done.lock().unwrap().clone()
    }
}

/// Loads fakes of 10 bytes that say their own number, again and again with `tokens`.
struct Fakes {
    loads: Arc<Loads>,
    tokens: usize,
}

impl Loader for Fakes {
    fn needs(&self, _: usize) -> Result<u64> {
        self.loads.measured.fetch_add(1, Ordering::SeqCst);
        Ok(10)
    }

    fn progress(&self, index: usize) -> Option<WeightsRead> {
        Some(WeightsRead { read: index as u64, total: 10 })
    }

    fn load(&self, index: usize) -> Result<Model> {
        self.loads.running.fetch_add(1, Ordering::SeqCst);
        while self.loads.held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.loads.running.fetch_sub(1, Ordering::SeqCst);
        assert!(!self.loads.panics.load(Ordering::SeqCst), "as the test asked");
        self.loads.failure.lock().unwrap().clone().map_or(Ok(()), Err)?;
        self.loads.done.lock().unwrap().push(index);
        let says = vec![["zero", "one", "two", "three"][index]; self.tokens];
        let fake = Fake { says, delay: Duration::from_millis(1), ..Fake::default() };
        self.loads.seen.lock().unwrap().insert(index, Arc::clone(&fake.seen));
        Ok(Model::Text(Box::new(fake)))
    }
}

const NAMES: [&str; 4] = ["owner/zero", "one", "two", "three"];

/// Four models, of which so many fit.
fn models(fit: u64, tokens: usize) -> (Models, Arc<Loads>) {
    let loads = Arc::<Loads>::default();
    let models = Models {
        entries: NAMES.map(Entry::text).into(),
        loader: Box::new(Fakes { loads: Arc::clone(&loads), tokens }),
        memory: 10 * fit,
        idle: None,
        waiting: 8,
        wait: Duration::from_secs(20),
    };
    (models, loads)
}

fn started(fit: u64, tokens: usize) -> (TestServer, Arc<Loads>) {
    let (models, loads) = models(fit, tokens);
    (TestServer::many(models, |_| {}), loads)
}

fn send(server: &TestServer, model: &str, more: Json) -> Client {
    let mut body = chat(more);
    body["model"] = json!(model);
    let mut client = Client::connect(server.address);
    client.send("POST", CHAT, &[JSON], &body.to_string());
    client
}

fn says(server: &TestServer, model: &str) -> String {
    let answer = server.chat(json!({"model": model}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.json()["model"], model);
    answer.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The `field` of each model in the list of models.
fn told(server: &TestServer, field: &str) -> Vec<Json> {
    let list = server.get("/v1/models").json();
    list["data"].as_array().unwrap().iter().map(|model| model[field].clone()).collect()
}

#[test]
fn a_model_is_loaded_when_a_request_names_it_and_told_of() {
    let (server, loads) = started(4, 1);
    wait_for("readiness", || server.get("/health").status == 200);
    assert_eq!(told(&server, "id"), NAMES);
    assert_eq!(told(&server, "state"), ["unloaded"; 4]);
    assert_eq!(told(&server, "last_used"), vec![Json::Null; 4]);
    assert_eq!(says(&server, "one"), "one");
    assert_eq!(says(&server, "owner/zero"), "zero");
    assert_eq!(says(&server, "one"), "one");
    assert_eq!(loads.done(), [1, 0]);
    assert_eq!(told(&server, "state"), ["loaded", "loaded", "unloaded", "unloaded"]);
    let one = server.get("/v1/models/one").json();
    assert_eq!((&one["bytes"], &one["pinned"]), (&json!(10), &json!(false)));
    assert_eq!((&one["object"], &one["owned_by"]), (&json!("model"), &json!("local")));
    assert_eq!(one["max_model_len"], 4096);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(now.as_secs().abs_diff(one["last_used"].as_u64().unwrap()) < 10, "{one}");
    let health = server.get("/health").json();
    assert_eq!(health["models"]["one"]["state"], "loaded");
    assert_eq!(health["models"]["two"]["state"], "unloaded");
    let metrics = server.get("/metrics").text;
    for line in [
        "ml_model_loaded{model=\"one\"} 1",
        "ml_model_loaded{model=\"two\"} 0",
        "ml_model_memory_bytes{model=\"one\"} 10",
        "ml_model_loads_total{model=\"one\"} 1",
        "ml_model_generations_total{model=\"one\"} 2",
        "ml_model_generation_tokens_total{model=\"owner/zero\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[test]
fn every_protocol_and_endpoint_takes_the_name() {
    let (server, _) = started(4, 1);
    let turns = json!([{"role": "user", "content": "hi"}]);
    for (path, body, text) in [
        ("/v1/completions", json!({"prompt": "a"}), "/choices/0/text"),
        ("/v1/messages", json!({"messages": turns, "max_tokens": 4}), "/content/0/text"),
        ("/v1/responses", json!({"input": "a"}), "/output/0/content/0/text"),
    ] {
        let mut body = body;
        body["model"] = json!("two");
        let answer = server.post(path, &body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        assert_eq!(answer.json()["model"], "two", "{path}");
        assert_eq!(answer.json().pointer(text), Some(&json!("two")), "{path}: {}", answer.text);
    }
    let classified = server.post("/v1/classify", &json!({"model": "three", "input": "a"}));
    assert_eq!((classified.status, &classified.json()["model"]), (200, &json!("three")));
    let tokens = server.post("/tokenize", &json!({"model": "one", "prompt": "abc"}));
    assert_eq!(tokens.json()["count"], 3);
    assert_eq!(server.post("/v1/inspect", &json!({"model": "one", "prompt": "a"})).status, 200);
}

#[test]
fn an_unknown_name_is_a_404_in_the_protocols_own_form_with_the_nearest_ones() {
    let (server, loads) = started(4, 1);
    let answer = server.chat(json!({"model": "thre"}));
    assert_eq!((answer.status, answer.error("code").as_str()), (404, "model_not_found"));
    assert_eq!(answer.error("param"), "model");
    let message = answer.error("message");
    assert!(message.contains("`three`") && message.contains("of 4"), "{message}");
    let body =
        json!({"model": "zero!", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}]});
    let answer = server.post("/v1/messages", &body);
    assert_eq!((answer.status, &answer.json()["error"]["type"]), (404, &json!("not_found_error")));
    assert!(answer.text.contains("owner/zero"), "{}", answer.text);
    assert_eq!(server.get("/v1/models/four").status, 404);
    let none = server.chat(json!({}));
    assert_eq!((none.status, none.error("param").as_str()), (400, "model"));
    assert!(none.error("message").contains("`one`"), "{}", none.text);
    assert_eq!(loads.done(), Vec::<usize>::new());
}

#[test]
fn two_requests_for_one_model_share_a_load_and_others_wait_for_theirs() {
    let (server, loads) = started(4, 1);
    loads.held.store(true, Ordering::SeqCst);
    let waiting =
        |model: &str| server.get("/health").json()["models"][model]["waiting_for_load"].clone();
    let mut clients = Vec::new();
    for (model, so_many) in [("one", 1), ("one", 2), ("two", 1)] {
        clients.push((model, send(&server, model, json!({}))));
        wait_for("waiting", || waiting(model) == so_many);
    }
    wait_for("loading", || loads.running.load(Ordering::SeqCst) == 1);
    assert_eq!(told(&server, "state"), ["unloaded", "loading", "loading", "unloaded"]);
    let load = |read| json!({"read_bytes": read, "total_bytes": 10, "percent": 10 * read});
    assert_eq!(told(&server, "load"), [json!(null), load(1), load(2), json!(null)]);
    assert!(server.get("/metrics").text.contains("ml_model_load_waiting{model=\"one\"} 2"));
    assert_eq!(loads.running.load(Ordering::SeqCst), 1, "one load at a time");
    loads.held.store(false, Ordering::SeqCst);
    for (model, client) in clients {
        assert_eq!(client.answer().json()["choices"][0]["message"]["content"], model);
    }
    assert_eq!(loads.done(), [1, 2]);
}

#[test]
fn the_least_recently_used_is_unloaded_where_memory_asks() {
    let (server, loads) = started(2, 1);
    for name in ["one", "two", "one", "three"] {
        says(&server, name);
    }
    assert_eq!(told(&server, "state"), ["unloaded", "loaded", "unloaded", "loaded"]);
    assert!(loads.seen(2).closed.load(Ordering::SeqCst));
    assert!(!loads.seen(1).closed.load(Ordering::SeqCst));
    assert!(server.get("/metrics").text.contains("ml_model_unloads_total{model=\"two\"} 1"));
    says(&server, "two");
    assert_eq!(loads.done(), [1, 2, 3, 2]);
}

#[test]
fn a_model_that_answers_is_not_unloaded_and_the_next_one_waits_for_its_end() {
    let (server, loads) = started(1, 600);
    let mut stream = send(&server, "one", json!({"stream": true}));
    stream.read_until("\"content\":\"one\"");
    let waits = send(&server, "two", json!({"max_tokens": 1}));
    wait_for("waiting", || server.get("/health").json()["models"]["two"]["waiting_for_load"] == 1);
    assert!(!loads.seen(1).closed.load(Ordering::SeqCst));
    wait_for("measuring", || loads.measured.load(Ordering::SeqCst) == 2);
    std::thread::sleep(Duration::from_millis(50));
    // So that it comes to its turn, others for the first one wait behind it.
    let behind = send(&server, "one", json!({"max_tokens": 1}));
    let rest = stream.read_until("[DONE]");
    assert!(rest.contains("\"finish_reason\":\"stop\""), "{rest}");
    assert_eq!(waits.answer().json()["model"], "two");
    assert_eq!(behind.answer().json()["model"], "one");
    assert_eq!(loads.done(), [1, 2, 1]);
}

#[test]
fn an_idle_model_is_unloaded_and_a_pinned_one_stays() {
    let (mut models, loads) = models(4, 1);
    models.idle = Some(Duration::from_millis(150));
    models.entries[0].pinned = true;
    models.entries[2].at_start = true;
    let server = TestServer::many(models, |_| {});
    wait_for("readiness", || server.get("/health").status == 200);
    assert_eq!(loads.done(), [0, 2], "pinned ones are loaded at the start, too");
    assert_eq!(told(&server, "pinned"), [true, false, false, false]);
    wait_for("unloading", || loads.seen(2).closed.load(Ordering::SeqCst));
    says(&server, "one");
    wait_for("unloading", || told(&server, "state")[1] == "unloaded");
    assert_eq!(told(&server, "state")[0], "loaded");
    assert!(!loads.seen(0).closed.load(Ordering::SeqCst));
    assert_eq!(says(&server, "one"), "one");
}

#[test]
fn before_what_is_loaded_at_the_start_is_there_the_server_is_not_ready_and_requests_wait() {
    let (mut models, loads) = models(4, 1);
    models.entries[1].at_start = true;
    loads.held.store(true, Ordering::SeqCst);
    let server = TestServer::many(models, |_| {});
    let health = server.get("/health");
    assert_eq!((health.status, &health.json()["status"]), (503, &json!("loading")));
    assert_eq!(told(&server, "state")[1], "loading");
    let client = send(&server, "two", json!({}));
    wait_for("waiting", || server.get("/health").json()["models"]["two"]["waiting_for_load"] == 1);
    loads.held.store(false, Ordering::SeqCst);
    assert_eq!(client.answer().status, 200);
    wait_for("readiness", || server.get("/health").status == 200);
}

#[test]
fn a_start_that_cannot_be_ends_the_server_with_the_models_name() {
    let (mut models, loads) = models(4, 1);
    models.entries[3].at_start = true;
    let reason = Error::Load { path: "three".into(), reason: "no config.json".into() };
    *loads.failure.lock().unwrap() = Some(reason);
    let error = TestServer::many(models, |_| {}).join().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the model `three` cannot be loaded: three: no config.json",
        "{error:?}"
    );
    let (mut models, _) = crate::many::models(4, 1);
    models.entries[3].name = "one".into();
    let server = TestServer::many(models, |_| {}).join();
    assert!(matches!(server, Err(ServeError::Config(_))), "{server:?}");
}

#[test]
fn a_failure_is_told_to_all_who_wait_and_believed_for_a_while() {
    let (server, loads) = started(4, 1);
    let reason = Error::Load { path: "one".into(), reason: "is damaged".into() };
    *loads.failure.lock().unwrap() = Some(reason);
    loads.held.store(true, Ordering::SeqCst);
    let clients = [(); 3].map(|()| send(&server, "one", json!({})));
    wait_for("waiting", || server.get("/health").json()["models"]["one"]["waiting_for_load"] == 3);
    loads.held.store(false, Ordering::SeqCst);
    for client in clients {
        let answer = client.answer();
        assert_eq!((answer.status, answer.error("code").as_str()), (503, "model_load_failed"));
        assert!(answer.error("message").contains("one: is damaged"), "{}", answer.text);
        let again: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((5..=10).contains(&again), "{again}");
    }
    *loads.failure.lock().unwrap() = None;
    assert_eq!(server.chat(json!({"model": "one"})).status, 503, "told again, and not tried");
    let one = server.get("/v1/models/one").json();
    assert_eq!((&one["state"], &one["error"]), (&json!("failed"), &json!("one: is damaged")));
    assert!(server.get("/metrics").text.contains("ml_model_load_failures_total{model=\"one\"} 1"));
    // Others are not concerned.
    assert_eq!(says(&server, "two"), "two");
    loads.panics.store(true, Ordering::SeqCst);
    let answer = server.chat(json!({"model": "three"}));
    assert_eq!((answer.status, answer.error("code").as_str()), (503, "model_load_failed"));
    assert_eq!(says(&server, "two"), "two");
}

#[test]
fn what_never_fits_is_refused_with_the_numbers() {
    let (mut models, _) = models(1, 1);
    models.memory = 9;
    let server = TestServer::many(models, |_| {});
    let answer = server.chat(json!({"model": "one"}));
    assert_eq!((answer.status, answer.error("code").as_str()), (503, "model_load_failed"));
    let message = answer.error("message");
    assert!(message.contains("needs 10 B, 9 B free"), "{message}");
    assert!(server.get("/metrics").text.contains("ml_model_load_failures_total{model=\"one\"} 1"));
}

#[test]
fn how_many_wait_and_for_how_long_is_bounded() {
    let (mut models, loads) = models(4, 1);
    (models.waiting, models.wait) = (2, Duration::from_secs(3));
    loads.held.store(true, Ordering::SeqCst);
    let server = TestServer::many(models, |_| {});
    let waits = [send(&server, "one", json!({})), send(&server, "two", json!({}))];
    wait_for("waiting", || server.get("/health").json()["models"]["two"]["waiting_for_load"] == 1);
    let refused = server.chat(json!({"model": "three"}));
    assert_eq!((refused.status, refused.error("code").as_str()), (429, "queue_full"));
    assert!(refused.header("retry-after").is_some());
    for client in waits {
        let answer = client.answer();
        assert_eq!((answer.status, answer.error("code").as_str()), (503, "model_loading"));
        assert!(answer.error("message").contains("within 3 s"), "{}", answer.text);
    }
    loads.held.store(false, Ordering::SeqCst);
    assert_eq!(says(&server, "three"), "three");
}

#[test]
fn a_client_that_leaves_frees_its_place() {
    let (mut models, loads) = models(4, 1);
    models.waiting = 1;
    loads.held.store(true, Ordering::SeqCst);
    let server = TestServer::many(models, |_| {});
    let waiting =
        |model: &str| server.get("/health").json()["models"][model]["waiting_for_load"].clone();
    let leaves = send(&server, "one", json!({"stream": true}));
    wait_for("loading", || loads.running.load(Ordering::SeqCst) == 1);
    drop(leaves);
    wait_for("leaving", || waiting("one") == 0);
    let stays = send(&server, "two", json!({}));
    wait_for("waiting", || waiting("two") == 1);
    loads.held.store(false, Ordering::SeqCst);
    assert_eq!(stays.answer().status, 200);
    // What nobody waits for any more was under way, and is kept.
    assert_eq!(loads.done(), [1, 2]);
}

#[test]
fn the_server_ends_while_it_loads_and_tells_those_who_wait() {
    let (server, loads) = started(4, 1);
    says(&server, "two");
    loads.held.store(true, Ordering::SeqCst);
    let waits = send(&server, "one", json!({}));
    wait_for("waiting", || server.get("/health").json()["models"]["one"]["waiting_for_load"] == 1);
    let mut server = server;
    let begun = Instant::now();
    server.shut_down();
    let answer = waits.answer();
    assert_eq!((answer.status, answer.error("code").as_str()), (503, "draining"));
    assert_eq!(server.join().unwrap(), Ended::Drained);
    assert!(begun.elapsed() < Duration::from_secs(5), "a load is not waited for");
    assert!(loads.seen(2).closed.load(Ordering::SeqCst), "what is loaded is closed");
    loads.held.store(false, Ordering::SeqCst);
}

#[test]
fn an_alias_means_its_model_and_answers_tell_the_models_own_name() {
    let (mut models, _) = models(4, 1);
    models.entries[2].aliases = vec!["gpt-4".into(), "*".into()];
    let server = TestServer::many(models, |_| {});
    for asked in ["gpt-4", "whatever"] {
        assert_eq!(server.chat(json!({"model": asked})).json()["model"], "two");
    }
    assert_eq!(says(&server, "three"), "three");
    assert_eq!(server.get("/v1/models/gpt-4").json()["id"], "two");
}

/// Many clients, few places: every request is answered, and by the model that it names.
#[test]
fn clients_of_more_models_than_fit_all_come_to_their_turn() {
    let (mut models, loads) = models(2, 3);
    models.waiting = 64;
    models.idle = Some(Duration::from_millis(20));
    let server = TestServer::many(models, |_| {});
    std::thread::scope(|scope| {
        for client in 0..8 {
            let server = &server;
            scope.spawn(move || {
                for turn in 0..12 {
                    let index = (client * 7 + turn * 3) % 4;
                    let said = says(server, NAMES[index]);
                    assert!(said.starts_with(["zero", "one", "two", "three"][index]), "{said}");
                }
            });
        }
    });
    wait_for("rest", || server.get("/health").json()["held"] == 0);
    let health = server.get("/health").json();
    for name in NAMES {
        assert_eq!(health["models"][name]["waiting_for_load"], 0);
    }
    assert!(loads.done().len() >= 4);
    // In the end all of them are idle for long enough.
    wait_for("unloading", || told(&server, "state") == ["unloaded"; 4]);
}
