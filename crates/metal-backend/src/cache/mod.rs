//! The state that rows keep of the positions they have passed. Nothing here knows layers.
//!
//! A layer's keys and values lie in buffers `[b, n_kv_heads, capacity, …]`, all rows ending
//! at the same place, so that one write serves the whole batch; a shorter row has padding in
//! front. What the positions of a row are is said once for all layers, by [`Caches::offsets`].

mod arrange;
mod buffer;
mod caches;
mod followed;
mod gathered;
mod kv;
mod lineage;
mod place;
mod prefix;
mod recurrent;
mod ring;
mod rope_factors;
mod slab;
mod slot;
mod spec;
mod state;
mod storage;
mod store;
mod stored;
#[cfg(test)]
mod tests;
mod trail;
mod truncate;
mod visible;

pub(crate) use buffer::{MOST_SPARE, More};
pub(crate) use caches::Caches;
pub(crate) use kv::{KvCache, View};
pub(crate) use prefix::{Keeping, Moment, PrefixCache, Usable};
pub(crate) use recurrent::Recurrent;
pub(crate) use rope_factors::RopeFactors;
pub(crate) use slot::Slot;
pub(crate) use spec::{KvSpec, RecurrentSpec, StateCost, StateSpec};
pub(crate) use state::State;
pub(crate) use storage::Storage;
pub(crate) use store::PrefixStore;
pub(crate) use stored::hex;
pub(crate) use trail::Trail;
pub(crate) use visible::{Mask, Visible};
