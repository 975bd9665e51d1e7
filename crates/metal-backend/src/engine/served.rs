//! A loaded model with what every request needs to know.

use std::rc::Rc;

use inference_core::GenerateOptions;
use mlx_ffi::Device;

use super::due::Due;
use super::features::Features;
use super::memory::Budget;
use super::ranks::Ranks;
use crate::cache::{Caches, StateSpec, Storage, Usable};
use crate::kernels::Kernels;
use crate::layers::{Decoder, Stage};

/// A loaded model with what every request needs to know.
pub(super) struct Served {
    pub model: Decoder,
    pub specs: Vec<StateSpec>,
    pub storage: Storage,
    pub budget: Budget,
    pub context_length: usize,
    pub chunk: usize,
    /// The most positions of several prompts that are computed together.
    pub pass: usize,
    /// Every row is computed by itself.
    pub alone: bool,
    /// A row that leaves a batch leaves its slot to the next one that joins.
    /// So buffers and captured steps stay. A vacant slot costs as much as a row: little on a GPU.
    pub keeps_slots: bool,
    /// Requests that say nothing of drafts have them.
    pub drafts: bool,
    /// The share of a step that a drafter takes.
    pub drafter_share: f64,
    /// Whose kernels compute.
    pub kernels: Kernels,
    /// The ranks that compute together; they go on as the first one decides.
    pub ranks: Rc<Ranks>,
    pub device: Device,
    /// The vectors of the pictures that were seen last.
    pub features: Features,
    /// Exchanges between ranks that are put off.
    pub due: Due,
}

impl Served {
    /// Prefixes that lead to the numbers that a request has without them.
    pub fn usable(&self) -> Usable {
        // Computed by itself, a row's chunks are those that it has without a cache.
        let grid = if self.alone { self.chunk } else { 1 };
        let least = if self.storage == Storage::Plain { 0 } else { self.chunk };
        Usable { grid, least }
    }

    /// The most draft tokens of a pass of a request of up to `total` tokens; 0: none. Where it says
    /// nothing, and its caches cannot go back, there are none.
    pub fn draft_tokens(&self, asked: Option<usize>, total: usize) -> usize {
        match asked {
            Some(count) => count,
            None if self.drafts && self.can_go_back(total) => GenerateOptions::DRAFT_TOKENS,
            None => 0,
        }
    }

    /// Returns true when what rows of `caches` compute is of use to later requests. A drafter that
    /// did not take it in could not go on from there.
    pub fn leaves_prefixes(&self, caches: &Caches) -> bool {
        let needs = self.model.drafter.as_ref().is_some_and(|drafter| !drafter.is_cheap());
        !needs || caches.is_followed()
    }

    /// Returns true when the caches of a request of up to `total` tokens can take positions back.
    pub fn can_go_back(&self, total: usize) -> bool {
        self.specs.iter().all(|spec| spec.can_go_back(total))
    }

    /// Returns true when a batch may take its step in a pass of prompts.
    /// On a CPU, products of prompts sum in another order than those of steps.
    pub fn mixes(&self) -> bool {
        let is_plain = self.model.drafter.is_none() && !self.alone;
        self.kernels.is_on_cuda() && !self.ranks.are_several() && is_plain
    }

    /// How many batches are to be under way beside each other: one for each rank, where ranks have
    /// some layers each.
    pub fn beside(&self) -> usize {
        self.model.stage.as_ref().map_or(1, Stage::count)
    }

    /// Returns true when the `left` ids of a prompt behind `done` ones are computed to the last,
    /// from which the first token is drawn. Otherwise the last id is the first step. A pipeline
    /// draws in steps alone.
    pub fn draws_from_prompt(&self, done: usize, left: usize) -> bool {
        let draws = match self.storage {
            // A single id is computed fastest as a step.
            Storage::Plain => left > 1,
            // Where keys and values are packed, a step sees them otherwise than a prompt does. But
            // what comes first sees itself as it is, and in a step it would not be the first.
            Storage::Packed(_) => done == 0 && left == 1,
        };
        draws && self.model.stage.is_none()
    }

    /// Returns true when a row that computes `first_pass` ids before its first token is of use to
    /// other requests. If keys and values are packed, its first chunk must have full length: a
    /// shorter one sees less of its keys as they are.
    pub fn shares(&self, first_pass: usize) -> bool {
        self.storage == Storage::Plain || first_pass >= self.chunk
    }
}

/// How serving ended.
pub(super) enum ServedEnd {
    /// The model can be freed.
    Closed,
    /// The device cannot be used, not even to free what lies there.
    Broken,
}
