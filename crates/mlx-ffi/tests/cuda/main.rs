//! Kernels for NVIDIA GPUs, and what else only a GPU shows.

mod arrays;
mod attention;
mod cumulative;
mod dispatch;
mod draw;
mod experts;
mod gather;
mod host;
mod hostile;
mod images;
mod latent;
mod matmul;
mod matrix;
mod on_cuda;
mod pictures;
#[path = "../plain/recurrent.rs"]
mod plain;
mod products;
mod ranks;
mod recurrent;
mod routing;
mod rows;
mod several_rows;
mod threads;
mod uniform;
mod unpack;
mod worker;
