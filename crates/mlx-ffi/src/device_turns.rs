//! When it is safe to wait for all of a device.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Shared by all that evaluate, and held alone by whoever waits for all of a device.
static EVALUATIONS: RwLock<()> = RwLock::new(());

/// Set once a thread of the process has used a CUDA device. A process without one needs no turns.
static IS_CUDA: AtomicBool = AtomicBool::new(false);

/// Takes note that a CUDA device is used from now on.
pub(crate) fn begin() {
    IS_CUDA.store(true, Ordering::Release);
}

/// Returns true once a thread of the process has used a CUDA device.
pub(crate) fn has_cuda() -> bool {
    IS_CUDA.load(Ordering::Acquire)
}

/// Held while operations are sent to a device: MLX and the shim capture some of them. CUDA refuses
/// to wait for all of a device meanwhile, whichever thread asks, and ends the capture. MLX does not
/// outlive that.
pub(crate) fn evaluating() -> Option<RwLockReadGuard<'static, ()>> {
    let guard = || EVALUATIONS.read().unwrap_or_else(PoisonError::into_inner);
    has_cuda().then(guard)
}

/// Held while all of a device is waited for.
pub(crate) fn between_evaluations() -> Option<RwLockWriteGuard<'static, ()>> {
    let guard = || EVALUATIONS.write().unwrap_or_else(PoisonError::into_inner);
    has_cuda().then(guard)
}
