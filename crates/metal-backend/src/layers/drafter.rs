//! Whoever drafts the ids that a model verifies: a smaller one beside it, or a layer of its own.

use mlx_ffi::{Array, Indices, Result, async_eval, eval_all, on_cpu, ops};

use super::{Block, Decoder, Heads, Positions, Workspace};
use crate::cache::{Caches, StateSpec, Trail};

/// Positions from which on each layer is waited for on a CPU, so that few activations are held.
const MANY_ROWS: i32 = 32;

/// Whoever drafts for a model. The states of its layers lie behind those of the model, in the same
/// caches: whatever rows join, leave, are cut back or kept for later, both stay in step.
#[derive(Debug)]
pub(crate) enum Drafter {
    /// A model of its own.
    Model(Box<Decoder>),
    /// A layer that goes on from the model's hidden states. Beside a position's id it sees the hidden
    /// state of the position before: the first one has none, and is hidden from the others.
    Heads(Box<Heads>),
}

impl Drafter {
    /// Drafts by `model`; why that cannot be.
    pub fn by(model: Decoder) -> std::result::Result<Drafter, &'static str> {
        let specs = StateSpec::of_layers(&model.layers, None, |of, bound| of.mixer.state(bound));
        if specs.iter().any(|spec| !spec.is_of_positions()) {
            return Err("it has layers with recurrent states, which cannot be taken back");
        }
        if model.streams.is_some() {
            return Err("it has several residual streams");
        }
        Ok(Drafter::Model(Box::new(model)))
    }

    /// Returns true when it takes in all that passes, since that costs next to nothing.
    pub fn is_cheap(&self) -> bool {
        matches!(self, Drafter::Heads(_))
    }

    /// Its layers.
    pub fn layers(&self) -> &[Block] {
        match self {
            Drafter::Model(model) => &model.layers,
            Drafter::Heads(heads) => std::slice::from_ref(&heads.block),
        }
    }

    /// The states that its layers keep, under a context length.
    pub fn specs(&self, context_length: Option<i32>) -> Vec<StateSpec> {
        let state = |layer: &Block, bound| layer.mixer.state(bound);
        StateSpec::of_layers(self.layers(), context_length, state)
    }

    /// Values between the projections of its widest feed-forward network, and what products of its
    /// layers take, where it is a model of its own.
    pub fn widest(&self) -> (i32, Workspace) {
        match self {
            Drafter::Model(model) => (model.intermediate_size, model.workspace()),
            Drafter::Heads(heads) => (0, heads.block.workspace(heads.embed_norm.weight.dtype())),
        }
    }

    /// Values of one position between its layers, for a model of so many between its own.
    pub fn stream_values(&self, of_model: u64) -> u64 {
        match self {
            Drafter::Model(model) => model.stream_values(),
            Drafter::Heads(_) => 2 * of_model,
        }
    }

    /// Returns true when it needs the hidden states of all positions.
    pub fn takes_states(&self) -> bool {
        matches!(self, Drafter::Heads(_))
    }

    /// Takes in the ids of a pass of `model`, `[b, l]`, of which `lengths` count, behind those that
    /// `caches` have passed, and their hidden states `h`, `[b, l, hidden_size]`. It is on its way to
    /// the device when this returns, since nothing else of the pass asks for it.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn follow(
        &self,
        model: &Decoder,
        (ids, h): (&Indices, &Array),
        lengths: &[i32],
        caches: &mut Caches,
    ) -> Result<()> {
        let mut positions = Positions::after(caches);
        positions.set_lengths(lengths.to_vec());
        let first = self.first(caches);
        match self {
            Drafter::Model(own) => {
                let waits = ids.shape().iter().product::<i32>() >= MANY_ROWS && on_cpu()?;
                through(own, ids, positions, caches, |caches, h| match waits {
                    true => eval_all(caches.arrays_from(first).chain([h])),
                    false => Ok(()),
                })?;
                async_eval(caches.arrays_from(first))
            }
            Drafter::Heads(heads) => {
                let [b, l, size] = h.dims()?;
                let normed = model.norm.forward(h)?;
                let last = caches.trail().last([b, size], normed.dtype())?;
                let before = match l {
                    1 => last,
                    _ => ops::concatenate(&[&last, &ops::slice_axis(&normed, 1, 0, l - 1)?], 1)?,
                };
                let state = &mut caches.layers_mut()[first];
                positions.hide_first();
                // What it makes of them is not needed: only its keys and values are computed.
                heads.forward(model, ids, &before, &mut positions, state)?;
                caches.set_trail(Trail::of_pass(normed.share()?)?);
                async_eval(caches.arrays_from(first).chain([&normed]))
            }
        }
    }

    /// Takes note of `l` positions of each row that it does not take in.
    /// What it drafts behind them is seldom right.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn pass_by(&self, model: &Decoder, l: i32, caches: &mut Caches) -> Result<()> {
        let first = self.first(caches);
        let dtype = match self {
            Drafter::Model(own) => own.embed_tokens.dtype(),
            Drafter::Heads(_) => model.embed_tokens.dtype(),
        };
        let rows = caches.slots() as i32;
        for (spec, state) in self.specs(None).into_iter().zip(&mut caches.layers_mut()[first..]) {
            state.pass_by(spec, [rows, l], dtype)?;
        }
        caches.set_trail(Trail::default());
        Ok(())
    }

    /// Its most likely ids, `count` behind the `last` one of each row, `[rows, count]`, each below
    /// the vocabulary of `model`. The caches have passed all ids before that, and are left as they
    /// were.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn propose(
        &self,
        model: &Decoder,
        last: &[u32],
        count: usize,
        caches: &mut Caches,
    ) -> Result<Indices> {
        let rows = last.len() as i32;
        let first = self.first(caches);
        let mut ids = Indices::from_u32(last, &[rows, 1])?;
        let dtype = model.embed_tokens.dtype();
        let mut hidden = caches.trail().last([rows, model.hidden_size], dtype)?;
        let mut drafted = Vec::with_capacity(count);
        for ahead in 0..count {
            let mut positions = Positions::ahead(caches, ahead as i32);
            let logits = match self {
                Drafter::Model(own) => {
                    let h = through(own, &ids, positions, caches, |_, _| Ok(()))?;
                    let known = model.vocab_size.min(own.vocab_size);
                    ops::slice_axis(&own.logits(&h)?, -1, 0, known)?
                }
                Drafter::Heads(heads) => {
                    positions.hide_first();
                    let state = &mut caches.layers_mut()[first];
                    hidden = heads.forward(model, &ids, &hidden, &mut positions, state)?;
                    model.logits_of_normed(&hidden)?
                }
            };
            ids = ops::argmax(&logits, -1, false)?;
            drafted.push(ids.share()?);
        }
        async_eval(caches.arrays_from(first))?;
        let all: Vec<&Indices> = drafted.iter().collect();
        caches.take_back_from(first, count as i32)?;
        Indices::concatenate(&all, 1)
    }

    /// The place of its first state in `caches`.
    fn first(&self, caches: &Caches) -> usize {
        caches.depth() - self.layers().len()
    }
}

/// Hidden states of `ids`, `[b, l]`, behind the last layer of `model`, whose states are the last
/// ones of `caches`. `after` each layer it is told of them.
fn through(
    model: &Decoder,
    ids: &Indices,
    positions: Positions,
    caches: &mut Caches,
    after: impl Fn(&Caches, &Array) -> Result<()>,
) -> Result<Array> {
    let first = caches.depth() - model.layers.len();
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
