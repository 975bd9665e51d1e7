//! A checkpoint of a few kilobytes, made at test time and easy to damage.

#![allow(dead_code, reason = "each test binary takes what it needs")]

mod chosen;
mod heads;
mod mamba;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use inference_core::{Error, LoadOptions, TextModel};
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Ids of the embedding; the tokenizer has fewer, as many checkpoints do.
pub const VOCAB_SIZE: usize = 40;
/// The end-of-sequence id.
pub const EOS: u32 = 1;

/// A tensor as a file holds it.
#[derive(Clone)]
pub struct Tensor {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

impl Tensor {
    /// Repeatable values, evenly spread over ± 0.7.
    pub fn noise(name: &str, shape: &[usize]) -> Tensor {
        let mut state = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 40) as f32 / (1 << 24) as f32 - 0.5) * 1.4
        };
        let data = (0..shape.iter().product()).flat_map(|_| next().to_le_bytes()).collect();
        Tensor { dtype: Dtype::F32, shape: shape.to_vec(), data }
    }

    /// These values.
    pub fn f32(values: &[f32], shape: &[usize]) -> Tensor {
        let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor { dtype: Dtype::F32, shape: shape.to_vec(), data }
    }

    /// Zeros of any type.
    pub fn zeros(dtype: Dtype, shape: &[usize]) -> Tensor {
        let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        Tensor { dtype, shape: shape.to_vec(), data: vec![0; bytes] }
    }
}

/// The files of a checkpoint before they are written.
#[derive(Clone)]
pub struct Checkpoint {
    pub config: Value,
    pub tensors: BTreeMap<String, Tensor>,
    /// Any other file, by name; these win over the ones above.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Checkpoint {
    /// One Qwen 3 layer with tied embeddings.
    pub fn qwen3() -> Checkpoint {
        Checkpoint::with_sizes(1, 8, 16)
    }

    /// Qwen 3 of `layers` layers.
    pub fn with_sizes(layers: usize, hidden: usize, inner: usize) -> Checkpoint {
        Checkpoint::with_heads(4, layers, hidden, inner)
    }

    /// Qwen 3 with two query heads and one key head of `head_dim` values.
    pub fn with_heads(head_dim: usize, layers: usize, hidden: usize, inner: usize) -> Checkpoint {
        let config = json!({
            "model_type": "qwen3", "hidden_size": hidden, "num_hidden_layers": layers,
            "intermediate_size": inner, "num_attention_heads": 2, "num_key_value_heads": 1,
            "head_dim": head_dim, "vocab_size": VOCAB_SIZE, "rms_norm_eps": 1e-6,
            "max_position_embeddings": 4096, "rope_theta": 10000.0, "tie_word_embeddings": true,
            "eos_token_id": EOS,
        });
        let mut shapes = vec![
            ("model.embed_tokens.weight".to_owned(), vec![VOCAB_SIZE, hidden]),
            ("model.norm.weight".to_owned(), vec![hidden]),
        ];
        for layer in 0..layers {
            let parts = [
                ("input_layernorm", vec![hidden]),
                ("post_attention_layernorm", vec![hidden]),
                ("self_attn.q_proj", vec![2 * head_dim, hidden]),
                ("self_attn.k_proj", vec![head_dim, hidden]),
                ("self_attn.v_proj", vec![head_dim, hidden]),
                ("self_attn.o_proj", vec![hidden, 2 * head_dim]),
                ("self_attn.q_norm", vec![head_dim]),
                ("self_attn.k_norm", vec![head_dim]),
                ("mlp.gate_proj", vec![inner, hidden]),
                ("mlp.up_proj", vec![inner, hidden]),
                ("mlp.down_proj", vec![hidden, inner]),
            ];
            for (part, shape) in parts {
                shapes.push((format!("model.layers.{layer}.{part}.weight"), shape));
            }
        }
        let noise = |(name, shape): (String, Vec<usize>)| {
            let tensor = Tensor::noise(&name, &shape);
            (name, tensor)
        };
        let tensors = shapes.into_iter().map(noise).collect();
        let tokenizer = serde_json::to_vec(&tokenizer()).unwrap();
        let files = BTreeMap::from([("tokenizer.json".to_owned(), tokenizer)]);
        Checkpoint { config, tensors, files }
    }

