//! Operations of networks over pictures: convolutions, and norms of groups of channels.

mod convolution;
mod norm;

pub use convolution::{Conv2d, conv2d, conv2d_at};
pub use norm::{AfterNorm, GroupNorm, group_norm, group_norm_at};
