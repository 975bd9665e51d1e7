//! Weights without meaning, for measurements.

use mlx_ffi::{Array, Dtype, ops, random};

use crate::error::Result;

/// Every run draws the same.
const SEED: u64 = 7;

/// A matrix or the scales of a packed one, small enough that what they multiply stays finite; a
/// norm of ones; packed weights are random bits.
///
/// # Errors
/// Those of MLX.
pub(crate) fn tensor(shape: &[i32], dtype: Dtype) -> Result<Array> {
    let tensor = drawn(shape, dtype)?;
    // They lie in memory as weights that are read.
    tensor.use_large_pages()?;
    Ok(tensor)
}

fn drawn(shape: &[i32], dtype: Dtype) -> Result<Array> {
    if !dtype.is_float() {
        if dtype == Dtype::U32 {
            return Ok(random::bits(shape, &random::key(SEED)?)?);
        }
        // As an exponent of two, where 127 is the factor 1, or as a small number of eight bits.
        return Ok(ops::add(&ops::zeros(shape, dtype)?, &Array::scalar(120.0, dtype)?)?);
    }
    Ok(match shape {
        [.., columns] if shape.len() > 1 => {
            let key = random::key(SEED)?;
            let deviation = Array::scalar(0.125 / (*columns as f32).sqrt(), dtype)?;
            ops::multiply(&random::normal(shape, dtype, &key)?, &deviation)?
        }
        _ => ops::add(&ops::zeros(shape, dtype)?, &Array::scalar(1.0, dtype)?)?,
    })
}
