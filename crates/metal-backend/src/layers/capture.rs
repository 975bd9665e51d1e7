//! Capture and replay of a step: one new position of each row, which a device repeats as one
//! operation.

use std::ops::Range;
use std::rc::Rc;

use mlx_ffi::distributed::Group;
use mlx_ffi::{Array, Error, Recorded, Replay, Result, cuda};

use super::step_offsets::SharedOffsets;
use super::{Block, Pass, StepBuffers};
use crate::cache::Caches;

/// The step of so many alike at which one is captured: to capture takes the host as long as two or
/// three steps of which it sends each operation.
const WORTH_CAPTURING: usize = 3;
/// The step that is captured where the one before was, until its buffers grew. The first one makes
/// the buffers.
const UNTIL_GROWN: usize = 2;
/// Steps until the next try, where kernels are still being compiled.
const UNTIL_COMPILED: usize = 64;

/// The captured step of some rows. As long as their buffers have room, one step is like the other.
/// Where ranks sum on GPUs, all of them capture the same steps and replay them at the same times.
#[derive(Debug, Default)]
pub(crate) struct StepCapture {
    /// Those ranks.
    ranks: Option<Group>,
    state: Captured,
    /// Which rows and buffers the capture is of.
    layout: u64,
    /// Offsets of steps, kept on the device.
    places: SharedOffsets,
}

#[derive(Debug)]
struct Captured {
    replay: Option<Replay>,
    /// Steps that are computed one operation after the other until a capture is tried.
    until_tried: usize,
    /// There is something in them that cannot be captured.
    is_impossible: bool,
}

impl Default for Captured {
    fn default() -> Captured {
        Captured { replay: None, until_tried: WORTH_CAPTURING, is_impossible: false }
    }
}

/// The inputs of a step.
pub(crate) struct StepInputs {
    /// Its own.
    moving: Vec<Array>,
    /// Shared by steps until the rows or their buffers change.
    fixed: Vec<Array>,
}

impl StepInputs {
    /// The inputs of the pass, before its first layer, and the buffers of each layer.
    fn of(layers: &[Block], pass: &Pass, buffers: Vec<StepBuffers>) -> Result<StepInputs> {
        let moving = pass.arrays().map(Array::share).collect::<Result<_>>()?;
        let mut inputs = StepInputs { moving, fixed: Vec::new() };
        let mut known: Vec<(i32, &[i32])> = Vec::new();
        for (layer, buffers) in layers.iter().zip(&buffers) {
            let (Some(heads), Some(slot)) = (layer.mixer.heads(), &buffers.slot) else {
                continue;
            };
            if !known.contains(&(slot.at, &slot.starts)) {
                known.push((slot.at, &slot.starts));
                let offsets = pass.positions.step_offsets(slot, heads.n_heads)?;
                inputs.moving.push(offsets.at);
                // Rows of a batch leave their slots to others; a single one stays what it is.
                let rows =
                    if slot.starts.len() > 1 { &mut inputs.moving } else { &mut inputs.fixed };
                rows.push(offsets.rows);
            }
        }
        for StepBuffers { slot, arrays } in buffers {
            inputs.fixed.extend(slot.into_iter().flat_map(|slot| slot.parts));
            inputs.fixed.extend(arrays);
        }
        Ok(inputs)
    }

    fn refs(&self) -> [Vec<&Array>; 2] {
        [&self.moving, &self.fixed].map(|arrays| arrays.iter().collect())
    }
}

impl StepCapture {
    /// That of the step that all of `ranks` compute.
    pub fn among(ranks: Option<&Group>) -> StepCapture {
        let ranks = ranks.filter(|ranks| ranks.sums().is_some()).cloned();
        StepCapture { ranks, ..StepCapture::default() }
    }

    /// Gives the captured step up, with the buffers that it holds.
    pub fn forget(&mut self) {
        let is_impossible = self.state.is_impossible;
        self.state = Captured { is_impossible, ..Captured::default() };
    }

    /// Returns true when a step is captured.
    pub fn is_captured(&self) -> bool {
        self.state.replay.is_some()
    }

