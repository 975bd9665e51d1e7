//! Prompts, computed a part at a time between the steps of batches.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use inference_core::CacheMiss;
use mlx_ffi::on_cpu;

use super::{InUse, Part, Prefill, QUANTUM, Row, Scheduler, Served};
use crate::cache::{Caches, Moment, PrefixCache};
use crate::engine::plan;
use crate::engine::prefill::Computed;
use crate::error::{Result, panicked};

impl Scheduler<'_> {
    /// Before others compute on a CPU, waits for the steps that were queued: the time of the others is
    /// their own then, and so are their failures. A GPU would have nothing to do meanwhile.
    pub(super) fn wait_for_steps(&mut self) {
        let others = [self.classifications.running(), self.inspections.running()];
        let waits = !self.prefills.is_empty() || others.iter().any(|running| *running > 0);
        if self.groups.is_empty() || !waits || !on_cpu().unwrap_or(false) {
            return;
        }
        // In the order in which they were queued: what failed is told to the first that waits.
        let mut at = 0;
        while at < self.groups.len() {
            match self.groups[at].wait() {
                Ok(()) => at += 1,
                Err(error) => self.fail_step(at, error),
            }
        }
        self.clock.lap(Part::Wait);
    }

    /// Begins a row's prompt, where a cache holds its beginning behind that.
    pub(super) fn begin_prefill(&mut self, mut row: Row) {
        let Served { model, specs, storage, .. } = self.served;
        let total = row.ids.len() + row.max_tokens - row.generated();
        let factors = model.rope_factors(row.ids.len());
        let shift = row.scene.as_ref().map_or(0, |scene| scene.delta());
        let mut caches =
            Caches::new(specs, *storage, 1, total).with_rope_factors(factors).with_shift(shift);
        // What is told of the prompt's tokens is computed with them.
        let computes_all = row.prompt_logprobs.is_some();
        let keys = row.keys();
        let known = if computes_all { &[] } else { &keys[..] };
        let ends = |held: usize| !row.is_inside_picture(held);
        let filled = self.prefixes.fill(&mut caches, known, self.served.usable(), ends);
        drop(keys);
        match filled {
            Ok(miss) => {
                let miss = match miss {
                    Some(CacheMiss::Off) => miss,
                    _ if computes_all => Some(CacheMiss::PromptLogprobs),
                    _ => miss,
                };
                row.cached(caches.offsets()[0] as usize, miss);
                let stop = self.stop(&row, &caches);
                self.prefills.push(Prefill::new(row, caches, stop));
                self.beat();
            }
            Err(error) => self.fail_prefills(vec![row], error.into()),
        }
    }

    /// Ids of a prompt after which a chunk ends so that a snapshot can be taken there; 0: nowhere.
    fn stop(&self, row: &Row, caches: &Caches) -> usize {
        // Computed by itself, a row's chunks are those that it has without a cache.
        if !caches.need_snapshots() || !self.prefixes.is_on() || self.served.alone {
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

    /// Computes a part of one prompt, or of several together.
    pub(super) fn prefill(&mut self) {
        let Served { model, chunk, .. } = self.served;
        self.turns += 1;
        let waiting: Vec<_> = self.prefills.iter().map(|prefill| prefill.waiting(*chunk)).collect();
        let Some(at) = plan::next(self.turns, &waiting) else { return };
        let Some(at) = self.gather(at) else { return };
        let prefill = &mut self.prefills[at];
        let reads = prefill.is_reading();
        let (positions, n_layers) = (prefill.waiting(*chunk).positions(), model.layers.len());
        let layers = match self.pace {
            0.0 => 1,
            pace => {
                ((QUANTUM.as_secs_f64() / (pace * positions as f64)) as usize).clamp(1, n_layers)
            }
        };
        let started = Instant::now();
        let (watch, dispatcher) = (&self.watch, &mut self.dispatcher);
        let part = || {
            watch.check("prefill")?;
            match reads {
                true => prefill.read(model, QUANTUM),
                false if !prefill.look(self.served, QUANTUM)? => Ok(()),
                false => prefill.advance(model, *chunk, layers, dispatcher),
            }
        };
        let result = catch_unwind(AssertUnwindSafe(part))
            .unwrap_or_else(|panic| Err(panicked("the request", &*panic).into()));
        if let Err(error) = result {
            return self.fail_prefill_at(at, error);
        }
        // The last part of a chunk leaves the end of the last layer out.
        if self.prefills[at].is_between_layers() {
            self.pace = started.elapsed().as_secs_f64() / (positions * layers) as f64;
        }
        if let Err(error) = self.end_chunk(at) {
            self.fail_prefill_at(at, error);
        }
    }

    /// After a chunk: keeps what others may go on from, and lets rows decode whose prompts are computed.
    fn end_chunk(&mut self, at: usize) -> Result<()> {
        let prefill = &mut self.prefills[at];
        if !prefill.is_between_chunks() {
            return Ok(());
        }
        for (row, (of_row, held)) in
            prefill.held().enumerate().filter(|(_, (row, _))| self.served.shares(row.first_pass()))
        {
            self.prefixes.keep((&of_row.keys(), held), &prefill.caches, row, Moment::Prefill)?;
        }
        let computed = prefill.end_chunk()?;
        if self.prefills[at].is_empty() {
            self.prefills.remove(at);
        }
        let Some(Computed { mut rows, caches }) = computed else { return Ok(()) };
        rows.iter_mut().for_each(Row::tell_prompt);
        self.place(rows, caches);
        Ok(())
    }

    /// Lets prompts of about the same length share a pass with those at this index, as far as a pass and the
    /// memory allow. Returns their index then, `None` where that failed.
    fn gather(&mut self, at: usize) -> Option<usize> {
        let Served { chunk, alone, pass, budget, .. } = self.served;
        let lead = &self.prefills[at];
        if *alone || self.prefills.len() < 2 || !lead.can_share() {
            return Some(at);
        }
        let room = self.room_for_pass();
        let can = |(index, other): (usize, &Prefill)| {
            let can = index != at && other.can_share() && lead.suits(other);
            can.then(|| other.waiting(*chunk))
        };
        let others: Vec<_> = self.prefills.iter().enumerate().map(can).collect();
        let taken = plan::companions(lead.waiting(*chunk), &others, |all| {
            all.positions() <= *pass && budget.pass(all.rows, all.columns, all.tokens) <= room
        });
        let place = at - taken.iter().filter(|other| **other < at).count();
        let mut joining: Vec<Prefill> =
            taken.into_iter().rev().map(|other| self.prefills.remove(other)).collect();
        while let Some(other) = joining.pop() {
            if let Err(error) = self.prefills[place].join(other) {
                let rows = joining.into_iter().flat_map(Prefill::into_rows);
                let rows = rows.chain(self.prefills.remove(place).into_rows()).collect();
                self.fail_prefills(rows, error.into());
                return None;
            }
        }
        Some(place)
    }

    /// Bytes that a pass may take beside what is set aside.
    fn room_for_pass(&self) -> u64 {
        let used = self.in_use().map_or(u64::MAX, |InUse { fixed, rows }| fixed + rows);
        self.watch.within(self.served.budget.limit).saturating_sub(used)
    }
}
