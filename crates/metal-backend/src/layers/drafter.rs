//! A smaller model that drafts for a larger one.

use mlx_ffi::{Array, Dtype, Indices, Result, async_eval, eval_all, on_cpu, ops};

use super::{Block, Decoder, Drafter, Followed, Positions, Trunk, Workspace};
use crate::cache::{Caches, StateSpec};

/// Positions from which on each layer is waited for on a CPU, so that few activations are held.
const MANY_ROWS: i32 = 32;

/// A smaller model that drafts for a larger one.
#[derive(Debug)]
pub(crate) struct DraftModel(Decoder);

impl DraftModel {
    /// Drafts by `model`; why that cannot be.
    pub fn new(model: Decoder) -> std::result::Result<DraftModel, &'static str> {
        let specs = StateSpec::of_layers(&model.layers, None, |of, bound| of.mixer.state(bound));
        if specs.iter().any(|spec| !spec.is_of_positions()) {
            return Err("it has layers with recurrent states, which cannot be taken back");
        }
        if model.streams.is_some() {
            return Err("it has several residual streams");
        }
        Ok(DraftModel(model))
    }

    /// Hidden states of `ids`, `[b, l]`, behind the last layer, whose states are the last ones of
    /// `caches`. `after` each layer it is told of them.
    fn through(
        &self,
        ids: &Indices,
        positions: Positions,
        caches: &mut Caches,
        after: impl Fn(&Caches, &Array) -> Result<()>,
    ) -> Result<Array> {
        let (DraftModel(model), first) = (self, self.first(caches));
        // Its vocabulary may be shorter: what it does not know counts as any id.
        let known = model.vocab_size as usize;
        let clamped = (ids.below() > known).then(|| ids.clamped(known)).transpose()?;
        let mut pass = model.begin_at(clamped.as_ref().unwrap_or(ids), positions)?;
        for index in 0..model.layers.len() {
            model.layer(index, &mut pass, &mut caches.layers_mut()[first + index])?;
            after(caches, pass.h())?;
        }
        pass.h().share()
    }
}

impl Drafter for DraftModel {
    fn layers(&self) -> &[Block] {
        &self.0.layers
    }

    fn is_cheap(&self) -> bool {
        false
    }

    fn takes_states(&self) -> bool {
        false
    }

    fn stream_values(&self, _of_model: u64) -> u64 {
        self.0.stream_values()
    }

    fn widest(&self) -> (i32, Workspace) {
        (self.0.intermediate_size, self.0.workspace())
    }

    fn dtype(&self, _of_model: Dtype) -> Dtype {
        self.0.embed_tokens.dtype()
    }

    fn follow(&self, _model: &dyn Trunk, pass: &Followed<'_>, caches: &mut Caches) -> Result<()> {
        let mut positions = Positions::after(caches);
        positions.set_lengths(pass.lengths.to_vec());
        let first = self.first(caches);
        let waits = pass.ids.shape().iter().product::<i32>() >= MANY_ROWS && on_cpu()?;
        self.through(pass.ids, positions, caches, |caches, h| match waits {
            true => eval_all(caches.arrays_from(first).chain([h])),
            false => Ok(()),
        })?;
        async_eval(caches.arrays_from(first))
    }

    fn next(
        &self,
        model: &dyn Trunk,
        (ids, _): (&Indices, &mut Array),
        positions: Positions,
        caches: &mut Caches,
    ) -> Result<Array> {
        let h = self.through(ids, positions, caches, |_, _| Ok(()))?;
        let [vocab_size, _] = model.sizes();
        ops::slice_axis(&self.0.logits(&h)?, -1, 0, vocab_size.min(self.0.vocab_size))
    }
}
