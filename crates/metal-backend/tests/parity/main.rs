//! The engine against what mlx-lm and transformers compute for the same checkpoints, and against
//! itself. `fixtures/parity/README.md` tells where the checkpoints and the expected values come
//! from. `cargo test -p metal-backend --test parity -- --nocapture` prints the distances.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a helper fails its test")]

mod adapters;
mod attention;
mod batches;
mod capabilities;
mod checkpoints;
mod configs;
mod converted;
mod dense;
mod drafts;
mod families;
mod fixtures;
mod fp8;
mod gguf;
mod gguf_names;
mod invariants;
mod labels;

mod pipeline;
mod prompt_logprobs;
mod quantised;
mod ranks;
mod real;
mod released;
mod rounded;
mod sampling;
mod vendors;
