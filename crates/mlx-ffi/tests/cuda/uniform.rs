//! Arrays of values between -1 and 1, of a seed.

use mlx_ffi::{Array, Dtype, ops};

/// Values between -1 and 1.
pub fn floats(count: usize, seed: u32) -> Vec<f32> {
    let value = |i: usize| {
        let bits = (i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40_503));
        let bits = (bits ^ bits >> 15).wrapping_mul(2_246_822_519);
        ((bits ^ bits >> 13) >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(value).collect()
}

/// Such an array of `shape`.
pub fn values(shape: &[i32], seed: u32, dtype: Dtype) -> Array {
    let count = shape.iter().product::<i32>() as usize;
    let array = Array::from_f32(&floats(count, seed), shape).expect("values");
    ops::astype(&array, dtype).expect("a cast")
}

/// `x` in F32.
pub fn wide(x: &Array) -> Array {
    ops::astype(x, Dtype::F32).expect("a cast")
}
