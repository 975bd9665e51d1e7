//! One step of all rows of a batch.

use std::time::Instant;

use mlx_ffi::{Array, async_eval, ops};

use super::super::ahead::Ahead;
use super::super::dispatcher::Dispatcher;
use super::super::drawn::Drawn;
use super::super::row::Row;
use super::super::served::Served;
use super::super::step_clock::{Part, StepClock};
use super::super::taking::{Exit, take_in};
use super::{Group, Stepped};
use crate::cache::PrefixCache;
use crate::error::Result;
use crate::layers::{Decoder, SplitLogits};

/// Steps after which slots are given up of which half or more stay vacant.
const SPARSE_STEPS: usize = 32;

impl Group {
    /// One step: queues the next pass of the model, then reads what the last one drew, so that the
    /// device never waits for the host.
    ///
    /// # Errors
    /// Those of MLX before a row left, which end the whole group.
    pub fn step(
        &mut self,
        served: &Served,
        (prefixes, dispatcher): (&mut PrefixCache, &mut Dispatcher),
        clock: &mut StepClock,
    ) -> Result<Stepped> {
        if self.replays(served) {
            clock.skip();
            self.replay(served, dispatcher)?;
            return Ok(Stepped { left: Vec::new(), result: Ok(()) });
        }
        // A row that is computed by itself takes the passes that it would take again: each is
        // decided on when all ids before it are known.
        let reads_first = served.alone && self.drafts() && self.drawn.is_some();
        let length = if reads_first { 0 } else { self.draft_length(served, clock) };
        if reads_first || length > 0 && self.drawn.is_some() {
            // What was drawn is read first: the draft may go on behind it.
            let read = self.take_step(false, served, (prefixes, Some(dispatcher)), clock)?;
            self.refresh();
            return Ok(read);
        }
        if length > 0 {
            return self.verify_drafts(served, (prefixes, dispatcher), length, clock);
        }
        let any_goes_on = self.any_goes_on(&served.model);
        if any_goes_on {
            self.make_longer(dispatcher)?;
        }
        self.take_step(any_goes_on, served, (prefixes, Some(dispatcher)), clock)
    }

    /// Returns true when the next step can be queued behind a pass of prompts in flight.
    /// The buffers stay as they are: slots that rows leave stay vacant, and none are given up.
    pub fn can_step_behind(&self, served: &Served) -> bool {
        served.keeps_slots
            && self.sparse <= SPARSE_STEPS
            && !self.replays(served)
            && self.caches.have_room()
            && self.any_goes_on(&served.model)
    }

    /// One step behind a pass of prompts in flight.
    /// The device goes on with it while rows join whose prompts end with the pass. The next
    /// scheduling step takes the next one.
    ///
    /// # Errors
    /// Those of MLX before a row left, which end the whole group.
    pub fn step_behind(
        &mut self,
        served: &Served,
        prefixes: &mut PrefixCache,
        clock: &mut StepClock,
    ) -> Result<Stepped> {
        self.has_stepped = true;
        self.take_step(true, served, (prefixes, None), clock)
    }

    /// Queues a pass of the model where any row goes on, then reads what the last one drew.
    fn take_step(
        &mut self,
        any_goes_on: bool,
        served: &Served,
        others: (&mut PrefixCache, Option<&mut Dispatcher>),
        clock: &mut StepClock,
    ) -> Result<Stepped> {
        let mut unread = self.drawn.take();
        if let Some(unread) = &mut unread {
            unread.exchange(served)?;
        }
        clock.lap(Part::Rest);
        let logits = if any_goes_on {
            clock.count();
            Some(self.forward(&served.model, unread.as_ref())?)
        } else {
            None
        };
        self.end_step(served, (unread, logits), others, clock)
    }

    /// Returns true when any row's next step is of use.
    pub(super) fn any_goes_on(&self, model: &Decoder) -> bool {
        let goes_on = |(row, slot): (&Row, &usize)| {
            let unread = usize::from(self.drawn.as_ref().is_some_and(|drawn| drawn.has(*slot)));
            row.generated() + unread < row.max_tokens
                && model.rope_factors(row.ids.len() + unread) == self.caches.rope_factors()
        };
        self.rows.iter().zip(&self.slots).any(goes_on)
    }

