//! Who computes next: the engine's policy, as pure functions of plain data.
//!
//! Nothing here reads a clock, asks a device, or knows an array. Lengths, bytes, times and what
//! others leave of the memory are handed in. The same data lead to the same decision, in any
//! process. Where several processes compute a model, the first one decides, and the others get its
//! decisions. The engine's scheduler gathers them, asks, and carries out what it is told. A turn
//! asks in this order:
//!
//! 1. [`admission`]: who begins. What came first begins first, and rows that were preempted come
//!    before it. What does not fit waits, and all behind it. What never fits is refused, unless it
//!    began before. Before anything waits, prefixes are forgotten that nobody uses, and vacant
//!    slots are given up.
//! 2. [`turn`]: what is computed before the step. One part of a prompt, or of several together
//!    ([`part`]); one part of a classification; one part of an inspection. Each takes about a
//!    [`QUANTUM`].
//! 3. [`make_room`]: which rows make room, the youngest first, where the rows outgrow the memory.
//! 4. Every batch takes a step, or a pass that verifies drafts where that pays ([`PassCosts`]). A
//!    row whose prompt is computed joins a batch ([`batch_to_join`]).

mod admission;
mod batches;
mod chunk;
mod memory;
mod pace;
mod prompts;
#[cfg(test)]
mod simulation;
mod speculation;
mod turn;

pub(crate) use admission::{Admission, Kind, Running, Waits, admission, begins_beside};
pub(crate) use batches::{Batch, Decoding, FREE_PADDING, batch_to_join, beside_slots, make_room};
pub(crate) use chunk::Room;
pub(crate) use memory::{Memory, Need, Spare};
pub(crate) use pace::{Pace, QUANTUM};
pub(crate) use prompts::{Part, Passes, Waiting, part};
pub(crate) use speculation::{Acceptance, Drafted, PassCosts, Verifying};
pub(crate) use turn::{Present, turn};
