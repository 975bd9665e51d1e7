//! Passes that verify drafts: each computes every row's next position and the draft behind it, then
//! as much is kept as was drawn.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use inference_core::FinishReason;
use mlx_ffi::{Array, Indices, async_eval, ops};

use super::super::dispatcher::Dispatcher;
use super::super::memory::Budget;
use super::super::prefill::ROOM;
use super::super::row::Row;
use super::super::served::Served;
use super::super::speculation::Drafts;
use super::super::step_clock::{Part, StepClock};
use super::super::taking::Exit;
use super::{Group, Stepped};
use crate::cache::PrefixCache;
use crate::error::{Result, panicked};
use crate::kernels::Kernels;
use crate::layers::{Decoder, Tail};
use crate::plan::{Drafted, Verifying};
use crate::sampling::{Draw, Draws, Report, Sampler};

/// Which rows leave, in ascending order, and how much of each row's draft was drawn.
type Verified = (Vec<(usize, Exit)>, Vec<usize>);

/// The draws behind a row's positions.
enum Drawn {
    /// Their ids, and nothing else.
    Ids(Vec<u32>),
    /// Draws in flight, from the first position on. Others are made from the logits, `[positions,
    /// vocab_size]`, once the ids before them are known.
    Draws(std::vec::IntoIter<Draw>, Array),
}

impl Group {
    /// How many draft tokens of each row the next pass verifies; 0: it is a step. Where draws of
    /// the step before are not read, their first tokens are known by then. A row that is computed
    /// by itself verifies each draft: what it computes must not depend on how long others take.
    pub(super) fn draft_length(&mut self, served: &Served, clock: &StepClock) -> usize {
        if !self.drafts() {
            return 0;
        }
        let switch = self.drawn.is_some();
        let behind_draw = served.model.drafter.is_some();
        let unread = usize::from(switch && !behind_draw);
        let most = self.most_drafts();
        let lengths = self.lengths_of_drafts(served, most);
        if served.alone {
            return lengths.into_iter().max().unwrap_or(0);
        }
        let behind = |(row, length): (&Row, usize)| row.drafted(length.saturating_sub(unread));
        let drafted: Vec<Drafted> = self.rows.iter().zip(lengths).map(behind).collect();
        let repeat = self.caches.need_snapshots();
        let drafter = served.drafter_share;
        let verifying = Verifying { repeat, switch, behind_draw, drafter };
        let length = clock.costs.draft_length(&drafted, most, verifying);
        if behind_draw && length == 0 {
            self.rows.iter_mut().filter_map(|row| row.drafts.as_mut()).for_each(Drafts::note_idle);
            self.caches.set_followed(self.rows.iter().any(Row::asks_model_for_drafts));
        }
        length
    }

    /// The most tokens that any row's draft may have.
    fn most_drafts(&self) -> usize {
        let of_rows = self.rows.iter().map(Row::most_drafts).max().unwrap_or(0);
        Budget::most_drafts(self.rows.len()).min(of_rows)
    }

    /// The tokens of each row's draft, at most `most`. What a drafter makes is not made for it.
    fn lengths_of_drafts(&mut self, served: &Served, most: usize) -> Vec<usize> {
        let factors = self.caches.rope_factors();
        let fits = |length| served.model.rope_factors(length) == factors;
        let rows = self.rows.iter_mut();
        match served.model.drafter {
            None => rows.map(|row| row.draft(most, None, fits).len()).collect(),
            Some(_) => rows.map(|row| row.longest_draft(most, fits)).collect(),
        }
    }

    /// Each row's draft of at most `length` tokens, behind ids that are all known. Those of a
    /// drafter are made now.
    fn drafts_of_rows(&mut self, served: &Served, length: usize) -> Result<Vec<Vec<u32>>> {
        let factors = self.caches.rope_factors();
        let fits = |length| served.model.rope_factors(length) == factors;
        let most = self.most_drafts().min(length);
        let Some(drafter) = &served.model.drafter else {
            return Ok(self.rows.iter_mut().map(|row| row.draft(most, None, fits)).collect());
        };
        let last: Vec<u32> =
            self.rows.iter().map(|row| row.ids.last().copied().unwrap_or_default()).collect();
        let drafted =
            drafter.propose(&served.model, &last, length, &mut self.caches)?.to_vec_u32()?;
        let rows = self.rows.iter_mut().zip(drafted.chunks(length));
        Ok(rows.map(|(row, drafted)| row.draft(most, Some(drafted), fits)).collect())
    }

    /// Lets each row's last id be the input of its next position.
    pub(super) fn refresh(&mut self) {
        let last_ids = self.slots.iter().zip(&self.rows);
        self.fresh = last_ids.filter_map(|(slot, row)| Some((*slot, *row.ids.last()?))).collect();
    }

