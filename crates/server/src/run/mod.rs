//! Generations and what they need, in no protocol's words: room, text work, the polls of what runs,
//! and the parts of answers.

pub mod answers;
pub mod generations;
pub mod ignored;
pub mod metrics;
pub mod part;
pub mod phases;
pub mod reading;
pub mod said;
pub mod state;
pub mod tally;
