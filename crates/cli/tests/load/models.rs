//! Models that are loaded and unloaded again and again.

use std::fs;
use std::path::Path;

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::client::chat;
use crate::server::Server;
use crate::{PATIENCE, alone};

/// How often a model is loaded and unloaded; `ML_LOAD_MODELS` says another number.
const ROUNDS: usize = 20;

/// Rounds after which what is allocated once is allocated: threads' arenas, tables, the server's
/// own buffers.
const WARM: usize = 8;

/// Resident bytes that all further loads together may add, however many there are: twice the
/// model's weights.
const LEFT: u64 = 8 << 20;

/// A folder with the demo model under two names.
fn folder() -> TempDir {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo-model");
    let folder = tempfile::tempdir().unwrap();
    for name in ["fox", "owl"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        for file in fs::read_dir(&demo).unwrap().map(|entry| entry.unwrap().path()) {
            if file.is_file() {
                fs::copy(&file, folder.path().join(name).join(file.file_name().unwrap())).unwrap();
            }
        }
    }
    folder
}

fn says(server: &Server, model: &str) -> Json {
    let more = json!({"model": model, "max_tokens": 8, "temperature": 0});
    let answer = server.post("/v1/chat/completions", &chat("fox", more));
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.json()["model"], model);
    answer.json()["choices"][0]["message"]["content"].clone()
}

fn state(server: &Server, model: &str) -> Json {
    server.get(&format!("/v1/models/{model}")).json()["state"].clone()
}

#[test]
fn memory_goes_back_when_models_are_unloaded() {
    let _alone = alone();
    let rounds = std::env::var("ML_LOAD_MODELS")
        .map_or(ROUNDS, |rounds| rounds.parse().expect("ML_LOAD_MODELS is a number of rounds"));
    let folder = folder();
    let models = folder.path().to_str().unwrap();
    // One of them fits, so that each request unloads the other.
    let server =
        Server::start(&["--models-dir", models, "--models-memory", "6MiB", "--prefix-cache", "0"]);
    let begin = server.memory();
    let said = says(&server, "fox");
    let one = server.memory();
    let mut resident = Vec::new();
    for round in 0..rounds {
        let (next, other) = [("owl", "fox"), ("fox", "owl")][round % 2];
        assert_eq!(says(&server, next), said, "the same model under another name");
        assert_eq!(
            (state(&server, next), state(&server, other)),
            ("loaded".into(), "unloaded".into())
        );
        resident.extend(server.memory().map(|memory| memory.resident));
    }
    let metrics = server.get("/metrics").body;
    let half = rounds.div_ceil(2);
    assert!(
        metrics.contains(&format!("ml_model_loads_total{{model=\"owl\"}} {half}")),
        "{metrics}"
    );
    println!("{rounds} loads: {begin:?}, with one model {one:?}, then resident {resident:?}");
    // Where the system does not tell, there is nothing to hold it to.
    let (Some(first), Some(last)) = (resident.get(WARM), resident.last()) else { return };
    let bound = first + LEFT;
    assert!(*last <= bound, "{last} bytes are resident after {rounds} loads, more than {bound}");
}

#[test]
fn an_idle_model_gives_its_memory_back_and_is_loaded_again() {
    let _alone = alone();
    let folder = folder();
    let models = folder.path().to_str().unwrap();
    let server = Server::start(&["--models-dir", models, "--idle-unload", "1s", "--pin", "owl"]);
    assert_eq!(state(&server, "owl"), "loaded");
    let said = says(&server, "fox");
    let with_both = server.memory();
    server.wait_until("the idle model is unloaded", PATIENCE, |s| state(s, "fox") == "unloaded");
    let with_one = server.memory();
    println!("both {with_both:?}, one of them {with_one:?}");
    assert_eq!(state(&server, "owl"), "loaded", "it is pinned");
    assert_eq!(says(&server, "fox"), said);
    assert_eq!(says(&server, "owl"), said);
}
