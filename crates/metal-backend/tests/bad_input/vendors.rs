//! Vendors' packings whose configs and tensors contradict each other.

use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use crate::refused;
use crate::tiny::{Checkpoint, Tensor};

const MODULE: &str = "model.layers.0.mlp.gate_proj";

/// A part of a module: its name, type and shape.
type Part<'a> = (&'a str, Dtype, &'a [usize]);

/// A checkpoint whose `gate_proj`, `[16, 64]`, consists of these zeros.
fn packed(config: Value, parts: &[Part<'_>]) -> Checkpoint {
    let mut checkpoint = Checkpoint::with_sizes(1, 64, 16).config("quantization_config", config);
    checkpoint.tensors.remove(&format!("{MODULE}.weight"));
    for (name, dtype, shape) in parts {
        let tensor = match *name {
            // Columns in turn, and the sizes of the matrix.
            "g_idx" | "weight_g_idx" if *dtype == Dtype::I32 => {
                of_numbers((0..64).map(|column| column / 32), shape)
            }
            "weight_shape" => {
                let bytes = [16_i64, 64].iter().flat_map(|size| size.to_le_bytes());
                let data = bytes.take(shape.iter().product::<usize>() * 8).collect();
                Tensor { dtype: *dtype, shape: shape.to_vec(), data }
            }
            _ => Tensor::zeros(*dtype, shape),
        };
        checkpoint = checkpoint.tensor(&format!("{MODULE}.{name}"), tensor);
    }
    checkpoint
}

fn of_numbers(numbers: impl Iterator<Item = i32>, shape: &[usize]) -> Tensor {
    let data: Vec<u8> = numbers.flat_map(i32::to_le_bytes).collect();
    let size = shape.iter().product::<usize>() * 4;
    let data = data.into_iter().chain(std::iter::repeat(0)).take(size).collect();
    Tensor { dtype: Dtype::I32, shape: shape.to_vec(), data }
}

const GPTQ: [Part<'static>; 4] = [
    ("qweight", Dtype::I32, &[8, 16]),
    ("qzeros", Dtype::I32, &[2, 2]),
    ("scales", Dtype::F16, &[2, 16]),
    ("g_idx", Dtype::I32, &[64]),
];
const AWQ: [Part<'static>; 3] = [
    ("qweight", Dtype::I32, &[64, 2]),
    ("qzeros", Dtype::I32, &[2, 2]),
    ("scales", Dtype::F16, &[2, 16]),
];
const COMPRESSED: [Part<'static>; 3] = [
    ("weight_packed", Dtype::I32, &[16, 8]),
    ("weight_scale", Dtype::BF16, &[16, 2]),
    ("weight_shape", Dtype::I64, &[2]),
];
const BYTES: [Part<'static>; 2] =
    [("weight", Dtype::I8, &[16, 64]), ("weight_scale", Dtype::BF16, &[16, 1])];
const NVFP4: [Part<'static>; 3] = [
    ("weight", Dtype::U8, &[16, 32]),
    ("weight_scale", Dtype::F8_E4M3, &[16, 4]),
    ("weight_scale_2", Dtype::F32, &[]),
];

fn gptq() -> Value {
    json!({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": false})
}

fn awq() -> Value {
    json!({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"})
}

fn compressed() -> Value {
    let weights = json!({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32});
    json!({"quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}, "ignore": ["lm_head"]})
}

fn bytes() -> Value {
    let weights = json!({"num_bits": 8, "type": "int", "strategy": "channel"});
    json!({"quant_method": "compressed-tensors", "format": "int-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}})
}

fn nvfp4() -> Value {
    json!({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "model.embed*"]})
}

/// `config` with this value at the path of a key.
fn with(mut config: Value, path: &str, value: Value) -> Value {
    *config.pointer_mut(path).unwrap_or_else(|| panic!("no {path}")) = value;
    config
}

/// `config` with one more key.
fn and(mut config: Value, key: &str, value: Value) -> Value {
    config[key] = value;
    config
}

#[test]
fn the_packed_checkpoints_are_sound() {
    for (config, parts) in [
        (gptq(), &GPTQ[..]),
        (gptq(), &GPTQ[..3]),
        (awq(), &AWQ[..]),
        (compressed(), &COMPRESSED[..]),
        (compressed(), &COMPRESSED[..2]),
        (bytes(), &BYTES[..]),
        (nvfp4(), &NVFP4[..]),
        (and(gptq(), "dynamic", json!({"+:.*gate.*": {"bits": 8}})), &GPTQ[..]),
    ] {
        packed(config, parts).model();
    }
}

#[test]
fn a_tensor_of_another_type_or_shape_is_named_with_the_config() {
    let cases: [(Value, &[Part<'_>], &[Part<'_>]); 5] = [
        (
            gptq(),
            &GPTQ,
            &[
                ("qweight", Dtype::F16, &[8, 16]),
                ("qweight", Dtype::I32, &[7, 16]),
                ("qweight", Dtype::I32, &[8]),
                ("qweight", Dtype::I32, &[0, 16]),
                ("qweight", Dtype::I32, &[8, 15]),
                ("qzeros", Dtype::I32, &[2, 3]),
                ("qzeros", Dtype::I64, &[2, 2]),
                ("qzeros", Dtype::I32, &[1, 2]),
                ("scales", Dtype::F16, &[2, 15]),
                ("scales", Dtype::F16, &[3, 16]),
                ("scales", Dtype::I32, &[2, 16]),
                ("scales", Dtype::F8_E4M3, &[2, 16]),
                ("scales", Dtype::F16, &[32]),
                ("g_idx", Dtype::I32, &[63]),
                ("g_idx", Dtype::F16, &[64]),
            ],
        ),
        (
            awq(),
            &AWQ,
            &[
                ("qweight", Dtype::I32, &[64, 3]),
                ("qweight", Dtype::U8, &[64, 2]),
                ("qweight", Dtype::I32, &[60, 2]),
                ("qzeros", Dtype::I32, &[2, 1]),
                ("qzeros", Dtype::F16, &[2, 2]),
                ("scales", Dtype::F16, &[2, 17]),
                ("scales", Dtype::F16, &[100, 16]),
            ],
        ),
        (
            compressed(),
            &COMPRESSED,
            &[
                ("weight_packed", Dtype::I32, &[16, 7]),
                ("weight_packed", Dtype::I32, &[15, 8]),
                ("weight_packed", Dtype::F16, &[16, 8]),
                ("weight_packed", Dtype::I32, &[16, 32]),
                ("weight_scale", Dtype::BF16, &[16, 3]),
                ("weight_scale", Dtype::I32, &[16, 2]),
                ("weight_scale", Dtype::BF16, &[15, 2]),
                ("weight_scale", Dtype::BF16, &[32]),
                ("weight_shape", Dtype::I64, &[1]),
                ("weight_zero_point", Dtype::I32, &[16, 2]),
                ("weight_zero_point", Dtype::I8, &[2, 2]),
                ("weight_g_idx", Dtype::I32, &[65]),
            ],
        ),
        (
            bytes(),
            &BYTES,
            &[
                ("weight", Dtype::I32, &[16, 64]),
                ("weight", Dtype::I8, &[16, 0]),
                ("weight_scale", Dtype::BF16, &[17, 1]),
                ("weight_scale", Dtype::I8, &[16, 1]),
                ("weight_zero_point", Dtype::I8, &[15, 1]),
                ("weight_zero_point", Dtype::F16, &[16, 1]),
            ],
        ),
        (
            nvfp4(),
            &NVFP4,
            &[
                ("weight_scale", Dtype::F8_E4M3, &[16, 5]),
                ("weight_scale", Dtype::F32, &[16, 4]),
                ("weight_scale", Dtype::F8_E4M3, &[15, 4]),
                ("weight_scale", Dtype::U8, &[16, 4]),
                ("weight_scale_2", Dtype::F32, &[2]),
                ("weight_scale_2", Dtype::I32, &[]),
            ],
        ),
    ];
    let mut tried = 0;
    for (config, sound, wrong) in cases {
        for one in wrong {
            let others = sound.iter().filter(|(name, ..)| *name != one.0);
            let parts: Vec<Part<'_>> = others.chain([one]).copied().collect();
            println!("{one:?}");
            refused(&packed(config.clone(), &parts), &[MODULE]);
            tried += 1;
        }
        for at in 0..sound.len() {
            let (missing, ..) = sound[at];
            if matches!(missing, "g_idx" | "weight_shape") {
                continue;
            }
            let left: Vec<Part<'_>> =
                sound.iter().filter(|(name, ..)| *name != missing).copied().collect();
            println!("without {missing}");
            refused(&packed(config.clone(), &left), &[MODULE]);
            tried += 1;
        }
    }
    assert!(tried > 50, "{tried}");
}

#[test]
fn a_config_that_says_something_else_is_named_with_its_key() {
    let weights = "/config_groups/group_0/weights";
    let cases: [(Value, &[Part<'_>], &[&str]); 22] = [
        (with(gptq(), "/bits", json!(8)), &GPTQ, &[MODULE, "4 bits", "[8]"]),
        (with(gptq(), "/bits", json!("four")), &GPTQ, &["`bits`", "four"]),
        (with(gptq(), "/group_size", json!(16)), &GPTQ, &[MODULE, "32 columns", "16"]),
        (with(gptq(), "/group_size", json!(-1)), &GPTQ, &[MODULE, "32 columns", "a row"]),
        (with(gptq(), "/group_size", json!(-2)), &GPTQ, &["`group_size`", "-2"]),
        (
            and(gptq(), "checkpoint_format", json!("marlin")),
            &GPTQ,
            &["checkpoint_format", "marlin"],
        ),
        (and(gptq(), "is_marlin_format", json!(true)), &GPTQ, &["is_marlin_format"]),
        (and(gptq(), "pack_dtype", json!("int64")), &GPTQ, &["pack_dtype", "int64"]),
        (with(awq(), "/bits", json!(8)), &AWQ, &["`bits`", "8"]),
        (with(awq(), "/group_size", json!(64)), &AWQ, &[MODULE, "32 columns", "64"]),
        (with(awq(), "/version", json!("gemv")), &AWQ, &["`version`", "gemv", "gemm"]),
        (and(awq(), "modules_to_not_convert", json!(["gate_proj"])), &AWQ, &[MODULE, "gate_proj"]),
        (awq(), &GPTQ, &[MODULE]),
        (gptq(), &AWQ, &[MODULE]),
        (
            with(compressed(), &format!("{weights}/num_bits"), json!(8)),
            &COMPRESSED,
            &[MODULE, "4 bits", "[8]"],
        ),
        (
            with(compressed(), &format!("{weights}/group_size"), json!(64)),
            &COMPRESSED,
            &[MODULE, "32 columns", "64"],
        ),
        (
            with(compressed(), &format!("{weights}/strategy"), json!("channel")),
            &COMPRESSED,
            &[MODULE, "a row"],
        ),
        (
            with(compressed(), "/format", json!("marlin-24")),
            &COMPRESSED,
            &["`format`", "marlin-24"],
        ),
        (with(compressed(), "/ignore", json!([MODULE])), &COMPRESSED, &[MODULE, "unpacked"]),
        (
            and(compressed(), "sparsity_config", json!({"format": "sparse-24-bitmask"})),
            &COMPRESSED,
            &["sparse-24-bitmask"],
        ),
        (
            and(compressed(), "transform_config", json!({"config_groups": {}})),
            &COMPRESSED,
            &["transform_config"],
        ),
        (with(nvfp4(), "/quant_algo", json!("W4A8_AWQ")), &NVFP4, &["quant_algo", "W4A8_AWQ"]),
    ];
    for (config, parts, said) in cases {
        refused(&packed(config, parts), &[&["config.json"], said].concat());
    }
}

#[test]
fn columns_of_groups_that_are_not_there_are_refused() {
    let mut checkpoint = packed(and(gptq(), "desc_act", json!(true)), &GPTQ);
    let name = format!("{MODULE}.g_idx");
    for wrong in [2, -1, i32::MAX] {
        let order = of_numbers((0..64).map(|at| if at == 40 { wrong } else { 0 }), &[64]);
        checkpoint = checkpoint.tensor(&name, order);
        refused(&checkpoint, &[&name, "2"]);
    }
}
