//! Batches: rows join them, make room, and take their steps.

use std::panic::{AssertUnwindSafe, catch_unwind};

use inference_core::Error;
use mlx_ffi::{async_eval, cuda, memory};

use super::admitting::FORGOTTEN;
use super::{Group, Prefill, Row, Scheduler};
use crate::cache::{Caches, MOST_SPARE};
use crate::engine::group::Stepped;
use crate::engine::prefill::ROOM;
use crate::error::{Result, panicked};
use crate::plan;

/// Of a batch's rows, one part in so many is added as slots where its buffers are made anew and
/// fewer wait: rows that join one after the other would have them made anew each time.
const SPARE: usize = 8;

/// Slots that are added for rows that come one after the other to a batch of so many rows. They do
/// not take products of all slots to kernels for more rows.
fn spare_slots(rows: usize) -> usize {
    let together = cuda::MOST_SEVERAL_ROWS as usize;
    let most = if rows <= together { together - rows } else { usize::MAX };
    (rows / SPARE).min(most)
}

/// Steps between two clean-ups of the allocator's cache.
const CLEAR_CACHE_EVERY: usize = 256;

/// Runs a step and returns its outcome; a panic in it is its error.
pub(super) fn caught(step: impl FnOnce() -> Result<Stepped>) -> Result<Stepped> {
    catch_unwind(AssertUnwindSafe(step))
        .unwrap_or_else(|panic| Err(panicked("the step", &*panic).into()))
}

