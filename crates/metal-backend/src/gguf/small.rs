//! Tensors that are no matrices: vectors, convolutions, and what stays in F32 in files of other
//! types.

use super::reader::Stored;

/// Parts of layers that are no matrices, though their tensors may have two dimensions, and stay in
/// F32 in files of other types.
const SMALL: [&str; 9] = [
    "shortconv.conv",
    "ssm_conv1d",
    "ssm_conv1d_q",
    "ssm_conv1d_k",
    "ssm_conv1d_v",
    "ssm_a",
    "ssm_d",
    "ssm_norm",
    "ssm_dt",
];
/// Matrices that do.
pub(super) const ROUTERS: [&str; 4] =
    ["ffn_gate_inp", "ffn_gate_inp_shexp", "altup_correct_coef", "altup_predict_coef"];

/// The name of a layer's tensor without its part.
pub(super) fn module_of(tensor: &str) -> &str {
    tensor.rsplit_once('.').map_or(tensor, |(module, _)| module)
}

/// Returns true for a tensor that is no matrix, whatever its dimensions are.
pub(super) fn is_small(tensor: &str) -> bool {
    // Mamba 1 makes the steps of all channels by a matrix.
    SMALL.contains(&module_of(tensor)) && tensor != "ssm_dt.weight"
}

/// Returns true for a matrix, or one for each expert. Norms of heads may have a row for each.
pub(super) fn is_matrix(tensor: &str, stored: &Stored) -> bool {
    let is_vector = is_small(tensor) || module_of(tensor).ends_with("_norm");
    stored.shape.len() > 1 && tensor.ends_with(".weight") && !is_vector
}

/// Returns true for a tensor that is given out in F32, as it is stored, whatever the matrices are.
/// Biases have the type of their matrix, since it is that of their sums.
pub(super) fn stays_in_f32(tensor: &str) -> bool {
    const CORRECTION: &str = "exp_probs_b.bias";
    let is_bias = tensor.ends_with(".bias") && tensor != CORRECTION;
    let (module, is_weight) = (module_of(tensor), tensor.ends_with(".weight"));
    let is_vector = is_weight && (module.ends_with("norm") || ROUTERS.contains(&module));
    is_small(tensor) || !is_bias && (!is_weight || is_vector)
}

/// The shape of what is no matrix: dimensions of 1 are not counted, convolutions have each channel
/// by itself, and decays of Mamba 1 are those of each channel's state.
pub(super) fn small_shape(tensor: &str, shape: &[i32]) -> Vec<i32> {
    if tensor.starts_with("shortconv.conv") || tensor.starts_with("ssm_conv1d") {
        if !tensor.ends_with(".weight") {
            return shape.to_vec();
        }
        let [channels, taps] = match shape {
            [rows @ .., taps] => [product(rows), *taps],
            [] => [1, 1],
        };
        return vec![channels, taps, 1];
    }
    match shape {
        [_, columns] if tensor == "ssm_a" && *columns > 1 => shape.to_vec(),
        _ => vec![product(shape)],
    }
}

/// Of dimensions, whose values a file has.
fn product(shape: &[i32]) -> i32 {
    shape.iter().fold(1, |all, dim| dim.saturating_mul(all))
}
