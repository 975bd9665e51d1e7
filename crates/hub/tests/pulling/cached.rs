//! Models in the cache: found, listed, reported incomplete, removed.

use std::fs;

use fake_hub::{Fault, sha256};
use hub::Error;

use crate::{NAME, Place, name, names};

#[test]
fn what_is_cached_is_listed_with_its_references() {
    let place = Place::new();
    assert_eq!(place.cache().models().unwrap(), []);
    place.pull(NAME).unwrap();
    fs::create_dir(place.cache.path().join("datasets--a--b")).unwrap();
    fs::write(place.cache.path().join("version.txt"), "1").unwrap();
    let models = place.cache().models().unwrap();
    assert_eq!(models.len(), 1);
    assert_eq!(models[0].name, name(NAME));
    assert_eq!(models[0].commit.as_deref(), Some(&*place.commit));
    assert_eq!((&*models[0].references, models[0].bytes), (&["main".to_owned()][..], 600_025));
}

#[test]
fn a_pull_that_was_cut_off_is_listed_and_removed() {
    let place = Place::new();
    place.hub.next("/store/", Fault::Cut(250_000));
    place.hub.always("/store/", Fault::Cut(0));
    place.pull(NAME).unwrap_err();
    let models = place.cache().models().unwrap();
    assert_eq!(models.len(), 1);
    assert!(models[0].references.is_empty());
    assert!(matches!(place.find(NAME), Err(Error::NotCached { .. })));
    assert_eq!(place.cache().remove(&name(NAME)).unwrap(), 250_025);
    assert_eq!(place.cache().models().unwrap(), []);
}

#[test]
fn a_missing_shard_is_named() {
    let place = Place::new();
    place.pull(NAME).unwrap();
    fs::remove_file(place.folder().join("blobs").join(sha256(&place.weights))).unwrap();
    let error = place.find(NAME).unwrap_err().to_string();
    assert_eq!(error, "org/model is in the cache without model.safetensors");
    let folder = place.folder().join("snapshots").join(&place.commit);
    fs::remove_file(folder.join("model.safetensors")).unwrap();
    let index = r#"{"weight_map": {"a": "model-1.safetensors"}}"#;
    fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
    let error = place.find(NAME).unwrap_err().to_string();
    assert_eq!(error, "org/model is in the cache without model-1.safetensors");
}

