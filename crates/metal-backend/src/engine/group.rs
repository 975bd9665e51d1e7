//! Rows that are decoded together: each step is one pass of the model for all of them.

mod drafting;
mod drawing;
mod joining;
mod replaying;
mod stepping;

use std::time::Instant;

use mlx_ffi::cuda::Drawer;

use super::dispatcher::Dispatcher;
use super::drawn::{Drawn, NextIds};
use super::memory::AHEAD;
use super::row::Row;
use super::served::Served;
use super::taking::Exit;
use crate::cache::{Caches, Keeping, Moment, More, PrefixCache};
use crate::error::Result;
use crate::layers::{StepCapture, Tail};

/// Slots for rows that come next, for each row that there is: buffers are rarely made as one row
/// after the other joins.
const MOST_VACANT: usize = 3;

/// A batch whose rows come and go between steps.
///
/// Each row has a slot of the caches' buffers. A row that leaves may leave its slot vacant for the
/// next one that joins: the buffers stay where they are, and so does a captured step.
pub(super) struct Group {
    /// In ascending order of their slots.
    rows: Vec<Row>,
    /// The slot of each row.
    slots: Vec<usize>,
    caches: Caches,
    capture: StepCapture,
    /// Draws that run already and are read after the next step was queued.
    drawn: Option<Drawn>,
    /// The slots and next ids of rows that just joined.
    fresh: Vec<(usize, u32)>,
    next_ids: NextIds,
    /// All positions of the last pass that verified drafts, and how many.
    all_positions: Option<(usize, Tail)>,
    drawer: Drawer,
    /// Steps since half of the slots are vacant.
    sparse: usize,
    /// When the draws of the step before were read, where the next one was queued by then.
    last_read: Option<Instant>,
    /// When the draws of the pass before were read, where that verified drafts.
    last_verified: Option<Instant>,
    /// Set when the batch has stepped in this scheduling step: in a pass of prompts, or behind one.
    has_stepped: bool,
}

/// The outcome of a step.
pub(super) struct Stepped {
    /// The rows that leave.
    pub left: Vec<(Row, Exit)>,
    /// An error ends the whole group; otherwise the other rows go on.
    pub result: Result<()>,
}

impl Group {
    /// A group of rows, whose caches hold all of their ids but the last.
    pub fn new(rows: Vec<Row>, caches: Caches) -> Group {
        let mut group = Group {
            rows: Vec::new(),
            slots: Vec::new(),
            caches,
            capture: StepCapture::default(),
            drawn: None,
            fresh: Vec::new(),
            next_ids: NextIds::default(),
            all_positions: None,
            drawer: Drawer::default(),
            sparse: 0,
            last_read: None,
            last_verified: None,
            has_stepped: false,
        };
        group.seat(rows, 0..group.caches.slots());
        group
    }

    /// The group where all of `ranks` compute it.
    pub fn among(self, ranks: Option<&mlx_ffi::distributed::Group>) -> Group {
        Group { capture: StepCapture::among(ranks), ..self }
    }

    /// Adds rows, whose caches hold all of their ids but the last. Where buffers are made anew,
    /// they have slots for some of the `waiting` rows that come next, and room for what rows will
    /// generate.
    ///
    /// # Errors
    /// Those of MLX, which end the whole group.
    pub fn join(
        &mut self,
        rows: Vec<Row>,
        caches: Caches,
        waiting: usize,
        dispatcher: &mut Dispatcher,
    ) -> Result<()> {
        let vacant: Vec<usize> = self.vacant().take(rows.len()).collect();
        if vacant.len() == rows.len() && self.caches.have_slots_for(&caches) {
            let placed = self.caches.place(caches, &vacant);
            let placed =
                placed.and_then(|()| dispatcher.write(&self.caches.arrays().collect::<Vec<_>>()));
            self.seat(rows, vacant);
            return Ok(placed?);
        }
        let slots = waiting.min(MOST_VACANT * (self.rows.len() + rows.len()));
        let more = self.more(slots, self.rows.iter().chain(&rows));
        let joined = self.rearrange(vec![caches], more, dispatcher);
        let first = self.slots.last().map_or(0, |slot| slot + 1);
        self.seat(rows, first..);
        joined
    }

