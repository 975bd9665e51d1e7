//! The type in which weights of bf16 are computed.

use std::rc::Rc;

use mlx_ffi::Dtype;

use super::Weights;
use crate::kernels::Bf16;

impl Weights {
    /// Computes weights of bf16 so where the user asks for no type.
    pub fn with_bf16(mut self, bf16: Bf16) -> Weights {
        let shared = Rc::get_mut(&mut self.shared);
        shared.expect("it is set before cursors are handed out").bf16 = bf16;
        self
    }

    /// The type of the checkpoint, where another one stands for it.
    pub fn replaced(&self) -> Option<Dtype> {
        let (stored, bf16) = (self.shared.stored, self.shared.bf16);
        let is_replaced = self.shared.dtype.is_none() && bf16.computed(stored) != stored;
        is_replaced.then_some(stored)
    }
}
