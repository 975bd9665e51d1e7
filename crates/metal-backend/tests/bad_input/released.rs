//! Folders as people publish and copy them: what is odd about them changes no answer.

use inference_core::GenerateOptions;
use serde_json::json;

use crate::refused;
use crate::tiny::{Checkpoint, tokenizer};

const MARK: &str = "\u{feff}";

fn said(checkpoint: &Checkpoint) -> Vec<u32> {
    let options = GenerateOptions { max_tokens: Some(8), ..Default::default() };
    let model = checkpoint.model();
    let tokens = model.generate(&"abc".into(), &options).expect("a prompt");
    tokens.map(|token| token.expect("a token").id).collect()
}

/// Checkpoints that differ from the sound one as published ones do, each with what is odd.
fn odd() -> Vec<(&'static str, Checkpoint)> {
    let tiny = Checkpoint::qwen3;
    let config = || serde_json::to_string_pretty(&tiny().config).expect("JSON");
    let broken = json!({"chat_template": "{% for m in messages %}{{ m.content"}).to_string();
    vec![
        (
            "a byte order mark before the config",
            tiny().file("config.json", MARK.to_owned() + &config()),
        ),
        (
            "a byte order mark before the tokenizer",
            tiny().file("tokenizer.json", MARK.to_owned() + &tokenizer().to_string()),
        ),
        (
            "byte order marks before what is beside it",
            tiny()
                .file("generation_config.json", format!("{MARK}{{}}"))
                .file("tokenizer_config.json", format!("{MARK}{{}}"))
                .file("special_tokens_map.json", format!("{MARK}{{}}")),
        ),
        ("lines as Windows ends them", tiny().file("config.json", config().replace('\n', "\r\n"))),
        ("a template that does not parse", tiny().file("tokenizer_config.json", broken)),
        (
            "weights of training, and in other forms",
            tiny()
                .file("model.safetensors", tiny().weights())
                .file("consolidated.safetensors", tiny().weights())
                .file("optimizer.safetensors", "no weights")
                .file("pytorch_model.bin", "no weights")
                .file("training_args.bin", "no arguments")
                .file(".gitattributes", "*.bin filter=lfs"),
        ),
        (
            "the index of another save",
            tiny().file("model.safetensors", tiny().weights()).file(
                "model.safetensors.index.json",
                json!({"weight_map": {"a": "model-00001-of-00002.safetensors"}}).to_string(),
            ),
        ),
        (
            "keys of other versions of transformers",
            tiny()
                .config("dtype", json!("float32"))
                .config("rope_scaling", json!(null))
                .config("sliding_window", json!(null))
                .config("transformers_version", json!("5.24.0.dev0"))
                .config("_name_or_path", json!("/home/somebody/model")),
        ),
        ("one tokenizer of SentencePiece beside the other", tiny().file("tokenizer.model", "x")),
    ]
}

#[test]
fn what_published_folders_have_beside_a_model_changes_no_answer() {
    let expected = said(&Checkpoint::qwen3());
    for (name, checkpoint) in odd() {
        assert_eq!(said(&checkpoint), expected, "{name}");
    }
}

#[test]
fn a_folder_that_lacks_a_tokenizer_is_told_what_to_do_with_the_one_that_is_there() {
    for (file, kind) in [
        ("spm.model", "SentencePiece"),
        ("tokenizer.tiktoken", "tiktoken"),
        ("vocab.json", "merges.txt"),
    ] {
        let mut checkpoint = Checkpoint::qwen3().file(file, "x");
        checkpoint.files.remove("tokenizer.json");
        refused(&checkpoint, &["tokenizer.json", file, kind]);
    }
}

#[test]
fn weights_in_another_form_alone_are_named() {
    let mut checkpoint = Checkpoint::qwen3().file("pytorch_model.bin", "pickled");
    // Else the weights would be written beside it.
    checkpoint.files.insert("other.safetensors.txt".to_owned(), b"x".to_vec());
    let folder = checkpoint.write();
    std::fs::remove_file(folder.path().join("model.safetensors")).expect("it was written");
    let error = crate::refusal(folder.path());
    assert!(error.contains("pytorch_model.bin") && error.contains("no zip file"), "{error}");
}
