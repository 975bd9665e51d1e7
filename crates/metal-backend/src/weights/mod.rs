//! A checkpoint's tensors: where they lie, what they are called, and that they fit.

mod adapter;
mod adapter_config;
mod checkpoint;
mod cut;
mod digest;
mod known_digests;
mod pickled;
mod random;
mod shards;
mod source;
mod takes_heads;
mod tensors;
mod vendors;

pub(crate) use adapter::Adapter;
pub(crate) use checkpoint::Checkpoint;
pub(crate) use cut::{Cut, share};
pub(crate) use known_digests::KnownDigests;
pub(crate) use source::TensorHeader;
pub(crate) use takes_heads::TakesHeads;
pub(crate) use tensors::{Fp8Scales, Linears, Totals, Weights, is_of_no_use};