    /// A pass that verifies drafts of up to `length` tokens. The next ids are known only once all
    /// are read, so the device waits for the host.
    ///
    /// # Errors
    /// Those of MLX, which end the whole group.
    pub(super) fn verify_drafts(
        &mut self,
        served: &Served,
        (prefixes, dispatcher): (&mut PrefixCache, &mut Dispatcher),
        length: usize,
        clock: &mut StepClock,
    ) -> Result<Stepped> {
        clock.lap(Part::Rest);
        clock.count();
        let started = Instant::now();
        self.last_read = None;
        // The rows are the slots.
        self.compact(dispatcher)?;
        self.fresh.clear();
        let model = &served.model;
        let drafts = self.drafts_of_rows(served, length)?;
        let (rows, positions) = (self.rows.len(), 1 + length);
        let mut ids = Vec::with_capacity(rows * positions);
        for (row, draft) in self.rows.iter().zip(&drafts) {
            let padding = std::iter::repeat_n(0, length - draft.len());
            ids.extend(row.ids.last().into_iter().chain(draft).copied().chain(padding));
        }
        let held: Vec<usize> = self.rows.iter().map(|row| row.ids.len() - 1).collect();
        let before = self.caches.checkpoint()?;
        let (hidden, is_usual) = self.compute_several(model, &ids, positions, dispatcher)?;
        let logits = model.logits(&hidden)?;
        // To [rows · positions, vocab_size].
        let logits = ops::reshape(&logits, &[(rows * positions) as i32, model.vocab_size])?;
        clock.lap(Part::Build);
        let drawn = self.draw_behind(&logits, &drafts, positions)?;
        clock.lap(Part::Wait);
        let (left, accepted) = self.accept_drafts(model, &drafts, drawn, clock)?;
        dispatcher.wait()?;
        dispatcher.rest();
        let now = Instant::now();
        let began = self.last_verified.filter(|_| before.is_none()).unwrap_or(started);
        let took = now.saturating_duration_since(began);
        match is_usual {
            true => clock.costs.note(rows, positions, took),
            false => clock.costs.note_try(rows, positions, took),
        }
        self.last_verified = Some(now);
        // Whatever fails from now on, rows that have ended leave.
        let kept = match before {
            None => self.take_back(&accepted, length, dispatcher),
            Some(_) if accepted.iter().all(|count| *count == length) => Ok(()),
            Some(before) => self
                .caches
                .go_back(before, positions as i32)
                .map_err(Into::into)
                .and_then(|()| self.compute_drawn(model, &held, &accepted, dispatcher)),
        };
        let kept = kept.and_then(|()| Ok(self.keep_ended(&left, served, prefixes)?));
        let mut out = Vec::with_capacity(left.len());
        for (at, exit) in left.into_iter().rev() {
            out.push((self.unseat(at).0, exit));
        }
        self.refresh();
        let result = kept.and_then(|()| self.go_on(served, (None, None), Some(dispatcher), clock));
        Ok(Stepped { left: out, result })
    }

    /// Computes so many `positions` of each row from their `ids`: hidden states `[rows, positions,
    /// hidden_size]`, or `[rows · positions, 1, hidden_size]`, and whether others will be computed
    /// likewise.
    pub(super) fn compute_several(
        &mut self,
        model: &Decoder,
        ids: &[u32],
        positions: usize,
        dispatcher: &mut Dispatcher,
    ) -> Result<(Array, bool)> {
        let shape = [ids.len() / positions, positions].map(|size| size as i32);
        let tail = (model.kernels == Kernels::Cuda).then(|| self.all_of(ids.len())).transpose()?;
        let ids = Indices::from_u32(ids, &shape)?;
        let mut pass = model.begin(&ids, &self.caches)?.with_tail(tail);
        let is_usual = dispatcher.verify(model, &mut pass, &mut self.caches)?;
        Ok((pass.h().share()?, is_usual))
    }

    /// Takes the draft tokens of each row back but those that were `accepted`, of `length` ones.
    fn take_back(
        &mut self,
        accepted: &[usize],
        length: usize,
        dispatcher: &mut Dispatcher,
    ) -> Result<()> {
        let counts: Vec<i32> = accepted.iter().map(|count| (length - count) as i32).collect();
        if accepted.iter().all(|count| *count == accepted[0]) {
            return Ok(self.caches.truncate(&counts)?);
        }
        // Captures hold the buffers that are about to be replaced.
        let was_captured = self.capture.is_captured();
        self.capture.forget();
        let more = self.more(0, self.rows.iter());
        self.caches.truncate_into(&counts, more, |written| dispatcher.write(written))?;
        self.capture.follow(self.caches.layout(), was_captured);
        Ok(())
    }

