//! Rows that are decoded together: each step is one pass of the model for all of them.

mod boarding;
mod drafting;
mod drawing;

use mlx_ffi::cuda::Drawer;
use mlx_ffi::{Array, async_eval, ops};

use super::ahead::Ahead;
use super::dispatcher::Dispatcher;
use super::drawn::{Drawn, NextIds};
use super::memory::AHEAD;
use super::row::Row;
use super::served::Served;
use super::step_clock::{Part, StepClock};
use super::taking::{Exit, take_in};
use crate::cache::{Caches, Keeping, Moment, More, PrefixCache};
use crate::error::Result;
use crate::layers::{Decoder, SplitLogits, StepCapture};

/// Steps after which slots are given up of which half or more stay vacant.
const SPARSE_STEPS: usize = 32;

/// Slots for rows that come next, for each row that there is: buffers are rarely made as one row after the other joins.
const MOST_VACANT: usize = 3;

/// A batch whose rows come and go between steps.
///
/// Each row has a slot of the caches' buffers. A row that leaves may leave its slot vacant for the next one that
/// joins: the buffers stay where they are, and so does a captured step.
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
    drawer: Drawer,
    /// Steps since half of the slots are vacant.
    sparse: usize,
    /// Whether the step of this turn was taken in a pass of prompts, or queued behind one.
    has_stepped: bool,
}

/// What came of a step.
pub(super) struct Stepped {
    /// The rows that leave.
    pub left: Vec<(Row, Exit)>,
    /// Whether the others can go on; an error ends the group that they are.
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
            drawer: Drawer::default(),
            sparse: 0,
            has_stepped: false,
        };
        group.seat(rows, 0..group.caches.slots());
        group
    }

    /// The group where all of `ranks` compute it.
    pub fn among(self, ranks: Option<&mlx_ffi::distributed::Group>) -> Group {
        Group { capture: StepCapture::among(ranks), ..self }
    }

    /// Adds rows, whose caches hold all of their ids but the last. Where buffers are made anew, they have slots for some of the `waiting`
    /// rows that come next, and room for what rows will generate.
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

    /// Makes buffers anew, of the rows that are there and those of `others`. Vacant slots are given up.
    fn rearrange(
        &mut self,
        others: Vec<Caches>,
        more: More,
        dispatcher: &mut Dispatcher,
    ) -> Result<()> {
        // The capture holds the buffers that are about to be replaced.
        self.capture.forget();
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

    /// Whether a row asks for drafts. Others of its batch wait with it until its draws are read.
    pub fn drafts(&self) -> bool {
        self.rows.iter().any(|row| row.draft_tokens > 0)
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
        let full = all.filter(|at| PrefixCache::fills_a_block(self.rows[*at].ids.len()));
        self.keep_prefixes(full, served, prefixes)
    }

    /// Keeps the keys and values of rows that ended for later requests.
    fn keep_ended(
        &self,
        left: &[(usize, Exit)],
        served: &Served,
        prefixes: &mut PrefixCache,
    ) -> mlx_ffi::Result<()> {
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
        let shared = rows.filter(|at| served.shares(self.rows[*at].first_pass()));
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
        if self.drafts() && self.drawn.is_none() {
            return self.step_with_drafts(served, (prefixes, dispatcher), clock);
        }
        let any_goes_on = self.any_goes_on(&served.model);
        if any_goes_on {
            self.make_longer(dispatcher)?;
        }
        self.step_of(any_goes_on, served, (prefixes, Some(dispatcher)), clock)
    }

    /// Whether its next step can be queued behind a part of prompts that is on its way, with the buffers as they are.
    pub fn can_step_behind(&self, served: &Served) -> bool {
        served.keeps_slots
            && !self.drafts()
            && self.caches.have_room()
            && self.any_goes_on(&served.model)
    }

    /// One step behind a part of prompts that is on its way: the device goes on with it while rows join whose prompts end with the part.
    /// The next turn takes the next one.
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
        self.step_of(true, served, (prefixes, None), clock)
    }

    /// A step: a pass of the model where any row goes on, and what the last one drew.
    fn step_of(
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

    /// Whether any row's next step is of use.
    fn any_goes_on(&self, model: &Decoder) -> bool {
        let goes_on = |(row, slot): (&Row, &usize)| {
            let unread = usize::from(self.drawn.as_ref().is_some_and(|drawn| drawn.has(*slot)));
            row.generated() + unread < row.max_tokens
                && model.rope_factors(row.ids.len() + unread) == self.caches.rope_factors()
        };
        self.rows.iter().zip(&self.slots).any(goes_on)
    }

    /// The end of a step whose `logits` are queued, `[slots, ids]`: queues the draws, then reads those of the last step. Without a
    /// dispatcher, which a pass has then, vacant slots wait for the next step.
    ///
    /// # Errors
    /// Those of MLX before a row left, which end the whole group.
    fn end_step(
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
        let left = match served.ranks.follow() {
            true => self.follow(unread)?,
            false => self.read(model, unread, clock)?,
        };
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

    /// Takes a row out, whose slot is vacant from now on.
    fn unseat(&mut self, at: usize) -> (Row, usize) {
        let (row, slot) = (self.rows.remove(at), self.slots.remove(at));
        self.caches.vacate(slot);
        (row, slot)
    }

    /// The end of a step, with the rows that are left: draws from `logits` where nothing is drawn yet.
    ///
    /// # Errors
    /// Those of MLX.
    fn go_on(
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

    /// Takes a row out and leaves the others; what it has drawn and not read is forgotten, and its slot is vacant.
    pub fn remove(&mut self, at: usize) -> Row {
        let (mut row, slot) = self.unseat(at);
        if let Some(drawn) = self.drawn.as_mut().filter(|drawn| drawn.has(slot)) {
            drawn.forget(slot);
            row.sampler.forget_draw();
        }
        self.fresh.retain(|(fresh, _)| *fresh != slot);
        row
    }

    /// Queues the pass of each slot's next id: the logits that this rank computes, `[slots, ids]`.
    fn forward(&mut self, model: &Decoder, unread: Option<&Drawn>) -> Result<Array> {
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

/// Hidden states of slots, `[slots, 1, hidden_size]`, to the logits that this rank computes, `[slots, ids]`.
fn logits_of(model: &Decoder, hidden: &Array) -> Result<Array> {
    // [slots, 1, ids] -> [slots, ids]
    Ok(ops::squeeze(&model.own_logits(hidden)?, 1)?)
}
