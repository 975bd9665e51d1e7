//! Operations on arrays, and the streams, errors and groups of ranks around them.

mod convolutions;
mod cpu_arrange;
mod cpu_attention;
mod cpu_rows;
mod cpu_step;
mod distributed;
mod elementwise;
mod errors;
mod fast;
mod gather;
mod hostile;
mod indexing;
mod near;
mod quantized;
mod random;
mod read;
mod reductions;
mod shapes;
mod streams;
