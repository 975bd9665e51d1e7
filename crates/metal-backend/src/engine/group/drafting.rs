//! Steps of rows that ask for drafts: one pass computes the next position and the drafts behind it,
//! then as much is kept as was drawn.

use std::panic::{AssertUnwindSafe, catch_unwind};

use inference_core::FinishReason;
use mlx_ffi::{Array, Indices, async_eval, ops};

use super::super::dispatcher::Dispatcher;
use super::super::memory::Budget;
use super::super::row::Row;
use super::super::served::Served;
use super::super::step_clock::{Part, StepClock};
use super::super::taking::Exit;
use super::{Group, Stepped};
use crate::cache::PrefixCache;
use crate::error::{Result, panicked};
use crate::layers::Decoder;
use crate::sampling::Draw;

/// Which rows leave, in ascending order, and how much of each row's draft was drawn.
type Verified = (Vec<(usize, Exit)>, Vec<usize>);

impl Group {
    /// One step. Which ids come next is known only once all are read, so the device waits for the
    /// host.
    ///
    /// # Errors
    /// Those of MLX, which end the whole group.
    pub(super) fn step_with_drafts(
        &mut self,
        served: &Served,
        (prefixes, dispatcher): (&mut PrefixCache, &mut Dispatcher),
        clock: &mut StepClock,
    ) -> Result<Stepped> {
        clock.lap(Part::Rest);
        clock.count();
        // The rows are the slots.
        self.compact(dispatcher)?;
        self.fresh.clear();
        let model = &served.model;
        let factors = self.caches.rope_factors();
        let fits = |length| model.rope_factors(length) == factors;
        let most = Budget::most_drafts(self.rows.len());
        let drafts: Vec<Vec<u32>> =
            self.rows.iter().map(|row| row.draft_behind(&row.ids, most, fits).to_vec()).collect();
        let longest = drafts.iter().map(Vec::len).max().unwrap_or(0);
        let logits = self.forward_with_drafts(model, &drafts, longest)?;
        clock.lap(Part::Build);
        async_eval([&logits])?;
        clock.lap(Part::Encode);
        let (left, accepted) = self.verify(model, &logits, &drafts, clock)?;
        let counts: Vec<i32> = accepted.iter().map(|count| (longest - count) as i32).collect();
        self.caches.truncate(&counts)?;
        self.keep_ended(&left, served, prefixes)?;
        let mut out = Vec::with_capacity(left.len());
        for (at, exit) in left.into_iter().rev() {
            out.push((self.unseat(at).0, exit));
        }
        let last_ids = self.slots.iter().zip(&self.rows);
        self.fresh = last_ids.filter_map(|(slot, row)| Some((*slot, *row.ids.last()?))).collect();
        let result = self.go_on(served, (None, None), Some(dispatcher), clock);
        Ok(Stepped { left: out, result })
    }

    /// Queues the pass of each row's last id and its draft; `[rows, 1 + longest, vocab_size]`.
    fn forward_with_drafts(
        &mut self,
        model: &Decoder,
        drafts: &[Vec<u32>],
        longest: usize,
    ) -> Result<Array> {
        let mut ids = Vec::with_capacity(drafts.len() * (1 + longest));
        for (row, draft) in self.rows.iter().zip(drafts) {
            let padding = std::iter::repeat_n(0, longest - draft.len());
            ids.extend(row.ids.last().into_iter().chain(draft).copied().chain(padding));
        }
        let ids = Indices::from_u32(&ids, &[drafts.len() as i32, 1 + longest as i32])?;
        let mut pass = model.begin(&ids, &self.caches)?;
        model.advance(&mut pass, &mut self.caches, usize::MAX)?;
        Ok(model.logits(pass.h())?)
    }