    /// So many slots, and room for what rows will generate.
    fn more<'a>(&self, slots: usize, rows: impl Iterator<Item = &'a Row>) -> More {
        let left = rows.map(|row| row.max_tokens - row.generated()).max().unwrap_or(0);
        More { slots, positions: left.min(AHEAD) as i32 }
    }

    /// Makes buffers anew, of the rows that are there and those of `others`. Vacant slots are given
    /// up.
    fn rearrange(
        &mut self,
        others: Vec<Caches>,
        more: More,
        dispatcher: &mut Dispatcher,
    ) -> Result<()> {
        // Captures hold the buffers that are about to be replaced.
        self.capture.forget();
        dispatcher.forget_staying();
        let made =
            self.caches.rearrange(&self.slots, others, more, |written| dispatcher.write(written));
        self.renumber();
        Ok(made?)
    }

    /// Makes longer buffers where the next position has no room, with as many slots as before.
    ///
    /// # Errors
    /// Those of MLX, which end the whole group.
    fn make_longer(&mut self, dispatcher: &mut Dispatcher) -> Result<()> {
        if !self.caches.can_join() || !self.caches.are_to_be_longer()? {
            return Ok(());
        }
        let vacant = self.caches.slots() - self.rows.len();
        let more = self.more(vacant, self.rows.iter());
        let was_captured = self.capture.is_captured();
        self.rearrange(Vec::new(), more, dispatcher)?;
        self.capture.follow(self.caches.layout(), was_captured);
        Ok(())
    }

    /// Takes rows in that just joined, each in a slot.
    fn seat(&mut self, rows: Vec<Row>, slots: impl IntoIterator<Item = usize>) {
        for (row, slot) in rows.into_iter().zip(slots) {
            self.fresh.extend(row.ids.last().map(|id| (slot, *id)));
            let at = self.slots.partition_point(|taken| *taken < slot);
            self.rows.insert(at, row);
            self.slots.insert(at, slot);
        }
    }

    /// Slots that rows left.
    fn vacant(&self) -> impl Iterator<Item = usize> {
        (0..self.caches.slots()).filter(|slot| self.slots.binary_search(slot).is_err())
    }

    /// The rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows, to take note of what happens around them.
    pub fn rows_mut(&mut self) -> &mut [Row] {
        &mut self.rows
    }

    /// Forgets when the pass before ended: where something else is computed between, the next one's
    /// time says nothing about others.
    pub fn forget_times(&mut self) {
        (self.last_read, self.last_verified) = (None, None);
    }

    /// Returns true when a row asks for drafts.
    /// Other rows of its batch wait with it where drafts are verified.
    pub fn drafts(&self) -> bool {
        self.rows.iter().any(|row| row.drafts.is_some())
    }

    /// The rows' caches.
    pub fn caches(&self) -> &Caches {
        &self.caches
    }

    /// Gives up slots that rows left. Returns whether there were any.
    ///
    /// # Errors
    /// Those of MLX, which end the whole group.
    pub fn compact(&mut self, dispatcher: &mut Dispatcher) -> Result<bool> {
        self.sparse = 0;
        if self.rows.len() == self.caches.slots() || self.rows.is_empty() {
            return Ok(false);
        }
        let more = self.more(0, self.rows.iter());
        self.rearrange(Vec::new(), more, dispatcher)?;
        Ok(true)
    }

    /// Takes note that rows have the first slots.
    fn renumber(&mut self) {
        self.sparse = 0;
        if let Some(drawn) = &mut self.drawn {
            drawn.compact(&self.slots);
        }
        for (slot, _) in &mut self.fresh {
            *slot = self.slots.binary_search(slot).unwrap_or(0);
        }
        self.slots = (0..self.rows.len()).collect();
    }

    /// Keeps what rows have just computed that later positions overwrite: recurrent states at the
    /// end of a block.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn keep_snapshots(
        &self,
        served: &Served,
        prefixes: &mut PrefixCache,
    ) -> mlx_ffi::Result<()> {
        if !self.caches.need_snapshots() || served.alone {
            return Ok(());
        }
        let all = 0..self.rows.len();
        let held = |at: usize| self.caches.offsets()[self.slots[at]] as usize;
        let full = all.filter(|at| PrefixCache::fills_a_block(held(*at)));
        self.keep_prefixes(full, served, prefixes)
    }

    /// Keeps the keys and values of rows that ended for later requests. A row that is computed by
    /// itself goes on from chunks alone, since steps sum in another order.
    fn keep_ended(
        &self,
        left: &[(usize, Exit)],
        served: &Served,
        prefixes: &mut PrefixCache,
    ) -> mlx_ffi::Result<()> {
        if served.alone {
            return Ok(());
        }
        let ended = left.iter().filter(|(_, exit)| matches!(exit, Exit::Ended(Ok(_))));
        self.keep_prefixes(ended.map(|(at, _)| *at), served, prefixes)
    }

    /// Keeps the keys and values of rows for later requests.
    fn keep_prefixes(
        &self,
        rows: impl Iterator<Item = usize>,
        served: &Served,
        prefixes: &mut PrefixCache,
    ) -> mlx_ffi::Result<()> {
        let leaves = served.leaves_prefixes(&self.caches);
        let shared = rows.filter(|at| leaves && served.shares(self.rows[*at].first_pass()));
        let of = |at: usize| {
            let (ids, row) = (self.rows[at].keys(), self.slots[at]);
            Keeping { ids, held: self.caches.offsets()[row] as usize, row }
        };
        let rows: Vec<Keeping<'_>> = shared.map(of).collect();
        prefixes.keep(&rows, &self.caches, Moment::Decode)
    }

    /// All rows, at the end of a group that failed.
    pub fn into_rows(self) -> Vec<Row> {
        self.rows
    }

    /// Takes a row out, whose slot is vacant from now on.
    fn unseat(&mut self, at: usize) -> (Row, usize) {
        let (row, slot) = (self.rows.remove(at), self.slots.remove(at));
        self.caches.vacate(slot);
        (row, slot)
    }

    /// Takes a row out and leaves the others; what it has drawn and not read is forgotten, and its
    /// slot is vacant.
    pub fn remove(&mut self, at: usize) -> Row {
        let (mut row, slot) = self.unseat(at);
        if let Some(drawn) = self.drawn.as_mut().filter(|drawn| drawn.has(slot)) {
            drawn.forget(slot);
            row.sampler.forget_draw();
        }
        self.fresh.retain(|(fresh, _)| *fresh != slot);
        row
    }
}
