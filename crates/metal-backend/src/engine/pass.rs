//! Some layers of a pass, computed so that what is held at once is bounded.

use mlx_ffi::{Array, Result, async_eval, eval_all, on_cpu};

use crate::cache::Caches;
use crate::kernels::UNPACKED_FROM;
use crate::layers::{Decoder, Pass};

/// Rows from which on a layer takes so long that waiting for it is no loss.
pub(super) const MANY_ROWS: usize = 32;

/// Layers of fewer rows whose values a CPU holds at once: MLX queues about a hundred operations
/// there, and holds what each of them takes until it has run.
pub(super) const QUEUED_LAYERS: usize = 5;

/// Layers whose values a GPU holds at once: while it computes one, the next is prepared.
pub(super) const PREPARED_LAYERS: usize = 2;

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
    let [b, l, _] = pass.h().dims()?;
    // What is prepared is held, unpacked matrices too.
    let prepares = b * l >= UNPACKED_FROM && model.kernels.is_on_cuda();
    if !prepares && (b * l < MANY_ROWS as i32 || !on_cpu()?) {
        return model.advance(pass, caches, count);
    }
    let mut before: Option<Array> = None;
    for _ in 1..count {
        if model.advance(pass, caches, 1)? {
            return Ok(true);
        }
        if !prepares {
            eval_all(caches.arrays().chain(pass.of_decode_rows()).chain(pass.arrays()))?;
            continue;
        }
        // The device computes this layer while the next is prepared.
        async_eval(pass.arrays())?;
        if let Some(before) = before.replace(pass.h().share()?) {
            before.eval()?;
        }
    }
    model.advance(pass, caches, 1)
}
