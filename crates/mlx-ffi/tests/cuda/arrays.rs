//! Arrays of made-up values, and how near one is to another.

use mlx_ffi::{Array, Dtype, ops};

/// Values between -1 and 1 that follow from `seed`, in F32.
pub fn values(shape: &[i32], seed: u32) -> Array {
    let count = shape.iter().product::<i32>() as usize;
    let value = |i: usize| {
        let bits = (i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40_503));
        (bits.wrapping_mul(2_246_822_519) >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let values: Vec<f32> = (0..count).map(value).collect();
    Array::from_f32(&values, shape).expect("values")
}

/// `x` in `dtype`.
pub fn cast(x: &Array, dtype: Dtype) -> Array {
    ops::astype(x, dtype).expect("a cast")
}

/// `x` in F32.
pub fn wide(x: &Array) -> Array {
    cast(x, Dtype::F32)
}

/// The largest difference, as a part of the largest value.
#[track_caller]
pub fn assert_near(found: &Array, expected: &Array, bound: f32, what: &str) {
    assert_eq!(found.shape(), expected.shape(), "{what}");
    let (found, expected) = (wide(found).to_vec_f32(), expected.to_vec_f32());
    let (found, expected) = (found.expect("values"), expected.expect("values"));
    let largest = expected.iter().fold(1e-3_f32, |most, value| most.max(value.abs()));
    let pairs = || found.iter().zip(&expected);
    let worst = pairs().map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / largest;
    assert!(worst < bound && pairs().all(|(a, _)| a.is_finite()), "{what}: off by {worst}");
}