    /// Qwen 3.5 of `layers` layers, of which every second one is attention and the others are gated
    /// delta nets.
    pub fn hybrid(layers: usize) -> Checkpoint {
        let (hidden, inner, key_heads, heads, dk, dv) = (16, 24, 2, 4, 8, 6);
        let mut checkpoint = Checkpoint::with_heads(32, layers, hidden, inner);
        let kinds: Vec<&str> = (0..layers)
            .map(|layer| if layer % 2 == 1 { "full_attention" } else { "linear_attention" })
            .collect();
        for (key, value) in [
            ("model_type", json!("qwen3_5_text")),
            ("layer_types", json!(kinds)),
            ("linear_num_key_heads", json!(key_heads)),
            ("linear_num_value_heads", json!(heads)),
            ("linear_key_head_dim", json!(dk)),
            ("linear_value_head_dim", json!(dv)),
            ("linear_conv_kernel_dim", json!(4)),
        ] {
            checkpoint = checkpoint.config(key, value);
        }
        let mixed = 2 * key_heads * dk + heads * dv;
        for (layer, kind) in kinds.into_iter().enumerate() {
            let prefix = format!("model.layers.{layer}");
            let mut put = |name: &str, shape: &[usize]| {
                let name = format!("{prefix}.{name}");
                let tensor = Tensor::noise(&name, shape);
                checkpoint.tensors.insert(name, tensor);
            };
            if kind == "full_attention" {
                put("self_attn.q_proj.weight", &[2 * 2 * 32, hidden]);
                continue;
            }
            put("linear_attn.in_proj_qkv.weight", &[mixed, hidden]);
            put("linear_attn.in_proj_z.weight", &[heads * dv, hidden]);
            put("linear_attn.in_proj_a.weight", &[heads, hidden]);
            put("linear_attn.in_proj_b.weight", &[heads, hidden]);
            put("linear_attn.conv1d.weight", &[mixed, 4, 1]);
            put("linear_attn.A_log", &[heads]);
            put("linear_attn.dt_bias", &[heads]);
            put("linear_attn.norm.weight", &[dv]);
            put("linear_attn.out_proj.weight", &[hidden, heads * dv]);
            let attention = format!("{prefix}.self_attn.");
            checkpoint.tensors.retain(|name, _| !name.starts_with(&attention));
        }
        checkpoint
    }

    /// LFM 2 of `layers` layers, of which every second one is attention and the others are short
    /// convolutions with biases.
    pub fn convolutions(layers: usize) -> Checkpoint {
        let hidden = 16;
        let mut checkpoint = Checkpoint::with_heads(32, layers, hidden, 24);
        let kinds = (0..layers).map(|layer| ["conv", "full_attention"][layer % 2]);
        for (key, value) in [
            ("model_type", json!("lfm2")),
            ("layer_types", json!(kinds.collect::<Vec<_>>())),
            ("block_auto_adjust_ff_dim", json!(false)),
            ("conv_L_cache", json!(4)),
            ("conv_bias", json!(true)),
        ] {
            checkpoint = checkpoint.config(key, value);
        }
        let is_there = |name: &str| {
            let is_convolution =
                |layer| name.starts_with(&format!("model.layers.{layer}.self_attn."));
            !(0..layers).step_by(2).any(is_convolution)
        };
        let named = |(name, tensor): (String, Tensor)| {
            let name = name
                .replace("model.norm", "model.embedding_norm")
                .replace("input_layernorm", "operator_norm")
                .replace("post_attention_layernorm", "ffn_norm")
                .replace("q_norm", "q_layernorm")
                .replace("k_norm", "k_layernorm")
                .replace("o_proj", "out_proj")
                .replace("mlp.gate_proj", "feed_forward.w1")
                .replace("mlp.up_proj", "feed_forward.w3")
                .replace("mlp.down_proj", "feed_forward.w2");
            (name, tensor)
        };
        let all = std::mem::take(&mut checkpoint.tensors).into_iter();
        checkpoint.tensors = all.filter(|(name, _)| is_there(name)).map(named).collect();
        for layer in (0..layers).step_by(2) {
            for (part, shape) in [
                ("in_proj.weight", vec![3 * hidden, hidden]),
                ("in_proj.bias", vec![3 * hidden]),
                ("conv.weight", vec![hidden, 1, 4]),
                ("conv.bias", vec![hidden]),
                ("out_proj.weight", vec![hidden, hidden]),
                ("out_proj.bias", vec![hidden]),
            ] {
                let name = format!("model.layers.{layer}.conv.{part}");
                let tensor = Tensor::noise(&name, &shape);
                checkpoint.tensors.insert(name, tensor);
            }
        }
        checkpoint
    }

