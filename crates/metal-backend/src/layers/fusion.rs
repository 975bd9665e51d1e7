//! The operations that a device may fuse with a layer's projections.

use mlx_ffi::{Array, Result};

use super::RmsNorm;
use crate::kernels::{GemvFusion, Kernels};

/// The prologue and the epilogue of a half of a block: one operation with its first or last
/// projection where a device has such a kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fusion<'a> {
    /// Prologue: the norm of what comes in.
    pub norm: Option<&'a RmsNorm>,
    /// The result of that norm, where it is known already.
    pub normed: Option<&'a Array>,
    /// Epilogue: the residual that the result is added to.
    pub residual: Option<&'a Array>,
    /// Epilogue: whether the result may come in float parts, as [`Kernels::residual`] takes it.
    pub in_parts: bool,
}

impl<'a> Fusion<'a> {
    /// Only the epilogue of `self`.
    pub fn only_epilogue(self) -> Fusion<'a> {
        Fusion { residual: self.residual, in_parts: self.in_parts, ..Fusion::default() }
    }

    /// Only the prologue of `self`.
    pub fn only_prologue(self) -> Fusion<'a> {
        Fusion { residual: None, in_parts: false, ..self }
    }

    /// The input of the projection in place of `x`. Our own kernel makes it if there is one, so
    /// that a capture can hold it.
    pub fn prologue(&self, x: &Array) -> Result<Array> {
        match (self.normed, self.norm) {
            (Some(normed), _) => normed.share(),
            (None, Some(norm)) => norm.kept(x),
            (None, None) => x.share(),
        }
    }

    /// Adds the residual, if any, to the result `y` of the last projection.
    pub fn epilogue(&self, kernels: Kernels, y: Array) -> Result<Array> {
        match self.residual {
            None => Ok(y),
            Some(residual) => kernels.sum(residual, &y),
        }
    }

    /// The row that a fused product takes in place of `x`, and what is left to be fused with it;
    /// `None` where kernels do not know the norm.
    pub fn of_gemv<'x>(&self, x: &'x Array) -> Option<(&'x Array, GemvFusion<'a>)>
    where
        'a: 'x,
    {
        let (row, norm) = match (self.normed, self.norm) {
            (Some(normed), _) => (normed, None),
            (None, None) => (x, None),
            (None, Some(norm)) => (x, Some(norm.weights()?)),
        };
        let Fusion { residual, in_parts, .. } = *self;
        Some((row, GemvFusion { norm, residual, in_parts, ..GemvFusion::default() }))
    }
}
