//! The most likely ids of logits that several ranks compute.

use mlx_ffi::{Array, Dtype, Indices, Result, ops};

use crate::sampling::log_sum;

/// Ids up to which each is a number of F32, as ranks send them.
pub(super) const MOST_IDS: i32 = 1 << 24;

/// The most likely ids of each row with their log probabilities, in no order.
#[derive(Debug)]
pub(crate) struct TopLogits {
    /// `[rows, n]`; each id at most once.
    ids: Indices,
    /// `[rows, n]`, F32.
    logprobs: Array,
    vocab_size: i32,
}

impl TopLogits {
    /// The log probabilities of all ids, `[rows, vocab_size]`: of those that are not here, as if
    /// they were impossible.
    pub fn spread(&self) -> Result<Array> {
        let lowest = Array::scalar(f32::NEG_INFINITY, Dtype::F32)?;
        let none = ops::broadcast_to(&lowest, &[self.logprobs.rows(), self.vocab_size])?;
        ops::put_along_axis(&none, &self.ids, &self.logprobs, -1)
    }

    /// The log probabilities: evaluating them completes the exchange between ranks.
    pub fn exchanged(&self) -> Result<Array> {
        self.logprobs.share()
    }

    /// Of what `ranks` ranks sent, [`own_top`] of each: `[ranks, rows, 2 * count + 1]`.
    pub(super) fn of_sent(sent: &Array, vocab_size: i32) -> Result<TopLogits> {
        let [_, rows, width] = sent.dims()?;
        let count = width / 2;
        let total = ops::logsumexp(&ops::slice_axis(sent, 2, 2 * count, width)?, 0, false)?;
        // [ranks, rows, count] -> [rows, ranks * count]
        let of_rows = |first: i32| {
            let part = ops::swap_axes(&ops::slice_axis(sent, 2, first, first + count)?, 0, 1)?;
            ops::reshape(&part, &[rows, -1])
        };
        let logprobs = ops::subtract(&of_rows(0)?, &total)?;
        let ids = Indices::bounded(&of_rows(count)?, vocab_size as usize)?;
        Ok(TopLogits { ids, logprobs, vocab_size })
    }
}

/// The most likely ids of one rank, as it sends them, of its logits `own`, `[rows, ids]`, of the
/// ids from `first` on. For each row: the `count` largest values, their ids, and the logarithm of
/// the sum of all exponentials; `[1, rows, 2 * count + 1]`, F32.
pub(super) fn own_top(own: &Array, first: i32, count: i32) -> Result<Array> {
    let own = ops::astype(own, Dtype::F32)?;
    let order = ops::argpartition(&ops::negative(&own)?, count - 1, -1)?;
    let places = order.slice_axis(-1, 0, count)?;
    let values = ops::take_along_axis(&own, &places, -1)?;
    let ids = ops::astype(&places, Dtype::F32)?;
    let ids = ops::add(&ids, &Array::scalar(first as f32, Dtype::F32)?)?;
    let total = log_sum(&own)?;
    ops::expand_dims(&ops::concatenate(&[&values, &ids, &total], 1)?, 0)
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{Device, use_device};

    use super::*;

    #[test]
    fn the_most_likely_ids_of_all_ranks_have_their_log_probabilities() {
        use_device(Device::Cpu).expect("a CPU");
        let all: Vec<f32> =
            (0..20).map(|at| ((at * 7) % 10) as f32 / 3.0 - at as f32 / 50.0).collect();
        let logits = Array::from_f32(&all, &[2, 10]).expect("logits");
        let part = |from: i32, end: i32| {
            let own = ops::slice_axis(&logits, 1, from, end).expect("within");
            own_top(&own, from, 3).expect("lazy")
        };
        let sent = ops::concatenate(&[&part(0, 6), &part(6, 10)], 0).expect("lazy");
        let top = TopLogits::of_sent(&sent, 10).expect("lazy").spread().expect("lazy");
        let logprobs = ops::subtract(&logits, &ops::logsumexp(&logits, -1, true).expect("lazy"));
        let expected = logprobs.expect("lazy").to_vec_f32().expect("values");
        let found = top.to_vec_f32().expect("values");
        for (row, (found, expected)) in found.chunks(10).zip(expected.chunks(10)).enumerate() {
            let mut order: Vec<usize> = (0..10).collect();
            order.sort_by(|a, b| expected[*b].total_cmp(&expected[*a]));
            for id in &order[..3] {
                assert!((found[*id] - expected[*id]).abs() < 1e-5, "row {row}, id {id}");
            }
            assert_eq!(found.iter().filter(|value| value.is_finite()).count(), 6);
        }
    }
}