    /// DeepSeek V3 of `layers` layers, the first of which is dense; latents are of 24 values, and
    /// of 8 that see positions.
    pub fn latent(layers: usize) -> Checkpoint {
        let (hidden, heads, rank, nope, rope, value) = (16, 2, 24, 8, 8, 6);
        let (experts, inner) = (4, 8);
        let mut checkpoint = Checkpoint::with_heads(8, layers, hidden, 24);
        for (key, value) in [
            ("model_type", json!("deepseek_v3")),
            ("num_key_value_heads", json!(heads)),
            ("head_dim", json!(null)),
            ("kv_lora_rank", json!(rank)),
            ("q_lora_rank", json!(null)),
            ("qk_nope_head_dim", json!(nope)),
            ("qk_rope_head_dim", json!(rope)),
            ("v_head_dim", json!(value)),
            ("first_k_dense_replace", json!(1)),
            ("n_routed_experts", json!(experts)),
            ("n_group", json!(2)),
            ("topk_group", json!(1)),
            ("num_experts_per_tok", json!(2)),
            ("n_shared_experts", json!(null)),
            ("moe_intermediate_size", json!(inner)),
        ] {
            checkpoint = checkpoint.config(key, value);
        }
        checkpoint.tensors.retain(|name, _| {
            !name.contains(".self_attn.") && (name.contains("layers.0.") || !name.contains(".mlp."))
        });
        let mut shapes = Vec::new();
        for layer in 0..layers {
            for (name, shape) in [
                ("q_proj", vec![heads * (nope + rope), hidden]),
                ("kv_a_proj_with_mqa", vec![rank + rope, hidden]),
                ("kv_a_layernorm", vec![rank]),
                ("kv_b_proj", vec![heads * (nope + value), rank]),
                ("o_proj", vec![hidden, heads * value]),
            ] {
                shapes.push((format!("{layer}.self_attn.{name}.weight"), shape));
            }
            if layer == 0 {
                continue;
            }
            shapes.push((format!("{layer}.mlp.gate.weight"), vec![experts, hidden]));
            shapes.push((format!("{layer}.mlp.gate.e_score_correction_bias"), vec![experts]));
            shapes.push((
                format!("{layer}.mlp.shared_experts.gate_proj.weight"),
                vec![inner, hidden],
            ));
            shapes
                .push((format!("{layer}.mlp.shared_experts.up_proj.weight"), vec![inner, hidden]));
            shapes.push((
                format!("{layer}.mlp.shared_experts.down_proj.weight"),
                vec![hidden, inner],
            ));
            for expert in 0..experts {
                let prefix = format!("{layer}.mlp.experts.{expert}");
                shapes.push((format!("{prefix}.gate_proj.weight"), vec![inner, hidden]));
                shapes.push((format!("{prefix}.up_proj.weight"), vec![inner, hidden]));
                shapes.push((format!("{prefix}.down_proj.weight"), vec![hidden, inner]));
            }
        }
        for (name, shape) in shapes {
            let name = format!("model.layers.{name}");
            let tensor = Tensor::noise(&name, &shape);
            checkpoint.tensors.insert(name, tensor);
        }
        checkpoint
    }

    /// Gemma 4 of five layers with an input of their own, of which the last two reuse the keys of
    /// the third and of the second.
    pub fn lending() -> Checkpoint {
        let (hidden, inner, layers, size) = (16, 24, 5, 4);
        let mut checkpoint = Checkpoint::with_heads(32, layers, hidden, inner);
        let [near, far] = ["sliding_attention", "full_attention"];
        let kinds = [near, far, near, near, far];
        for (key, value) in [
            ("model_type", json!("gemma4_text")),
            ("layer_types", json!(kinds)),
            ("sliding_window", json!(24)),
            ("global_head_dim", json!(64)),
            ("num_kv_shared_layers", json!(2)),
            ("hidden_size_per_layer_input", json!(size)),
            ("vocab_size_per_layer_input", json!(VOCAB_SIZE / 2)),
            ("final_logit_softcapping", json!(30.0)),
        ] {
            checkpoint = checkpoint.config(key, value);
        }
        let mut put = |name: &str, shape: &[usize]| {
            let name = format!("model.{name}");
            let tensor = Tensor::noise(&name, shape);
            checkpoint.tensors.insert(name, tensor);
        };
        put("embed_tokens_per_layer.weight", &[VOCAB_SIZE / 2, layers * size]);
        put("per_layer_model_projection.weight", &[layers * size, hidden]);
        put("per_layer_projection_norm.weight", &[size]);
        for (layer, kind) in kinds.into_iter().enumerate() {
            let mut put =
                |name: &str, shape: &[usize]| put(&format!("layers.{layer}.{name}"), shape);
            put("layer_scalar", &[1]);
            put("pre_feedforward_layernorm.weight", &[hidden]);
            put("post_feedforward_layernorm.weight", &[hidden]);
            put("per_layer_input_gate.weight", &[size, hidden]);
            put("per_layer_projection.weight", &[hidden, size]);
            put("post_per_layer_input_norm.weight", &[hidden]);
            if kind == far {
                put("self_attn.q_proj.weight", &[2 * 64, hidden]);
                put("self_attn.k_proj.weight", &[64, hidden]);
                put("self_attn.v_proj.weight", &[64, hidden]);
                put("self_attn.o_proj.weight", &[hidden, 2 * 64]);
                put("self_attn.q_norm.weight", &[64]);
                put("self_attn.k_norm.weight", &[64]);
            }
        }
        checkpoint
    }

