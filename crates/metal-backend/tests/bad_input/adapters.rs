//! LoRA adapters that are not honoured or do not fit: refused, with the name and both sides.

use std::collections::BTreeMap;
use std::fs;

use inference_core::LoadOptions;
use safetensors::tensor::Dtype;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::tiny::{Checkpoint, Tensor, VOCAB_SIZE, load, weights};

const Q: &str = "model.layers.0.self_attn.q_proj";

/// The files of an adapter before they are written.
struct Files {
    config: Value,
    file: &'static str,
    tensors: BTreeMap<String, Tensor>,
}

impl Files {
    /// In mlx-lm's layout, of rank 2 for the query projection, which is `[8, 8]`.
    fn mlx_lm() -> Files {
        let config = json!({
            "fine_tune_type": "lora", "num_layers": 1,
            "lora_parameters": {"rank": 2, "scale": 2.0, "dropout": 0.0, "keys": ["self_attn.q_proj"]},
        });
        let files = Files { config, file: "adapters.safetensors", tensors: BTreeMap::new() };
        files.tensor(&format!("{Q}.lora_a"), &[8, 2]).tensor(&format!("{Q}.lora_b"), &[2, 8])
    }

    /// A complete adapter in PEFT's layout.
    fn peft() -> Files {
        let config = json!({
            "peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none",
            "target_modules": ["q_proj"],
        });
        let files = Files { config, file: "adapter_model.safetensors", tensors: BTreeMap::new() };
        files
            .tensor(&format!("base_model.model.{Q}.lora_A.weight"), &[2, 8])
            .tensor(&format!("base_model.model.{Q}.lora_B.weight"), &[8, 2])
    }

    fn tensor(mut self, name: &str, shape: &[usize]) -> Files {
        self.tensors.insert(name.to_owned(), Tensor::zeros(Dtype::F32, shape));
        self
    }

    fn without(mut self, name: &str) -> Files {
        self.tensors.remove(name).unwrap();
        self
    }

    fn config(mut self, key: &str, value: Value) -> Files {
        self.config[key] = value;
        self
    }

    fn write(&self) -> TempDir {
        let folder = TempDir::new().unwrap();
        let config = serde_json::to_vec(&self.config).unwrap();
        fs::write(folder.path().join("adapter_config.json"), config).unwrap();
        fs::write(folder.path().join(self.file), weights(&self.tensors)).unwrap();
        folder
    }

    /// Asserts that the adapter loads.
    #[track_caller]
    fn accepted(&self) {
        let folder = self.write();
        let adapter_path = Some(folder.path().to_owned());
        let options = LoadOptions { adapter_path, ..LoadOptions::default() };
        let model = Checkpoint::qwen3().load(&options).unwrap();
        assert!(model.capabilities().require(inference_core::Feature::Adapter).is_ok());
    }

    /// Asserts that the adapter is refused with its folder and every one of `parts`.
    #[track_caller]
    fn refused(&self, parts: &[&str]) {
        refused(&self.write(), parts);
    }
}

#[track_caller]
fn refused(folder: &TempDir, parts: &[&str]) {
    let model = Checkpoint::qwen3().write();
    let adapter_path = Some(folder.path().to_owned());
    let options = LoadOptions { adapter_path, ..LoadOptions::default() };
    let error = load(model.path(), &options).unwrap_err().to_string();
    assert!(error.contains(&folder.path().display().to_string()), "no path in: {error}");
    for part in parts {
        assert!(error.contains(part), "no `{part}` in: {error}");
    }
    let backend = Some("cpu".to_owned());
    let described =
        metal_backend::describe(model.path(), &LoadOptions { backend, ..options }).map(|_| ());
    assert_eq!(described.unwrap_err().to_string(), error, "describing says something else");
}

#[test]
fn sound_adapters_of_both_layouts_load() {
    Files::mlx_lm().accepted();
    Files::peft().accepted();
}

