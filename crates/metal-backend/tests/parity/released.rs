//! Experts released as floats of 8 bits with scales compute what the numbers compute that they
//! stand for.

use std::fs;

use inference_core::{CancelToken, Dtype, LoadOptions};
use metal_backend::{QuantiseOptions, packing, quantise};
use safetensors::Dtype as Stored;
use serde_json::{Value as Json, json};

use crate::fixtures::{Bytes, Checkpoint, Tensor, first_logits, greedy, run, token_ids};

/// How a release has its scales.
#[derive(Clone, Copy)]
struct Form {
    /// Rows and columns that share one; all of a matrix do where it is absent.
    block: Option<[usize; 2]>,
    /// The type of the scales: F32, or exponents of two.
    scales: Stored,
    /// Experts in one tensor have a list of scales.
    has_lists: bool,
}

const BLOCKS: Form = Form { block: Some([16, 40]), scales: Stored::F32, has_lists: false };
const EXPONENTS: Form = Form { scales: Stored::F8_E8M0, ..BLOCKS };

/// Returns true for a tensor that releases have as floats of 8 bits.
fn is_packed(Tensor { name, shape, .. }: &Tensor) -> bool {
    let parts = ["_proj", ".w1.", ".w2.", ".w3."];
    shape.len() > 1 && !name.contains("visual") && parts.iter().any(|part| name.contains(part))
}

/// Returns the value of a byte as a float with 4 bits of exponent and 3 of mantissa.
fn e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let size = match exponent {
        0 => mantissa / 8.0 * 2f32.powi(-6),
        _ => (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7),
    };
    if byte < 128 { size } else { -size }
}

/// The byte whose float is next to `value`.
fn nearest(value: f32, sizes: &[f32]) -> u8 {
    let above = sizes.partition_point(|&size| size < value.abs()).min(sizes.len() - 1);
    let below = above.saturating_sub(1);
    let is_below = value.abs() - sizes[below] < sizes[above] - value.abs();
    (if is_below { below } else { above }) as u8 | if value < 0.0 { 128 } else { 0 }
}

/// A tensor as floats of 8 bits, their scales, and what both stand for.
fn packed(tensor: &Tensor, form: Form) -> (Vec<Bytes>, Tensor) {
    let sizes: Vec<f32> = (0..127).map(e4m3).collect();
    let [leading @ .., rows, columns] = &tensor.shape[..] else { panic!("matrices") };
    let [of_rows, of_columns] = form.block.unwrap_or([*rows, *columns]);
    let grid = [rows.div_ceil(of_rows), columns.div_ceil(of_columns)];
    let matrices: usize = leading.iter().product();
    let place = |index: usize| {
        let (row, column) = (index / columns % rows, index % columns);
        let matrix = index / (rows * columns);
        (matrix * grid[0] + row / of_rows) * grid[1] + column / of_columns
    };
    let mut most = vec![0f32; matrices * grid[0] * grid[1]];
    for (index, value) in tensor.values.iter().enumerate() {
        most[place(index)] = most[place(index)].max(value.abs());
    }
    let exponent = |most: f32| (most / 448.0).log2().ceil() as i32;
    let is_exponent = form.scales == Stored::F8_E8M0;
    let scale = |most: &f32| if is_exponent { 2f32.powi(exponent(*most)) } else { most / 448.0 };
    let scales: Vec<f32> = most.iter().map(scale).collect();
    let scale_bytes = match is_exponent {
        true => most.iter().map(|&most| (exponent(most) + 127) as u8).collect(),
        false => scales.iter().flat_map(|scale| scale.to_le_bytes()).collect(),
    };
    let scale = |index| scales[place(index)];
    let values = tensor.values.iter().enumerate();
    let bytes: Vec<u8> = values.map(|(i, value)| nearest(value / scale(i), &sizes)).collect();
    let values = bytes.iter().enumerate().map(|(i, &byte)| e4m3(byte) * scale(i)).collect();
    let own_shape = match form.has_lists && !leading.is_empty() {
        true => leading.to_vec(),
        false => [leading, &grid].concat(),
    };
    let (name, shape) = (tensor.name.clone(), tensor.shape.clone());
    let scale_name = format!("{name}_scale_inv");
    let scales =
        Bytes { name: scale_name, dtype: form.scales, shape: own_shape, bytes: scale_bytes };
    let weight = Bytes { name: name.clone(), dtype: Stored::F8_E4M3, shape: shape.clone(), bytes };
    (vec![weight, scales], Tensor { name, shape, values })
}