    /// Sets the value of a key of the config.
    pub fn config(mut self, key: &str, value: Value) -> Checkpoint {
        self.config[key] = value;
        self
    }

    /// Scales positions by LongRoPE: sequences of more than `original` ids are encoded otherwise.
    pub fn longrope(self, original: usize) -> Checkpoint {
        let pairs = self.config["head_dim"].as_u64().unwrap() as usize / 2;
        let long: Vec<f64> = [40.0, 0.02].into_iter().cycle().take(pairs).collect();
        let scaling = json!({
            "rope_type": "longrope", "original_max_position_embeddings": original,
            "short_factor": vec![1.0; pairs], "long_factor": long, "attention_factor": 1.2,
        });
        self.config("rope_scaling", scaling)
    }

    /// Adds a file, or replaces the one of that name.
    pub fn file(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Checkpoint {
        self.files.insert(name.to_owned(), bytes.into());
        self
    }

    /// Adds a tensor, or replaces the one of that name.
    pub fn tensor(mut self, name: &str, tensor: Tensor) -> Checkpoint {
        self.tensors.insert(name.to_owned(), tensor);
        self
    }

    /// The bytes of a safetensors file of all tensors.
    pub fn weights(&self) -> Vec<u8> {
        weights(&self.tensors)
    }

    /// Writes the folder.
    pub fn write(&self) -> TempDir {
        let folder = TempDir::new().unwrap();
        let mut files = self.files.clone();
        let config = || serde_json::to_vec(&self.config).unwrap();
        files.entry("config.json".to_owned()).or_insert_with(config);
        let has_weights = files.keys().any(|name| name.ends_with(".safetensors"));
        if !has_weights {
            files.insert("model.safetensors".to_owned(), self.weights());
        }
        for (name, bytes) in files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        folder
    }

    /// Writes and loads; the folder is gone afterwards.
    pub fn load(&self, options: &LoadOptions) -> Result<Box<dyn TextModel>, Error> {
        load(self.write().path(), options)
    }

    /// The model, which must load.
    pub fn model(&self) -> Box<dyn TextModel> {
        self.load(&LoadOptions::default()).unwrap()
    }
}

/// The bytes of a safetensors file.
pub fn weights(tensors: &BTreeMap<String, Tensor>) -> Vec<u8> {
    let views = tensors.iter().map(|(name, tensor)| {
        (name, TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.data).unwrap())
    });
    serialize(views, None).unwrap()
}

/// Loads a folder on the CPU.
pub fn load(folder: &Path, options: &LoadOptions) -> Result<Box<dyn TextModel>, Error> {
    metal_backend::register().unwrap();
    inference_core::get_backend("cpu").unwrap().load_model(folder, options)
}

/// Letters, a space, a line break, one merge, and `é` in two bytes.
pub fn tokenizer() -> Value {
    let mut vocab = serde_json::Map::new();
    let letters = ('a'..='z').map(String::from);
    let others = ["Ġ", "Ċ", "Ã", "©", "ab"].map(String::from);
    for (index, token) in letters.chain(others).enumerate() {
        vocab.insert(token, json!(index + 2));
    }
    let added = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true})
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [added(0, "<s>"), added(EOS, "</s>")],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
            "use_regex": false},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
            "use_regex": false},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false,
            "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "byte_fallback": false, "vocab": vocab, "merges": ["a b"]},
    })
}

/// Names, sizes and times of a folder's files, to see that nothing was written.
pub fn listing(folder: &Path) -> Vec<(String, u64, SystemTime)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let data = entry.metadata().unwrap();
            (entry.file_name().into_string().unwrap(), data.len(), data.modified().unwrap())
        })
        .collect();
    files.sort();
    files
}
