//! Some layers of a pass, computed so that what is held at once is bounded.

use mlx_ffi::{Result, eval_all, on_cpu};

use crate::cache::Caches;
use crate::layers::{Decoder, Pass};

/// Rows from which on a layer takes so long that waiting for it is no loss.
pub(super) const MANY_ROWS: usize = 32;

/// Layers of fewer rows whose values a CPU holds at once: MLX queues about a hundred operations there,
/// and holds what each of them takes until it has run.
pub(super) const QUEUED_LAYERS: usize = 5;

/// Takes a pass through its next `count` layers, the last of which is not waited for. True once it
/// is through all of them.
///
/// # Errors
/// Those of MLX.
pub(super) fn advance(
    model: &Decoder,
    pass: &mut Pass,
    caches: &mut Caches,
    count: usize,
) -> Result<bool> {
    let [b, l, _] = pass.h.dims()?;
    if b * l < MANY_ROWS as i32 || !on_cpu()? {
        return model.advance(pass, caches, count);
    }
    for _ in 1..count {
        if model.advance(pass, caches, 1)? {
            return Ok(true);
        }
        eval_all(caches.arrays().chain([&pass.h]))?;
    }
    model.advance(pass, caches, 1)
}
