//! A config that leaves most keys out gives the sizes that transformers gives it.

use std::fs;
use std::io::Write;

use inference_core::LoadOptions;
use mlx_ffi::Device;
use serde_json::{Map, Value, json};

use crate::cache::{KvSpec, StateSpec};
use crate::files::ModelFiles;
use crate::kernels::{Bf16, Kernels};
use crate::load;
use crate::load::EngineOptions;
use crate::weights::Checkpoint;

const CONFIG: &str = include_str!("../../../tests/fixtures/parity/configs/gemma3-4b-minimal.json");

/// Names and shapes of the language model's tensors, by transformers' values for what the config
/// leaves out: 8 heads of 256 values, 4 of keys and values, a vocabulary of 262,208.
fn tensors() -> Vec<(String, Vec<u64>)> {
    let model = "language_model.model";
    let mut all = vec![
        (format!("{model}.embed_tokens.weight"), vec![262_208, 2560]),
        (format!("{model}.norm.weight"), vec![2560]),
    ];
    for index in 0..34 {
        for (name, shape) in [
            ("input_layernorm", vec![2560]),
            ("post_attention_layernorm", vec![2560]),
            ("pre_feedforward_layernorm", vec![2560]),
            ("post_feedforward_layernorm", vec![2560]),
            ("self_attn.q_proj", vec![8 * 256, 2560]),
            ("self_attn.k_proj", vec![4 * 256, 2560]),
            ("self_attn.v_proj", vec![4 * 256, 2560]),
            ("self_attn.o_proj", vec![2560, 8 * 256]),
            ("self_attn.q_norm", vec![256]),
            ("self_attn.k_norm", vec![256]),
            ("mlp.gate_proj", vec![10_240, 2560]),
            ("mlp.up_proj", vec![10_240, 2560]),
            ("mlp.down_proj", vec![2560, 10_240]),
        ] {
            all.push((format!("{model}.layers.{index}.{name}.weight"), shape));
        }
    }
    all
}

#[test]
fn a_minimal_config_of_the_4b_model_has_the_sizes_that_transformers_gives_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), CONFIG).unwrap();
    let (mut header, mut end) = (Map::new(), 0);
    for (name, shape) in tensors() {
        let start = end;
        end += 2 * shape.iter().product::<u64>();
        let tensor = json!({"dtype": "BF16", "shape": shape, "data_offsets": [start, end]});
        header.insert(name, tensor);
    }
    let header = Value::Object(header).to_string();
    let mut file = fs::File::create(folder.path().join("model.safetensors")).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    // A hole of eight gigabytes, which takes no room: only the header is read.
    file.set_len(8 + header.len() as u64 + end).unwrap();

    let files = ModelFiles::Folder(folder.path().to_owned());
    let config = load::config(&files).unwrap();
    let load = LoadOptions::default();
    let checkpoint = Checkpoint::open(&files).unwrap();
    let (device, kernels) = (Device::Cpu, Kernels::Mlx);
    let options =
        EngineOptions { files, config, device, kernels, bf16: Bf16::Itself, load, drafting: None };
    let described = load::describe(&options, &checkpoint, None).unwrap();
    let info = described.description.info;
    assert_eq!((info.vocab_size, info.num_layers, info.hidden_size), (262_208, 34, 2560));
    assert_eq!(info.context_length, 131_072);
    assert_eq!(info.num_parameters, end / 2);
    assert_eq!(described.model.embed_scale, Some(f64::from(2560).sqrt()));
    assert_eq!(described.model.logit_softcap, None);
    for (index, layer) in described.model.layers.iter().enumerate() {
        let attention = layer.mixer.attention().unwrap().config;
        assert_eq!((attention.n_heads, attention.n_kv_heads, attention.head_dim), (8, 4, 256));
        // `query_pre_attn_scalar` is 256.
        assert_eq!(attention.scale, 1.0 / 16.0);
        assert_eq!(attention.softcap, None);
        let is_global = (index + 1) % 6 == 0;
        assert_eq!(attention.window, (!is_global).then_some(1024), "layer {index}");
        let spec = KvSpec::new(4, 256, (!is_global).then_some(1024), None);
        assert_eq!(described.specs[index], StateSpec::Kv(spec));
    }
}
