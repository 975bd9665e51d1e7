//! Bounds the values that a device holds at once to those of few layers, not of a whole pass.
//!
//! A GPU keeps what a queued operation reads until it has run, and the host queues much faster than
//! the device computes. Without a wait, the activations of all layers and the unpacked form of all
//! packed matrices are held together.

use mlx_ffi::{Array, Result, async_eval, eval_all};

/// Layers one after the other: while the device computes one, the next is prepared.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    before: Vec<Array>,
}

impl Pace {
    /// Begins computing what a layer made, and waits for what the one before it made.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn after(&mut self, made: &[&Array]) -> Result<()> {
        async_eval(made.iter().copied())?;
        let made = made.iter().map(|array| array.share()).collect::<Result<_>>()?;
        eval_all(&std::mem::replace(&mut self.before, made))
    }
}
