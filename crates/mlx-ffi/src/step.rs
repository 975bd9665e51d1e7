//! Attention for new positions of each row of a batch. For one position it is one operation,
//! [`cpu::step_attention`](crate::cpu::step_attention) or
//! [`cuda::step_attention`](crate::cuda::step_attention). For several it is two, by
//! [`cuda::chunk_attention`](crate::cuda::chunk_attention).

use crate::{Array, Dtype, Error, QuantMode, Quantization, Result, ops};

/// The heads of an array of `[b, l, …]`: from the column `at` on.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a> {
    /// The array, whose last dimension is contiguous.
    pub array: &'a Array,
    /// Their first column.
    pub at: i32,
}

/// Norms over each head: the weights, `[d]`, and one epsilon.
#[derive(Clone, Copy, Debug)]
pub struct HeadNorms<'a> {
    /// Of queries.
    pub q: &'a Array,
    /// Of keys.
    pub k: &'a Array,
    /// Of values, where they are normed; only [`cuda::step_attention`](crate::cuda::step_attention)
    /// does that.
    pub v: Option<&'a Array>,
    /// Of all.
    pub eps: f32,
}

/// A rotation of the first values of each head by its position.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// For each position, one for each pair of values, `[dims / 2]` F32.
    pub radians: &'a Array,
    /// Factor of the positions.
    pub scale: f32,
    /// Factor of the values as they are rotated.
    pub magnitude: f32,
}

/// Zeros with which the blocks of a kernel count how many of them are done, and which are zeros
/// again afterwards. A kernel writes them, so nobody else sees them.
#[derive(Debug)]
pub struct Counters(Array);

impl Counters {
    /// At least `count` of them.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn new(count: i32) -> Result<Counters> {
        // Fewer would be in the host's memory.
        Ok(Counters(ops::zeros(&[count.max(crate::cuda::ON_DEVICE as i32)], Dtype::I32)?))
    }

    /// Another handle on these counters.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn share(&self) -> Result<Counters> {
        Ok(Counters(self.0.share()?))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.size()
    }

    pub(crate) fn array(&self) -> &Array {
        &self.0
    }
}

/// Scales and biases of packed keys and values, `[b, n_kv_heads, capacity, d / group_size]` each.
#[derive(Clone, Copy, Debug)]
pub struct Packing<'a> {
    /// How all are packed.
    pub quantization: Quantization,
    /// Scales and biases of the keys.
    pub keys: [&'a Array; 2],
    /// Scales and biases of the values.
    pub values: [&'a Array; 2],
}

impl<'a> Packing<'a> {
    /// The scales and biases of the keys, then those of the values.
    pub(crate) fn arrays(&self) -> [&'a Array; 4] {
        let ([a, b], [c, d]) = (self.keys, self.values);
        [a, b, c, d]
    }
}

/// `l` new positions of each row of a batch; one for a step.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Queries, before their norm and rotation.
    pub q: Heads<'a>,
    /// Keys, likewise.
    pub k: Heads<'a>,
    /// Values.
    pub v: Heads<'a>,
    /// Heads of queries.
    pub n_heads: i32,
    /// The keys before them, `[b, n_kv_heads, capacity, d]`, with room for `l` more; U32, `[b,
    /// n_kv_heads, capacity, d · bits / 32]`, where they are packed.
    pub keys: &'a Array,
    /// The values, likewise.
    pub values: &'a Array,
    /// Scales and biases of packed keys and values, which kernels for CUDA take.
    pub packing: Option<Packing<'a>>,
    /// The index of the first new position in `keys`.
    pub at: i32,
    /// I32, its first value: where the kernel writes. It equals `at`, which is only checked.
    pub on_device: &'a Array,
    /// I32, `[at least 2 · b]`: for each row its first position, and what its positions are more
    /// than their index.
    pub rows: &'a Array,
    /// How many positions a position sees, itself included, at least one; `None`: all before it.
    pub window: Option<i32>,
    /// How pairs of a head's values are turned.
    pub turn: Option<Turn<'a>>,
    /// Norms over heads.
    pub norms: Option<HeadNorms<'a>>,
    /// Factor of the scores.
    pub scale: f32,
    /// Scores are then squashed to ± this by tanh.
    pub softcap: Option<f32>,
    /// `[n_heads]`: one more score for each head, which takes part in the softmax and adds nothing.
    pub sinks: Option<&'a Array>,
}

