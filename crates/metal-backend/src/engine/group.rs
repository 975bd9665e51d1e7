//! Rows that are decoded together: each step is one pass of the model for all of them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use inference_core::FinishReason;
use mlx_ffi::{Array, Indices, async_eval, ops};

use super::row::Row;
use super::served::Served;
use super::step_clock::{Part, StepClock};
use crate::cache::{Caches, Moment, PrefixCache};
use crate::error::{Result, panicked};
use crate::layers::{Decoder, StepCapture};
use crate::sampling::{Draws, Sampler, take_rows};

/// A batch whose rows come and go between steps.
pub(super) struct Group {
    rows: Vec<Row>,
    caches: Caches,
    capture: StepCapture,
    /// The draws of the first rows, which run already and are read after the next step was queued.
    drawn: Option<Draws>,
    /// The next ids of the rows after those: rows that just joined.
    fresh: Vec<u32>,
}

/// What came of a step.
pub(super) struct Stepped {
    /// The rows that leave.
    pub left: Vec<(Row, Exit)>,
    /// Whether the others can go on; an error ends the group that they are.
    pub result: Result<()>,
}

/// Why a row leaves a batch.
pub(super) enum Exit {
    /// It ended so.
    Ended(Result<FinishReason>),
    /// From here on its positions are encoded otherwise: its caches are of no use any more.
    Outgrown,
}

impl Group {
    /// A group of rows, whose caches hold all of their ids but the last.
    pub fn new(rows: Vec<Row>, caches: Caches) -> Group {
        let fresh = rows.iter().filter_map(|row| row.ids.last().copied()).collect();
        Group { rows, caches, capture: StepCapture::default(), drawn: None, fresh }
    }

    /// Adds rows, whose caches hold all of their ids but the last.
    ///
    /// # Errors
    /// Those of MLX, which end the whole group.
    pub fn join(&mut self, rows: Vec<Row>, caches: Caches) -> Result<()> {
        self.fresh.extend(rows.iter().filter_map(|row| row.ids.last()));
        self.rows.extend(rows);
        Ok(self.caches.join(caches)?)
    }

    /// The rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows, to take note of what happens around them.
    pub fn rows_mut(&mut self) -> &mut [Row] {
        &mut self.rows
    }

    /// The rows' caches.
    pub fn caches(&self) -> &Caches {
        &self.caches
    }

