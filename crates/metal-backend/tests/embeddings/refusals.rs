//! Refusals, by name and with the remedy.

use std::fs;
use std::path::Path;

use inference_core::{
    EmbedInput, EmbedOptions, EmbeddingLoadOptions, Error, LoadOptions, ScoreOptions, TextPair,
};
use serde_json::{Value as Json, json};

use crate::fixtures::{self, Fixture, folder};

/// A copy of a fixture's model.
pub fn copied(name: &str) -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).expect("a folder");
        for entry in fs::read_dir(from).expect("a folder") {
            let path = entry.expect("an entry").path();
            let to = to.join(path.file_name().expect("a name"));
            if path.is_dir() {
                copy(&path, &to)
            } else {
                fs::copy(&path, &to).expect("a copy");
            }
        }
    }
    let folder_of_copy = tempfile::tempdir().expect("a folder");
    copy(&folder(name), folder_of_copy.path());
    folder_of_copy
}

/// Returns the error of the load once the file `name` of a fixture's copy was changed.
fn error(model: &str, name: &str, change: impl FnOnce(&mut Json)) -> String {
    let copy = copied(model);
    let path = copy.path().join(name);
    let mut json: Json =
        serde_json::from_str(&fs::read_to_string(&path).expect("it is there")).expect("JSON");
    change(&mut json);
    fs::write(&path, json.to_string()).expect("written");
    let loaded = fixtures::load(copy.path(), &EmbeddingLoadOptions::default());
    loaded.err().expect("refused").to_string()
}

#[test]
fn modules_that_are_not_known_are_named() {
    let of_modules = |change: fn(&mut Json)| error("embedding_gemma", "modules.json", change);
    let text = of_modules(|json| json[2]["type"] = json!("sentence_transformers.models.LSTM"));
    assert!(text.contains("module `LSTM` is not known") && text.contains("modules.json"), "{text}");
    let text = of_modules(|json| json[1]["path"] = json!("../secret"));
    assert!(text.contains("leads out of the folder"), "{text}");
    let text = of_modules(|json| {
        let last = json[4].clone();
        json[4] = json[3].clone();
        json[3] = last;
    });
    assert!(text.contains("Dense behind Normalize"), "{text}");
    let text = error("embedding_gemma", "2_Dense/config.json", |json| {
        json["activation_function"] = json!("torch.nn.modules.activation.ReLU");
    });
    assert!(text.contains("`activation_function`") && text.contains("2_Dense"), "{text}");
    let text =
        error("embedding_gemma", "2_Dense/config.json", |json| json["in_features"] = json!(31));
    assert!(text.contains("`in_features` is 31, and vectors have 32"), "{text}");
}

#[test]
fn configs_that_say_something_else_are_named() {
    let text = error("bert", "config.json", |json| {
        json["position_embedding_type"] = json!("relative_key")
    });
    assert!(text.contains("`position_embedding_type` is `relative_key`"), "{text}");
    let text = error("bert", "config.json", |json| json["hidden_act"] = json!("mish"));
    assert!(text.contains("`hidden_act` is `mish`"), "{text}");
    let text = error("bert", "config.json", |json| json["num_attention_heads"] = json!(5));
    assert!(text.contains("no multiple of `num_attention_heads` 5"), "{text}");
    let text = error("modernbert", "config.json", |json| json["norm_bias"] = json!(true));
    assert!(text.contains("`norm_bias`"), "{text}");
    let text = error("xlm_roberta", "config.json", |json| json["pad_token_id"] = json!(400));
    assert!(text.contains("leaves no place"), "{text}");
}

#[test]
fn a_folder_that_is_missing_is_told_as_one() {
    let missing = folder("none").join("such");
    let loaded = fixtures::load(&missing, &EmbeddingLoadOptions::default());
    let text = loaded.err().expect("refused").to_string();
    assert!(text.ends_with("none/such: no such folder"), "{text}");
}