#[test]
fn a_shard_whose_tensors_are_in_another_file_is_not_missing() {
    let place = Place::new();
    let header = br#"{"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}"#;
    let weights = [&(header.len() as u64).to_le_bytes()[..], header, b"x"].concat();
    place.hub.add(NAME, &[("config.json", b"{}"), ("model.safetensors", &weights)]);
    let folder = place.pull(NAME).unwrap().folder;
    let index = folder.join("model.safetensors.index.json");
    fs::write(&index, r#"{"weight_map": {"a": "model-1.safetensors"}}"#).unwrap();
    assert_eq!(place.find(NAME).unwrap(), folder);
    fs::write(&index, r#"{"weight_map": {"a": "../x", "b": "model-2.safetensors"}}"#).unwrap();
    let error = place.find(NAME).unwrap_err().to_string();
    assert_eq!(error, "org/model is in the cache without model-2.safetensors");
}

#[test]
fn one_revision_goes_and_what_the_others_need_stays() {
    let place = Place::new();
    place.pull(NAME).unwrap();
    let second = place.hub.add(
        NAME,
        &[
            ("config.json", b"{\"new\": 1}"),
            ("tokenizer.json", b"{}"),
            ("model.safetensors", &place.weights),
        ],
    );
    place.pull(NAME).unwrap();
    assert_eq!(place.cache().models().unwrap().len(), 2);
    let first = format!("{NAME}@{}", place.commit);
    // Its own config.json; the weights and the tokenizer belong to both.
    assert_eq!(place.cache().remove(&name(&first)).unwrap(), 23);
    assert!(matches!(place.find(&first), Err(Error::NotCached { .. })));
    place.assert_whole();
    assert_eq!(place.cache().remove(&name(&format!("{NAME}@main"))).unwrap(), 600_012);
    assert!(!place.folder().join("refs/main").exists());
    assert!(!place.folder().join("snapshots").join(second).exists());
    assert_eq!(names(&place.folder().join("blobs")), [""; 0]);
}

#[test]
fn what_is_not_there_or_is_being_pulled_is_not_removed() {
    let place = Place::new();
    assert!(matches!(place.cache().remove(&name(NAME)), Err(Error::NotCached { .. })));
    place.pull(NAME).unwrap();
    assert!(place.cache().remove(&name("org/model@v9")).is_err());
    let lock = format!(".locks/models--org--model/{}.lock", sha256(&place.weights));
    let lock = fs::File::open(place.cache.path().join(lock)).unwrap();
    lock.lock().unwrap();
    assert!(matches!(place.cache().remove(&name(NAME)), Err(Error::Busy { .. })));
    place.assert_whole();
    drop(lock);
    assert_eq!(place.cache().remove(&name(NAME)).unwrap(), 600_025);
    assert!(!place.folder().exists());
}

#[test]
fn models_in_gguf_come_one_by_one_and_are_found_by_their_names() {
    let place = Place::new();
    let files: [(&str, &[u8]); 6] = [
        ("README.md", b"# Models"),
        ("config.json", b"{}"),
        ("m-Q4_0.gguf", b"four"),
        ("m-Q8_0.gguf", b"eight"),
        ("BF16/m-BF16-00001-of-00002.gguf", b"sixteen"),
        ("BF16/m-BF16-00002-of-00002.gguf", b"more"),
    ];
    place.hub.add("org/gguf", &files);
    let error = place.refused("org/gguf");
    let there = "org/gguf:BF16; there are BF16, Q4_0, Q8_0";
    assert!(
        error.starts_with("org/gguf: it has several models") && error.ends_with(there),
        "{error}"
    );
    let pulled = place.pull("org/gguf:q4_0").unwrap();
    assert_eq!((pulled.bytes, pulled.model), (4, pulled.folder.join("m-Q4_0.gguf")));
    let found = |text: &str| place.cache().find(&name(text)).map(|found| found.model);
    assert_eq!(found("org/gguf").unwrap(), pulled.folder.join("m-Q4_0.gguf"));
    assert!(found("org/gguf:Q8_0").is_err());
    let parts = place.pull("org/gguf:BF16").unwrap();
    assert_eq!((parts.bytes, &parts.model), (11, &pulled.folder.join(files[4].0)));
    assert_eq!(found("org/gguf:BF16").unwrap(), parts.model);
    let error = found("org/gguf").unwrap_err().to_string();
    assert!(error.contains("there are BF16, Q4_0"), "{error}");
    let models = place.cache().models().unwrap();
    let called: Vec<&str> = models[0].in_gguf.iter().map(|(label, _)| &**label).collect();
    assert_eq!((called, models[0].missing.len()), (vec!["BF16", "Q4_0"], 0));
    fs::remove_file(pulled.folder.join(files[5].0)).unwrap();
    let error = found("org/gguf:BF16").unwrap_err().to_string();
    assert!(error.ends_with("without BF16/m-BF16-00002-of-00002.gguf"), "{error}");
    let error = place.cache().remove(&name("org/gguf:BF16")).unwrap_err().to_string();
    assert!(error.contains("`ml rm org/gguf` removes all"), "{error}");
    place.cache().remove(&name("org/gguf")).unwrap();
    // Beside safetensors, they come where they are named.
    let both = [("config.json", &b"{}"[..]), ("model.safetensors", b"w"), ("m-Q8_0.gguf", b"8")];
    place.hub.add("org/both", &both);
    assert_eq!(place.pull("org/both").unwrap().bytes, 3);
    let eight = place.pull("org/both:Q8_0").unwrap();
    assert_eq!((eight.bytes, found("org/both:Q8_0").unwrap()), (1, eight.model));
    assert_eq!(found("org/both").unwrap(), eight.folder);
}

#[test]
fn of_several_models_in_gguf_the_usual_one_comes_where_none_is_named() {
    let place = Place::new();
    place.hub.add("org/gguf", &[("m-Q8_0.gguf", b"eight"), ("m-Q4_K_M.gguf", b"four")]);
    let pulled = place.pull("org/gguf").unwrap();
    assert_eq!((pulled.bytes, pulled.model), (4, pulled.folder.join("m-Q4_K_M.gguf")));
    let eight = place.pull("org/gguf:Q8_0").unwrap();
    let found = |text: &str| place.cache().find(&name(text)).unwrap().model;
    assert_eq!(found("org/gguf:Q8_0"), eight.model);
    assert_eq!(found("org/gguf"), eight.folder.join("m-Q4_K_M.gguf"));
}

#[test]
fn a_pulled_model_is_found_by_what_people_write() {
    let place = Place::new();
    let folder = place.pull(NAME).unwrap().folder;
    let settings = place.settings();
    let address = format!("{}/{NAME}", settings.endpoint);
    for text in [NAME, "org/model@main", &address] {
        assert_eq!(settings.pulled(text).unwrap().as_deref(), Some(&*folder), "{text}");
    }
    for text in ["./org/model", "/org/model", "a folder", "org/model/deeper"] {
        assert_eq!(settings.pulled(text).unwrap(), None, "{text}");
    }
    let error = settings.pulled("qwen3-0.6b").unwrap_err().to_string();
    assert!(error.contains("/Qwen3-0.6B") && error.contains("is not in the cache"), "{error}");
}
