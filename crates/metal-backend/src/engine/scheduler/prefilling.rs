//! Prompts, computed a part at a time between the steps of batches.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use mlx_ffi::on_cpu;

use super::{InUse, Part, Prefill, QUANTUM, Row, Scheduler, Served};
use crate::cache::Moment;
use crate::engine::prefill::Computed;
use crate::error::{Result, panicked};

/// Every so many parts, the request that came first is served rather than the shortest one.
const OLDEST_EVERY: usize = 4;
/// One position that fills rows up is worth it for so many that count.
const MOST_PADDING: usize = 4;

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

    /// Computes a part of one prompt, or of several together.
    pub(super) fn prefill(&mut self) {
        let Some(at) = self.next_prefill() else { return };
        let Some(at) = self.gather(at) else { return };
        let Served { model, chunk, .. } = self.served;
        let prefill = &mut self.prefills[at];
        let reads = prefill.is_reading();
        let (positions, n_layers) = (prefill.positions(*chunk), model.layers.len());
        let layers = match self.pace {
            0.0 => 1,
            pace => {
                ((QUANTUM.as_secs_f64() / (pace * positions as f64)) as usize).clamp(1, n_layers)
            }
        };
        let started = Instant::now();
        let watch = &self.watch;
        let part = || {
            watch.check("prefill")?;
            match reads {
                true => prefill.read(model, QUANTUM),
                false => prefill.advance(model, *chunk, layers),
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
        for (row, (Row { ids, .. }, held)) in
            prefill.held().enumerate().filter(|(_, (row, _))| self.served.shares(row.first_pass()))
        {
            self.prefixes.keep((ids, held), &prefill.caches, row, Moment::Prefill)?;
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

    /// Lets prompts whose next chunks are of about the same length share a pass with the one at this
    /// index, as far as a pass and the memory allow. Returns its index then, `None` where that failed.
    fn gather(&mut self, at: usize) -> Option<usize> {
        let Served { chunk, alone, pass, .. } = self.served;
        if *alone || self.prefills.len() < 2 || !self.prefills[at].can_share() {
            return Some(at);
        }
        let mut lead = self.prefills.remove(at);
        let longest = |prefill: &Prefill| prefill.parts(*chunk).max().unwrap_or(0);
        let own = longest(&lead);
        let mut others: Vec<usize> = (0..self.prefills.len())
            .filter(|at| self.prefills[*at].can_share() && lead.suits(&self.prefills[*at]))
            .collect();
        others.sort_by_key(|at| longest(&self.prefills[*at]).abs_diff(own));
        let mut taken = Vec::new();
        let (mut rows, mut held) = (lead.rows().count(), 0);
        let mut columns = own;
        let mut counted: usize = lead.parts(*chunk).sum();
        let room = self.room_for_pass();
        for other in others {
            let prefill = &self.prefills[other];
            let all = rows + prefill.rows().count();
            let wide = columns.max(longest(prefill));
            let counts = counted + prefill.parts(*chunk).sum::<usize>();
            let most = held
                .max(prefill.rows().chain(lead.rows()).map(|row| row.ids.len()).max().unwrap_or(0));
            let fits = all * wide <= *pass
                && all * wide <= counts + counts / MOST_PADDING
                && self.served.budget.pass(all, wide, most) <= room;
            if fits {
                taken.push(other);
                (rows, columns, counted, held) = (all, wide, counts, most);
            }
        }
        taken.sort_unstable();
        let mut joined = Ok(());
        for other in taken.into_iter().rev() {
            let other = self.prefills.remove(other);
            joined = joined.and_then(|()| lead.join(other));
        }
        match joined {
            Ok(()) => {
                let at = at.min(self.prefills.len());
                self.prefills.insert(at, lead);
                Some(at)
            }
            Err(error) => {
                self.fail_prefills(lead.into_rows().collect(), error.into());
                None
            }
        }
    }

    /// Bytes that a pass may take beside what is set aside.
    fn room_for_pass(&self) -> u64 {
        let used = self.in_use().map_or(u64::MAX, |InUse { fixed, rows }| fixed + rows);
        self.watch.within(self.served.budget.limit).saturating_sub(used)
    }

    /// The shortest prefill, so that it need not wait for a long one; at times the oldest one, so
    /// that a long one need not wait for ever.
    fn next_prefill(&mut self) -> Option<usize> {
        self.turns += 1;
        if self.turns.is_multiple_of(OLDEST_EVERY) {
            return (!self.prefills.is_empty()).then_some(0);
        }
        (0..self.prefills.len()).min_by_key(|at| self.prefills[*at].left())
    }
}
