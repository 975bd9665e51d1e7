//! Kernels of our own for CUDA, as operations of MLX's graph: products of few rows, and what a
//! layer does with one new position.
//!
//! MLX's products of one row reach half of the memory's speed there, those of 2 to 32 rows a third,
//! packed ones less; it has no kernel for one query of each row over keys that a mask hides; and
//! each operation costs the processor more time than the device. So a layer's step is few
//! operations here. What a row gives depends on the other rows only by the order in which sums are
//! made.

mod attention;
mod buffers;
mod chunk;
mod constants;
mod dense;
mod draw;
#[cfg(test)]
mod emulated;
mod expert_matrices;
mod expert_stream;
mod experts;
mod kernel;
mod latent;
mod launch;
mod one_row;
mod pictures;
mod place;
mod product;
mod recurrent;
mod routing;
mod rows;
mod several_rows;
pub(crate) mod take;
mod unpack;

pub use attention::{Attended, attends, attends_packed, borrowed_step_attention, step_attention};
pub use buffers::{buffers, buffers_of_layers};
pub use chunk::{attends_chunks, chunk_attention};
pub use dense::{dense, takes_dense};
pub use draw::{Drawer, Drawing, largest};
pub use expert_matrices::{ExpertGate, ExpertMatrices, ExpertNetwork, IntoExperts};
pub use experts::{Chosen, experts, takes_experts};
pub use latent::{LatentStep, latent_step, takes_latent_step};
pub use launch::ON_DEVICE;
pub use one_row::{one_row, takes_one_row};
pub use pictures::{
    Branch, ScaledNorm, StreamHeads, modulated, picture_heads, takes_modulated, takes_picture_heads,
};
pub use place::{Place, Places, copied, place};
pub use product::{Around, Weights};
pub use recurrent::{convolution, delta, scan, takes_convolution, takes_delta, takes_scan};
pub use routing::{Groups, Router, Score, route, takes_route};
pub use rows::{
    Factor, NormAndGate, activated, gated, join, norm_and_gate, residual, rms_norm, sum,
    takes_gate, takes_join, takes_norm_and_gate, takes_residual, takes_rms_norm, takes_sum,
    takes_times, times,
};
pub use several_rows::{
    MOST_DENSE_ROWS, MOST_SEVERAL_ROWS, gated_rows, several_rows, several_rows_in_parts,
    takes_gated_rows, takes_several_rows,
};
pub use unpack::{takes_unpacked, unpacked};