impl Scheduler<'_> {
    /// Lets rows whose prompts are computed decode, in a batch where they can; in several ones
    /// where ranks have some layers each, so that all of them work.
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
                let waiting = self.slots_to_come(at, &rows);
                if let Err(error) =
                    self.groups[at].join(rows, caches, waiting, &mut self.dispatcher)
                {
                    self.fail_group(at, error, "joining a batch");
                }
            }
            None => {
                let group = Group::new(rows, caches).among(self.served.ranks.group());
                self.groups.push(group);
            }
        }
    }

    /// Slots that a batch may have for rows whose prompts are computed now, where new buffers are
    /// made as others join: what is set aside for them already may be taken for it, and half of the
    /// memory that is free beside all.
    fn slots_to_come(&self, at: usize, joining: &[Row]) -> usize {
        let (group, budget) = (&self.groups[at], &self.served.budget);
        // Ranks see different memory. Rows with drafts give vacant slots up.
        let takes_none = self.served.ranks.are_several() || group.drafts();
        if takes_none || !self.served.keeps_slots {
            return 0;
        }
        let rows = self.prefills.iter().flat_map(Prefill::rows).filter(|row| row.drafts.is_none());
        let waiting: Vec<usize> = rows.map(Scheduler::ahead).collect();
        let own = group.rows().iter().chain(joining).map(Scheduler::ahead);
        let longest = own.chain(waiting.iter().copied()).max().unwrap_or(0);
        // A slot is as long as the longest row. What some layers had before stays until it is
        // copied.
        let bytes = budget.caches(1, longest + MOST_SPARE).max(1);
        let [copied, new] = [group.rows().len() / 3, joining.len()].map(|rows| bytes * rows as u64);
        let free = self.memory().room().saturating_sub(copied + new) / 2;
        let of_waiting = plan::beside_slots(&self.batches(), &self.unbegun());
        let spare = spare_slots(group.rows().len() + joining.len());
        waiting.len().max(spare).min(((of_waiting + free) / bytes) as usize)
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
        let draft = rows.iter().any(|row| row.drafts.is_some());
        let of_group = |group: &Group| {
            let is_alike = group.caches().rope_factors() == caches.rope_factors();
            let can_join = group.caches().can_join() && is_alike && group.drafts() == draft;
            can_join.then(|| bytes(group.rows()))
        };
        let batches: Vec<_> = self.groups.iter().map(of_group).collect();
        let beside = self.served.beside();
        // Where rows have slots, a step reads no row's padding: it takes memory alone, of which
        // half of what is free may go.
        let free = if self.served.keeps_slots { self.memory().room() / 2 } else { 0 };
        let free = free.max(plan::FREE_PADDING);
        self.agree("batch to join", |_| plan::batch_to_join(&bytes(rows), &batches, beside, free))
    }

    /// Forgets prefixes where they are in the way of rows, then preempts the rows that the plan
    /// names; each goes on where it was.
    pub(super) fn make_room(&mut self) {
        let plan = loop {
            let (memory, batches, prompts) = (self.memory(), self.batches(), self.unbegun());
            let of_batches: u64 = batches.iter().map(plan::Batch::set_aside).sum();
            let of_prompts = plan::beside_slots(&batches, &prompts);
            let others = (memory.fixed + memory.rows).saturating_sub(of_batches + of_prompts);
            // What rows were copied from counts until the copies are made.
            if memory.is_short() && self.dispatcher.lets_go_of_written() {
                self.read_memory();
                continue;
            }
            let keeps = self.prefixes.cache.bytes() > 0;
            let plan = self.agree("room", |_| {
                plan::make_room(batches, [others, of_prompts], memory.limit, keeps)
            });
            if !plan.forgets_prefixes {
                break plan;
            }
            self.prefixes.cache.evict(FORGOTTEN);
            self.read_memory();
        };
        let gives_up = plan.gives_up_slots || !plan.rows.is_empty();
        for (group, at) in plan.rows {
            let row = self.groups[group].remove(at);
            self.set_back(row);
        }
        self.groups.retain(|group| !group.rows().is_empty());
        if gives_up {
            self.dispatcher.forget_staying();
            self.give_up_slots();
        }
    }

    /// Lets a row begin again, before those that began after it.
    pub(super) fn set_back(&mut self, row: Row) {
        let at = self.preempted.partition_point(|other| other.number <= row.number);
        self.preempted.insert(at, row);
    }

    /// Gives up slots that rows left, where memory is short. Returns whether there were any.
    pub(super) fn give_up_slots(&mut self) -> bool {
        let mut any = false;
        let mut at = 0;
        while at < self.groups.len() {
            match self.groups[at].compact(&mut self.dispatcher) {
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

    /// The end of a batch's step: what leaves it does, and a batch without rows is gone.
    pub(super) fn end_step(&mut self, at: usize, step: Result<Stepped>) {
        let Stepped { left, result } = match step {
            Ok(stepped) => stepped,
            Err(error) => return self.fail_step(at, error),
        };
        let kept = result.and_then(|()| {
            Ok(self.groups[at].keep_snapshots(self.served, &mut self.prefixes.cache)?)
        });
        match kept {
            _ if self.groups[at].rows().is_empty() => {
                self.dispatcher.forget_staying();
                drop(self.groups.remove(at));
            }
            Ok(()) => {}
            Err(error) => self.fail_step(at, error),
        }
        for (row, exit) in left {
            self.leave(row, exit);
        }
    }

    /// The batch with the most rows of those that can take their step in a pass of prompts.
    pub(super) fn batch_for_pass(&mut self) -> Option<usize> {
        if !self.served.mixes() || self.dispatcher.cannot_mix() {
            return None;
        }
        let mut order: Vec<usize> = (0..self.groups.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(self.groups[*at].rows().len()));
        for at in order {
            match self.groups[at].can_join_pass(self.served, &mut self.dispatcher) {
                Ok(true) => return Some(at),
                Ok(false) => {}
                Err(error) => {
                    self.fail_step(at, error);
                    return None;
                }
            }
        }
        None
    }

    /// One step of every batch, but for those that took it in a pass of prompts.
    pub(super) fn decode(&mut self) {
        let mut at = 0;
        while at < self.groups.len() {
            if self.groups[at].take_has_stepped() {
                at += 1;
                continue;
            }
            let is_alone = self.groups.len() == 1 && self.prefills.is_empty();
            let (group, clock) = (&mut self.groups[at], &mut self.clock);
            if !is_alone {
                group.forget_times();
            }
            let (prefixes, dispatcher) = (&mut self.prefixes.cache, &mut self.dispatcher);
            let step = caught(|| group.step(self.served, (prefixes, dispatcher), clock));
            let count = self.groups.len();
            self.end_step(at, step);
            at += usize::from(self.groups.len() == count);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_slots_leave_products_to_the_kernels_of_their_rows() {
        assert_eq!([7, 8, 56, 57, 60, 64].map(spare_slots), [0, 1, 7, 7, 4, 0]);
        assert_eq!([65, 128].map(spare_slots), [8, 16]);
    }
}
