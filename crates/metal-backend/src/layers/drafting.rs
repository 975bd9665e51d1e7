//! Whoever drafts the ids that a model verifies, and what it needs of that model.

use std::fmt;

use mlx_ffi::{Array, Dtype, Indices, Result, async_eval, ops};

use super::{Block, Positions, Workspace};
use crate::cache::{Caches, StateSpec, Trail};

/// A model that others draft for.
pub(crate) trait Trunk {
    /// `ids`, `[b, l]`, to what goes into the first layer, `[b, l, hidden_size]`.
    ///
    /// # Errors
    /// Those of MLX.
    fn embedded(&self, ids: &Indices) -> Result<Array>;

    /// Hidden states `[b, l, hidden_size]` behind the last norm.
    ///
    /// # Errors
    /// Those of MLX.
    fn normed(&self, h: &Array) -> Result<Array>;

    /// States behind the last norm, `[b, l, hidden_size]`, to logits `[b, l, vocab_size]`.
    ///
    /// # Errors
    /// Those of MLX.
    fn logits_behind_norm(&self, states: &Array) -> Result<Array>;

    /// How many ids it knows, and the values of a hidden state.
    fn sizes(&self) -> [i32; 2];

    /// The type of its activations.
    fn dtype(&self) -> Dtype;
}

/// A pass of the model that was just computed.
pub(crate) struct Followed<'a> {
    /// `[b, l]`.
    pub ids: &'a Indices,
    /// The hidden states behind the last layer, `[b, l, hidden_size]`.
    pub h: &'a Array,
    /// How many positions of each row count; empty: all.
    pub lengths: &'a [i32],
}

/// Whoever drafts for a model. The states of its layers lie behind those of the model, in the same
/// caches: whatever rows join, leave, are cut back or kept for later, both stay in step.
pub(crate) trait Drafter: fmt::Debug {
    /// Its layers.
    fn layers(&self) -> &[Block];

    /// Returns true when it takes in all that passes, since that costs next to nothing.
    fn is_cheap(&self) -> bool;

    /// Returns true when it needs the hidden states of all positions.
    fn takes_states(&self) -> bool;

    /// Values of one position between its layers, for a model of so many between its own.
    fn stream_values(&self, of_model: u64) -> u64;

    /// Values between the projections of its widest feed-forward network, and what products of its
    /// layers take.
    fn widest(&self) -> (i32, Workspace);

    /// The type of its activations, for a model of `dtype`.
    fn dtype(&self, dtype: Dtype) -> Dtype;

    /// Takes in a pass of `model` behind the ids that `caches` have passed. It is on its way to the
    /// device when this returns, since nothing else of the pass asks for it.
    ///
    /// # Errors
    /// Those of MLX.
    fn follow(&self, model: &dyn Trunk, pass: &Followed<'_>, caches: &mut Caches) -> Result<()>;

    /// The logits behind ids, `[rows, 1]`, at their `positions`, of ids below the vocabulary of
    /// `model`. Beside the ids are the hidden states behind those before them, which become those
    /// behind these. The states of its layers take one more position.
    ///
    /// # Errors
    /// Those of MLX.
    fn next(
        &self,
        model: &dyn Trunk,
        ids_and_hidden: (&Indices, &mut Array),
        positions: Positions,
        caches: &mut Caches,
    ) -> Result<Array>;

    /// Its most likely ids, `count` behind the `last` one of each row, `[rows, count]`, each below
    /// the vocabulary of `model`. The caches have passed all ids before that, and are left as they
    /// were.
    ///
    /// # Errors
    /// Those of MLX.
    fn propose(
        &self,
        model: &dyn Trunk,
        last: &[u32],
        count: usize,
        caches: &mut Caches,
    ) -> Result<Indices> {
        let (first, rows) = (self.first(caches), last.len() as i32);
        let mut ids = Indices::from_u32(last, &[rows, 1])?;
        let [_, hidden_size] = model.sizes();
        let mut hidden = caches.trail().last([rows, hidden_size], model.dtype())?;
        let mut drafted = Vec::with_capacity(count);
        for ahead in 0..count {
            let positions = Positions::ahead(caches, ahead as i32);
            let logits = self.next(model, (&ids, &mut hidden), positions, caches)?;
            ids = ops::argmax(&logits, -1, false)?;
            drafted.push(ids.share()?);
        }
        async_eval(caches.arrays_from(first))?;
        caches.take_back_from(first, count as i32)?;
        Indices::concatenate(&drafted.iter().collect::<Vec<_>>(), 1)
    }

    /// The states that its layers keep, under a context length.
    fn specs(&self, context_length: Option<i32>) -> Vec<StateSpec> {
        let state = |layer: &Block, bound| layer.mixer.state(bound);
        StateSpec::of_layers(self.layers(), context_length, state)
    }

    /// The place of its first state in `caches`.
    fn first(&self, caches: &Caches) -> usize {
        caches.depth() - self.layers().len()
    }

    /// Takes note of `l` positions of each row that it does not take in.
    /// Drafts behind them are seldom right.
    ///
    /// # Errors
    /// Those of MLX.
    fn pass_by(&self, model: &dyn Trunk, l: i32, caches: &mut Caches) -> Result<()> {
        let (first, rows) = (self.first(caches), caches.slots() as i32);
        let dtype = self.dtype(model.dtype());
        for (spec, state) in self.specs(None).into_iter().zip(&mut caches.layers_mut()[first..]) {
            state.pass_by(spec, [rows, l], dtype)?;
        }
        caches.set_trail(Trail::default());
        Ok(())
    }
}
