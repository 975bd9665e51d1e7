//! Prompts, computed a part at a time between the steps of batches.

use std::cmp::Reverse;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use inference_core::{CacheMiss, FinishReason};

use super::decoding::caught;
use super::{Prefill, Row, Scheduler, Served};
use crate::cache::{Caches, Keeping, Moment, More, PrefixCache};
use crate::engine::group::Stepped;
use crate::engine::prefill::{Computed, Sent};
use crate::engine::step_clock;
use crate::engine::taking::Exit;
use crate::error::{Error, Result, panicked};
use crate::layers::JoiningRows;
use crate::plan::{self, Pace, Part, Passes, QUANTUM, Waiting};

/// The error of rows that a pass did not give back.
fn lost_rows() -> Error {
    mlx_ffi::Error::new("a pass of prompts lost the rows that decode in it").into()
}

/// Keeps what others may go on from of prompts, behind a chunk.
fn keep_prompts(
    served: &Served,
    prefixes: &mut PrefixCache,
    prefill: &Prefill,
) -> mlx_ffi::Result<()> {
    let leaves = served.leaves_prefixes(&prefill.caches);
    let shares = |row: &Row| leaves && served.shares(row.first_pass());
    let shared = prefill.held().enumerate().filter(|(_, (row, _))| shares(row));
    let rows = shared.map(|(at, (row, held))| Keeping { ids: row.keys(), held, row: at });
    prefixes.keep(&rows.collect::<Vec<_>>(), &prefill.caches, Moment::Prefill)
}

/// The longest wait for steps that had ended already.
const AT_ONCE: Duration = Duration::from_micros(100);