#[test]
fn missing_files_are_named() {
    let folder = Files::mlx_lm().write();
    fs::remove_file(folder.path().join("adapters.safetensors")).unwrap();
    refused(&folder, &["adapters.safetensors: the file is missing"]);
    let folder = Files::peft().write();
    fs::remove_file(folder.path().join("adapter_model.safetensors")).unwrap();
    refused(&folder, &["adapter_model.safetensors: the file is missing"]);
    fs::remove_file(folder.path().join("adapter_config.json")).unwrap();
    refused(&folder, &["adapter_config.json: the file is missing"]);
}

#[test]
fn damaged_files_are_named() {
    let folder = Files::mlx_lm().write();
    let path = folder.path().join("adapters.safetensors");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    refused(&folder, &["adapters.safetensors", "truncated"]);
    fs::write(folder.path().join("adapter_config.json"), "[]").unwrap();
    refused(&folder, &["adapter_config.json", "expected an object"]);
    Files::mlx_lm().config("lora_parameters", json!(null)).refused(&["lora_parameters"]);
    let bare = Files { config: json!({}), ..Files::mlx_lm() };
    bare.refused(&["adapter_config.json", "lora_parameters", "peft_type"]);
}

#[test]
fn shapes_that_do_not_fit_are_named_with_both_sides() {
    let a = format!("{Q}.lora_a");
    let other_base = Files::mlx_lm().tensor(&a, &[16, 2]);
    other_base.refused(&[&a, "[16, 2]", "[8, 2]", Q, "from 8 to 8", "rank 2"]);
    let other_rank = Files::mlx_lm().tensor(&a, &[8, 3]);
    other_rank.refused(&[&a, "[8, 3]", "[8, 2]", "rank 2"]);
    let b = format!("base_model.model.{Q}.lora_B.weight");
    Files::peft().tensor(&b, &[2, 8]).refused(&[&b, "[2, 8]", "[8, 2]", Q]);
    let ranks = json!({"q_proj": 3});
    Files::peft().config("rank_pattern", ranks).refused(&["[2, 8]", "[3, 8]", "rank 3"]);
    let mut integers = Files::mlx_lm();
    integers.tensors.insert(a.clone(), Tensor::zeros(Dtype::I32, &[8, 2]));
    integers.refused(&[&a, "I32", "floating-point"]);
}

#[test]
fn modules_that_the_model_does_not_have_are_named() {
    for module in ["model.layers.1.self_attn.q_proj", "model.layers.0.mlp.gate", "lm_head"] {
        let files = Files::mlx_lm().config("num_layers", json!(2));
        let files = files.tensor(&format!("{module}.lora_a"), &[8, 2]);
        let files = files.tensor(&format!("{module}.lora_b"), &[2, 8]);
        files.refused(&["adapters.safetensors", &format!("`{module}`"), "no projections"]);
    }
}

#[test]
fn targets_and_layers_of_the_config_must_be_those_of_the_tensors() {
    let targets = json!(["q_proj", "up_proj"]);
    let files = Files::peft().config("target_modules", targets);
    files.refused(&["`up_proj`", "no tensors", "`model.layers.0.mlp.up_proj`"]);
    // PEFT asks for a match of one target, so some may be no modules of this model.
    Files::peft().config("target_modules", json!(["q_proj", "qkv_proj", "w1"])).accepted();
    let other = "model.layers.1.self_attn.q_proj";
    let files = Files::mlx_lm().tensor(&format!("{other}.lora_a"), &[8, 2]);
    files.refused(&["`num_layers` is 1", "2 layers"]);
}

