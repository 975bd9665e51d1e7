//! How far a load is, told to any thread.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightsRead {
    /// Those that are read.
    pub read: u64,
    /// All that the load reads; never less than `read`.
    pub total: u64,
}

impl WeightsRead {
    /// The part that is read, in whole percent; 100 once nothing is left.
    pub fn percent(&self) -> u64 {
        match self.total {
            0 => 100,
            total => (u128::from(self.read) * 100 / u128::from(total)) as u64,
        }
    }
}

/// The progress of a load, which its clones share.
///
/// A program gives one to a load ([`LoadOptions::progress`](crate::LoadOptions::progress)) and
/// looks at a clone meanwhile. The backend tells of each tensor that it has read.
///
/// ```
/// let progress = inference_core::LoadProgress::new();
/// let seen = progress.clone();
/// assert_eq!(seen.weights(), None);
/// progress.begin(1024);
/// progress.reached(512);
/// assert_eq!(seen.weights().map(|weights| weights.percent()), Some(50));
/// ```
#[derive(Clone, Debug, Default)]
pub struct LoadProgress(Arc<Mutex<Option<WeightsRead>>>);

impl LoadProgress {
    /// Progress of which nothing is known yet.
    pub fn new() -> Self {
        LoadProgress::default()
    }

    /// A load begins, which reads `total` bytes of weights.
    pub fn begin(&self, total: u64) {
        *self.lock() = Some(WeightsRead { read: 0, total });
    }

    /// So many bytes are read by now. Fewer than before change nothing.
    pub fn reached(&self, read: u64) {
        if let Some(weights) = &mut *self.lock() {
            weights.read = weights.read.max(read.min(weights.total));
        }
    }

    /// How far it is; `None` before the weights are looked at, and where the backend does not tell.
    pub fn weights(&self) -> Option<WeightsRead> {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Option<WeightsRead>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Equal to its clones alone.
impl PartialEq for LoadProgress {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
