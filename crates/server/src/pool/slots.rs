//! The table of models as a state machine: what happens goes in, what is to be done comes out.
//!
//! Loads run one after the other, in the order in which their first requests came. Each has four
//! steps: its bytes are measured, room is made, it is loaded, and who waited is let in. Room is
//! made by unloading what was not used for longest. Where all that may go is in use, the least
//! recently used of it takes no new requests until it is unloaded, so that no model waits for ever
//! on one that is always busy.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use inference_core::Error;

use super::models::LoadFailure;
use super::slot::{Failed, Keep, Slot, Stage, Ticket};

/// Work to be done outside of the table.
#[derive(Debug)]
pub enum Effect<M> {
    /// Find out how many bytes this model takes, and say so by [`Slots::measured`] or
    /// [`Slots::unmeasured`].
    Measure(usize),
    /// Load this model, and say so by [`Slots::loaded`] or [`Slots::failed`].
    Load(usize),
    /// Close this model, and say so by [`Slots::unloaded`].
    Unload(usize, M),
    /// Let the one with this ticket use this model, until [`Slots::released`].
    Grant(Ticket, usize, M),
    /// Tell the one with this ticket that the model cannot be loaded.
    Refuse(Ticket, Failed),
}

/// How far the current load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Its bytes are being measured.
    Measuring,
    /// So many bytes are being made free.
    MakingRoom(u64),
    /// It is being loaded, into so many bytes.
    Loading(u64),
}

/// The table.
#[derive(Debug)]
pub struct Slots<M> {
    slots: Vec<Slot<M>>,
    /// Models whose load has not begun.
    queue: VecDeque<usize>,
    current: Option<(usize, Step)>,
    /// Bytes that loaded models may take together.
    memory: u64,
    idle: Option<Duration>,
    tickets: u64,
    effects: Vec<Effect<M>>,
}

impl<M: Clone> Slots<M> {
    /// A table of so many models as `pinned` has entries, none of them loaded.
    pub fn new(
        pinned: impl IntoIterator<Item = bool>,
        memory: u64,
        idle: Option<Duration>,
    ) -> Self {
        Slots {
            slots: pinned.into_iter().map(Slot::new).collect(),
            queue: VecDeque::new(),
            current: None,
            memory,
            idle,
            tickets: 0,
            effects: Vec::new(),
        }
    }

    /// A further model, which has the next number.
    pub fn add(&mut self, pinned: bool) {
        self.slots.push(Slot::new(pinned));
    }

    /// This model was removed: it is unloaded as soon as nobody uses it and nobody waits for it.
    pub fn remove(&mut self, index: usize, now: Instant) {
        let slot = &mut self.slots[index];
        (slot.removed, slot.pinned) = (true, false);
        self.advance(now);
    }

    /// The models.
    pub fn slots(&self) -> &[Slot<M>] {
        &self.slots
    }

    /// Takes the effects since the last call.
    pub fn effects(&mut self) -> Vec<Effect<M>> {
        std::mem::take(&mut self.effects)
    }

    /// Returns true when the load of this model has begun or is queued.
    pub fn is_loading(&self, index: usize) -> bool {
        self.queue.contains(&index) || self.current.is_some_and(|(current, _)| current == index)
    }

    /// Returns true when a request for this model at `now` would have to wait.
    pub fn would_wait(&self, index: usize, now: Instant) -> bool {
        let slot = &self.slots[index];
        let is_there =
            matches!(slot.stage, Stage::Loaded { .. }) && !self.claims().contains(&index);
        !is_there && slot.failure(now).is_none()
    }

