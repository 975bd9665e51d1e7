//! `ml quantise`: a checkpoint in fewer bits, which answers.

use std::fs;

use crate::{copy_parts, generated, json, ml, text};

#[test]
fn a_checkpoint_becomes_one_in_fewer_bits() {
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("model");
    fs::create_dir(&source).unwrap();
    copy_parts(["models/qwen3", "tokenizers/qwen"], &source);
    let target = home.path().join("new/packed");
    let [source, target] = [&source, &target].map(|path| path.to_str().unwrap());
    let output =
        ml(&["quantise", source, target, "-b", "8", "-g", "32", "--layer", "*.down_proj=off"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).trim(), target);
    assert!(text(&output.stderr).contains("bits a weight"), "{}", text(&output.stderr));
    let info = json(&["info", "--json", "--model", target]);
    let way = &info["quantization"];
    assert_eq!(
        (&way["mode"], &way["bits"], &way["group_size"]),
        (&"affine".into(), &8.into(), &32.into())
    );
    let answer = ["generate", "--model", target, "--raw", "-n", "4", "--ignore-eos", "Hello"];
    assert!(!generated(&answer).is_empty());

    let again = ml(&["quantise", source, target]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("is there already"), "{}", text(&again.stderr));
    let other = format!("{target}-mx");
    let told = json(&["quantize", source, &other, "--mode", "mxfp4", "--json", "--quiet"]);
    assert_eq!(told["folder"], *other);
    assert!(told["bits_per_weight"].as_f64().is_some_and(|bits| (4.0..6.0).contains(&bits)));
}

#[test]
fn what_cannot_be_quantised_is_told() {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("made");
    let target = target.to_str().unwrap();
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/demo-model");
    for (arguments, code, expected) in [
        (vec![demo, target], 1, "nothing is left to quantise"),
        (vec!["no/such/model", target], 1, "no/such/model"),
        (vec![demo, target, "-b", "7"], 2, "7 bits"),
        (vec![demo, target, "--mode", "mxfp4", "-g", "64"], 2, "groups of 64"),
        (vec![demo, target, "--recipe", "mixed_9_9"], 2, "mixed_2_6"),
        (vec![demo, target, "--layer", "lm_head"], 2, "PATTERN=BITS"),
    ] {
        let output = ml(&[&["quantise"], &arguments[..]].concat());
        let error = text(&output.stderr);
        assert!(error.contains(expected), "{arguments:?}: {error}");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "{arguments:?}");
    }
}

#[test]
fn a_tower_is_kept_where_that_is_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let seeing = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../metal-backend/tests/fixtures/vision/models/gemma3"
    );
    let made = |name: &str, more: &[&str]| {
        let target = home.path().join(name).display().to_string();
        let output = ml(&[&["quantise", seeing, &target, "-g", "32"], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let info = json(&["info", "--json", "--model", &target]);
        let all = info["capabilities"].as_array().unwrap();
        let images = all.iter().find(|of| of["feature"] == "images").unwrap();
        (text(&output.stderr), images["supported"].clone())
    };
    let (told, sees) = made("reads", &[]);
    assert!(told.contains("left out, as mlx-lm does: multi_modal_projector"), "{told}");
    assert_eq!(sees, false);
    let (told, sees) = made("sees", &["--keep-vision"]);
    assert!(!told.contains("left out"), "{told}");
    assert_eq!(sees, true);
}