    /// The end of a step whose `logits` are queued, `[slots, ids]`: queues the draws, then reads
    /// those of the last step. Without a dispatcher, which a pass has then, vacant slots wait for
    /// the next step.
    ///
    /// # Errors
    /// Those of MLX before a row left, which end the whole group.
    pub(super) fn end_step(
        &mut self,
        served: &Served,
        (unread, logits): (Option<Drawn>, Option<Array>),
        (prefixes, dispatcher): (&mut PrefixCache, Option<&mut Dispatcher>),
        clock: &mut StepClock,
    ) -> Result<Stepped> {
        let model = &served.model;
        clock.lap(Part::Build);
        let samplers = self.rows.iter().map(|row| &row.sampler);
        let fewest = model.split_logits.as_ref().map(SplitLogits::fewest);
        let ahead = served.ranks.agree("looking ahead", || Ahead::of(samplers, fewest))?;
        let mut next = None;
        match &logits {
            Some(logits) if ahead != Ahead::Nothing => {
                if served.ranks.are_several() {
                    // By itself, so that all ranks compute its operations in the same order.
                    async_eval([logits])?;
                }
                let mut drawn = match (ahead, &model.split_logits) {
                    (Ahead::MostLikely, Some(split)) => self.most_likely(split, logits)?,
                    (Ahead::Top(count), Some(split)) => {
                        let top = split.top(&self.of_rows(logits)?, count as i32)?;
                        let known =
                            if served.ranks.follow() { top.exchanged()? } else { top.spread()? };
                        self.draw(served, &known, ahead)?
                    }
                    _ => self.draw(served, &model.of_all(logits.share()?)?, ahead)?,
                };
                clock.lap(Part::Sample);
                drawn.send(served, ahead)?;
                next = Some(drawn);
            }
            Some(logits) => async_eval([logits])?,
            None => {}
        }
        clock.lap(Part::Encode);
        if let Some(unread) = &unread {
            served.ranks.have_computed(&unread.draws.ids)?;
        }
        let rows = self.rows.len();
        let left = match served.ranks.follow() {
            true => self.follow(unread)?,
            false => self.read(model, unread, clock)?,
        };
        let now = Instant::now();
        if let Some(before) = self.last_read.take() {
            clock.costs.note(rows, 1, now.saturating_duration_since(before));
        }
        // What follows a pass of prompts takes longer than a step.
        self.last_verified = None;
        self.last_read = logits.as_ref().filter(|_| dispatcher.is_some()).map(|_| now);
        let left = served.ranks.exits(&mut self.rows, left)?;
        self.fresh.clear();
        self.keep_ended(&left, served, prefixes)?;
        let was_drawn = next.is_some();
        let mut out = Vec::with_capacity(left.len());
        for (at, exit) in left.into_iter().rev() {
            let (mut row, slot) = self.unseat(at);
            if was_drawn && matches!(exit, Exit::Outgrown) {
                row.sampler.forget_draw();
            }
            if let Some(next) = &mut next {
                next.forget(slot);
            }
            out.push((row, exit));
        }
        let result = self.go_on(served, (next, logits), dispatcher, clock);
        Ok(Stepped { left: out, result })
    }

    /// The end of a step, with the rows that are left: draws from `logits` where nothing is drawn
    /// yet.
    ///
    /// # Errors
    /// Those of MLX.
    pub(super) fn go_on(
        &mut self,
        served: &Served,
        (mut next, logits): (Option<Drawn>, Option<Array>),
        dispatcher: Option<&mut Dispatcher>,
        clock: &mut StepClock,
    ) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        if let (None, Some(logits)) = (&next, logits) {
            clock.lap(Part::Rest);
            let mut drawn = self.draw(served, &served.model.of_all(logits)?, Ahead::Nothing)?;
            clock.lap(Part::Sample);
            drawn.send(served, Ahead::Nothing)?;
            clock.lap(Part::Encode);
            next = Some(drawn);
        }
        self.drawn = next;
        let is_sparse = 2 * self.rows.len() <= self.caches.slots();
        self.sparse = if is_sparse { self.sparse + 1 } else { 0 };
        let keeps_slots = served.keeps_slots && self.caches.can_join();
        match dispatcher {
            Some(dispatcher) if !keeps_slots || self.sparse > SPARSE_STEPS => {
                self.compact(dispatcher)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Waits for the step that was queued last; what it drew is read by the next one.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn wait(&self) -> Result<()> {
        self.drawn.as_ref().map_or(Ok(()), |drawn| Ok(drawn.draws.ids.eval()?))
    }

    /// Queues the pass of each slot's next id: the logits that this rank computes, `[slots, ids]`.
    pub(super) fn forward(&mut self, model: &Decoder, unread: Option<&Drawn>) -> Result<Array> {
        let slots = self.caches.slots();
        let ids = self.next_ids.of(slots, unread, &self.fresh)?.reshape(&[slots as i32, 1])?;
        let hidden = model.hidden(&ids, &mut self.caches, &mut self.capture)?;
        logits_of(model, &hidden)
    }

    /// Waits for the draws of rank 0, and takes them in. Which rows leave is agreed on after.
    ///
    /// # Errors
    /// Those of MLX.
    fn follow(&mut self, unread: Option<Drawn>) -> Result<Vec<(usize, Exit)>> {
        let drawn = unread.as_ref().map(Drawn::read).transpose()?;
        let mut drawn = drawn.into_iter().flatten().peekable();
        for (row, slot) in self.rows.iter_mut().zip(&self.slots) {
            if let Some((_, id, _)) = drawn.next_if(|(drawn, ..)| drawn == slot) {
                row.follow(id.unwrap_or_default());
            }
        }
        Ok(Vec::new())
    }

    /// Waits for the draws and hands their tokens over. Returns the indices of the rows that leave,
    /// in ascending order, with the reason.
    fn read(
        &mut self,
        model: &Decoder,
        unread: Option<Drawn>,
        clock: &mut StepClock,
    ) -> Result<Vec<(usize, Exit)>> {
        let drawn = unread.as_ref().map(Drawn::read).transpose()?;
        clock.lap(Part::Wait);
        let mut drawn = drawn.into_iter().flatten().peekable();
        let factors = self.caches.rope_factors();
        let fit = |row: &Row| model.rope_factors(row.ids.len()) == factors;
        let mut left = Vec::new();
        for (at, (row, slot)) in self.rows.iter_mut().zip(&self.slots).enumerate() {
            let own =
                drawn.next_if(|(drawn, ..)| drawn == slot).map(|(_, id, report)| (id, report));
            left.extend(take_in(row, own, fit, clock).map(|exit| (at, exit)));
        }
        Ok(left)
    }
}

/// Hidden states of slots, `[slots, 1, hidden_size]`, to the logits that this rank computes,
/// `[slots, ids]`.
pub(super) fn logits_of(model: &Decoder, hidden: &Array) -> Result<Array> {
    // [slots, 1, ids] -> [slots, ids]
    Ok(ops::squeeze(&model.own_logits(hidden)?, 1)?)
}