    /// Keeps what rows have just computed that later positions overwrite: recurrent states at the end of
    /// a block.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn keep_snapshots(
        &self,
        served: &Served,
        prefixes: &mut PrefixCache,
    ) -> mlx_ffi::Result<()> {
        if !self.caches.need_snapshots() {
            return Ok(());
        }
        let all = 0..self.rows.len();
        all.filter(|at| PrefixCache::fills_a_block(self.rows[*at].ids.len()))
            .try_for_each(|at| self.keep_prefix(at, served, prefixes))
    }

    /// Keeps the keys and values of a row for later requests.
    fn keep_prefix(
        &self,
        at: usize,
        served: &Served,
        prefixes: &mut PrefixCache,
    ) -> mlx_ffi::Result<()> {
        let row = &self.rows[at];
        if !served.shares(row.first_pass()) {
            return Ok(());
        }
        let held = self.caches.offsets()[at] as usize;
        prefixes.keep((&row.ids, held), &self.caches, at, Moment::Decode)
    }

    /// All rows, at the end of a group that failed.
    pub fn into_rows(self) -> Vec<Row> {
        self.rows
    }

    /// One step: queues the next pass of the model, then reads what the last one drew, so that the
    /// device never waits for the host.
    ///
    /// # Errors
    /// Those of MLX before a row left, which end the whole group.
    pub fn step(
        &mut self,
        served: &Served,
        prefixes: &mut PrefixCache,
        clock: &mut StepClock,
    ) -> Result<Stepped> {
        let model = &served.model;
        let unread = self.drawn.take();
        let read = unread.as_ref().map_or(0, |draws| draws.reports.len());
        let goes_on = |(index, row): (usize, &Row)| {
            let unread = usize::from(index < read);
            row.generated() + unread < row.max_tokens
                && model.rope_factors(row.ids.len() + unread) == self.caches.rope_factors()
        };
        let any_goes_on = self.rows.iter().enumerate().any(goes_on);
        clock.lap(Part::Rest);
        let logits = if any_goes_on {
            clock.count();
            Some(self.forward(model, unread.as_ref())?)
        } else {
            None
        };
        clock.lap(Part::Build);
        let looks_ahead = !self.rows.iter().any(|row| row.sampler.needs_history());
        let mut next = None;
        match &logits {
            Some(logits) if looks_ahead => {
                let draws = draw(&mut self.rows, logits)?;
                clock.lap(Part::Sample);
                async_eval(draws.arrays())?;
                next = Some(draws);
            }
            Some(logits) => async_eval([logits])?,
            None => {}
        }
        clock.lap(Part::Encode);
        let left = self.read(model, unread, clock)?;
        self.fresh.clear();
        let stays: Vec<usize> =
            (0..self.rows.len()).filter(|row| !left.iter().any(|(at, _)| at == row)).collect();
        for (at, exit) in &left {
            if matches!(exit, Exit::Ended(Ok(_))) {
                self.keep_prefix(*at, served, prefixes)?;
            }
        }
        let was_drawn = next.is_some();
        let has_left = !left.is_empty();
        let mut out = Vec::with_capacity(left.len());
        for (at, exit) in left.into_iter().rev() {
            let mut row = self.rows.remove(at);
            if was_drawn && matches!(exit, Exit::Outgrown) {
                row.sampler.forget_draw();
            }
            out.push((row, exit));
        }
        let stays = has_left.then_some(&stays[..]).filter(|stays| !stays.is_empty());
        let result = self.go_on(stays, next, logits, clock);
        Ok(Stepped { left: out, result })
    }

    /// The end of a step, after which the rows of `stays` are left of those that took part, or all: draws
    /// from `logits` where nothing is drawn yet.
    ///
    /// # Errors
    /// Those of MLX.
    fn go_on(
        &mut self,
        stays: Option<&[usize]>,
        mut next: Option<Draws>,
        mut logits: Option<Array>,
        clock: &mut StepClock,
    ) -> Result<()> {
        if let Some(stays) = stays {
            self.caches.keep(stays)?;
            if let Some(draws) = next.take() {
                next = Some(draws.keep(stays)?);
            } else if let Some(all) = &logits {
                logits = Some(take_rows(all, stays)?);
            }
        }
        if let (None, Some(logits), false) = (&next, logits, self.rows.is_empty()) {
            clock.lap(Part::Rest);
            let draws = draw(&mut self.rows, &logits)?;
            clock.lap(Part::Sample);
            async_eval(draws.arrays())?;
            clock.lap(Part::Encode);
            next = Some(draws);
        }
        self.drawn = next;
        Ok(())
    }

    /// Waits for the step that was queued last; what it drew is read by the next one.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn wait(&self) -> Result<()> {
        self.drawn.as_ref().map_or(Ok(()), |draws| Ok(draws.ids.eval()?))
    }

    /// Takes a row out and leaves the others; what it has drawn and not read is forgotten.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn remove(&mut self, at: usize) -> Result<Row> {
        let stays: Vec<usize> = (0..self.rows.len()).filter(|row| *row != at).collect();
        if !stays.is_empty() {
            self.caches.keep(&stays)?;
        }
        if let Some(draws) = self.drawn.take() {
            let read = draws.reports.len();
            let kept: Vec<usize> = stays.iter().copied().filter(|row| *row < read).collect();
            if at < read {
                self.rows[at].sampler.forget_draw();
            }
            if at >= read {
                self.fresh.remove(at - read);
                self.drawn = Some(draws);
            } else if !kept.is_empty() {
                self.drawn = Some(draws.keep(&kept)?);
            }
        } else {
            self.fresh.remove(at);
        }
        Ok(self.rows.remove(at))
    }

    /// Queues the pass of each row's next id; `[rows, vocab_size]`.
    fn forward(&mut self, model: &Decoder, unread: Option<&Draws>) -> Result<Array> {
        let fresh = match self.fresh.len() {
            0 => None,
            count => Some(Indices::from_u32(&self.fresh, &[count as i32])?),
        };
        let parts: Vec<&Indices> =
            unread.map(|draws| &draws.ids).into_iter().chain(&fresh).collect();
        let ids = match parts[..] {
            [ids] => ids.share()?,
            _ => Indices::concatenate(&parts, 0)?,
        };
        let ids = ids.reshape(&[self.rows.len() as i32, 1])?;
        let hidden = model.hidden(&ids, &mut self.caches, &mut self.capture)?;
        // [rows, 1, vocab_size] -> [rows, vocab_size]
        Ok(ops::squeeze(&model.logits(&hidden)?, 1)?)
    }

    /// Waits for the draws and hands their tokens over. Returns the indices of the rows that leave,
    /// in ascending order, with the reason.
    fn read(
        &mut self,
        model: &Decoder,
        unread: Option<Draws>,
        clock: &mut StepClock,
    ) -> Result<Vec<(usize, Exit)>> {
        let ids = unread.as_ref().map(|draws| draws.ids.to_vec_u32()).transpose()?;
        clock.lap(Part::Wait);
        let drawn = ids.iter().flatten().zip(unread.iter().flat_map(|draws| &draws.reports));
        let mut drawn = drawn;
        let factors = self.caches.rope_factors();
        let mut left = Vec::new();
        for (at, row) in self.rows.iter_mut().enumerate() {
            let step = row.generated();
            let accept = || -> Result<Option<FinishReason>> {
                let reason = match drawn.next() {
                    Some((id, report)) => row.accept(*id, report, clock)?,
                    None => None,
                };
                let reason = reason.or(row.is_cancelled().then_some(FinishReason::Cancelled));
                if reason.is_none() {
                    row.sampler.prepare()?;
                    clock.lap(Part::Sample);
                }
                Ok(reason.map(|reason| row.end(reason)))
            };
            let result = catch_unwind(AssertUnwindSafe(accept))
                .unwrap_or_else(|panic| Err(panicked("the request", &*panic).into()));
            match result {
                Ok(None) if model.rope_factors(row.ids.len()) != factors => {
                    left.push((at, Exit::Outgrown))
                }
                Ok(None) => {}
                Ok(Some(reason)) => left.push((at, Exit::Ended(Ok(reason)))),
                Err(error) => {
                    let error = error.in_phase(&format!("decode step {step}"));
                    left.push((at, Exit::Ended(Err(error))));
                }
            }
        }
        Ok(left)
    }
}

fn draw(rows: &mut [Row], logits: &Array) -> Result<Draws> {
    let mut samplers: Vec<&mut Sampler> = rows.iter_mut().map(|row| &mut row.sampler).collect();
    Draws::new(&mut samplers, logits)
}
