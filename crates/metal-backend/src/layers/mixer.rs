//! The token mixers: what makes a position depend on those before it.

use mlx_ffi::{Array, Device, Dtype, Result};

use super::{
    Attention, DeltaNet, Fusion, HeadSizes, LatentAttention, Mamba1, Mamba2, Positions, RgLru,
    Rope, Sharing, ShortConvolution, SideBySide, Workspace,
};
use crate::cache::{Slot, State, StateSpec};

/// One token mixer of a block: what it computes, what it remembers and what it costs. A closed set:
/// the compiler finds every place that has to know a new one.
#[derive(Debug)]
pub(crate) enum Mixer {
    /// Softmax attention over keys and values.
    Attention(Box<Attention>),
    /// Softmax attention over latents, of which keys and values are made.
    Latent(Box<LatentAttention>),
    /// A gated delta net over a recurrent state.
    Delta(Box<DeltaNet>),
    /// A short convolution over its own inputs.
    Convolution(Box<ShortConvolution>),
    /// A gated linear recurrent unit.
    RgLru(Box<RgLru>),
    /// A state space with a state for each channel.
    Mamba1(Box<Mamba1>),
    /// A state space.
    Mamba(Box<Mamba2>),
    /// A state space and attention, side by side.
    SideBySide(Box<SideBySide>),
    /// Nothing: the block is a feed-forward network alone.
    Nothing,
}

/// The buffers that the step of one position of each row writes in place.
#[derive(Debug)]
pub(crate) struct StepBuffers {
    /// Those of keys and values, if the layer has such.
    pub slot: Option<Slot>,
    /// Those of a recurrent state.
    pub arrays: Vec<Array>,
}

impl From<Attention> for Mixer {
    fn from(attention: Attention) -> Mixer {
        Mixer::Attention(Box::new(attention))
    }
}

impl From<LatentAttention> for Mixer {
    fn from(latent: LatentAttention) -> Mixer {
        Mixer::Latent(Box::new(latent))
    }
}

impl From<DeltaNet> for Mixer {
    fn from(delta: DeltaNet) -> Mixer {
        Mixer::Delta(Box::new(delta))
    }
}

impl From<ShortConvolution> for Mixer {
    fn from(convolution: ShortConvolution) -> Mixer {
        Mixer::Convolution(Box::new(convolution))
    }
}

impl From<RgLru> for Mixer {
    fn from(unit: RgLru) -> Mixer {
        Mixer::RgLru(Box::new(unit))
    }
}

impl From<Mamba1> for Mixer {
    fn from(mamba: Mamba1) -> Mixer {
        Mixer::Mamba1(Box::new(mamba))
    }
}

impl From<Mamba2> for Mixer {
    fn from(mamba: Mamba2) -> Mixer {
        Mixer::Mamba(Box::new(mamba))
    }
}

impl From<SideBySide> for Mixer {
    fn from(both: SideBySide) -> Mixer {
        Mixer::SideBySide(Box::new(both))
    }
}

