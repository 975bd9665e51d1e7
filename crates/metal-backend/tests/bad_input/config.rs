//! config.json: keys that are missing, of the wrong type or out of range.

use serde_json::{Value, json};

use crate::tiny::Checkpoint;
use crate::{refusal, refused};

#[test]
fn a_missing_folder_is_named() {
    let folder = tempfile::TempDir::new().unwrap();
    let error = refusal(&folder.path().join("nowhere"));
    assert!(error.contains("nowhere") && error.contains("no such folder"), "{error}");
}

#[test]
fn a_file_in_place_of_a_folder_is_named() {
    let folder = Checkpoint::qwen3().write();
    let error = refusal(&folder.path().join("config.json"));
    assert!(error.contains("config.json") && error.contains("is not a folder"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_reached_is_told_apart_from_a_missing_one() {
    let folder = tempfile::TempDir::new().unwrap();
    let circle = folder.path().join("circle");
    std::os::unix::fs::symlink(&circle, &circle).unwrap();
    let error = refusal(&circle);
    assert!(error.contains("symbolic links") && !error.contains("no such"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_pipe_in_place_of_a_file_is_refused_and_not_waited_for() {
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        let folder = Checkpoint::qwen3().write();
        let path = folder.path().join(name);
        std::fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = refusal(folder.path());
        assert!(error.contains(name) && error.contains("not a file"), "{error}");
    }
}

#[test]
fn a_missing_config_is_named() {
    let folder = Checkpoint::qwen3().write();
    std::fs::remove_file(folder.path().join("config.json")).unwrap();
    let error = refusal(folder.path());
    assert!(error.contains("config.json") && error.contains("missing"), "{error}");
}

#[test]
fn text_that_is_no_object_is_refused() {
    let deep = "[".repeat(100_000);
    let nested = "{\"a\":".repeat(100_000);
    for text in ["", "{", "[]", "null", "3", "{\"hidden_size\": NaN}", "\u{feff}", &deep, &nested] {
        refused(&Checkpoint::qwen3().file("config.json", text), &["config.json"]);
    }
    refused(&Checkpoint::qwen3().file("config.json", b"{\"a\": \"\xff\"}"), &["config.json"]);
}

#[test]
fn each_key_without_a_default_is_named_where_it_is_missing() {
    let keys = [
        "model_type",
        "hidden_size",
        "num_hidden_layers",
        "intermediate_size",
        "num_attention_heads",
        "vocab_size",
    ];
    for key in keys {
        let mut checkpoint = Checkpoint::qwen3();
        checkpoint.config.as_object_mut().unwrap().remove(key);
        refused(&checkpoint, &["config.json", key, "missing"]);
    }
}

#[test]
fn sizes_of_the_wrong_type_or_range_are_refused_with_the_value() {
    let keys = [
        "hidden_size",
        "num_hidden_layers",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "vocab_size",
        "max_position_embeddings",
    ];
    let wrong = [
        json!(0),
        json!(-1),
        json!(1.5),
        json!(2.0),
        json!(1e300),
        json!(i64::from(i32::MAX) + 1),
        json!(u64::MAX),
        json!("8"),
        json!([8]),
        json!({"a": 8}),
        json!(true),
    ];
    for key in keys {
        for value in &wrong {
            let checkpoint = Checkpoint::qwen3().config(key, value.clone());
            refused(&checkpoint, &["config.json", key, &value.to_string()]);
        }
    }
}

#[test]
fn other_keys_of_the_wrong_type_are_refused_with_the_value() {
    let wrong: [(&str, &[Value]); 11] = [
        ("model_type", &[json!(3), json!(["qwen3"])]),
        ("rms_norm_eps", &[json!("1e-6"), json!(0), json!(-1.0), json!([1])]),
        ("rope_theta", &[json!("10000"), json!(0), json!(-5), json!({"a": 1})]),
        ("tie_word_embeddings", &[json!(1), json!("true")]),
        ("attention_bias", &[json!(0), json!("no")]),
        ("hidden_act", &[json!(1), json!("tanhexp")]),
        ("rope_scaling", &[json!(4), json!([]), json!("linear")]),
        ("rope_parameters", &[json!(4), json!("linear")]),
        ("use_sliding_window", &[json!("yes")]),
        ("max_window_layers", &[json!(-1), json!("2")]),
        ("eos_token_id", &[json!("</s>"), json!(-1), json!([1, "a"]), json!(u64::MAX)]),
    ];
    for (key, values) in wrong {
        for value in values {
            refused(&Checkpoint::qwen3().config(key, value.clone()), &["config.json", key]);
        }
    }
}

#[test]
fn rope_scalings_are_refused_by_name() {
    let scalings = [
        (json!({"rope_type": "spiral"}), "spiral"),
        (json!({"rope_type": "linear"}), "factor"),
        (json!({"rope_type": "linear", "factor": 0}), "factor"),
        (json!({"rope_type": "linear", "factor": "2"}), "factor"),
        (json!({"rope_type": "yarn"}), "factor"),
        (json!({"rope_type": "yarn", "factor": 2.0, "truncate": 3}), "truncate"),
        (json!({"rope_type": "llama3", "factor": -8}), "factor"),
        (json!({"type": 7}), "type"),
    ];
    for (scaling, part) in scalings {
        refused(&Checkpoint::qwen3().config("rope_scaling", scaling), &["config.json", part]);
    }
}

#[test]
fn heads_that_do_not_fit_are_refused_with_both_sides() {
    let tiny = Checkpoint::qwen3;
    refused(
        &tiny().config("num_key_value_heads", json!(3)),
        &["`num_attention_heads` 2", "`num_key_value_heads` 3"],
    );
    refused(&tiny().config("head_dim", json!(5)), &["`head_dim` 5 is odd"]);
    let mut without = tiny().config("num_attention_heads", json!(3));
    without.config["head_dim"] = Value::Null;
    refused(&without, &["`hidden_size` 8", "`num_attention_heads` 3", "`head_dim` is missing"]);
    let many = tiny().config("num_attention_heads", json!(i32::MAX)).config("head_dim", json!(2));
    refused(&many, &["config.json", "heads times `head_dim`"]);
}

#[test]
fn more_layers_than_the_weights_have_are_refused_at_once() {
    refused(&Checkpoint::qwen3().config("num_hidden_layers", json!(2)), &["model.layers.1."]);
    for layers in [1_000_000_000, i32::MAX] {
        refused(
            &Checkpoint::qwen3().config("num_hidden_layers", json!(layers)),
            &["config.json", "num_hidden_layers", &layers.to_string()],
        );
    }
}

#[test]
fn fewer_layers_than_the_weights_have_are_refused() {
    let mut checkpoint = Checkpoint::with_sizes(2, 8, 16);
    checkpoint.config["num_hidden_layers"] = json!(1);
    refused(&checkpoint, &["model.layers.1.", "not part of the architecture"]);
}

#[test]
fn layer_types_are_checked() {
    let types = |types: Value| Checkpoint::qwen3().config("layer_types", types);
    refused(
        &types(json!(vec!["full_attention"; 3])),
        &["`layer_types` has 3 entries for 1 layers"],
    );
    refused(&types(json!(["mamba"])), &["layer_types", "`mamba`", "sliding_attention"]);
    refused(&types(json!("full_attention")), &["layer_types"]);
    refused(&types(json!([1])), &["layer_types"]);
}

#[test]
fn an_unknown_architecture_is_refused_with_the_known_ones() {
    let known = metal_backend::architectures();
    let mut parts = vec!["config.json", "`retnet`"];
    parts.extend(known);
    refused(&Checkpoint::qwen3().config("model_type", json!("retnet")), &parts);
}

#[test]
fn a_duplicate_key_counts_once_as_json_readers_have_it() {
    let text = Checkpoint::qwen3().config.to_string();
    let text = text.replacen('{', "{\"hidden_size\": 9,", 1);
    let checkpoint = Checkpoint::qwen3().file("config.json", text);
    assert_eq!(checkpoint.model().info().hidden_size, 8);
}
