//! A checkpoint's tensors: where they lie, what they are called, and that they fit.

mod source;
mod tensors;

pub(crate) use tensors::Weights;