    /// Computes again, in states that were set back, the id behind `held` ones of each row and as
    /// many more as were `accepted`.
    fn compute_drawn(
        &mut self,
        model: &Decoder,
        held: &[usize],
        accepted: &[usize],
        dispatcher: &mut Dispatcher,
    ) -> Result<()> {
        let longest = accepted.iter().copied().max().unwrap_or(0);
        let mut ids = Vec::with_capacity(held.len() * (1 + longest));
        for ((row, held), accepted) in self.rows.iter().zip(held).zip(accepted) {
            ids.extend(row.ids[*held..].iter().take(1 + accepted));
            ids.extend(std::iter::repeat_n(0, longest - accepted));
        }
        let shape = [held.len() as i32, 1 + longest as i32];
        let mut pass = model.begin(&Indices::from_u32(&ids, &shape)?, &self.caches)?;
        let is_even = accepted.iter().all(|count| *count == longest);
        if !is_even {
            pass.set_lengths(accepted.iter().map(|count| 1 + *count as i32).collect());
        }
        dispatcher.verify(model, &mut pass, &mut self.caches)?;
        async_eval(self.caches.arrays())?;
        dispatcher.wait()?;
        dispatcher.rest();
        if !is_even {
            let rows = accepted.iter().map(|count| (longest - count) as i32).enumerate();
            self.capture.forget();
            let room = self.more(0, self.rows.iter()).positions.max(ROOM);
            self.caches = self.caches.copies(&rows.collect::<Vec<_>>(), room)?;
            dispatcher.write(&self.caches.arrays().collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// So many positions, all of a pass. What comes from the host for each pass takes long.
    fn all_of(&mut self, count: usize) -> mlx_ffi::Result<Tail> {
        let known = self.all_positions.take_if(|(known, _)| *known == count);
        let all = match known {
            Some((_, all)) => all,
            None => Tail::new(&(0..count as u32).collect::<Vec<_>>())?,
        };
        let shared = all.share()?;
        self.all_positions = Some((count, all));
        Ok(shared)
    }

    /// Draws from `logits`, `[rows · positions, vocab_size]`, as far as no draw has to know the ids
    /// before it, and waits for what is drawn.
    fn draw_behind(
        &mut self,
        logits: &Array,
        drafts: &[Vec<u32>],
        positions: usize,
    ) -> Result<Vec<Drawn>> {
        let mut samplers: Vec<&mut Sampler> =
            self.rows.iter_mut().map(|row| &mut row.sampler).collect();
        let ids = Draws::of_positions(&mut samplers, positions, logits, &mut self.drawer)?;
        if let Some(ids) = ids {
            let ids = ids.to_vec_u32()?;
            return Ok(ids.chunks(positions).map(|ids| Drawn::Ids(ids.to_vec())).collect());
        }
        let mut all = Vec::with_capacity(drafts.len());
        for ((row, draft), at) in self.rows.iter_mut().zip(drafts).zip(0..) {
            let first = at * positions as i32;
            let logits = ops::slice_axis(logits, 0, first, first + positions as i32)?;
            let draws: Vec<Draw> = match row.sampler.needs_history() {
                true => Vec::new(),
                false => (0..=draft.len())
                    .map(|at| row.sampler.draw(&position(&logits, at)?))
                    .collect::<Result<_>>()?,
            };
            async_eval(draws.iter().flat_map(Draw::arrays).chain([&logits]))?;
            all.push(Drawn::Draws(draws.into_iter(), logits));
        }
        Ok(all)
    }

    /// Hands tokens over as long as they are those of the drafts.
    ///
    /// # Errors
    /// Those of MLX.
    fn accept_drafts(
        &mut self,
        model: &Decoder,
        drafts: &[Vec<u32>],
        drawn: Vec<Drawn>,
        clock: &mut StepClock,
    ) -> Result<Verified> {
        let factors = self.caches.rope_factors();
        let (mut left, mut accepted) = (Vec::new(), Vec::with_capacity(drafts.len()));
        let rows = self.rows.iter_mut().zip(drafts).zip(drawn);
        for (at, ((row, draft), drawn)) in rows.enumerate() {
            let step = row.generated();
            let accept = || accept(row, draft, drawn, clock);
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

/// Takes in what is drawn behind a row's positions until it is another id than that of the draft.
/// Returns how many were those of the draft, and why the row ends, if so.
fn accept(
    row: &mut Row,
    draft: &[u32],
    mut drawn: Drawn,
    clock: &mut StepClock,
) -> (usize, Result<Option<FinishReason>>) {
    let held = row.ids.len() - 1;
    let mut accepted = 0;
    let reason = loop {
        let before = row.generated();
        let mut next = || -> Result<(u32, Option<FinishReason>)> {
            let (id, report) = match &mut drawn {
                Drawn::Ids(ids) => (ids[accepted], Report::default()),
                Drawn::Draws(draws, logits) => {
                    let draw = match draws.next() {
                        Some(draw) => draw,
                        None => row.sampler.draw(&position(logits, accepted)?)?,
                    };
                    let id = draw.id.to_vec_u32()?.into_iter().next().unwrap_or_default();
                    (id, draw.report)
                }
            };
            clock.lap(Part::Wait);
            let reason = row.accept(id, &report, clock)?;
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
    if let Some(drafts) = &mut row.drafts {
        drafts.note(held, draft.len(), accepted);
    }
    row.sampler.forget_draws_after(row.generated());
    (accepted, reason)
}

/// The logits of one position, `[1, vocab_size]`.
fn position(logits: &Array, at: usize) -> mlx_ffi::Result<Array> {
    ops::slice_axis(logits, 0, at as i32, at as i32 + 1)
}
