//! What lies in the cache: found, listed, told incomplete, removed.

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
