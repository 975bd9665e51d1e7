//! Numbers as they lie in buffers.

use cpu_kernels::Dtype;
use half::{bf16, f16};

/// The next number of a sequence, from −1 to 1.
pub fn random(state: &mut u64) -> f32 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as f32 / (1u64 << 30) as f32 - 1.0
}

/// Appends a number as an element.
pub fn push(dtype: Dtype, to: &mut Vec<u8>, value: f32) {
    match dtype {
        Dtype::F32 => to.extend(value.to_le_bytes()),
        Dtype::F16 => to.extend(f16::from_f32(value).to_le_bytes()),
        Dtype::Bf16 => to.extend(bf16::from_f32(value).to_le_bytes()),
    }
}

/// An element.
pub fn value(dtype: Dtype, data: &[u8], index: usize) -> f64 {
    let bytes = &data[index * dtype.size()..];
    match dtype {
        Dtype::F32 => f64::from(f32::from_le_bytes(bytes[..4].try_into().expect("four"))),
        Dtype::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
        Dtype::Bf16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
    }
}
