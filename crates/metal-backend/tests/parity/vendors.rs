//! Checkpoints in the packings of vendors: what they compute is what their unpacked weights do.

use std::fs;

use inference_core::{CancelToken, LoadOptions};
use metal_backend::{QuantiseOptions, packing, quantise};
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::fixtures::{
    Bytes, Checkpoint, Tensor, distance, first_logits, greedy, ids, json, numbers, root, run,
    token_ids,
};

/// The packing of a case's matrices: mode, bits and columns of a scale; `None`: in 16 bits.
type Way = Option<(&'static str, usize, usize)>;

const CASES: [(&str, Way); 20] = [
    ("awq", Some(("affine", 4, 128))),
    ("awq-asym", Some(("affine", 4, 32))),
    ("gptq", Some(("affine", 4, 128))),
    ("gptq-8", Some(("affine", 8, 64))),
    ("gptq-3", Some(("affine", 3, 32))),
    ("gptq-2", Some(("affine", 2, 64))),
    ("gptq-rows", Some(("affine", 4, 128))),
    ("gptq-second", Some(("affine", 4, 128))),
    ("gptq-order", None),
    ("compressed-int4", Some(("affine", 4, 128))),
    ("compressed-int4-asym", Some(("affine", 4, 128))),
    ("compressed-int8", Some(("affine", 8, 128))),
    ("compressed-int8-activations", Some(("affine", 8, 128))),
    ("compressed-fp8-rows", None),
    ("compressed-fp8-blocks", None),
    ("compressed-nvfp4", None),
    ("compressed-mxfp4", Some(("mxfp4", 4, 32))),
    ("compressed-mxfp8", Some(("mxfp8", 8, 32))),
    ("modelopt-nvfp4", None),
    ("modelopt-fp8", None),
];

fn golden(all: &Json, name: &str) -> Json {
    match &all[name] {
        Json::String(other) => all[other].clone(),
        own => own.clone(),
    }
}

#[test]
fn each_packing_computes_what_its_unpacked_weights_do() {
    let goldens = json("golden/vendors.json");
    for (name, way) in CASES {
        let checkpoint = Checkpoint::vendor(name);
        let (info, _) = checkpoint.describe(LoadOptions::default());
        let native = checkpoint.load_native(LoadOptions::default());
        assert_eq!(&info, native.info(), "{name}");
        let found = info.packings.first();
        let found = found.map(|way| (&*way.mode, way.bits, way.group_size));
        assert_eq!(found, way, "{name}");
        // Embeddings of 1,024 · 128 values are not packed.
        let most = way.map_or(2 * info.num_parameters, |(_, bits, _)| {
            2 * 1024 * 128 + 164_000 * (bits as u64 + 1) / 8
        });
        assert!(info.weight_bytes <= most, "{name}: {} bytes, at most {most}", info.weight_bytes);
        let model = checkpoint.load(LoadOptions::default());
        for prompt in golden(&goldens, name).as_array().expect("prompts") {
            let (asked, expected) = (ids(&prompt["ids"]), numbers(&prompt["logits"]));
            let far = distance(&first_logits(&*model, &asked), &expected);
            assert!(far < 1e-3, "{name}: {far:e}");
            let far = distance(&first_logits(&*native, &asked), &expected);
            assert!(far < 0.1, "{name} in f16: {far:e}");
            let tokens = token_ids(&run(&*model, &asked, &greedy(16)));
            assert_eq!(tokens, ids(&prompt["tokens"]), "{name}");
        }
    }
}

#[test]
fn every_case_of_the_fixtures_is_tried() {
    let folders = fs::read_dir(root().join("models/vendors")).expect("the fixtures");
    let names = folders.map(|entry| entry.expect("a readable folder").file_name());
    let mut found: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    found.retain(|name| !name.contains('.'));
    found.sort();
    let mut known: Vec<&str> = CASES.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    assert_eq!(found, known);
}

#[test]
fn a_packed_checkpoint_is_saved_as_mlx_has_it() {
    for name in ["awq-asym", "gptq-order", "gptq-3", "compressed-mxfp4"] {
        let (checkpoint, folder) = (Checkpoint::vendor(name), TempDir::new().expect("a folder"));
        let target = folder.path().join("made");
        metal_backend::register().expect("the names are free");
        let options = QuantiseOptions {
            default: packing("affine", Some(8), Some(32)).expect("a packing"),
            recipe: None,
            rules: Vec::new(),
            keep_vision: false,
            dtype: None,
            backend: Some("cpu".into()),
        };
        let made =
            quantise(checkpoint.folder(), &target, &options, &CancelToken::new(), &mut |_, _| {});
        made.unwrap_or_else(|error| panic!("{name}: {error}"));
        let goldens = json("golden/vendors.json");
        let first = &golden(&goldens, name)[0];
        let path = target.to_str().expect("UTF-8");
        let model = inference_core::load_model(path.as_ref(), &LoadOptions::default());
        let model = model.expect("what was saved loads");
        let far = distance(&first_logits(&*model, &ids(&first["ids"])), &numbers(&first["logits"]));
        // Embeddings have 8 bits now, and biases the type of scales.
        assert!(far < 0.5, "{name}: {far:e}");
    }
}

/// Values of a scale in the mixtures below.
const GROUP: usize = 32;

/// The whole numbers from -8 to 7 of each group of an expert's matrix, and the groups' scales.
fn rounded(tensor: &Tensor) -> (Vec<i32>, Vec<f32>) {
    let scale = |group: &[f32]| group.iter().fold(0.0_f32, |most, x| most.max(x.abs())) / 7.0;
    let groups = tensor.values.chunks(GROUP);
    let scales: Vec<f32> = groups.clone().map(scale).collect();
    let codes = groups.zip(&scales).flat_map(|(group, scale)| {
        group.iter().map(|x| (x / scale).round().clamp(-8.0, 7.0) as i32).collect::<Vec<_>>()
    });
    (codes.collect(), scales)
}

fn is_of_expert(name: &str) -> bool {
    name.contains(".mlp.experts.")
}

/// The matrix as `pack-quantized` has it: eight codes in a word, the first in its lowest bits.
fn packed(tensor: Tensor) -> Vec<Bytes> {
    if !is_of_expert(&tensor.name) {
        return vec![tensor.in_f32()];
    }
    let (codes, scales) = rounded(&tensor);
    let word = |codes: &[i32]| {
        let codes = codes.iter().enumerate();
        codes.fold(0_u32, |word, (at, code)| word | ((code + 8) as u32) << (4 * at))
    };
    let [rows, columns] = tensor.shape[..] else { panic!("a matrix of an expert") };
    let named = |end: &str| tensor.name.replace(".weight", end);
    let bytes =
        |name, dtype, shape: &[usize], bytes| Bytes { name, dtype, shape: shape.to_vec(), bytes };
    let words = codes.chunks(8).flat_map(|codes| word(codes).to_le_bytes()).collect();
    let shape = [rows, columns].into_iter().flat_map(|size| (size as i64).to_le_bytes()).collect();
    let scales = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
    vec![
        bytes(named(".weight_packed"), safetensors::Dtype::I32, &[rows, columns / 8], words),
        bytes(named(".weight_scale"), safetensors::Dtype::F32, &[rows, columns / GROUP], scales),
        bytes(named(".weight_shape"), safetensors::Dtype::I64, &[2], shape),
    ]
}

/// The matrix of the same numbers, unpacked.
fn unpacked(tensor: Tensor) -> Vec<Bytes> {
    if !is_of_expert(&tensor.name) {
        return vec![tensor.in_f32()];
    }
    let (codes, scales) = rounded(&tensor);
    let of_group = codes.chunks(GROUP).zip(scales);
    let values = of_group.flat_map(|(codes, scale)| codes.iter().map(move |x| *x as f32 * scale));
    vec![Tensor { values: values.collect(), ..tensor }.in_f32()]
}

#[test]
fn experts_apart_in_a_packing_compute_what_their_unpacked_weights_do() {
    let mut config = Checkpoint::new("qwen3_moe").config();
    config["quantization_config"] = serde_json::json!({
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "ignore": ["lm_head", "re:.*self_attn.*", "re:.*mlp.gate$"],
        "config_groups": {"group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 4, "type": "int", "symmetric": true, "strategy": "group",
                "group_size": GROUP,
            },
        }},
    });
    let plain = Checkpoint::new("qwen3_moe").with_bytes(unpacked);
    let vendor = Checkpoint::new("qwen3_moe").with_bytes(packed).with_config(&config);
    let (plain, vendor) = (plain.load(LoadOptions::default()), vendor.load(LoadOptions::default()));
    let bytes = [&vendor, &plain].map(|model| model.info().weight_bytes);
    assert!(bytes[0] < bytes[1] * 2 / 3, "{bytes:?}: experts are packed");
    for length in [1_u32, 5, 70] {
        let prompt: Vec<u32> = (0..length).map(|at| 3 + at * 37 % 900).collect();
        let far = distance(&first_logits(&*vendor, &prompt), &first_logits(&*plain, &prompt));
        assert!(far < 1e-3, "{length} ids: {far:e}");
        let tokens = |model| token_ids(&run(model, &prompt, &greedy(24)));
        assert_eq!(tokens(&*vendor), tokens(&*plain), "{length} ids");
    }
}
