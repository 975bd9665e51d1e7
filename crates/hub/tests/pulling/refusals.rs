//! Pulls that the hub refuses, or that must not be carried out, each with the remedy.

use fake_hub::Fault;
use serde_json::json;

use crate::{NAME, Place, names};

#[test]
fn what_is_not_there_is_named_with_the_remedy() {
    let mut place = Place::new();
    let error = place.refused("org/nothing");
    assert!(error.starts_with("org/nothing: the hub has no such repository"), "{error}");
    assert!(error.ends_with("set HF_TOKEN"), "{error}");
    let error = place.refused("org/model@v9");
    assert!(error.starts_with("org/model@v9: the hub has no revision `v9` of it"), "{error}");
    place.token = Some("hf_secret");
    let error = place.refused("org/nothing");
    assert!(error.contains("a token that may read it") && !error.contains("hf_secret"), "{error}");
    assert_eq!(names(place.cache.path()), [""; 0], "nothing is left behind");
}

#[test]
fn who_may_not_have_it_is_told_how_to_get_it() {
    let mut place = Place::new();
    for status in [401, 403] {
        place.hub.next("config.json", Fault::refusal(status, "GatedRepo"));
        let error = place.refused(NAME);
        let page = format!("ask at {}/org/model", place.hub.url());
        assert!(error.starts_with("org/model: its owners let in only who asked"), "{error}");
        assert!(error.contains(&page) && error.contains("HF_TOKEN"), "{error}");
    }
    place.hub.next("/api/", Fault::status(403));
    let error = place.refused(NAME);
    assert!(error.contains("the hub forbids it (403): ask for access"), "{error}");
    place.token = Some("hf_secret");
    let message =
        vec![("x-error-message", "Invalid credentials in Authorization header".to_owned())];
    place.hub.next("/api/", Fault::Status(401, message));
    let error = place.refused(NAME);
    assert!(
        error.contains("does not know the token") && error.contains("/settings/tokens"),
        "{error}"
    );
    assert!(!error.contains("hf_secret"), "{error}");
}

#[test]
fn names_that_lead_out_of_the_folder_are_refused_before_anything_is_written() {
    for path in ["../../../evil", "/tmp/evil", "a\\..\\evil", "C:\\evil", "a/../../evil"] {
        let place = Place::new();
        let file = json!({"rfilename": path, "size": 1, "blobId": "a".repeat(40)});
        place.hub.change(NAME, |repository| repository.listed.push(file));
        let error = place.refused(NAME);
        assert!(error.contains("leads out of the model's folder"), "{path}: {error}");
        assert_eq!(names(place.cache.path()), [""; 0]);
    }
    let place = Place::new();
    place.hub.change(NAME, |repository| repository.commit = "../../evil".into());
    assert!(place.refused(NAME).contains("is no commit"));
}

#[test]
fn a_list_that_cannot_be_read_is_no_model() {
    let place = Place::new();
    place.hub.always("/api/", Fault::Status(200, Vec::new()));
    let error = place.refused(NAME);
    assert!(error.contains("the hub's list of files cannot be used"), "{error}");
    place.hub.heal();
    place.hub.add(NAME, &[("config.json", b"{}"), ("model.bin", b"x")]);
    let error = place.refused(NAME);
    assert!(
        error
            .contains("has no .safetensors or .gguf files of a model, nor pytorch_model*.bin, but"),
        "{error}"
    );
}

#[test]
fn an_address_that_leads_nowhere_or_in_a_circle_is_not_followed() {
    let place = Place::new();
    for location in ["file:///etc/passwd", "//evil/x", "", "model"] {
        place.hub.next("config.json", Fault::sent_on(location));
        let error = place.refused(NAME);
        assert!(error.contains("which is no address"), "{location}: {error}");
    }
    place.hub.always("config.json", Fault::sent_on("/org/model/resolve/x/config.json"));
    let error = place.refused(NAME);
    assert!(error.contains("sent on more than 8 times"), "{error}");
}

