//! Weights without meaning, for measurements and comparisons.

use mlx_ffi::{Array, Dtype, ops, random};

use crate::error::Result;

/// Every run draws the same.
const SEED: u64 = 7;

/// A tensor of at most so many values is drawn here, in place of the device: models that are as
/// small have the same weights on each device, so what devices compute of them can be compared.
const FEW: usize = 1 << 18;

/// The mean of a code of four bits.
const MEAN_CODE: f32 = 7.5;

/// A matrix or the scales of a packed one, small enough that what they multiply stays finite; a
/// norm of about ones; packed weights are random bits. A small tensor depends on its `name`.
///
/// # Errors
/// Those of MLX.
pub(crate) fn tensor(name: &str, shape: &[i32], dtype: Dtype) -> Result<Array> {
    let count = shape.iter().map(|&dim| dim as usize).product::<usize>();
    let tensor = match count <= FEW {
        true => small(name, shape, dtype)?,
        false => drawn(shape, dtype)?,
    };
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

/// A tensor whose values follow from its name.
fn small(name: &str, shape: &[i32], dtype: Dtype) -> Result<Array> {
    let count = shape.iter().map(|&dim| dim as usize).product();
    if dtype == Dtype::U32 {
        let mut bits = Bits::of(name);
        let codes: Vec<u32> = (0..count).map(|_| (bits.next() >> 32) as u32).collect();
        return Ok(Array::from_u32(&codes, shape)?);
    }
    if !dtype.is_float() {
        return drawn(shape, dtype);
    }
    // The offsets of packed codes belong to their scales.
    let (seed, factor) = match name.strip_suffix(".biases") {
        Some(module) => (format!("{module}.scales"), -MEAN_CODE),
        None => (name.to_owned(), 1.0),
    };
    let (middle, reach) = range(&seed, shape);
    let mut bits = Bits::of(&seed);
    let values: Vec<f32> =
        (0..count).map(|_| factor * (middle + reach * bits.symmetric())).collect();
    Ok(ops::astype(&Array::from_f32(&values, shape)?, dtype)?)
}

/// The middle of a tensor's values, and how far they reach from it. Activations stay near one, and
/// recurrent states remember for some positions.
fn range(name: &str, shape: &[i32]) -> (f32, f32) {
    let columns = shape.last().map_or(1.0, |&columns| columns.max(1) as f32);
    let last = name.rsplit('.').next().unwrap_or_default();
    match (last, shape.len()) {
        // As large as weights in groups of 64, of four bits each.
        ("scales", _) => {
            let scale = 1.0 / (4.6 * (64.0 * columns).sqrt());
            (scale, 0.5 * scale)
        }
        ("A_log" | "dt_bias", _) => (-1.0, 1.0),
        ("bias", 1) => (0.0, 0.2),
        (_, 0 | 1) => (1.0, 0.2),
        _ => (0.0, (3.0 / columns).sqrt()),
    }
}

/// Repeatable bits: `SplitMix64` of the FNV-1a hash of a name.
struct Bits(u64);

impl Bits {
    fn of(name: &str) -> Bits {
        let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        Bits(name.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number between -1 and 1.
    fn symmetric(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(name: &str, shape: &[i32]) -> Vec<f32> {
        tensor(name, shape, Dtype::F32).expect("a tensor").to_vec_f32().expect("floats")
    }

    #[test]
    fn small_tensors_follow_from_their_names() {
        let one = values("layers.0.q_proj.weight", &[8, 16]);
        assert_eq!(one, values("layers.0.q_proj.weight", &[8, 16]));
        assert_ne!(one, values("layers.1.q_proj.weight", &[8, 16]));
        let most = (3.0f32 / 16.0).sqrt();
        assert!(one.iter().all(|value| value.abs() <= most), "{one:?}");
        assert!(one.iter().any(|value| *value > 0.5 * most) && one.iter().any(|v| *v < 0.0));
        assert!(values("norm.weight", &[64]).iter().all(|value| (0.8..=1.2).contains(value)));
    }

    #[test]
    fn packed_codes_have_the_middle_zero() {
        let scales = values("q_proj.scales", &[4, 2]);
        let offsets = values("q_proj.biases", &[4, 2]);
        for (scale, offset) in scales.iter().zip(&offsets) {
            assert!(*scale > 0.0 && (offset + MEAN_CODE * scale).abs() < 1e-6);
        }
    }
}
