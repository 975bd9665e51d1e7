//! Operations on arrays, named as in MLX. Inputs broadcast and promote as MLX does it; axes may
//! be negative. Every error is MLX's own account of what did not fit.

mod convolutions;
mod elementwise;
mod indexing;
mod products;
mod reductions;
mod shapes;

pub(crate) use convolutions::places;
pub use convolutions::{Padding, conv2d};
pub use elementwise::{
    abs, add, astype, divide, erf, erfinv, exp, from_fp8, greater, greater_equal, less,
    logical_and, maximum, minimum, multiply, negative, power, sigmoid, sin, sqrt, subtract, tanh,
    where_,
};
pub use indexing::{
    Indices, argmax, argpartition, argsort, put_along_axis, scatter_add_axis, take,
    take_along_axis, take_positions,
};
pub use products::{addmm, gather_mm, matmul};
pub(crate) use products::{check_gathered, matrices};
pub use reductions::{Cumulative, cumsum, logsumexp, max, min, softmax, sort, sum};
pub use shapes::{
    after, arange, broadcast_to, concatenate, contiguous, expand_dims, reshape, slice_axis,
    slice_update_axis, squeeze, swap_axes, transpose, view, zeros,
};
