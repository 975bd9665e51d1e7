//! Chunks in memory.

use super::lanes::Lanes;
use super::sizes::STEPS;

/// A chunk at rest.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct Chunk(pub(super) [[f32; 8]; STEPS]);

impl Chunk {
    pub(super) const ZERO: Chunk = Chunk([[0.0; 8]; STEPS]);

    #[inline(always)]
    pub(super) fn step<V: Lanes>(&self, step: usize) -> V {
        V::load(&self.0[step])
    }

    #[inline(always)]
    pub(super) fn set<V: Lanes>(&mut self, values: [V; STEPS]) {
        for (to, value) in self.0.iter_mut().zip(values) {
            value.store(to);
        }
    }
}
