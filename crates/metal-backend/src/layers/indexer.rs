//! An index of keys: which ones each position attends to.

use mlx_ffi::{Array, Dtype, Result, ops};

use super::{LayerNorm, Linear, Positions, Rope, Workspace};

/// Heads whose scores are computed together.
const TOGETHER: i32 = 8;

/// Which of the keys that a position may see it attends to.
#[derive(Debug)]
pub(crate) enum KeyChoice {
    /// All.
    All,
    /// The best of an index of its own.
    Indexed(Box<Indexer>),
    /// Those that the last layer with an index chose.
    Last,
}

/// The lightning indexer (DeepSeek V3.2): small heads that score each key for each position. Of
/// these the best are attended to.
#[derive(Debug)]
pub(crate) struct Indexer {
    pub heads: i32,
    /// Values of a head, and of a key.
    pub dim: i32,
    /// The first of these, which see positions.
    pub rope_dims: i32,
    /// Keys that a position attends to at most.
    pub most: i32,
    /// From the low rank of attention's queries to those of all heads.
    pub queries: Linear,
    /// From `hidden_size` to a key.
    pub keys: Linear,
    pub key_norm: LayerNorm,
    /// From `hidden_size` to a factor for each head.
    pub weights: Linear,
    pub rope: Rope,
}

/// The question of some positions to an index.
#[derive(Debug)]
pub(crate) struct Search {
    /// `[b, heads, l, dim]` F32.
    queries: Array,
    /// `[b, heads, l, 1]` F32.
    weights: Array,
    /// The keys of these positions, `[b, 1, l, dim]`.
    pub keys: Array,
    most: i32,
}

impl Indexer {
    /// The question of the positions of `x`, `[b, l, hidden_size]`, whose queries have this `low`
    /// rank.
    pub fn search(&self, x: &Array, low: &Array, positions: &mut Positions) -> Result<Search> {
        let Indexer { heads, dim, most, .. } = *self;
        let [b, l, _] = x.dims()?;
        let queries = ops::reshape(&self.queries.forward(low)?, &[b, l, heads, dim])?;
        let queries = self.turned(&ops::swap_axes(&queries, 1, 2)?, positions)?;
        let keys = self.key_norm.forward(&self.keys.forward(x)?)?;
        let keys = self.turned(&ops::expand_dims(&keys, 1)?, positions)?;
        let weights = ops::astype(&self.weights.forward(x)?, Dtype::F32)?;
        // Both factors are above 0, so that they pass what cuts scores at 0.
        let factor = (heads as f32 * dim as f32).sqrt().recip();
        let weights = ops::multiply(&weights, &Array::scalar(factor, Dtype::F32)?)?;
        let weights = ops::expand_dims(&ops::swap_axes(&weights, 1, 2)?, -1)?;
        Ok(Search { queries: ops::astype(&queries, Dtype::F32)?, weights, keys, most })
    }

    /// `x`, `[b, n, l, dim]`, at these positions.
    fn turned(&self, x: &Array, positions: &mut Positions) -> Result<Array> {
        let Indexer { dim, rope_dims, .. } = *self;
        let turned = self.rope.forward(&ops::slice_axis(x, -1, 0, rope_dims)?, positions)?;
        ops::concatenate(&[&turned, &ops::slice_axis(x, -1, rope_dims, dim)?], -1)
    }

    /// Values of one position: queries and keys, before and after their rotation, and in F32.
    pub fn activations(&self) -> u64 {
        4 * (self.heads as u64 + 1) * (self.dim as u64 + 1)
    }

    /// Bytes of one query's scores for one key: of some heads together, and of their sums.
    pub fn score_bytes(&self) -> u64 {
        4 * (3 * TOGETHER as u64 + 4)
    }

    /// Bytes that its products take.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        let projections = [&self.queries, &self.keys, &self.weights];
        let none = Workspace::default();
        projections.into_iter().fold(none, |all, linear| all.then(linear.workspace(dtype)))
    }
}

impl Search {
    /// The keys that are attended to, of `keys`, `[b, 1, n, dim]`, of which those are visible that
    /// `seen`, `[b or 1, 1, l, n]`, has: `[b, 1, l, n]`. `None`: all that are visible.
    pub fn choose(&self, keys: &Array, seen: Option<&Array>) -> Result<Option<Array>> {
        let [b, heads, l, _] = self.queries.dims()?;
        let [_, _, n, _] = keys.dims()?;
        if n <= self.most {
            return Ok(None);
        }
        let keys = ops::swap_axes(&ops::astype(keys, Dtype::F32)?, -1, -2)?;
        let zero = Array::scalar(0.0, Dtype::F32)?;
        let mut scores: Option<Array> = None;
        for first in (0..heads).step_by(TOGETHER as usize) {
            let some = |of: &Array| ops::slice_axis(of, 1, first, heads.min(first + TOGETHER));
            let found = ops::maximum(&ops::matmul(&some(&self.queries)?, &keys)?, &zero)?;
            let found = ops::multiply(&found, &some(&self.weights)?)?;
            let found = ops::sum(&found, 1, true)?;
            scores = Some(match scores {
                None => found,
                Some(scores) => ops::add(&scores, &found)?,
            });
        }
        let scores = scores.ok_or_else(|| mlx_ffi::Error::new("an index without heads"))?;
        let scores = match seen {
            None => scores,
            Some(seen) => {
                let never = Array::scalar(f32::NEG_INFINITY, Dtype::F32)?;
                ops::where_(seen, &scores, &never)?
            }
        };
        let first = n - self.most;
        let best = ops::argpartition(&scores, first, -1)?.slice_axis(-1, first, n)?;
        let one = ops::broadcast_to(&Array::scalar(1.0, Dtype::F32)?, &[b, 1, l, self.most])?;
        let none = ops::zeros(&[b, 1, l, n], Dtype::F32)?;
        let chosen = ops::greater(&ops::put_along_axis(&none, &best, &one, -1)?, &zero)?;
        match seen {
            None => Ok(Some(chosen)),
            Some(seen) => ops::logical_and(&chosen, seen).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{Device, use_device};

    use super::*;

    #[test]
    fn a_position_attends_to_the_best_of_the_keys_that_it_sees() {
        use_device(Device::Cpu).unwrap();
        let array = |values: &[f32], shape: &[i32]| Array::from_f32(values, shape).unwrap();
        // Two heads of one value: what they score is cut at 0 and weighed.
        let search = Search {
            queries: array(&[1.0, 1.0, -1.0, -1.0], &[1, 2, 2, 1]),
            weights: array(&[1.0, 1.0, 0.5, -1.0], &[1, 2, 2, 1]),
            keys: array(&[0.0, 0.0], &[1, 1, 2, 1]),
            most: 2,
        };
        // Scores of the first position: 3, 1, 0.5, 4; of the second: 3, 1, -1, 4.
        let keys = array(&[3.0, 1.0, -1.0, 4.0], &[1, 1, 4, 1]);
        let causal = array(&[1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0], &[1, 1, 2, 4]);
        let causal = ops::greater(&causal, &array(&[0.0], &[])).unwrap();
        let chosen = search.choose(&keys, Some(&causal)).unwrap().unwrap();
        let flags = ops::astype(&chosen, Dtype::F32).unwrap().to_vec_f32().unwrap();
        assert_eq!(flags, [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0]);
        // Where there are no more keys, all are attended to.
        let few = ops::slice_axis(&keys, 2, 0, 2).unwrap();
        assert!(search.choose(&few, None).unwrap().is_none());
    }
}
