//! Faults during a pull, and that they are mended.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use fake_hub::{Fault, sha256};

use crate::{NAME, Place, name};

fn ranges(place: &Place) -> Vec<Option<usize>> {
    let seen = place.hub.seen().into_iter();
    seen.filter(|request| request.path.starts_with("/store/")).map(|request| request.from).collect()
}

/// The path at which the beginning of the weights waits for the next pull.
fn begun(place: &Place) -> PathBuf {
    place.folder().join("blobs").join(format!("{}.incomplete", sha256(&place.weights)))
}

#[test]
fn a_cut_connection_is_resumed_where_it_was_cut() {
    let place = Place::new();
    place.hub.next("/store/", Fault::Cut(100_000));
    place.hub.next("/store/", Fault::Cut(200_000));
    let (result, told) = place.pull_and_tell(NAME);
    result.unwrap();
    assert_eq!(ranges(&place), [None, Some(100_000), Some(300_000)]);
    assert_eq!(told.len(), 2, "{told:?}");
    place.assert_whole();
}

#[test]
fn bytes_that_come_renew_the_patience() {
    let place = Place::new();
    for _ in 0..5 {
        place.hub.next("/store/", Fault::Cut(90_000));
    }
    place.pull(NAME).unwrap();
    place.assert_whole();
}

#[test]
fn a_pull_that_gave_up_is_continued_by_the_next() {
    let place = Place::new();
    place.hub.next("/store/", Fault::Cut(250_000));
    place.hub.always("/store/", Fault::Cut(0));
    let error = place.refused(NAME);
    assert!(error.contains("/resolve/") && error.ends_with("pull again to go on"), "{error}");
    assert_eq!(place.beginnings(), [250_000]);
    assert!(place.find(NAME).is_err());
    place.hub.heal();
    place.hub.forget();
    place.pull(NAME).unwrap();
    assert_eq!(ranges(&place), [Some(250_000)]);
    place.assert_whole();
}

#[test]
fn a_hub_that_sends_the_whole_file_again_is_understood() {
    let place = Place::new();
    place.hub.next("/store/", Fault::Cut(100_000));
    place.hub.next("/store/", Fault::WholeFile);
    place.pull(NAME).unwrap();
    place.assert_whole();
}

#[test]
fn a_hub_that_cuts_and_begins_anew_is_given_up() {
    let place = Place::new();
    place.hub.always("/store/", Fault::WholeCut(200_000));
    let error = place.refused(NAME);
    assert!(error.contains("/resolve/") && error.ends_with("pull again to go on"), "{error}");
    assert_eq!(ranges(&place), [None, Some(200_000), Some(200_000)]);
    // Each time a little more, which would go on for ever as well.
    let place = Place::new();
    for more in 0..200 {
        place.hub.next("/store/", Fault::WholeCut(300_000 + more));
    }
    let error = place.refused(NAME);
    assert!(error.contains("cuts the file off and begins it anew"), "{error}");
    assert!(ranges(&place).len() < 30);
}

#[test]
fn a_part_that_was_not_asked_for_is_not_taken() {
    let place = Place::new();
    place.hub.next("/store/", Fault::Cut(100_000));
    place.hub.next("/store/", Fault::OtherPart(50_000));
    place.pull(NAME).unwrap();
    assert_eq!(ranges(&place), [None, Some(100_000), None]);
    place.assert_whole();
    // A hub that gives nothing else has no end of its patience either.
    let place = Place::new();
    place.hub.next("/store/", Fault::Cut(100_000));
    let part = vec![("content-range", "bytes 7-9/600000".to_owned())];
    place.hub.always("/store/", Fault::Status(206, part));
    let error = place.refused(NAME);
    assert!(error.contains("gives another part of the file"), "{error}");
    place.hub.heal();
    place.pull(NAME).unwrap();
    place.assert_whole();
}

