//! The engine thread: it loads the model, owns every array and computes.
//!
//! Callers hand it jobs through a channel and read tokens from their own
//! [`Generation`](inference_core::Generation); no array ever leaves the thread.

mod ahead;
mod chunks;
mod classify;
pub(crate) mod device;
mod dispatcher;
mod drawn;
mod due;
mod eyes;
mod features;
mod firsts;
mod group;
mod handle;
mod inspect;
mod job;
mod memory;
mod output;
mod pass;
mod prefill;
mod prefixes;
mod prompt_logprobs;
mod ranks;
mod row;
mod scheduler;
mod served;
mod shared;
mod speculation;
mod step_clock;
mod taking;
#[cfg(test)]
mod tests;
mod turns;
mod wired;
mod worker;

pub(crate) use classify::{ClassifyJob, DrawOptions, Scores};
pub(crate) use handle::Engine;
pub(crate) use inspect::InspectJob;
pub(crate) use job::Job;
pub(crate) use output::{Stops, TextState};
pub(crate) use prompt_logprobs::PromptLogprobs;
pub(crate) use shared::{Sender as JobSender, default_slots};
pub(crate) use turns::{Turn, Turns};
