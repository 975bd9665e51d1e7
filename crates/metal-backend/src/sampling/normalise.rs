//! Logits to log probabilities.

use mlx_ffi::{Array, Result, on_cpu, ops};

/// Values of which a CPU adds up the exponentials one after the other. Sums of more lose digits: of
/// 262,144 values, MLX's own sum on a CPU is off by up to 1.4e-3.
const BLOCK: i32 = 64;

/// Logits `[…, vocab_size]` to log probabilities.
///
/// # Errors
/// Those of MLX.
pub(crate) fn normalise(logits: &Array) -> Result<Array> {
    ops::subtract(logits, &log_sum(logits)?)
}

/// `ln Σ e^logit` along the last axis, which stays with one value. On a CPU, sums of blocks are
/// summed; a GPU does so by itself.
///
/// # Errors
/// Those of MLX.
pub(crate) fn log_sum(logits: &Array) -> Result<Array> {
    match on_cpu()? {
        true => in_blocks(logits),
        false => ops::logsumexp(logits, -1, true),
    }
}

fn in_blocks(values: &Array) -> Result<Array> {
    let Some((&size, rows)) = values.shape().split_last() else {
        return ops::logsumexp(values, -1, true);
    };
    if size <= BLOCK {
        return ops::logsumexp(values, -1, true);
    }
    let blocks = size / BLOCK;
    let whole = ops::slice_axis(values, -1, 0, blocks * BLOCK)?;
    let whole = ops::reshape(&whole, &[rows, &[blocks, BLOCK]].concat())?;
    let sums = ops::logsumexp(&whole, -1, false)?;
    if blocks * BLOCK == size {
        return in_blocks(&sums);
    }
    let rest = ops::slice_axis(values, -1, blocks * BLOCK, size)?;
    in_blocks(&ops::concatenate(&[&sums, &ops::logsumexp(&rest, -1, true)?], -1)?)
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{Device, use_device};

    use super::*;

    /// A vocabulary of logits in no order, most of them small.
    fn logits(size: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 40) as f32 / (1_u32 << 24) as f32) * 8.0 - 6.0
        };
        (0..size).map(next).collect()
    }

    #[test]
    fn log_probabilities_of_large_vocabularies_are_those_of_sums_in_f64() {
        use_device(Device::Cpu).expect("a CPU");
        for size in [1, 63, 64, 65, 1000, 49_152, 151_936, 200_003, 262_144] {
            let rows = [logits(size, 1), logits(size, 2)];
            let all = Array::from_f32(&rows.concat(), &[2, size as i32]).expect("logits");
            let found = log_sum(&all).expect("lazy");
            assert_eq!(found.shape(), [2, 1]);
            for (row, found) in rows.iter().zip(found.to_vec_f32().expect("a value of each row")) {
                let sum: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
                let off = (f64::from(found) - sum.ln()).abs();
                assert!(off < 4e-6, "{size} ids: {off:e}");
            }
        }
    }
}
