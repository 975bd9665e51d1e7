//! Some positions on their way through the layers.

use std::iter;

use mlx_ffi::{Array, Indices, Result};

use super::block::Stream;
use super::tail::Tail;
use super::{Observed, Positions, is_for_kernels};

/// Some positions on their way through the layers. It may rest between two layers, so that a long
/// one can be computed in parts.
#[derive(Debug)]
pub(crate) struct Pass {
    /// As the last layer left it.
    pub(super) stream: Stream,
    /// Layers that are done.
    pub(super) layer: usize,
    pub(super) positions: Positions,
    /// The inputs of all layers, `[b, l, layers · size]`, where layers have one of their own.
    pub(super) layer_inputs: Option<Array>,
    /// Added behind the first layers, `[b, l, hidden_size]` each.
    pub(super) behind_layers: Vec<Array>,
    /// Exchanged with other ranks; must be evaluated although nothing here may need it.
    pub(super) exchanged: Option<Array>,
    /// The positions whose hidden states are needed behind the last layer; `None`: all, or only
    /// theirs are left.
    pub(super) tail: Option<Tail>,
    /// The hidden states behind the last layer of this rank, where others follow.
    pub(super) own: Option<Array>,
    /// Its ids, `[b, l]`, where a drafter takes them in.
    pub(super) ids: Option<Indices>,
}

impl Pass {
    /// The pass of `h`, `[b, l, hidden_size]`, at `positions`, before its first layer.
    pub fn new(h: Array, positions: Positions) -> Pass {
        let stream = Stream { h, normed: None };
        Pass {
            stream,
            layer: 0,
            positions,
            layer_inputs: None,
            behind_layers: Vec::new(),
            exchanged: None,
            tail: None,
            own: None,
            ids: None,
        }
    }

    /// The pass with inputs of all layers, `[b, l, layers · size]`.
    pub fn with_layer_inputs(self, layer_inputs: Option<Array>) -> Pass {
        Pass { layer_inputs, ..self }
    }

    /// The pass with what is added behind the first layers, `[b, l, hidden_size]` each.
    pub fn with_behind_layers(self, behind_layers: Vec<Array>) -> Pass {
        Pass { behind_layers, ..self }
    }

    /// The pass with its ids, `[b, l]`, for a drafter.
    pub(super) fn with_ids(self, ids: Option<Indices>) -> Pass {
        Pass { ids, ..self }
    }

    /// The pass of whose hidden states only `tail` is needed behind the last layer.
    pub fn with_tail(self, tail: Option<Tail>) -> Pass {
        Pass { tail, ..self }
    }

    /// Returns true when the hidden states are the layers' only input.
    pub fn has_one_input(&self) -> bool {
        self.layer_inputs.is_none() && self.behind_layers.is_empty()
    }

    /// Takes note that it is through all layers, which left `h` where only some positions are
    /// needed.
    pub fn end_with(&mut self, h: Array) {
        (self.stream, self.tail) = (Stream { h, normed: None }, None);
    }

    /// Returns true when only some hidden states are needed behind the last layer.
    pub fn has_tail(&self) -> bool {
        self.tail.is_some()
    }

    /// `[b, l, hidden_size]`, as the last layer left it; `[positions, 1, hidden_size]` behind all
    /// layers where only some positions are needed.
    pub fn h(&self) -> &Array {
        &self.stream.h
    }

    /// Positions of each row, before the last layer ends; those of rows that decode do not count.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn columns(&self) -> Result<i32> {
        let [b, l, _] = self.stream.h.dims()?;
        Ok(match &self.positions.decode_rows {
            None => l,
            Some(rows) => (b * l - rows.count()) / self.positions.offsets().len().max(1) as i32,
        })
    }

    /// Returns true when rows decode in it.
    pub fn has_decode_rows(&self) -> bool {
        self.positions.decode_rows.is_some()
    }

    /// The arrays that decoding rows have written, for evaluation.
    pub fn of_decode_rows(&self) -> impl Iterator<Item = &Array> {
        self.positions.decode_rows.iter().flat_map(|rows| rows.arrays())
    }

    /// The stream, and the inputs that later layers still need, for evaluation.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        let stream = iter::once(&self.stream.h).chain(&self.stream.normed);
        stream.chain(&self.layer_inputs).chain(self.behind_layers.iter().skip(self.layer))
    }

    /// The array exchanged with other ranks, to be evaluated at the end of a pass.
    pub fn exchanged(&self) -> Option<&Array> {
        self.exchanged.as_ref()
    }

    /// Layers that are done.
    pub fn layer(&self) -> usize {
        self.layer
    }

    /// Returns true when our own kernels attend on CUDA for its `columns` positions of each row.
    pub fn is_for_kernels(&self, columns: i32) -> bool {
        is_for_kernels(self.positions.offsets().len(), columns, self.positions.end(columns))
    }

    /// Of each row, only so many positions count; others fill rows up behind their ends.
    pub fn set_lengths(&mut self, lengths: Vec<i32>) {
        self.positions.set_lengths(lengths);
    }

    /// From now on, each layer leaves what its attention sees.
    pub fn observe(&mut self) {
        self.positions.observe();
    }

    /// Takes the attention of the layer computed last, if it is observed.
    pub fn take_observed(&mut self) -> Option<Observed> {
        self.positions.observer().and_then(Option::take)
    }
}
