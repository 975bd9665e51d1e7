//! The models of one server: which are loaded, which wait, and who uses them.
//!
//! [`slots`] is the table as a state machine, without threads, clocks and models. [`keeper`] drives
//! it: it loads and unloads on threads that may wait, and hands out leases. A model with a lease is
//! never unloaded.

pub mod admission;
pub mod catalogue;
pub mod keeper;
pub mod known;
pub mod lease;
pub mod loaded;
pub mod models;
pub mod names;
pub mod report;
pub mod slot;
pub mod slots;
