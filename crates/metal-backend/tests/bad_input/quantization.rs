//! Packed weights: parts that are missing, and configs that say something else.

use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use crate::refused;
use crate::tiny::{Checkpoint, Tensor};

const MODULE: &str = "model.layers.0.mlp.gate_proj";

/// A checkpoint whose `gate_proj`, `[16, 64]`, is packed into 4 bits in groups of 32.
fn packed(quantization: Value) -> Checkpoint {
    let groups = Tensor::zeros(Dtype::F32, &[16, 2]);
    Checkpoint::with_sizes(1, 64, 16)
        .config("quantization", quantization)
        .tensor(&format!("{MODULE}.weight"), Tensor::zeros(Dtype::U32, &[16, 8]))
        .tensor(&format!("{MODULE}.scales"), groups.clone())
        .tensor(&format!("{MODULE}.biases"), groups)
}

fn sound() -> Checkpoint {
    packed(json!({"bits": 4, "group_size": 32}))
}

#[test]
fn the_packed_checkpoint_is_sound() {
    let model = sound().model();
    assert_eq!((model.info().quant_bits, model.info().quant_group), (4, 32));
    assert!(model.generate(&"abc".into(), &Default::default()).unwrap().next().is_some());
}

#[test]
fn scales_of_floats_of_8_bits_that_do_not_fit_are_refused() {
    let weight = Tensor::zeros(Dtype::F8_E4M3, &[16, 64]);
    let fp8 = |method: Value, scales: Option<Tensor>| {
        let checkpoint = Checkpoint::with_sizes(1, 64, 16)
            .config("quantization_config", method)
            .tensor(&format!("{MODULE}.weight"), weight.clone());
        match scales {
            None => checkpoint,
            Some(scales) => checkpoint.tensor(&format!("{MODULE}.weight_scale_inv"), scales),
        }
    };
    let scales = |shape: &[usize]| Some(Tensor::zeros(Dtype::F32, shape));
    let method = || json!({"quant_method": "fp8", "weight_block_size": [8, 48]});
    fp8(method(), scales(&[2, 2])).model();
    fp8(method(), scales(&[])).model();
    fp8(json!({"quant_method": "fp8"}), scales(&[1, 1])).model();
    refused(&fp8(method(), None), &[MODULE, "weight_scale_inv", "missing"]);
    refused(&fp8(method(), scales(&[2, 3])), &[MODULE, "[2, 3]", "blocks of 8 × 48", "[16, 64]"]);
    let whole = json!({"quant_method": "fp8", "weight_block_size": null});
    refused(&fp8(whole, scales(&[2, 2])), &["[2, 2]", "scales of the whole"]);
    let bytes = || Some(Tensor::zeros(Dtype::U8, &[2, 2]));
    refused(&fp8(method(), bytes()), &["U8"]);
    let mut exponents = method();
    exponents["scale_fmt"] = json!("ue8m0");
    fp8(exponents, bytes()).model();
    fp8(method(), Some(Tensor::zeros(Dtype::F8_E8M0, &[2, 2]))).model();
    refused(&fp8(method(), Some(Tensor::zeros(Dtype::F8_E4M3, &[2, 2]))), &["no scales"]);
    for (key, value) in [
        ("weight_block_size", json!([128])),
        ("weight_block_size", json!([0, 128])),
        ("weight_block_size", json!("128")),
        ("fmt", json!("e5m2")),
        ("expert_dtype", json!("fp4")),
        ("scale_fmt", json!("ue5m3")),
    ] {
        let mut method = method();
        method[key] = value;
        refused(&fp8(method, scales(&[2, 2])), &[key]);
    }
    // Scales without their weights belong to nothing.
    let alone = Checkpoint::with_sizes(1, 64, 16)
        .config("quantization_config", method())
        .tensor(&format!("{MODULE}.weight_scale_inv"), Tensor::zeros(Dtype::F32, &[2, 2]));
    refused(&alone, &["not part of the architecture", "weight_scale_inv"]);
}

#[test]
fn a_missing_part_is_named() {
    let mut checkpoint = sound();
    checkpoint.tensors.remove(&format!("{MODULE}.biases"));
    refused(&checkpoint, &[MODULE, "biases", "missing"]);
    let mut checkpoint = sound();
    checkpoint.tensors.remove(&format!("{MODULE}.scales"));
    refused(&checkpoint, &[MODULE, "[16, 8]", "[16, 64]"]);
}

#[test]
fn bits_and_groups_that_the_weights_do_not_have_are_refused() {
    refused(&packed(json!({"bits": 8, "group_size": 32})), &[MODULE, "[16, 8]", "[16, 16]"]);
    refused(&packed(json!({"bits": 4, "group_size": 64})), &[MODULE, "[16, 2]", "[16, 1]"]);
    refused(&packed(json!({"bits": 4, "group_size": 128})), &[MODULE, "64 columns", "128"]);
}

#[test]
fn parameters_that_mlx_does_not_have_are_refused() {
    let wrong = [
        (json!({"bits": 7, "group_size": 32}), "7"),
        (json!({"bits": 0, "group_size": 32}), "bits"),
        (json!({"bits": -4, "group_size": 32}), "bits"),
        (json!({"bits": "4", "group_size": 32}), "bits"),
        (json!({"bits": 4, "group_size": 33}), "33"),
        (json!({"bits": 4, "group_size": i32::MAX}), "2147483647"),
        (json!({"mode": "mxfp3"}), "mxfp3"),
        (json!({"mode": 4}), "mode"),
        (json!({"mode": "mxfp4", "bits": 8, "group_size": 32}), "mxfp4"),
    ];
    for (quantization, part) in wrong {
        refused(&packed(quantization), &["config.json", part]);
    }
    for quantization in [json!(4), json!("awq"), json!([4])] {
        refused(&packed(quantization), &["config.json", "quantization"]);
    }
}

#[test]
fn another_mode_than_the_weights_have_is_refused() {
    refused(&packed(json!({"mode": "mxfp4", "bits": 4, "group_size": 32})), &[MODULE, "mxfp4"]);
}

#[test]
fn an_entry_of_one_module_is_checked_too() {
    let entry = |value: Value| {
        let mut quantization = json!({"bits": 4, "group_size": 32});
        quantization[MODULE] = value;
        packed(quantization)
    };
    refused(&entry(json!({"bits": 9})), &["config.json", MODULE, "9"]);
    refused(&entry(json!({"bits": 2, "group_size": 32})), &[MODULE, "[16, 8]", "[16, 4]"]);
}

#[test]
fn a_checkpoint_of_another_library_is_refused_by_its_method() {
    let other = json!({"quant_method": "bitsandbytes", "load_in_4bit": true});
    let checkpoint = Checkpoint::qwen3().config("quantization_config", other);
    refused(&checkpoint, &["config.json", "`bitsandbytes`", "awq, gptq"]);
}

#[test]
fn scales_that_are_not_numbers_are_named() {
    let scales =
        Tensor { data: f32::NAN.to_le_bytes().repeat(32), ..Tensor::zeros(Dtype::F32, &[16, 2]) };
    let checkpoint = sound().tensor(&format!("{MODULE}.scales"), scales);
    let error = checkpoint.load(&Default::default()).unwrap_err().to_string();
    assert!(error.contains(MODULE) && error.contains("not a number"), "{error}");
}