impl Mixer {
    /// `x` is `[b, l, hidden_size]`; so is the result, with its `fusion`. `state` remembers `l`
    /// more positions.
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
            (Mixer::Latent(latent), State::Kv(cache)) => {
                latent.forward(x, fusion, positions, cache)
            }
            (Mixer::Attention(attention), State::Nothing) if positions.texts().is_some() => {
                attention.within_texts(x, fusion, positions)
            }
            (Mixer::Attention(attention), State::Nothing) => {
                attention.mix_shared(x, fusion, positions)
            }
            (Mixer::Delta(delta), State::Recurrent(state)) => {
                delta.forward(x, fusion, positions, state)
            }
            (Mixer::Convolution(convolution), State::Recurrent(state)) => {
                convolution.forward(x, fusion, positions, state)
            }
            (Mixer::RgLru(unit), State::Recurrent(state)) => {
                unit.forward(x, fusion, positions, state)
            }
            (Mixer::Mamba1(mamba), State::Recurrent(state)) => {
                mamba.forward(x, fusion, positions, state)
            }
            (Mixer::Mamba(mamba), State::Recurrent(state)) => {
                mamba.forward(x, fusion, positions, state)
            }
            (Mixer::SideBySide(both), State::Both(cache, state)) => {
                both.forward(x, fusion, positions, (cache, state))
            }
            _ => Err(mlx_ffi::Error::new("a layer was given the state of another one")),
        }
    }

    /// The state that it keeps of each row. A context length may bound its positions.
    pub fn state(&self, context_length: Option<i32>) -> StateSpec {
        match self {
            Mixer::Latent(latent) => StateSpec::Kv(latent.kv_spec(context_length)),
            Mixer::Attention(attention) => match attention.config.sharing {
                Sharing::Reuses(_) => StateSpec::Nothing,
                Sharing::Own | Sharing::Shares(_) => {
                    StateSpec::Kv(attention.kv_spec(context_length))
                }
            },
            Mixer::Delta(delta) => StateSpec::Recurrent(delta.spec()),
            Mixer::Convolution(convolution) => StateSpec::Recurrent(convolution.spec()),
            Mixer::RgLru(unit) => StateSpec::Recurrent(unit.spec()),
            Mixer::Mamba1(mamba) => StateSpec::Recurrent(mamba.spec()),
            Mixer::Mamba(mamba) => StateSpec::Recurrent(mamba.spec()),
            Mixer::SideBySide(both) => {
                StateSpec::Both(both.attention.kv_spec(context_length), both.mamba.spec())
            }
            Mixer::Nothing => StateSpec::Nothing,
        }
    }

    /// The attention with a cache of keys and values, where it is one or has one.
    pub fn attention(&self) -> Option<&Attention> {
        match self {
            Mixer::Attention(attention) => Some(attention),
            Mixer::SideBySide(both) => Some(&both.attention),
            Mixer::Latent(_) | Mixer::Delta(_) | Mixer::Convolution(_) => None,
            Mixer::RgLru(_) | Mixer::Mamba1(_) | Mixer::Mamba(_) | Mixer::Nothing => None,
        }
    }

    /// The heads that an observer sees, where it has attention.
    pub fn heads(&self) -> Option<HeadSizes> {
        match self {
            Mixer::Latent(latent) => latent.heads(),
            _ => self.attention().map(Attention::heads),
        }
    }

    /// How it encodes positions, where it does.
    pub fn rope(&self) -> Option<&Rope> {
        match self {
            Mixer::Latent(latent) => latent.rope.as_ref(),
            _ => self.attention()?.rope.as_ref(),
        }
    }

    /// The buffers that the step of one position in `dtype` writes in place, if such a step can be
    /// captured.
    pub fn step_buffers(
        &self,
        dtype: Dtype,
        positions: &mut Positions,
        state: &mut State,
    ) -> Result<Option<StepBuffers>> {
        let of = |slot: Option<Slot>, arrays: Option<Vec<Array>>| {
            arrays.map(|arrays| StepBuffers { slot, arrays })
        };
        Ok(match (self, state) {
            (Mixer::Attention(attention), State::Kv(cache)) => {
                let slot = attention.slot(dtype, 1, positions, cache)?;
                slot.and_then(|slot| of(Some(slot), Some(Vec::new())))
            }
            (Mixer::Latent(latent), State::Kv(cache)) => {
                let slot = latent.slot(dtype, 1, positions, cache)?;
                slot.and_then(|slot| of(Some(slot), Some(Vec::new())))
            }
            (Mixer::Attention(attention), State::Nothing) => {
                let steps = attention.steps_over_shared(dtype, positions);
                of(None, steps.then(Vec::new))
            }
            (
                Mixer::Delta(_) | Mixer::Convolution(_) | Mixer::Mamba(_),
                State::Recurrent(state),
            ) => of(None, state.buffers()?),
            (Mixer::SideBySide(both), State::Both(cache, state)) => {
                let slot = both.attention.slot(dtype, 1, positions, cache)?;
                let arrays = state.buffers()?;
                slot.and_then(|slot| of(Some(slot), arrays))
            }
            (Mixer::Nothing, _) => of(None, Some(Vec::new())),
            _ => None,
        })
    }

    /// The slot that `l` positions of each row in `dtype` write in place, where attention does and
    /// nothing else is remembered: a pass of such layers can be captured.
    pub fn chunk_slot(
        &self,
        dtype: Dtype,
        l: i32,
        positions: &mut Positions,
        state: &mut State,
    ) -> Result<Option<Slot>> {
        match (self, state) {
            (Mixer::Attention(attention), State::Kv(cache)) => {
                // Packed positions are unpacked for a chunk: each time another number of them.
                if cache.is_plain() {
                    attention.chunk_slot(dtype, l, positions, cache)
                } else {
                    Ok(None)
                }
            }
            _ => Ok(None),
        }
    }

    /// Values of one position between the projections.
    pub fn activations(&self) -> u64 {
        match self {
            Mixer::Attention(attention) => attention.activations(),
            Mixer::Latent(latent) => latent.activations(),
            Mixer::Delta(delta) => delta.activations(),
            Mixer::Convolution(convolution) => convolution.activations(),
            Mixer::RgLru(unit) => unit.activations(),
            Mixer::Mamba1(mamba) => mamba.activations(),
            Mixer::Mamba(mamba) => mamba.activations(),
            Mixer::SideBySide(both) => both.activations(),
            Mixer::Nothing => 0,
        }
    }

    /// Bytes of one query's scores for one key, of all heads together, as `device` holds them.
    pub fn score_bytes(&self, device: Device) -> u64 {
        match self {
            Mixer::Latent(latent) => latent.score_bytes(),
            _ => self.attention().map_or(0, |attention| attention.score_bytes(device)),
        }
    }

    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        match self {
            Mixer::Attention(attention) => attention.workspace(dtype),
            Mixer::Latent(latent) => latent.workspace(dtype),
            Mixer::Delta(delta) => delta.workspace(dtype),
            Mixer::Convolution(convolution) => convolution.workspace(dtype),
            Mixer::RgLru(unit) => unit.workspace(dtype),
            Mixer::Mamba1(mamba) => mamba.workspace(dtype),
            Mixer::Mamba(mamba) => mamba.workspace(dtype),
            Mixer::SideBySide(both) => both.workspace(dtype),
            Mixer::Nothing => Workspace::default(),
        }
    }
}
