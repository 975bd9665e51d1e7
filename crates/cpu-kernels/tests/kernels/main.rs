//! Each kernel against plain arithmetic.

mod arrange;
mod attention;
mod finish;
mod gather;
mod mlx_layout;
mod numbers;
mod pictures;
mod plain;
mod recurrent;
mod reference;
mod rows;
mod scan;
mod step;
mod words;

// The library's own tests, here so that all its kernels need not be compiled once more for them.
#[allow(dead_code, reason = "the library uses all of it")]
#[path = "../../src/activation.rs"]
mod activation;
#[allow(dead_code, reason = "the library uses all of it")]
#[path = "../../src/functions.rs"]
mod functions;
#[allow(dead_code, unsafe_code, reason = "the library uses all of it, and says why it is sound")]
#[path = "../../src/pool.rs"]
mod pool;
#[allow(dead_code, reason = "the library uses all of it")]
#[path = "../../src/values.rs"]
mod values;

use cpu_kernels::Dtype;
