//! Which model runs, what it is, and what is refused for it.

use inference_core::{Feature, Support};

use crate::{FOX, command, generated, json, ml, text};

/// The demo model's folder.
const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo-model");

#[test]
fn a_missing_folder_is_named() {
    let output = ml(&["generate", "--model", "no/such/model", FOX]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.starts_with("error: ") && error.contains("no/such/model"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    let output = command(&["info"]).env("ML_MODEL", "no/such/model").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no/such/model"));
}

#[test]
fn a_word_that_is_no_model_is_told_where_names_are() {
    let output = ml(&["generate", "--model", "nothing-like-any", FOX]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.starts_with("error: nothing-like-any: no such folder, and no name"), "{error}");
    assert!(error.contains("`ml models`") && error.contains("`ml list`"), "{error}");
}

#[test]
fn a_missing_adapter_is_named() {
    let output = ml(&["generate", FOX, "--adapter", "no/such/adapter"]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("no/such/adapter: no such folder"), "{error}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_packed_cache_and_several_slots_are_taken() {
    for bits in ["8", "4"] {
        assert!(!generated(&["generate", FOX, "-n", "8", "--kv-bits", bits]).is_empty());
    }
    assert!(!generated(&["generate", FOX, "-n", "8", "--parallel", "2"]).is_empty());
}

#[test]
fn an_unknown_backend_is_refused() {
    let output = ml(&["generate", "--backend", "abacus", FOX]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("abacus"));
}

#[test]
fn info_describes_the_demo_model() {
    let info = json(&["info", "--json"]);
    assert_eq!(info["architecture"], "qwen3");
    assert_eq!(info["num_layers"], 8);
    assert_eq!(info["context_length"], 2048);
    assert_eq!(
        (&info["quantization"]["bits"], &info["quantization"]["group_size"]),
        (&4.into(), &64.into())
    );
    assert_eq!(info["vocab_size"], 4096);
    assert!(info["kv_bytes_per_token"].as_u64().unwrap() > 0);
    // The report is the model's own, with every feature in it.
    let options = inference_core::LoadOptions::default();
    let (mut whole, capabilities) = metal_backend::describe(DEMO.as_ref(), &options).unwrap();
    let own = capabilities.iter().map(|(feature, support)| match support {
        Support::Yes => serde_json::json!({"feature": feature.as_str(), "supported": true}),
        Support::No(reason) => {
            serde_json::json!({"feature": feature.as_str(), "supported": false, "reason": reason})
        }
    });
    assert_eq!(info["capabilities"], own.collect::<serde_json::Value>());
    assert_eq!(capabilities.iter().count(), Feature::ALL.len());
    // What is said without a look at its texts is the same but for these.
    let (outline, honoured) = metal_backend::outline(DEMO.as_ref(), &options).unwrap();
    (whole.eos_token_ids, whole.special_tokens, whole.chat_template) = Default::default();
    whole.tokenizer.clear();
    assert_eq!((outline, honoured), (whole, capabilities));
    let described = generated(&["info"]);
    assert!(described.contains("qwen3") && described.contains("4 bits in groups of 64"));
    // As tokenizer_config.json has them; Qwen's format begins with no token of its own.
    for line in
        ["  eos          0 <|endoftext|>, 2 <|im_end|>\n", "  pad          0 <|endoftext|>\n"]
    {
        assert!(described.contains(line), "{line:?} is not in {described}");
    }
}

#[test]
fn a_folder_with_the_demo_model_is_listed_and_answers_alike() {
    let models = json(&["list", DEMO, "--json"]);
    assert_eq!(models[0]["architecture"], "qwen3");
    assert!(models[0]["error"].is_null(), "{models}");
    let arguments = ["generate", "-t", "0", "-q", "-n", "16", FOX];
    let from_folder = command(&arguments).env("ML_MODEL", DEMO).output().unwrap();
    assert_eq!(text(&from_folder.stdout), generated(&arguments));
}

#[test]
fn a_file_of_gguf_is_a_model() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../metal-backend/tests/fixtures/gguf");
    let file = format!("{folder}/qwen3.gguf");
    let info = json(&["info", "--json", "--model", &file]);
    assert_eq!(info["architecture"], "qwen3");
    assert_eq!(
        (&info["quantization"]["bits"], &info["quantization"]["group_size"]),
        (&4.into(), &32.into())
    );
    // What is said without a look at its vocabulary is the same but for that.
    let options = inference_core::LoadOptions::default();
    let (mut whole, capabilities) = metal_backend::describe(file.as_ref(), &options).unwrap();
    (whole.eos_token_ids, whole.special_tokens, whole.chat_template) = Default::default();
    whole.tokenizer.clear();
    let outline = metal_backend::outline(file.as_ref(), &options).unwrap();
    assert_eq!(outline, (whole, capabilities));
    let models = json(&["list", folder, "--json"]);
    let models = models.as_array().unwrap();
    assert!(models.iter().any(|model| model["path"] == *file));
    assert!(models.iter().all(|model| model["error"].is_null()), "{models:?}");
    let answer = ["generate", "--model", &file, "--raw", "-n", "4", "--ignore-eos", "Hello"];
    assert!(!generated(&answer).is_empty());

    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("packed");
    let target = target.to_str().unwrap();
    assert_eq!(generated(&["quantise", "-q", &file, target]).trim(), target);
    let answer = ["generate", "--model", target, "--raw", "-n", "4", "--ignore-eos", "Hello"];
    assert!(!generated(&answer).is_empty());
    let missing = home.path().join("missing.gguf");
    let refused = ml(&["generate", "--model", missing.to_str().unwrap(), FOX]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("missing.gguf"), "{}", text(&refused.stderr));
}

#[test]
fn doctor_finds_nothing_wrong() {
    let report = json(&["doctor", "--json"]);
    assert_eq!(report["healthy"], true, "{report}");
    for check in report["checks"].as_array().unwrap() {
        assert_eq!(check["ok"], true, "{check}");
    }
    assert!(report["system"]["mlx_version"].is_string());
    assert!(!report["backends"].as_array().unwrap().is_empty());
    let told = generated(&["doctor"]);
    assert!(told.contains("generation   ok: loaded in "), "{told}");
    // What a device does not tell is left out.
    let memory = told.lines().find(|line| line.starts_with("memory ")).unwrap();
    assert_eq!(
        memory.contains("in all"),
        report["system"]["total_memory_bytes"].is_u64(),
        "{told}"
    );
    assert!(!memory.contains(" 0 B in all"), "{told}");
}
