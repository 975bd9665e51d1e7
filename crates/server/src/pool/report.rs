//! Reports of models.

use std::sync::Arc;
use std::time::{Duration, Instant};

use inference_core::{EngineStatus, WeightsRead};
use serde_json::{Value as Json, json};

use super::known::Known;
use super::loaded::Any;
use super::slot::{Counts, Stage};
use super::slots::Slots;

/// One model at one moment.
pub struct Report {
    /// The model, as far as it does not change.
    pub known: Arc<Known>,
    /// `loaded`, `loading`, `unloading`, `unloaded` or `failed`.
    pub state: &'static str,
    /// How far its load is, while it is loaded and where that is known.
    pub progress: Option<WeightsRead>,
    /// Why the last load failed, where it did.
    pub error: Option<String>,
    /// Bytes that it takes while it is loaded, as far as it is known.
    pub bytes: Option<u64>,
    /// It stays once it is loaded.
    pub pinned: bool,
    /// How long ago a request had it last.
    pub unused: Option<Duration>,
    /// How long ago it was loaded, where it is.
    pub loaded: Option<Duration>,
    /// In how long it is unloaded, where it is idle and does not stay.
    pub due: Option<Duration>,
    /// Counts of its loads, failures and unloads.
    pub counts: Counts,
    /// How many requests wait for it.
    pub waiting: usize,
    /// The model, where it is loaded.
    pub model: Option<Any>,
}

impl Report {
    /// The report at `now` of the model `index` of `slots`, which is `known`.
    pub fn of(index: usize, known: &Arc<Known>, slots: &Slots<Any>, now: Instant) -> Report {
        let slot = &slots.slots()[index];
        let (state, model, error) = match &slot.stage {
            Stage::Loaded { model, .. } => ("loaded", Some(model.clone()), None),
            Stage::Unloading => ("unloading", None, None),
            _ if slots.is_loading(index) => ("loading", None, None),
            Stage::Unloaded => ("unloaded", None, None),
            Stage::Failed(failed) => ("failed", None, Some(failed.why.to_string())),
        };
        let loaded = slot.loaded.filter(|_| model.is_some());
        Report {
            known: Arc::clone(known),
            state,
            progress: None,
            error,
            bytes: slot.bytes,
            pinned: slot.pinned,
            unused: slot.used.map(|used| now.saturating_duration_since(used)),
            loaded: loaded.map(|loaded| now.saturating_duration_since(loaded)),
            due: slots.due(index).map(|due| due.saturating_duration_since(now)),
            counts: slot.counts,
            waiting: slot.waiters.len(),
            model,
        }
    }

    /// How far its load is, as JSON for clients; `None` where there is none to tell of.
    pub fn load(&self) -> Option<Json> {
        let weights = self.progress?;
        let (read, total, percent) = (weights.read, weights.total, weights.percent());
        Some(json!({"read_bytes": read, "total_bytes": total, "percent": percent}))
    }

    /// The status of its engine; the default where it is not loaded.
    pub fn status(&self) -> EngineStatus {
        self.model.as_ref().map_or_else(EngineStatus::default, Any::status)
    }
}

/// Combines the status of several engines.
pub fn sum(statuses: impl IntoIterator<Item = EngineStatus>) -> EngineStatus {
    let both = |one: EngineStatus, other: EngineStatus| EngineStatus {
        running: one.running + other.running,
        waiting: one.waiting + other.waiting,
        kv_bytes: one.kv_bytes + other.kv_bytes,
        prefix_cache_bytes: one.prefix_cache_bytes + other.prefix_cache_bytes,
        // Each tells of the whole process.
        held_bytes: one.held_bytes.max(other.held_bytes),
        heartbeat_age: one.heartbeat_age.max(other.heartbeat_age),
        ..one
    };
    statuses.into_iter().reduce(both).unwrap_or_default()
}
