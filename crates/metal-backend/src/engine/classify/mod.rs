//! Classifications: how likely the next token, and given labels, are after each of many prompts.
//!
//! Prompts of similar lengths are computed together, each row filled up behind its end: attention
//! looks back only, so that what stands behind changes nothing. A prompt that is longer than a
//! chunk is computed by itself, in chunks. What labels of several tokens need is computed from
//! copies of their prompts' caches.

mod batch;
mod classification;
mod job;
mod lane;
mod run;

pub(crate) use job::{ClassifyJob, DrawOptions, Scores};
pub(super) use lane::Lane;
