//! Batches: rows join them, make room, and take their steps.

use std::panic::{AssertUnwindSafe, catch_unwind};

use inference_core::Error;
use mlx_ffi::{async_eval, memory};

use super::{Group, Row, Scheduler};
use crate::cache::Caches;
use crate::engine::group::Stepped;
use crate::engine::prefill::ROOM;
use crate::error::panicked;
use crate::plan;

/// Steps between two clean-ups of the allocator's cache.
const CLEAR_CACHE_EVERY: usize = 256;

impl Scheduler<'_> {
    /// Lets rows whose prompts are computed decode, in a batch where they can; in several ones where ranks have some layers
    /// each, so that all of them work.
    pub(super) fn place(&mut self, mut rows: Vec<Row>, caches: Caches) {
        let parts = self.served.beside().min(rows.len());
        if parts < 2 || !caches.can_join() {
            return self.place_together(rows, caches);
        }
        let count = rows.len();
        for part in 0..parts {
            let [from, end] = [part, part + 1].map(|bound| bound * count / parts);
            let held: Vec<(usize, i32)> = (from..end).map(|row| (row, 0)).collect();
            let own: Vec<Row> = rows.drain(..end - from).collect();
            let copies = caches.copies(&held, ROOM).and_then(|copies| {
                async_eval(copies.arrays())?;
                Ok(copies)
            });
            match copies {
                Ok(copies) => self.place_together(own, copies),
                Err(error) => self.fail_prefills(own, error.into()),
            }
        }
    }

    fn place_together(&mut self, rows: Vec<Row>, caches: Caches) {
        match self.batch_to_join(&rows, &caches) {
            Some(at) => {
                if let Err(error) = self.groups[at].join(rows, caches) {
                    self.fail_group(at, error, "joining a batch");
                }
            }
            None => {
                let group = Group::new(rows, caches).among(self.served.ranks.group());
                self.groups.push(group);
            }
        }
    }

    /// The batch that the rows join.
    fn batch_to_join(&mut self, rows: &[Row], caches: &Caches) -> Option<usize> {
        if self.served.alone || !caches.can_join() {
            return None;
        }
        let bytes = |rows: &[Row]| -> Vec<u64> {
            rows.iter().map(|row| self.served.budget.caches(1, row.ids.len())).collect()
        };
        // Rows without drafts would wait for those with them.
        let draft = rows.iter().any(|row| row.draft_tokens > 0);
        let of_group = |group: &Group| {
            let is_alike = group.caches().rope_factors() == caches.rope_factors();
            let can_join = group.caches().can_join() && is_alike && group.drafts() == draft;
            can_join.then(|| bytes(group.rows()))
        };
        let batches: Vec<_> = self.groups.iter().map(of_group).collect();
        let beside = self.served.beside();
        self.agree("batch to join", |_| plan::batch_to_join(&bytes(rows), &batches, beside))
    }

    /// Preempts the rows that the plan names; each goes on where it was.
    pub(super) fn make_room(&mut self) {
        let memory = self.memory();
        let batches = self.batches();
        let of_batches: u64 = batches.iter().map(plan::Batch::set_aside).sum();
        let others = (memory.fixed + memory.rows).saturating_sub(of_batches);
        let plan = self.agree("room", |_| plan::preempt(batches, others, memory.limit));
        let count = self.groups.len();
        if plan.gives_up_slots {
            self.give_up_slots();
        }
        if self.groups.len() < count {
            // A batch failed and is gone: the next turn plans without it.
            return;
        }
        for (group, at) in plan.rows {
            let (row, result) = self.groups[group].remove(at);
            self.preempted.push_back(row);
            if let Err(error) = result {
                self.fail_group(group, error, "making room");
                break;
            }
        }
        self.groups.retain(|group| !group.rows().is_empty());
    }

    /// Gives up slots that rows left, where memory is short. Returns whether there were any.
    pub(super) fn give_up_slots(&mut self) -> bool {
        let mut any = false;
        let mut at = 0;
        while at < self.groups.len() {
            match self.groups[at].compact() {
                Ok(were_any) => {
                    any |= were_any;
                    at += 1;
                }
                Err(error) => self.fail_group(at, error, "making room"),
            }
        }
        any
    }

    /// Exchanges what ranks have put off of steps.
    pub(super) fn exchange_steps(&mut self) {
        if let Err(error) = self.served.due.exchange_all() {
            let error = error.to_string();
            self.recover_from(&Error::Engine(error));
        }
    }

    /// One step of every batch.
    pub(super) fn decode(&mut self) {
        let mut at = 0;
        while at < self.groups.len() {
            let (group, prefixes) = (&mut self.groups[at], &mut self.prefixes.cache);
            let (served, clock) = (self.served, &mut self.clock);
            let step = catch_unwind(AssertUnwindSafe(|| group.step(served, prefixes, clock)))
                .unwrap_or_else(|panic| Err(panicked("the step", &*panic).into()));
            let Stepped { left, result } = match step {
                Ok(stepped) => stepped,
                Err(error) => {
                    self.fail_step(at, error);
                    continue;
                }
            };
            let kept = result.and_then(|()| {
                Ok(self.groups[at].keep_snapshots(self.served, &mut self.prefixes.cache)?)
            });
            match kept {
                _ if self.groups[at].rows().is_empty() => drop(self.groups.remove(at)),
                Ok(()) => at += 1,
                Err(error) => self.fail_step(at, error),
            }
            for (row, exit) in left {
                self.leave(row, exit);
            }
        }
        if self.groups.is_empty() {
            self.exchange_steps();
        } else {
            self.steps += 1;
            if self.steps.is_multiple_of(CLEAR_CACHE_EVERY) {
                let _ = memory::clear_cache();
            }
        }
    }
}