/// The checkpoint `name` as `form` releases it, and with the numbers that it stands for.
fn both(name: &str, form: Form, more: &Json) -> [Checkpoint; 2] {
    let released = Checkpoint::new(name).with_bytes(|tensor| match is_packed(&tensor) {
        true => packed(&tensor, form).0,
        false => vec![tensor.in_f32()],
    });
    let mut config = released.config();
    let mut method = json!({"quant_method": "fp8", "weight_block_size": form.block});
    method.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    config["quantization_config"] = method;
    let plain = Checkpoint::new(name).with_tensors(|tensor| match is_packed(&tensor) {
        true => vec![packed(&tensor, form).1],
        false => vec![tensor],
    });
    [released.with_config(&config), plain]
}

fn compute_the_same(name: &str, form: Form, more: &Json) {
    let both = both(name, form, more);
    let prompt: Vec<u32> = (0..40).map(|i| 3 + i * 37 % 500).collect();
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let options = || LoadOptions { dtype: Some(dtype), ..LoadOptions::default() };
        let [released, plain] = both.each_ref().map(|checkpoint| checkpoint.load_native(options()));
        assert_eq!(released.info().weight_bytes, plain.info().weight_bytes, "{name} {dtype:?}");
        let [found, expected] = [&released, &plain].map(|model| first_logits(&**model, &prompt));
        assert_eq!(found, expected, "{name} {dtype:?}");
        let tokens = [&released, &plain].map(|m| token_ids(&run(&**m, &prompt, &greedy(24))));
        assert_eq!(tokens[0], tokens[1], "{name} {dtype:?}");
    }
}

#[test]
fn experts_with_a_tensor_each_and_exponents_of_two() {
    compute_the_same("deepseek_v3", EXPONENTS, &json!({"fmt": "e4m3", "scale_fmt": "ue8m0"}));
}

#[test]
fn experts_with_a_tensor_each_and_floats() {
    compute_the_same("minimax_m2", BLOCKS, &json!({"fmt": "float8_e4m3fn"}));
}

#[test]
fn experts_in_one_tensor() {
    compute_the_same("qwen3_5_moe", BLOCKS, &json!({}));
    compute_the_same("qwen3_5_moe", EXPONENTS, &json!({}));
}

#[test]
fn experts_in_one_tensor_whose_rows_are_inputs() {
    compute_the_same("qwen3_vl_moe", BLOCKS, &json!({}));
}

#[test]
fn one_scale_for_each_expert() {
    let whole = Form { block: None, ..BLOCKS };
    compute_the_same("qwen3_5_moe", whole, &json!({}));
    compute_the_same("qwen3_5_moe", Form { has_lists: true, ..whole }, &json!({}));
}

#[test]
fn exponents_of_two_are_packed_anew() {
    let options = QuantiseOptions {
        default: packing("affine", Some(8), Some(32)).unwrap(),
        recipe: None,
        rules: Vec::new(),
        keep_vision: false,
        dtype: Some("bf16".parse().unwrap()),
        backend: Some("cpu".into()),
    };
    metal_backend::register().unwrap();
    let [found, expected] = both("qwen3_5_moe", EXPONENTS, &json!({})).map(|checkpoint| {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("made");
        quantise(checkpoint.folder(), &target, &options, &CancelToken::new(), &mut |_, _| {})
            .unwrap();
        fs::read(target.join("model.safetensors")).unwrap()
    });
    assert!(found == expected, "the weights differ");
}