impl Scheduler<'_> {
    /// Waits for the steps that were queued.
    pub(super) fn wait_for_steps(&mut self) {
        // In the order in which they were queued: what failed is told to the first that waits.
        let mut at = 0;
        while at < self.groups.len() {
            match self.groups[at].wait() {
                Ok(()) => at += 1,
                Err(error) => self.fail_step(at, error),
            }
        }
        self.clock.lap(step_clock::Part::Wait);
    }

    /// Begins a row's prompt, where a cache holds its beginning behind that.
    pub(super) fn begin_prefill(&mut self, mut row: Row) {
        let Served { model, specs, storage, alone, .. } = self.served;
        // A row that is computed by itself takes the steps again that it took, behind the same
        // chunks.
        row.chunked = row.chunked.filter(|chunked| *alone && *chunked < row.ids.len());
        let total = row.ids.len() + row.max_tokens - row.generated();
        let factors = model.rope_factors(row.ids.len());
        let shift = row.scene.as_ref().map_or(0, |scene| scene.delta());
        let mut caches = Caches::new(specs, *storage, 1, total)
            .with_rope_factors(factors)
            .with_shift(shift)
            .with_followed(row.asks_model_for_drafts());
        // What is told of the prompt's tokens is computed with them.
        // A drafter would go on from a prefix otherwise than from what it took in itself.
        let drafts_alone = *alone && row.asks_model_for_drafts();
        let computes_all = row.prompt_logprobs.is_some() || drafts_alone;
        let keys = row.keys();
        let known = if computes_all { &[] } else { &keys[..row.chunked.unwrap_or(keys.len())] };
        let ends = |held: usize| !row.is_inside_picture(held);
        let filled = self.prefixes.cache.fill(&mut caches, known, self.served.usable(), ends);
        drop(keys);
        match filled {
            Ok(miss) => {
                let miss = match miss {
                    Some(CacheMiss::Off) => miss,
                    _ if row.prompt_logprobs.is_some() => Some(CacheMiss::PromptLogprobs),
                    _ => miss,
                };
                let done = caches.offsets()[0] as usize;
                row.cached(done, miss);
                let stop = self.stop(&row, &caches);
                // What a cache holds decides nothing of a row that is computed by itself.
                let first = if *alone { 0 } else { done };
                // Where the oldest positions give way, a step forgets others than a chunk.
                let may_draw = self.served.draws_from_prompt(first, row.ids.len() - first)
                    && caches.can_join();
                self.prefills.push(Prefill::new(row, caches, stop, may_draw));
                self.beat();
            }
            Err(error) => self.fail_prefills(vec![row], error.into()),
        }
    }

    /// Ids of a prompt after which a chunk ends so that a snapshot can be taken there; 0: nowhere.
    fn stop(&self, row: &Row, caches: &Caches) -> usize {
        // Where none is taken, and where a row is computed by itself, its chunks are those that it
        // has without a cache.
        let are_taken = caches.need_snapshots() && caches.can_join() && self.prefixes.cache.is_on();
        if !are_taken || self.served.alone {
            return 0;
        }
        let mut stop = PrefixCache::whole_blocks(row.ids.len());
        // Nothing goes on from inside of a picture.
        while row.is_inside_picture(stop) {
            stop = PrefixCache::whole_blocks(stop);
        }
        // A first chunk that sees itself as it is stays whole.
        if stop < self.served.usable().least { 0 } else { stop }
    }

    /// The work on prompts of a scheduling step; `batch` may take its step in their pass.
    pub(super) fn next_part(&self, turn: usize, batch: Option<usize>) -> Option<Part> {
        let Served { model, chunk, budget, .. } = self.served;
        let waiting: Vec<_> = self.prefills.iter().map(|prefill| prefill.waiting(*chunk)).collect();
        let memory = self.memory();
        let passes = Passes {
            positions: if self.served.alone { 0 } else { self.served.pass },
            room: memory.room(),
            n_layers: model.layers.len(),
            rows: batch.map_or(0, |at| self.groups[at].caches().slots()),
            may_begin: !memory.is_short() || !self.anything_goes_on(),
        };
        let bytes = |all: &Waiting| budget.pass(all.rows, all.columns, all.tokens);
        plan::part(turn, &waiting, self.pace, passes, bytes)
    }

    /// Computes a part of one prompt, or of several together, behind the steps that were queued
    /// unless these are `awaited` already. Then the next ones are queued behind it.
    pub(super) fn prefill(&mut self, awaited: bool) {
        let Served { model, chunk, budget, .. } = self.served;
        let batch = self.batch_for_pass();
        if budget.chunk_work() > self.memory().room() {
            // What passes leave for later ones is in the way.
            self.dispatcher.forget();
        }
        let turn = self.turns;
        let part = self.agree("prompts", |scheduler| scheduler.next_part(turn, batch));
        // What follows a turn without a part, or with one that fails, is not steps alone.
        let last_ended = self.part_ended.take();
        let Some(part) = part else { return };
        let Some(at) = self.gather(part.lead, &part.with) else { return };
        let Part { layers, positions, is_mixed, .. } = part;
        let batch = batch.filter(|_| is_mixed && self.watch.check("prefill").is_ok());
        let joining = match batch.map(|batch| self.groups[batch].join_pass()).transpose() {
            Ok(joining) => joining,
            Err(error) => return self.fail_step(batch.unwrap_or_default(), error),
        };
        let rows = joining.as_ref().map_or(0, JoiningRows::rows);
        let (room, prefill) = (self.memory().room(), &mut self.prefills[at]);
        // Copies for later requests are made beside all values of the pass where both have room,
        // otherwise behind it.
        let Waiting { rows: prompts, columns, tokens, .. } = prefill.waiting(*chunk);
        let copies = budget.caches(prompts, columns);
        let keeps_early = budget.pass(prompts, columns, tokens) + copies <= room;
        let reads = prefill.is_reading();
        let mut begun = Instant::now();
        let (watch, dispatcher) = (&self.watch, &mut self.dispatcher);
        let (prefixes, clock) = (&mut self.prefixes.cache, &mut self.clock);
        let (mut stepped, mut steps, mut kept) = (None, Vec::new(), None);
        // Ranks wait for each other at the same places.
        let awaited = awaited || self.served.ranks.are_several();
        let groups = &mut self.groups;
        let sent = |what: Sent<'_>| {
            match (batch, what) {
                (Some(batch), Sent::Rows(leaving)) => {
                    let group = &mut groups[batch];
                    stepped =
                        Some(caught(|| group.leave_pass(leaving, self.served, prefixes, clock)));
                    return;
                }
                (_, Sent::Chunk(prefill)) => {
                    kept = keeps_early.then(|| keep_prompts(self.served, prefixes, prefill));
                    return;
                }
                _ => {}
            }
            if awaited {
                return;
            }
            let sent = Instant::now();
            // What a batch queued in the pass ends with it.
            let others = groups.iter().enumerate().filter(|(at, _)| Some(*at) != batch);
            steps.extend(others.filter_map(|(at, group)| Some((at, Err(group.wait().err()?)))));
            // The part began no earlier, where the steps took longer than it took to send it.
            if sent.elapsed() > AT_ONCE {
                begun = Instant::now();
            }
            // After a failure nothing more is queued.
            if matches!(kept, Some(Err(_))) || !steps.is_empty() {
                return;
            }
            clock.skip();
            for (at, group) in groups.iter_mut().enumerate() {
                if Some(at) != batch && group.can_step_behind(self.served) {
                    steps.push((at, caught(|| group.step_behind(self.served, prefixes, clock))));
                }
            }
        };
        let part = || {
            watch.check("prefill")?;
            match reads {
                true => prefill.read(self.served, QUANTUM),
                false if !prefill.look(self.served, QUANTUM)? => Ok(()),
                false => {
                    let ranks = &self.served.ranks;
                    prefill.advance((model, ranks), *chunk, layers, joining, dispatcher, sent)
                }
            }
        };
        let result = catch_unwind(AssertUnwindSafe(part))
            .unwrap_or_else(|panic| Err(panicked("the request", &*panic).into()));
        if let Some(batch) = batch {
            // It ends with a pass that has its caches.
            let lost = || Err(result.as_ref().err().cloned().unwrap_or_else(lost_rows));
            let step = stepped.unwrap_or_else(lost).map(|step| match &result {
                // What the device tells of a pass is told once.
                Err(error @ Error::Mlx(_)) => Stepped { result: Err(error.clone()), ..step },
                _ => step,
            });
            steps.push((batch, step));
        }
        // Those that end are gone: the last ones first.
        steps.sort_by_key(|(at, _)| Reverse(*at));
        for (at, step) in steps {
            self.end_step(at, step);
        }
        if let Err(error) = result {
            return self.fail_prefill_at(at, error);
        }
        let took = begun.elapsed();
        self.part_ended = Some(Instant::now());
        let steps = last_ended.and_then(|ended| begun.checked_duration_since(ended));
        // The last part of a chunk leaves the end of the last layer out. What kernels were compiled
        // for tells nothing of the next one.
        let has_compiled = self.dispatcher.take_has_compiled();
        let is_of_layers = self.prefills[at].is_between_layers() || batch.is_some();
        if is_of_layers && !has_compiled {
            self.pace = Pace::of(took, positions + rows, layers);
        }
        self.pace = self.pace.beside(steps.unwrap_or_default());
        // Whoever hears of a first token may ask what it takes.
        self.beat();
        if let Err(error) = self.end_chunk(at, kept) {
            self.fail_prefill_at(at, error);
        }
    }

    /// After a chunk: keeps what others may go on from, unless that is `kept`, and lets rows decode
    /// whose prompts are computed.
    fn end_chunk(&mut self, at: usize, kept: Option<mlx_ffi::Result<()>>) -> Result<()> {
        let prefill = &mut self.prefills[at];
        if !prefill.is_between_chunks() {
            return Ok(());
        }
        kept.unwrap_or_else(|| keep_prompts(self.served, &mut self.prefixes.cache, prefill))?;
        let computed = prefill.end_chunk(&mut self.dispatcher)?;
        if self.prefills[at].is_empty() {
            self.prefills.remove(at);
        }
        if let Some(computed) = computed {
            self.let_decode(computed);
        }
        Ok(())
    }

    /// Lets rows decode whose prompts are computed, but for those that end with that.
    fn let_decode(&mut self, computed: Computed) {
        let Computed { mut rows, mut caches, firsts } = computed;
        rows.iter_mut().for_each(Row::tell_prompt);
        let factors = caches.rope_factors();
        let fit = |row: &Row| self.served.model.rope_factors(row.ids.len()) == factors;
        self.clock.skip();
        let ranks = &self.served.ranks;
        let exits = firsts.map(|firsts| firsts.take_in(ranks, &mut rows, fit, &mut self.clock));
        let exits = match exits.transpose() {
            Ok(exits) => exits.unwrap_or_default(),
            Err(error) => return self.fail_prefills(rows, error),
        };
        let mut exits = exits.into_iter().peekable();
        let (mut stay, mut going, mut left) = (Vec::new(), Vec::new(), Vec::new());
        for (at, mut row) in rows.into_iter().enumerate() {
            let exit = exits.next_if(|(of, _)| *of == at).map(|(_, exit)| exit);
            let exit = match exit {
                None if row.max_tokens == 0 => Some(Exit::Ended(Ok(row.end(FinishReason::Length)))),
                exit => exit,
            };
            match exit {
                None => {
                    stay.push(at);
                    going.push(row);
                }
                Some(exit) => left.push((row, exit)),
            }
        }
        let dispatcher = &mut self.dispatcher;
        let kept = match (going.is_empty(), left.is_empty()) {
            (false, false) => caches
                .rearrange(&stay, Vec::new(), More::default(), |written| dispatcher.write(written)),
            _ => Ok(()),
        };
        match kept {
            Ok(()) if going.is_empty() => drop(caches),
            Ok(()) => self.place(going, caches),
            Err(error) => self.fail_prefills(going, error.into()),
        }
        for (row, exit) in left {
            self.leave(row, exit);
        }
    }

    /// Ends a row that left, or lets it begin again.
    pub(super) fn leave(&mut self, mut row: Row, exit: Exit) {
        match exit {
            Exit::Ended(result) => self.end(row, result),
            Exit::Outgrown => {
                row.chunked = None;
                self.set_back(row);
            }
        }
    }

    /// Lets the prompts at `with`, which ascend, share the pass of those at `lead`. Returns their
    /// index then, `None` where that failed.
    fn gather(&mut self, lead: usize, with: &[usize]) -> Option<usize> {
        let place = lead - with.iter().filter(|other| **other < lead).count();
        let joining = with.iter().rev().map(|other| self.prefills.remove(*other));
        let mut joining: Vec<Prefill> = joining.collect();
        joining.reverse();
        if let Err(error) = self.prefills[place].join(joining, &mut self.dispatcher) {
            let rows = self.prefills.remove(place).into_rows().collect();
            self.fail_prefills(rows, error.into());
            return None;
        }
        Some(place)
    }
}
