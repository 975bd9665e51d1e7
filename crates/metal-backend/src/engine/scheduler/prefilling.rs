//! Prompts, computed a part at a time between the steps of batches.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use mlx_ffi::on_cpu;

use super::{Part, Prefill, QUANTUM, Scheduler, Served};
use crate::cache::Moment;
use crate::error::panicked;

/// Every so many parts, the request that came first is served rather than the shortest one.
const OLDEST_EVERY: usize = 4;

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

    /// Computes a part of one prompt.
    pub(super) fn prefill(&mut self) {
        let Some(at) = self.next_prefill() else { return };
        let Served { model, chunk, .. } = self.served;
        let prefill = &mut self.prefills[at];
        let reads = prefill.is_reading();
        let (ids, n_layers) = (prefill.chunk(*chunk), model.layers.len());
        let layers = match self.pace {
            0.0 => 1,
            pace => ((QUANTUM.as_secs_f64() / (pace * ids as f64)) as usize).clamp(1, n_layers),
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
            let row = self.prefills.remove(at).row;
            return self.fail_prefill(row, error);
        }
        // The last part of a chunk leaves the end of the last layer out.
        if self.prefills[at].is_between_layers() {
            self.pace = started.elapsed().as_secs_f64() / (ids * layers) as f64;
        }
        let Prefill { row, caches, .. } = &self.prefills[at];
        if self.prefills[at].is_between_chunks()
            && self.served.shares(row.first_pass())
            && let Err(error) = self.prefixes.keep(&row.ids, caches, 0, Moment::Prefill)
        {
            let row = self.prefills.remove(at).row;
            return self.fail_prefill(row, error.into());
        }
        if self.prefills[at].left() == 0 && !self.prefills[at].is_reading() {
            let Prefill { mut row, caches, .. } = self.prefills.remove(at);
            row.tell_prompt();
            self.place(row, caches);
        }
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