#[test]
fn tensors_that_belong_to_no_pair_are_named() {
    let half = Files::mlx_lm().without(&format!("{Q}.lora_b"));
    half.refused(&[&format!("`{Q}.lora_a`"), "other half"]);
    let magnitude = format!("{Q}.m");
    Files::mlx_lm().tensor(&magnitude, &[8]).refused(&[&magnitude, "lora_a", "lora_b"]);
    let embedding = "base_model.model.model.embed_tokens.lora_embedding_A";
    Files::peft().tensor(embedding, &[2, 40]).refused(&[embedding, "mlx-lm's layout only"]);
    let twice = Files::mlx_lm().tensor("layers.0.self_attn.q_proj.lora_a", &[8, 2]);
    twice.refused(&["layers.0.self_attn.q_proj.lora_a", "same module"]);
    Files { tensors: BTreeMap::new(), ..Files::mlx_lm() }.refused(&["no tensors"]);
}

#[test]
fn what_is_not_honoured_is_refused_by_its_key() {
    for (key, value) in [
        ("use_dora", json!(true)),
        ("modules_to_save", json!(["lm_head"])),
        ("bias", json!("lora_only")),
        ("lora_bias", json!(true)),
        ("fan_in_fan_out", json!(true)),
        ("layer_replication", json!([[0, 1]])),
        ("trainable_token_indices", json!([3])),
        ("target_parameters", json!(["mlp.experts.down_proj"])),
        ("init_lora_weights", json!("pissa_niter_16")),
        ("alpha_pattern", json!({"q_proj|v_proj": 3})),
        ("rank_pattern", json!({"^model": 3})),
        ("peft_type", json!("IA3")),
    ] {
        Files::peft().config(key, value).refused(&["adapter_config.json", key]);
    }
    for (key, value) in [("fine_tune_type", "dora"), ("fine_tune_type", "full")] {
        Files::mlx_lm().config(key, json!(value)).refused(&["adapter_config.json", key, value]);
    }
    let parameters = json!({"rank": 2, "alpha": 4});
    Files::mlx_lm().config("lora_parameters", parameters).refused(&["`scale` is missing"]);
}

#[test]
fn keys_that_ask_for_nothing_pass() {
    let config = Files::peft()
        .config("use_dora", json!(false))
        .config("modules_to_save", json!([]))
        .config("rank_pattern", json!({}))
        .config("init_lora_weights", json!("gaussian"))
        .config("target_modules", json!("all-linear"));
    config.accepted();
}

#[test]
fn the_bases_own_embeddings_beside_an_adapter_are_as_large_as_the_models() {
    let embedding = "base_model.model.model.embed_tokens.base_layer.weight";
    let (vocabulary, larger) = (VOCAB_SIZE, VOCAB_SIZE + 1);
    Files::peft().tensor(embedding, &[vocabulary, 8]).accepted();
    Files::peft().tensor(embedding, &[larger, 8]).refused(&[embedding, &format!("[{larger}, 8]")]);
    // The output layer of this model is its embeddings.
    let head = "base_model.model.lm_head.base_layer.weight";
    Files::peft().tensor(head, &[vocabulary, 8]).refused(&[head, "does not have"]);
}

#[test]
fn numbers_that_are_none_are_shown_as_they_stand() {
    let files = Files::mlx_lm();
    let folder = files.write();
    let path = folder.path().join("adapter_config.json");
    let text = fs::read_to_string(&path).unwrap().replace("2.0", "NaN");
    fs::write(&path, text).unwrap();
    refused(&folder, &["`scale` is NaN, expected a number"]);
}

#[test]
fn an_adapter_of_experts_that_the_model_has_not_is_refused() {
    let reasons = ["are no projections of the model", "a projection of experts"];
    for (module, reason) in ["switch_mlp.up_proj", "experts.3.up_proj"].iter().zip(reasons) {
        let module = format!("model.layers.0.mlp.{module}");
        let files = Files::mlx_lm()
            .tensor(&format!("{module}.lora_a"), &[8, 2])
            .tensor(&format!("{module}.lora_b"), &[2, 16]);
        files.refused(&[&module, reason]);
    }
}
