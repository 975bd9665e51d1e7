//! One model of the table: where it is in its life, and who waits for it.

use std::time::{Duration, Instant};

use super::models::LoadFailure;

/// After a load that failed, the next one is tried so much later; each further failure doubles it.
const AGAIN: Duration = Duration::from_secs(10);

/// The longest that a model which could not be loaded is left alone.
const LONGEST: Duration = Duration::from_secs(300);

/// Who waits for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// The stage of a model's life. While it is loaded, the table holds it.
#[derive(Debug)]
pub enum Stage<M> {
    /// It takes no memory.
    Unloaded,
    /// It answers.
    Loaded {
        /// The model.
        model: M,
        /// How many requests use it.
        users: usize,
    },
    /// Its memory is given back.
    Unloading,
    /// The last load failed.
    Failed(Failed),
}

/// A load that failed.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Why.
    pub why: LoadFailure,
    /// When a request may try it again.
    pub again: Instant,
    /// How many loads failed, one after the other.
    pub times: u32,
}

impl Failed {
    /// The failure `why` at `now`, after `before` others in a row.
    pub fn new(why: LoadFailure, before: u32, now: Instant) -> Failed {
        let pause = AGAIN.saturating_mul(1 << before.min(16)).min(LONGEST);
        Failed { why, again: now + pause, times: before + 1 }
    }
}

/// How long a model stays loaded while nobody uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// As long as all models do.
    #[default]
    AsOthers,
    /// For so long.
    For(Duration),
    /// Until another one needs its memory.
    Always,
}

/// Counts of a model's loads, failures and unloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often it was loaded.
    pub loads: u64,
    /// How often it could not be loaded.
    pub failures: u64,
    /// How often it was unloaded.
    pub unloads: u64,
}

/// A model of the table.
#[derive(Debug)]
pub struct Slot<M> {
    /// It is never unloaded.
    pub pinned: bool,
    /// It was removed: it goes as soon as nobody uses it.
    pub removed: bool,
    /// Bytes that it takes while it is loaded, as far as it is known.
    pub bytes: Option<u64>,
    /// How long it stays while nobody uses it.
    pub keep: Keep,
    /// When a request had it last.
    pub used: Option<Instant>,
    /// When it was loaded last.
    pub loaded: Option<Instant>,
    /// Who waits, the oldest first.
    pub waiters: Vec<Ticket>,
    /// The stage of its life.
    pub stage: Stage<M>,
    /// Counts of its loads, failures and unloads.
    pub counts: Counts,
}

impl<M> Slot<M> {
    /// A model that is not loaded.
    pub fn new(pinned: bool) -> Slot<M> {
        Slot {
            pinned,
            removed: false,
            bytes: None,
            keep: Keep::AsOthers,
            used: None,
            loaded: None,
            waiters: Vec::new(),
            stage: Stage::Unloaded,
            counts: Counts::default(),
        }
    }

    /// Bytes that it takes now.
    pub fn held(&self) -> u64 {
        match self.stage {
            Stage::Loaded { .. } | Stage::Unloading => self.bytes.unwrap_or(0),
            Stage::Unloaded | Stage::Failed(_) => 0,
        }
    }

    /// How many requests use it.
    pub fn users(&self) -> usize {
        if let Stage::Loaded { users, .. } = &self.stage { *users } else { 0 }
    }

    /// Returns true when it is loaded and may be unloaded once nobody uses it.
    pub fn may_go(&self) -> bool {
        !self.pinned && matches!(self.stage, Stage::Loaded { .. })
    }

    /// Since when it is loaded and neither used nor waited for; `None` where it has to stay.
    pub fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.may_go() && self.users() == 0 && self.waiters.is_empty();
        self.used.filter(|_| is_idle)
    }

    /// Returns true when somebody waits for it and it is not loaded.
    pub fn wants_load(&self) -> bool {
        !self.waiters.is_empty() && !matches!(self.stage, Stage::Loaded { .. })
    }

    /// The failure that requests are told of at `now`; `None` where a load may be tried.
    pub fn failure(&self, now: Instant) -> Option<&Failed> {
        match &self.stage {
            Stage::Failed(failed) if now < failed.again => Some(failed),
            _ => None,
        }
    }

    /// How many loads failed, one after the other.
    pub fn failures(&self) -> u32 {
        if let Stage::Failed(failed) = &self.stage { failed.times } else { 0 }
    }
}
