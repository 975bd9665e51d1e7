//! The token mixers: what makes a position depend on those before it.

use mlx_ffi::{Array, Device, Dtype, Result};

use super::{Attention, Fusion, Positions, Workspace};
use crate::cache::{Slot, State, StateSpec};

/// One token mixer of a block: what it computes, what it remembers and what it costs. A closed set: the
/// compiler finds every place that has to know a new one.
#[derive(Debug)]
pub(crate) enum Mixer {
    /// Softmax attention over keys and values.
    Attention(Attention),
}

impl Mixer {
    /// `x` is `[b, l, hidden_size]`; so is the result, with its `fusion`. `state` remembers `l` more
    /// positions.
    pub fn forward(
        &self,
        x: &Array,
        fusion: Fusion<'_>,
        positions: &mut Positions,
        state: &mut State,
    ) -> Result<Array> {
        match (self, state) {
            (Mixer::Attention(attention), State::Kv(cache)) => {
                attention.forward(x, fusion, positions, cache)
            }
        }
    }

    /// What it remembers of each row, of which a context length may bound the positions.
    pub fn state(&self, context_length: Option<i32>) -> StateSpec {
        match self {
            Mixer::Attention(attention) => StateSpec::Kv(attention.kv_spec(context_length)),
        }
    }

    /// The attention, where it is one.
    pub fn attention(&self) -> Option<&Attention> {
        match self {
            Mixer::Attention(attention) => Some(attention),
        }
    }

    /// Where the step of one position in `dtype` writes in place, if such a step can be captured.
    pub fn slot(
        &self,
        dtype: Dtype,
        positions: &mut Positions,
        state: &mut State,
    ) -> Result<Option<Slot>> {
        match (self, state) {
            (Mixer::Attention(attention), State::Kv(cache)) => {
                attention.slot(dtype, 1, positions, cache)
            }
        }
    }

    /// Values of one position between the projections.
    pub fn activations(&self) -> u64 {
        match self {
            Mixer::Attention(attention) => attention.activations(),
        }
    }

    /// Bytes of one query's scores for one key, of all heads together, as `device` holds them.
    pub fn score_bytes(&self, device: Device) -> u64 {
        match self {
            Mixer::Attention(attention) => attention.score_bytes(device),
        }
    }

    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        match self {
            Mixer::Attention(attention) => attention.workspace(dtype),
        }
    }
}