impl Step<'_> {
    /// `[b, n_kv_heads, capacity, d]`, once everything was checked that all devices ask for of `l`
    /// positions.
    ///
    /// # Errors
    /// Shapes or types that do not fit.
    pub(crate) fn sizes(&self, l: i32) -> Result<[i32; 4]> {
        let Step { q, k, v, n_heads, keys, values, at, on_device, rows, .. } = *self;
        let [b, n_kv_heads, capacity, width] = keys.dims()?;
        let (dtype, held_as) = (self.dtype(), self.held_as());
        let d = self.packing.map_or(width, |packing| width * 32 / packing.quantization.bits.max(1));
        let sizes = [b, n_kv_heads, capacity, d];
        let heads_fit = n_kv_heads > 0 && n_heads > 0 && n_heads % n_kv_heads == 0;
        let window_fits = self.window.is_none_or(|window| window > 0);
        let is_wide = |heads: Heads<'_>, n: i32| {
            let end = i64::from(heads.at) + i64::from(n) * i64::from(d);
            let &[rows, positions, columns] = heads.array.shape() else { return false };
            let is_inside = heads.at >= 0 && i64::from(columns) >= end;
            rows == b && positions == l && is_inside && heads.array.dtype() == dtype
        };
        let inputs_fit = is_wide(q, n_heads) && is_wide(k, n_kv_heads) && is_wide(v, n_kv_heads);
        let are_held = [keys, values].iter().all(|held| held.dtype() == held_as);
        let keys_fit = values.shape() == keys.shape() && are_held && self.packing_fits(sizes);
        // A kernel counts elements from the first on.
        let is_list = |array: &Array, dtype| array.dtype() == dtype && array.shape().len() == 1;
        let are_indices = [on_device, rows].iter().all(|array| is_list(array, Dtype::I32));
        let rows_fit = rows.size() / 2 >= b as usize && on_device.size() > 0;
        let has_room = l > 0 && at >= 0 && at.checked_add(l).is_some_and(|end| end <= capacity);
        let places_fit = has_room && are_indices && rows_fit;
        let turns_fit = self.turn.is_none_or(|turn| {
            is_list(turn.radians, Dtype::F32) && turn.radians.size() <= d as usize / 2
        });
        let norms_fit = self.norms.is_none_or(|norms| {
            let mut all = [norms.q, norms.k].into_iter().chain(norms.v);
            all.all(|norm| norm.shape() == [d] && norm.dtype() == dtype)
        });
        let sinks_fit = self.sinks.is_none_or(|sinks| sinks.shape() == [n_heads]);
        let fit = heads_fit && inputs_fit && keys_fit && places_fit && window_fits;
        if fit && turns_fit && norms_fit && sinks_fit {
            return Ok(sizes);
        }
        Err(self.misfit())
    }

    /// The type of queries and of new keys and values.
    pub(crate) fn dtype(&self) -> Dtype {
        if self.packing.is_some() { self.q.array.dtype() } else { self.keys.dtype() }
    }

    fn held_as(&self) -> Dtype {
        if self.packing.is_some() { Dtype::U32 } else { self.keys.dtype() }
    }

    /// Returns true when there are as many scales and biases as packed keys of these sizes need, or
    /// keys are not packed.
    fn packing_fits(&self, [b, n_kv_heads, capacity, d]: [i32; 4]) -> bool {
        self.packing.is_none_or(|packing| {
            let Quantization { mode, bits, group_size } = packing.quantization;
            let is_known = mode == QuantMode::Affine && matches!(bits, 4 | 8) && group_size > 0;
            let shape = || [b, n_kv_heads, capacity, d / group_size];
            let is_one = |array: &Array| array.shape() == shape() && array.dtype() == self.dtype();
            is_known && d % group_size == 0 && packing.arrays().into_iter().all(is_one)
        })
    }

    /// Returns true when values are normed.
    pub(crate) fn norms_values(&self) -> bool {
        self.norms.is_some_and(|norms| norms.v.is_some())
    }

    /// The error of a step that does not fit.
    pub(crate) fn misfit(&self) -> Error {
        Error::new(format!("a step of attention does not fit: {self:?}"))
    }
}
