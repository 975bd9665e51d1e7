//! Pulling from a hub that a test has in its hands: what comes, what goes wrong, and what is said
//! of it.

// A helper of a test may panic as the test itself may.
#![allow(clippy::unwrap_used)]

mod cached;
mod faults;
mod mirrors;
mod planted;
mod refusals;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use fake_hub::FakeHub;
use hub::{Cache, Error, Event, Name, Patience, Pull, Pulled, Settings};
use tempfile::TempDir;

const NAME: &str = "org/model";

/// A hub with one model, and a cache.
struct Place {
    hub: FakeHub,
    cache: TempDir,
    commit: String,
    weights: Vec<u8>,
    token: Option<&'static str>,
}

impl Place {
    fn new() -> Self {
        let hub = FakeHub::start();
        let weights: Vec<u8> = (0..600_000_u32).map(|i| (i * 7 % 251) as u8).collect();
        let commit = hub.add(
            NAME,
            &[
                ("config.json", b"{\"model_type\": \"qwen3\"}"),
                ("tokenizer.json", b"{}"),
                ("README.md", b"# A model"),
                ("pytorch_model.bin", b"the weights again"),
                ("model.safetensors", &weights),
            ],
        );
        Place { hub, cache: tempfile::tempdir().unwrap(), commit, weights, token: None }
    }

    fn settings(&self) -> Settings {
        let settings = Settings::from_variables(|name| match name {
            "HF_ENDPOINT" => Some(self.hub.url().to_owned()),
            "HF_HUB_CACHE" => Some(self.cache.path().display().to_string()),
            "HF_TOKEN" => self.token.map(str::to_owned),
            _ => None,
        });
        settings.unwrap()
    }

    fn pull(&self, name: &str) -> hub::Result<Pulled> {
        self.pull_and_tell(name).0
    }

    /// The result, and what was told of waits on the way.
    fn pull_and_tell(&self, name: &str) -> (hub::Result<Pulled>, Vec<String>) {
        let settings = self.settings();
        let patience = Patience {
            tries: 3,
            first_wait: Duration::from_millis(1),
            longest_wait: Duration::from_secs(2),
            silence: Duration::from_secs(2),
        };
        let told = Mutex::new(Vec::new());
        let report = |event: Event<'_>| match event {
            Event::Again { path, reason, .. } => {
                told.lock().unwrap().push(format!("{path}: {reason}"));
            }
            Event::Waiting { path } => told.lock().unwrap().push(format!("{path}: waiting")),
            _ => {}
        };
        let pull = Pull { settings: &settings, connections: 3, patience };
        let result = pull.run(&name.parse().unwrap(), &report);
        (result, told.into_inner().unwrap())
    }

    /// The text of the error with which a pull of `name` ends.
    fn refused(&self, name: &str) -> String {
        self.pull(name).unwrap_err().to_string()
    }

    fn cache(&self) -> Cache {
        Cache::new(self.cache.path())
    }

    fn find(&self, name: &str) -> hub::Result<PathBuf> {
        self.cache().find(&name.parse().unwrap()).map(|snapshot| snapshot.folder)
    }

    fn folder(&self) -> PathBuf {
        self.cache.path().join("models--org--model")
    }

    /// The beginnings of files that wait for the next pull.
    fn beginnings(&self) -> Vec<u64> {
        let blobs = fs::read_dir(self.folder().join("blobs")).into_iter().flatten().flatten();
        let begun = blobs.filter(|blob| blob.path().extension().is_some_and(|e| e == "incomplete"));
        begun.map(|blob| blob.metadata().unwrap().len()).collect()
    }

    /// Asserts that the model is there, whole, as the hub has it.
    fn assert_whole(&self) {
        let folder = self.find(NAME).unwrap();
        assert!(fs::read(folder.join("model.safetensors")).unwrap() == self.weights);
        assert_eq!(self.beginnings(), [0_u64; 0]);
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<_> = entries.map(|e| e.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

#[test]
fn a_pull_brings_what_is_needed_in_the_layout_of_huggingface_hub() {
    let place = Place::new();
    assert!(matches!(place.find(NAME), Err(Error::NotCached { .. })));
    let pulled = place.pull(NAME).unwrap();
    assert_eq!((&pulled.commit, pulled.bytes), (&place.commit, 600_025));
    assert_eq!(pulled.folder, place.folder().join("snapshots").join(&place.commit));
    assert_eq!(place.find(NAME).unwrap(), pulled.folder);
    place.assert_whole();
    assert_eq!(names(&pulled.folder), ["config.json", "model.safetensors", "tokenizer.json"]);
    assert_eq!(names(&place.folder()), ["blobs", "refs", "snapshots"]);
    let reference = fs::read_to_string(place.folder().join("refs/main")).unwrap();
    assert_eq!(reference, place.commit);
    let link = fs::read_link(pulled.folder.join("model.safetensors")).unwrap();
    let hash = fake_hub::sha256(&place.weights);
    assert_eq!(link, Path::new("../../blobs").join(&hash));
    let link = fs::read_link(pulled.folder.join("tokenizer.json")).unwrap();
    assert_eq!(link, Path::new("../../blobs").join(fake_hub::git_sha1(b"{}")));
    let lock = place.cache.path().join(".locks/models--org--model").join(format!("{hash}.lock"));
    assert!(lock.is_file());
}

#[test]
fn a_second_pull_asks_for_the_list_alone() {
    let place = Place::new();
    place.pull(NAME).unwrap();
    place.hub.forget();
    place.pull(NAME).unwrap();
    let seen = place.hub.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0].path, "/api/models/org/model/revision/main?blobs=true");
}