    /// Draws from `logits`, `[rows, positions, vocab_size]`, and hands tokens over as long as they
    /// are those of the drafts.
    ///
    /// # Errors
    /// Those of MLX.
    fn verify(
        &mut self,
        model: &Decoder,
        logits: &Array,
        drafts: &[Vec<u32>],
        clock: &mut StepClock,
    ) -> Result<Verified> {
        let mut ahead = Vec::with_capacity(drafts.len());
        for ((row, draft), at) in self.rows.iter_mut().zip(drafts).zip(0..) {
            // [rows, positions, vocab_size] -> [positions, vocab_size]
            let logits = ops::squeeze(&ops::slice_axis(logits, 0, at, at + 1)?, 0)?;
            let drawn = match row.sampler.needs_history() {
                true => Vec::new(),
                false => (0..=draft.len())
                    .map(|at| row.sampler.draw(&position(&logits, at)?))
                    .collect::<Result<_>>()?,
            };
            ahead.push((logits, drawn));
        }
        async_eval(ahead.iter().flat_map(|(_, drawn)| drawn.iter().flat_map(Draw::arrays)))?;
        clock.lap(Part::Sample);
        let factors = self.caches.rope_factors();
        let (mut left, mut accepted) = (Vec::new(), Vec::with_capacity(drafts.len()));
        let rows = self.rows.iter_mut().zip(drafts).zip(ahead);
        for (at, ((row, draft), (logits, drawn))) in rows.enumerate() {
            let step = row.generated();
            let accept = || accept(row, draft, &logits, drawn, clock);
            let (count, reason) = catch_unwind(AssertUnwindSafe(accept))
                .unwrap_or_else(|panic| (0, Err(panicked("the request", &*panic).into())));
            accepted.push(count);
            match reason {
                Ok(None) if model.rope_factors(row.ids.len()) == factors => {}
                Ok(None) => left.push((at, Exit::Outgrown)),
                Ok(Some(reason)) => left.push((at, Exit::Ended(Ok(reason)))),
                Err(error) => {
                    let error = error.in_phase(&format!("decode step {step}"));
                    left.push((at, Exit::Ended(Err(error))));
                }
            }
        }
        Ok((left, accepted))
    }
}

/// Takes in what is drawn from `logits`, `[positions, vocab_size]`, of which `drawn` is drawn
/// already, until it is another id than that of the draft. Returns how many were those of the
/// draft, and why the row ends, if so.
fn accept(
    row: &mut Row,
    draft: &[u32],
    logits: &Array,
    drawn: Vec<Draw>,
    clock: &mut StepClock,
) -> (usize, Result<Option<FinishReason>>) {
    let mut drawn = drawn.into_iter();
    let mut accepted = 0;
    let reason = loop {
        let before = row.generated();
        let mut next = || -> Result<(u32, Option<FinishReason>)> {
            let draw = match drawn.next() {
                Some(draw) => draw,
                None => row.sampler.draw(&position(logits, accepted)?)?,
            };
            let id = draw.id.to_vec_u32()?.into_iter().next().unwrap_or_default();
            clock.lap(Part::Wait);
            let reason = row.accept(id, &draw.report, clock)?;
            let reason = reason.or(row.is_cancelled().then_some(FinishReason::Cancelled));
            Ok((id, reason))
        };
        let (id, reason) = match next() {
            Ok(next) => next,
            Err(error) => break Err(error),
        };
        // An id that ends the generation is none of the row's.
        let is_drafted = draft.get(accepted) == Some(&id) && row.generated() > before;
        accepted += usize::from(is_drafted);
        if reason.is_some() || !is_drafted {
            break Ok(reason.map(|reason| row.end(reason)));
        }
    };
    row.note_draft(draft.len(), accepted);
    row.sampler.forget_draws_after(row.generated());
    (accepted, reason)
}

/// The logits of one position, `[1, vocab_size]`.
fn position(logits: &Array, at: usize) -> mlx_ffi::Result<Array> {
    ops::slice_axis(logits, 0, at as i32, at as i32 + 1)
}
