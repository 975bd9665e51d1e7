//! Mirrors that list less than the hub does: sizes and hashes come from the headers of the files.

use fake_hub::{Fault, sha256};

use crate::{NAME, Place, name};

/// A hub that lists the names of its files alone.
fn mirror() -> Place {
    let place = Place::new();
    place.hub.change(NAME, |repository| repository.names_alone = true);
    place
}

#[test]
fn sizes_and_hashes_that_are_not_listed_come_from_the_headers() {
    let place = mirror();
    let pulled = place.pull(NAME).unwrap();
    assert_eq!(pulled.bytes, 600_025);
    place.assert_whole();
    assert!(place.folder().join("blobs").join(sha256(&place.weights)).is_file());
    let seen = place.hub.seen();
    let asked = |method: &str, part: &str| {
        seen.iter().filter(|one| one.method == method && one.path.contains(part)).count()
    };
    // The hub itself tells of what is in the store.
    assert_eq!((asked("HEAD", "/resolve/"), asked("HEAD", "/store/")), (3, 0), "{seen:?}");
    assert_eq!(asked("GET", "/store/"), 1);
    // What the headers tell is held to.
    let place = mirror();
    place.hub.always("/store/", Fault::Corrupt);
    assert!(place.refused(NAME).contains("arrived with the wrong hash"));
    assert!(place.cache().find(&name(NAME)).is_err());
}

#[test]
fn a_mirror_without_the_hubs_own_headers_is_asked_where_it_sends_on() {
    let place = mirror();
    place.hub.always("/resolve/", Fault::Without(vec!["x-linked-etag", "x-linked-size"]));
    // The store tells the length alone.
    let error = place.refused(NAME);
    assert!(error.contains("model.safetensors has no size or no hash"), "{error}");
    assert!(error.contains("set HF_ENDPOINT to another mirror, or unset it"), "{error}");
    assert_eq!(place.cache().models().unwrap(), []);
}

#[test]
fn a_mark_that_is_no_hash_is_held_to_the_size() {
    let place = mirror();
    let marks =
        vec![("etag", "\"65f1-2b\"".to_owned()), ("x-linked-etag", "\"65f1-2b\"".to_owned())];
    place.hub.always("/resolve/", Fault::With(marks));
    place.pull(NAME).unwrap();
    // One mark for all files, and each file is its own.
    place.assert_whole();
    place.hub.forget();
    place.pull(NAME).unwrap();
    assert!(place.hub.seen().iter().all(|one| one.method == "HEAD" || one.path.contains("/api/")));
    let place = mirror();
    place.hub.always("/resolve/", Fault::With(vec![("x-linked-etag", "\"m\"".to_owned())]));
    place.hub.always("/store/", Fault::Longer);
    assert!(place.refused(NAME).contains("wrong size"));
}

#[test]
fn a_mirror_that_takes_no_head_is_asked_for_the_file() {
    let place = mirror();
    place.hub.always("HEAD /org/model/resolve/", Fault::status(405));
    place.pull(NAME).unwrap();
    place.assert_whole();
    let place = mirror();
    for headers in [vec!["etag"], vec!["etag", "content-length"]] {
        place.hub.always("config.json", Fault::Without(headers));
        assert!(place.refused(NAME).contains("config.json has no size or no hash"));
        place.hub.heal();
    }
}