#[test]
fn frequencies_that_old_files_hold_are_left_aside() {
    let copy = copied("qwen3_embedding");
    let path = copy.path().join("model.safetensors");
    let bytes = fs::read(&path).expect("weights");
    let own = safetensors::SafeTensors::deserialize(&bytes).expect("they are whole");
    let name = own.names().into_iter().find(|name| name.ends_with("self_attn.q_proj.weight"));
    let name = name.expect("a layer").replace("q_proj.weight", "rotary_emb.inv_freq");
    let frequencies = own.tensor(own.names()[0]).expect("a tensor");
    let views: Vec<_> = own.iter().map(|(name, view)| (name.to_owned(), view)).collect();
    let views = views.into_iter().chain([(name, frequencies)]);
    safetensors::serialize_to_file(views, None, &path).expect("it can be written");
    fixtures::load(copy.path(), &EmbeddingLoadOptions::default()).expect("it loads");
}

#[test]
fn a_folder_without_modules_wants_a_pooling() {
    let copy = copied("xlm_roberta");
    fs::remove_file(copy.path().join("modules.json")).expect("removed");
    let load = |options: &EmbeddingLoadOptions| fixtures::load(copy.path(), options);
    let text = load(&EmbeddingLoadOptions::default()).err().expect("refused").to_string();
    assert!(text.contains("modules.json") && text.contains("--pooling"), "{text}");
    let pooling = Some(inference_core::Pooling::Cls);
    let model = load(&EmbeddingLoadOptions { pooling, ..Default::default() }).expect("it loads");
    assert_eq!(model.info().dimensions, Some(32));
}

#[test]
fn what_a_model_cannot_is_told_before_anything_is_computed() {
    let bert = Fixture::new("bert").load(Default::default());
    let embed = |input: EmbedInput, options: EmbedOptions| {
        bert.embed(&[input], &options).expect_err("refused").to_string()
    };
    let dimensions = Some(33);
    let text = embed("a".into(), EmbedOptions { dimensions, ..EmbedOptions::default() });
    assert!(text.contains("`dimensions`: 33 exceeds the model's own 32"), "{text}");
    let prompt_name = Some("quest".to_owned());
    let text = embed("a".into(), EmbedOptions { prompt_name, ..EmbedOptions::default() });
    assert!(text.contains("no prompt `quest`; the model has document, query"), "{text}");
    let text = embed(EmbedInput::Ids(vec![5000]), EmbedOptions::default());
    assert!(text.contains("token 5000 is not in the vocabulary"), "{text}");
    let text = embed(EmbedInput::Ids(Vec::new()), EmbedOptions::default());
    assert_eq!(text, Error::EmptyPrompt.to_string());
    let pairs = [TextPair { query: "a".into(), document: "b".into() }];
    let error = bert.score(&pairs, &ScoreOptions::default()).expect_err("refused");
    assert!(matches!(&error, Error::Unsupported { what, .. } if what == "scores"), "{error}");

    let reranker = Fixture::new("bert_reranker").load(Default::default());
    let error = reranker.embed(&["a".into()], &EmbedOptions::default()).expect_err("refused");
    assert!(matches!(&error, Error::Unsupported { what, .. } if what == "embeddings"), "{error}");
    let instruction = Some("Find animals".to_owned());
    let options = ScoreOptions { instruction, ..ScoreOptions::default() };
    let error = reranker.score(&pairs, &options).expect_err("refused");
    assert!(matches!(&error, Error::Unsupported { what, .. } if what == "instruction"), "{error}");
}

#[test]
fn a_model_that_embeds_generates_no_text_and_says_what_does() {
    let _ = metal_backend::register();
    for name in ["bert", "embedding_gemma"] {
        let loaded = inference_core::load_model(&folder(name), &LoadOptions::default());
        let text = loaded.expect_err("refused").to_string();
        assert!(text.contains("ml embed"), "{name}: {text}");
    }
}

#[test]
fn a_model_that_does_not_fit_the_memory_is_refused_with_the_numbers() {
    let options = EmbeddingLoadOptions { memory_limit: Some(1 << 10), ..Default::default() };
    let error = fixtures::load(&folder("bert"), &options).err().expect("refused");
    assert!(matches!(error, Error::Memory { .. }), "{error}");
}