    /// Takes note that the buffers of the same rows are longer ones now. Where a step
    /// `was_captured`, the next but one is.
    pub fn follow(&mut self, layout: u64, was_captured: bool) {
        self.layout = layout;
        self.state.until_tried = if was_captured { UNTIL_GROWN } else { WORTH_CAPTURING };
    }

    /// The offsets of steps, kept on the device from one to the next.
    pub fn places(&self) -> SharedOffsets {
        Rc::clone(&self.places)
    }

    /// The inputs of the step of `pass`, which stands before the first of the layers `own`. `None`
    /// unless our own kernels make the step in place.
    pub fn inputs(
        &mut self,
        layers: &[Block],
        own: Range<usize>,
        pass: &mut Pass,
        caches: &mut Caches,
    ) -> Result<Option<StepInputs>> {
        if self.layout != caches.layout() {
            self.state = Captured::default();
            self.layout = caches.layout();
        }
        let [_, l, _] = pass.h().dims()?;
        if l != 1 || self.state.is_impossible {
            return Ok(None);
        }
        if !caches.have_room() {
            // The capture holds the buffers that are about to be replaced.
            let was_captured = self.state.replay.take().is_some();
            let until_tried = if was_captured { UNTIL_GROWN } else { WORTH_CAPTURING };
            self.state = Captured { until_tried, ..Captured::default() };
        }
        let dtype = pass.h().dtype();
        let layers = &layers[own.clone()];
        let mut buffers = Vec::with_capacity(layers.len());
        for (layer, state) in layers.iter().zip(&mut caches.layers_mut()[own]) {
            match layer.mixer.step_buffers(dtype, &mut pass.positions, state)? {
                Some(of_layer) => buffers.push(of_layer),
                None => return Ok(None),
            }
        }
        if let Some(first) = layers.first() {
            first.prepare(&mut pass.stream)?;
        }
        StepInputs::of(layers, pass, buffers).map(Some)
    }

    /// The hidden states after the step, where one like it is captured; the next replay overwrites
    /// them.
    pub fn replay(&mut self, inputs: &StepInputs) -> Result<Option<Array>> {
        let Some(replay) = &mut self.state.replay else { return Ok(None) };
        let [moving, fixed] = inputs.refs();
        let all_fit = match &self.ranks {
            None => true,
            Some(ranks) => ranks.most(u8::from(!replay.fits(&moving, &fixed)?))? == 0,
        };
        let h = if all_fit { replay.run(&moving, &fixed)? } else { None };
        if h.is_none() {
            if all_fit && self.ranks.is_some() {
                return Err(Error::new("a step that all ranks repeat has changed in this one"));
            }
            self.state = Captured::default();
        }
        Ok(h)
    }

    /// Takes note of a step that leads to `h`, which is not evaluated, and captures it if it is
    /// time.
    pub fn note(&mut self, h: &Array, inputs: &StepInputs) -> Result<()> {
        let state = &mut self.state;
        state.until_tried -= 1;
        if state.until_tried > 0 {
            return Ok(());
        }
        state.until_tried = UNTIL_COMPILED;
        let [moving, fixed] = inputs.refs();
        // Kernels that copy weights ahead wait for each other no longer than they have to. 32
        // requests of Qwen3-4B in 4 bits decode at 10,509 tokens/s so, and at 9,928 one kernel
        // after the other; in bf16 at 9,239 and 8,699 (H200). 64 in bf16, whose products are
        // cuBLASLt's, gain nothing.
        let overlap = h.dims::<3>()?[0] <= cuda::MOST_SEVERAL_ROWS;
        let ranks = self.ranks.as_ref();
        if ranks.and_then(Group::sums).is_some_and(|sums| !sums.in_replays) {
            state.is_impossible = true;
            return Ok(());
        }
        match Replay::record(h, &moving, &fixed, overlap, ranks)? {
            Recorded::Kept(replay) => state.replay = Some(replay),
            Recorded::NotYet => {}
            Recorded::Impossible => state.is_impossible = true,
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests;
