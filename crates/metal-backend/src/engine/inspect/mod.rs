//! Looking at the attention of a prompt: a prefill whose queries and keys are taken out, a layer of
//! a chunk at a time. One prompt is looked at at a time; others wait.

mod inspections;
mod job;
mod rows;
mod run;

pub(super) use inspections::Inspections;
pub(crate) use job::InspectJob;