#[test]
fn a_part_of_a_file_of_another_size_is_refused() {
    let place = Place::new();
    place.hub.next("/store/", Fault::Cut(100_000));
    let part = vec![("content-range", "bytes 100000-199999/700000".to_owned())];
    place.hub.always("/store/", Fault::Status(206, part));
    let error = place.refused(NAME);
    assert!(error.contains("wrong size: expected 600000, found 700000"), "{error}");
}

#[test]
fn a_beginning_that_is_wrong_is_fetched_anew() {
    let place = Place::new();
    let blobs = place.folder().join("blobs");
    fs::create_dir_all(&blobs).unwrap();
    let begun = begun(&place);
    for length in [5000, 600_000, 700_000] {
        fs::write(&begun, vec![9; length]).unwrap();
        place.pull(NAME).unwrap();
        place.assert_whole();
        fs::remove_dir_all(place.folder().join("snapshots")).unwrap();
        fs::remove_file(blobs.join(sha256(&place.weights))).unwrap();
    }
}

#[test]
fn a_wrong_hash_or_size_never_counts() {
    let place = Place::new();
    place.hub.always("/store/", Fault::Corrupt);
    let error = place.refused(NAME);
    assert!(
        error.starts_with("model.safetensors arrived with the wrong hash: expected "),
        "{error}"
    );
    assert!(error.contains(&sha256(&place.weights)), "{error}");
    // Files that came beside it may wait for the next pull.
    assert!(!begun(&place).exists());
    assert!(place.find(NAME).is_err());
    place.hub.heal();
    place.hub.always("/store/", Fault::Longer);
    let error = place.refused(NAME);
    assert!(error.contains("wrong size: expected "), "{error}");
    place.hub.heal();
    place.pull(NAME).unwrap();
    place.assert_whole();
    let place = Place::new();
    place.hub.always("config.json", Fault::Corrupt);
    let error = place.refused(NAME);
    assert!(error.starts_with("config.json arrived with the wrong hash"), "{error}");
}

#[test]
fn a_busy_hub_is_asked_again_when_it_says() {
    let place = Place::new();
    let wait = |seconds: &str| Fault::Status(429, vec![("retry-after", seconds.to_owned())]);
    place.hub.next("/api/", wait("1"));
    place.hub.next("/api/", Fault::Status(429, vec![("ratelimit", "\"api\";r=0;t=0".to_owned())]));
    place.hub.next("config.json", Fault::status(503));
    let began = std::time::Instant::now();
    let (result, told) = place.pull_and_tell(NAME);
    result.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert!(told.contains(&"config.json: the hub answers with 503".to_owned()), "{told:?}");

    place.hub.always("/api/", wait("3600"));
    let error = place.refused(NAME);
    assert!(error.contains("no more requests for 3600 s") && error.contains("HF_TOKEN"), "{error}");
    place.hub.heal();
    place.hub.always("/api/", Fault::status(500));
    let error = place.refused(NAME);
    assert!(error.contains("the hub answers with 500"), "{error}");
}

#[test]
fn a_connection_without_a_byte_counts_as_cut() {
    let place = Place::new();
    place.hub.next("/store/", Fault::Slow(300_000, Duration::from_secs(6)));
    let (result, told) = place.pull_and_tell(NAME);
    result.unwrap();
    assert_eq!(ranges(&place).len(), 2);
    assert_eq!(told.len(), 1, "{told:?}");
    place.assert_whole();
}

#[test]
fn a_hub_that_is_not_there_is_named() {
    let place = Place::new();
    let mut settings = place.settings();
    // Nobody listens on port 1 of this machine.
    settings.endpoint = "http://127.0.0.1:1".into();
    let mut pull = hub::Pull::new(&settings);
    pull.patience.tries = 1;
    let error = pull.run(&name(NAME), &|_| {}).unwrap_err().to_string();
    assert!(error.starts_with("http://127.0.0.1:1/api/models/org/model/"), "{error}");
    assert!(error.to_lowercase().contains("refused"), "{error}");
}