    /// Somebody asks for this model.
    pub fn ask(&mut self, index: usize, now: Instant) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        match self.slots[index].failure(now).cloned() {
            Some(failed) => self.effects.push(Effect::Refuse(ticket, failed)),
            None => self.slots[index].waiters.push(ticket),
        }
        self.advance(now);
        ticket
    }

    /// Who waited with `ticket` has left.
    pub fn leave(&mut self, ticket: Ticket, now: Instant) {
        for slot in &mut self.slots {
            slot.waiters.retain(|waiter| *waiter != ticket);
        }
        self.advance(now);
    }

    /// One that used this model is done.
    pub fn released(&mut self, index: usize, now: Instant) {
        let slot = &mut self.slots[index];
        if let Stage::Loaded { users, .. } = &mut slot.stage {
            *users = users.saturating_sub(1);
        }
        slot.used = Some(now);
        self.advance(now);
    }

    /// This model takes so many bytes.
    pub fn measured(&mut self, index: usize, bytes: u64, now: Instant) {
        if self.current != Some((index, Step::Measuring)) {
            // All who waited have left meanwhile.
            return;
        }
        let stays = self.slots.iter().filter(|slot| slot.pinned).map(Slot::held).sum();
        let available = self.memory.saturating_sub(stays);
        if bytes > available {
            let remedy = "take a smaller model or one with fewer bits, pin fewer models, or raise \
                          --models-memory";
            let what = "loading the model".to_owned();
            let error = Error::Memory { what, needed: bytes, available, remedy: remedy.into() };
            return self.unmeasured(index, LoadFailure::Error(error), now);
        }
        self.slots[index].bytes = Some(bytes);
        self.current = Some((index, Step::MakingRoom(bytes)));
        self.advance(now);
    }

    /// This model is loaded and takes so many bytes, where that is known better than before.
    pub fn loaded(&mut self, index: usize, model: M, bytes: Option<u64>, now: Instant) {
        let slot = &mut self.slots[index];
        slot.bytes = bytes.or(slot.bytes);
        slot.used = Some(now);
        slot.loaded = Some(now);
        slot.stage = Stage::Loaded { model, users: 0 };
        slot.counts.loads += 1;
        self.end_current(index, now);
    }

    /// It cannot be told how many bytes this model takes, or they are too many.
    pub fn unmeasured(&mut self, index: usize, why: LoadFailure, now: Instant) {
        if self.current == Some((index, Step::Measuring)) {
            self.failed(index, why, now);
        }
    }

    /// This model's load, or its end, has failed.
    pub fn failed(&mut self, index: usize, why: LoadFailure, now: Instant) {
        let slot = &mut self.slots[index];
        let failed = Failed::new(why, slot.failures(), now);
        let refuse = |ticket| Effect::Refuse(ticket, failed.clone());
        self.effects.extend(slot.waiters.drain(..).map(refuse));
        slot.stage = Stage::Failed(failed);
        slot.counts.failures += 1;
        self.end_current(index, now);
    }

    /// This model is closed.
    pub fn unloaded(&mut self, index: usize, now: Instant) {
        self.slots[index].stage = Stage::Unloaded;
        self.slots[index].keep = Keep::AsOthers;
        self.slots[index].counts.unloads += 1;
        self.advance(now);
    }

    /// Unloads what was idle for too long at `now`.
    pub fn tick(&mut self, now: Instant) {
        let is_due = |index: &usize| self.due(*index).is_some_and(|due| due <= now);
        let due: Vec<usize> = (0..self.slots.len()).filter(is_due).collect();
        due.into_iter().for_each(|index| self.unload(index));
        self.advance(now);
    }

    /// When [`tick`](Self::tick) has something to do; `None` while nothing is idle.
    pub fn next_tick(&self) -> Option<Instant> {
        (0..self.slots.len()).filter_map(|index| self.due(index)).min()
    }

    /// From now on this model stays for so long while nobody uses it. A model that is pinned stays
    /// in any case.
    pub fn keep(&mut self, index: usize, keep: Keep) {
        self.slots[index].keep = keep;
    }

    /// This model stays as all others do, where it was to be unloaded at once.
    pub fn stay(&mut self, index: usize) {
        let keep = &mut self.slots[index].keep;
        if *keep == Keep::For(Duration::ZERO) {
            *keep = Keep::AsOthers;
        }
    }

    /// When this model, which is idle, is to be unloaded; `None` where it is not idle, or stays.
    pub fn due(&self, index: usize) -> Option<Instant> {
        let slot = &self.slots[index];
        let idle = match slot.keep {
            Keep::AsOthers => self.idle?,
            Keep::For(time) => time,
            Keep::Always => return None,
        };
        slot.idle_since()?.checked_add(idle)
    }

    /// The models that are loaded.
    pub fn models(&self) -> Vec<M> {
        let model = |slot: &Slot<M>| match &slot.stage {
            Stage::Loaded { model, .. } => Some(model.clone()),
            _ => None,
        };
        self.slots.iter().filter_map(model).collect()
    }

    fn end_current(&mut self, index: usize, now: Instant) {
        if self.current.is_some_and(|(current, _)| current == index) {
            self.current = None;
        }
        self.advance(now);
    }

    /// Takes every step that can be taken.
    fn advance(&mut self, now: Instant) {
        self.queue_up();
        self.begin();
        self.make_room();
        self.grant(now);
        self.drop_removed();
    }

    /// Models that are waited for stand in the queue, and no others.
    fn queue_up(&mut self) {
        for index in 0..self.slots.len() {
            if self.slots[index].wants_load() && !self.is_loading(index) {
                self.queue.push_back(index);
            }
        }
        let slots = &self.slots;
        self.queue.retain(|index| slots[*index].wants_load());
        // A load itself goes on: what it has read is not thrown away.
        if let Some((index, Step::Measuring | Step::MakingRoom(_))) = self.current
            && !self.slots[index].wants_load()
        {
            self.current = None;
        }
    }

    /// Begins the first load of the queue.
    fn begin(&mut self) {
        let first = self.queue.front().copied().filter(|_| self.current.is_none());
        // One that is being unloaded is loaded again when that is done.
        let first = first.filter(|index| !matches!(self.slots[*index].stage, Stage::Unloading));
        if let Some(index) = first {
            self.queue.pop_front();
            self.current = Some((index, Step::Measuring));
            self.effects.push(Effect::Measure(index));
        }
    }

    /// Unloads what is in the current load's way and not in use; begins it where there is room.
    fn make_room(&mut self) {
        let Some((index, Step::MakingRoom(bytes))) = self.current else { return };
        let held: u64 = self.slots.iter().map(Slot::held).sum();
        if held + bytes <= self.memory {
            self.current = Some((index, Step::Loading(bytes)));
            return self.effects.push(Effect::Load(index));
        }
        for claimed in self.claims() {
            if self.slots[claimed].users() == 0 {
                self.unload(claimed);
            }
        }
    }

    /// The models that have to go for the current load, the least recently used ones; those that
    /// are idle come first.
    fn claims(&self) -> Vec<usize> {
        let Some((_, Step::MakingRoom(bytes))) = self.current else { return Vec::new() };
        // What is being unloaded is as good as gone.
        let is_loaded = |slot: &&Slot<M>| matches!(slot.stage, Stage::Loaded { .. });
        let held: u64 = self.slots.iter().filter(is_loaded).map(Slot::held).sum();
        let mut short = (held + bytes).saturating_sub(self.memory);
        let may_go = |index: &usize| self.slots[*index].may_go() && self.slots[*index].held() > 0;
        let mut order: Vec<usize> = (0..self.slots.len()).filter(may_go).collect();
        order.sort_by_key(|index| (self.slots[*index].users() > 0, self.slots[*index].used));
        let mut claimed = Vec::new();
        for index in order {
            if short == 0 {
                break;
            }
            short = short.saturating_sub(self.slots[index].held());
            claimed.push(index);
        }
        claimed
    }

    fn unload(&mut self, index: usize) {
        let stage = std::mem::replace(&mut self.slots[index].stage, Stage::Unloading);
        match stage {
            Stage::Loaded { model, .. } => self.effects.push(Effect::Unload(index, model)),
            other => self.slots[index].stage = other,
        }
    }

    /// Unloads models that were removed, and that nobody uses.
    fn drop_removed(&mut self) {
        let goes = |slot: &Slot<M>| slot.removed && slot.users() == 0 && slot.waiters.is_empty();
        for index in 0..self.slots.len() {
            if goes(&self.slots[index]) {
                self.unload(index);
            }
        }
    }

    /// Lets those in who wait for what is there.
    fn grant(&mut self, now: Instant) {
        let claims = self.claims();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Stage::Loaded { model, users } = &mut slot.stage else { continue };
            if slot.waiters.is_empty() || claims.contains(&index) {
                continue;
            }
            *users += slot.waiters.len();
            slot.used = Some(now);
            let grant = |ticket| Effect::Grant(ticket, index, model.clone());
            self.effects.extend(slot.waiters.drain(..).map(grant));
        }
    }
}

#[cfg(test)]
mod tests;