#[test]
fn a_repository_that_was_renamed_is_found() {
    let place = Place::new();
    let new = "/api/models/org/model/revision/main?blobs=true";
    place.hub.next("/api/models/org/old/", Fault::Status(307, vec![("location", new.to_owned())]));
    let file = |path: &str| format!("/org/model/resolve/{}/{path}", place.commit);
    for path in ["config.json", "tokenizer.json", "model.safetensors"] {
        place.hub.next(
            &format!("/org/old/resolve/{}/{path}", place.commit),
            Fault::sent_on(&file(path)),
        );
    }
    place.pull("org/old").unwrap();
    assert!(place.find("org/old").is_ok());
}

#[test]
fn nothing_is_asked_where_nothing_may_be_fetched() {
    let place = Place::new();
    let settings = hub::Settings { offline: true, ..place.settings() };
    let error = hub::Pull::new(&settings).run(&crate::name(NAME), &|_| {}).unwrap_err().to_string();
    assert_eq!(error, "org/model cannot be fetched while HF_HUB_OFFLINE is set: unset it");
    assert_eq!(place.hub.seen(), []);
}

#[test]
fn what_the_disk_does_not_hold_is_refused_with_the_numbers() {
    let place = Place::new();
    let huge = 1_u64 << 60;
    let file = json!({"rfilename": "model-2.safetensors", "size": huge,
                      "lfs": {"sha256": "b".repeat(64), "size": huge}});
    place.hub.change(NAME, |repository| repository.listed.push(file));
    let error = place.refused(NAME);
    assert!(
        error.contains(&(huge + 600_025).to_string()) && error.contains("HF_HUB_CACHE"),
        "{error}"
    );
    assert_eq!(place.beginnings(), [0_u64; 0]);
}

#[test]
fn sizes_whose_sum_no_number_holds_are_refused_with_the_numbers() {
    let place = Place::new();
    for part in ["model-2.safetensors", "model-3.safetensors"] {
        let half = 1_u64 << 63;
        let file = json!({"rfilename": part, "size": half,
                          "lfs": {"sha256": "b".repeat(64), "size": half}});
        place.hub.change(NAME, |repository| repository.listed.push(file));
    }
    let error = place.refused(NAME);
    assert!(error.contains(&format!("{} bytes are to come", u64::MAX)), "{error}");
    assert_eq!(names(place.cache.path()), [""; 0]);
}

#[test]
fn an_index_without_end_is_not_read() {
    let place = Place::new();
    let index = json!({"rfilename": "model.safetensors.index.json", "size": 1_u64 << 40,
                       "blobId": "a".repeat(40)});
    place.hub.change(NAME, |repository| repository.listed.push(index));
    let error = place.refused(NAME);
    assert!(error.contains("has 1099511627776 bytes; at most 67108864 are read"), "{error}");
    assert_eq!(names(place.cache.path()), [""; 0]);
}

#[test]
fn a_repository_that_gives_nothing_leaves_nothing_that_is_listed() {
    let place = Place::new();
    let models = || place.cache().models().unwrap();
    place.hub.add("old/bin", &[("config.json", b"{}"), ("model.bin", b"x")]);
    let index = br#"{"weight_map": {"a": "model-1.safetensors"}}"#;
    place.hub.add("old/index", &[("model.safetensors.index.json", index)]);
    place.hub.add("old/nothing", &[]);
    for repository in ["old/bin", "old/index", "old/nothing"] {
        place.refused(repository);
        assert_eq!((names(place.cache.path()), models()), (Vec::new(), Vec::new()), "{repository}");
    }
    // Its list is for everybody, and its files are not.
    place.hub.always("/resolve/", Fault::refusal(403, "GatedRepo"));
    place.refused(NAME);
    assert_eq!(models(), []);
    assert!(!place.folder().exists());
    place.hub.heal();
    place.pull(NAME).unwrap();
    place.assert_whole();
}