#[test]
fn a_commit_is_pulled_without_a_reference() {
    let place = Place::new();
    let pinned = format!("{NAME}@{}", place.commit);
    place.pull(&pinned).unwrap();
    assert!(!place.folder().join("refs").exists());
    assert_eq!(place.find(&pinned).unwrap(), place.folder().join("snapshots").join(&place.commit));
    assert!(matches!(place.find(NAME), Err(Error::NotCached { .. })));
}

#[test]
fn shards_come_as_the_index_names_them() {
    let place = Place::new();
    let index = br#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#;
    place.hub.add(
        NAME,
        &[
            ("config.json", b"{}"),
            ("model.safetensors.index.json", index),
            ("model-1.safetensors", b"one"),
            ("model-2.safetensors", b"two"),
            ("consolidated.safetensors", b"onetwo"),
        ],
    );
    let folder = place.pull(NAME).unwrap().folder;
    let expected = [
        "config.json",
        "model-1.safetensors",
        "model-2.safetensors",
        "model.safetensors.index.json",
    ];
    assert_eq!(names(&folder), expected);
}

#[test]
fn an_index_of_other_weights_is_left_out() {
    let place = Place::new();
    let index = br#"{"weight_map": {"a": "model-00001-of-00002.safetensors"}}"#;
    let stale = "model.safetensors.index.json";
    place.hub.add(
        NAME,
        &[("config.json", b"{}"), (stale, index), ("model.safetensors", &place.weights)],
    );
    let folder = place.pull(NAME).unwrap().folder;
    assert_eq!(names(&folder), ["config.json", "model.safetensors"]);
    // Another program may have fetched all of it.
    fs::write(folder.join(stale), index).unwrap();
    assert!(matches!(place.find(NAME), Err(Error::Incomplete { .. })));
    place.pull(NAME).unwrap();
    assert_eq!(names(&folder), ["config.json", "model.safetensors"]);
    place.assert_whole();
}

#[test]
fn the_token_goes_to_the_hub_alone() {
    let mut place = Place::new();
    place.token = Some("hf_secret");
    place.pull(NAME).unwrap();
    let seen = place.hub.seen();
    let (home, elsewhere): (Vec<_>, Vec<_>) =
        seen.iter().partition(|request| request.host.starts_with("127.0.0.1"));
    assert!(
        home.iter().all(|request| request.authorization.as_deref() == Some("Bearer hf_secret"))
    );
    assert_eq!(elsewhere.len(), 1, "{seen:?}");
    assert!(elsewhere[0].host.starts_with("localhost"));
    assert_eq!(elsewhere[0].authorization, None);
}

#[test]
fn two_pulls_at_once_fetch_each_file_once() {
    let place = Place::new();
    let slow = fake_hub::Fault::Slow(60_000, Duration::from_millis(30));
    place.hub.always("/store/", slow);
    std::thread::scope(|scope| {
        let pulls = [(); 2].map(|()| scope.spawn(|| place.pull_and_tell(NAME)));
        let results = pulls.map(|pull| pull.join().unwrap());
        assert!(results.iter().all(|(result, _)| result.is_ok()), "{results:?}");
        let waited =
            |(_, told): &(_, Vec<String>)| told.iter().any(|line| line.ends_with(": waiting"));
        assert!(results.iter().any(waited), "{results:?}");
    });
    let seen = place.hub.seen();
    let fetched = seen.iter().filter(|request| request.path.starts_with("/store/")).count();
    assert_eq!(fetched, 1, "{seen:?}");
    place.assert_whole();
}
