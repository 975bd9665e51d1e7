//! When it is safe to wait for all of a device.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Shared by all that evaluate, and held alone by whoever waits for all of a device.
static EVALUATIONS: RwLock<()> = RwLock::new(());

/// Held while operations are sent to a device: MLX and the shim capture some of them. CUDA refuses to wait for all of a
/// device meanwhile, whichever thread asks, and ends the capture. MLX does not outlive that.
pub(crate) fn evaluating() -> RwLockReadGuard<'static, ()> {
    EVALUATIONS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Held while all of a device is waited for.
pub(crate) fn between_evaluations() -> RwLockWriteGuard<'static, ()> {
    EVALUATIONS.write().unwrap_or_else(PoisonError::into_inner)
}
