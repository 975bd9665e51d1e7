//! The step of one new position of each row, which CUDA repeats as one operation.

use mlx_ffi::{Array, Result, cuda};

use super::{Decoder, Pass};
use crate::cache::{Caches, Room};

/// From so many steps alike on, one is kept for repetition; what is short is not worth it.
const WORTH_KEEPING: usize = 8;
/// Steps until the next try, where kernels are still being compiled.
const UNTIL_COMPILED: usize = 64;

/// What is kept of the steps that some rows have made: as long as their buffers have room, one is like
/// the other.
#[derive(Debug)]
pub(crate) struct KeptStep {
    replay: Option<cuda::Replay>,
    /// Steps that are computed one operation after the other until it is tried to keep one.
    until_tried: usize,
    /// There is something in them that cannot be kept.
    is_impossible: bool,
}

impl Default for KeptStep {
    fn default() -> KeptStep {
        KeptStep { replay: None, until_tried: WORTH_KEEPING, is_impossible: false }
    }
}

/// What a step reads.
pub(crate) struct StepInputs {
    /// Its own.
    moving: Vec<Array>,
    /// What steps share until the rows or their buffers are others.
    fixed: Vec<Array>,
}

impl StepInputs {
    /// The inputs of the pass, before its first layer, and of the attention of each layer in its room.
    fn of(model: &Decoder, pass: &mut Pass, rooms: Vec<Room>) -> Result<StepInputs> {
        let moving = pass.arrays().map(Array::share).collect::<Result<_>>()?;
        let mut inputs = StepInputs { moving, fixed: Vec::new() };
        let mut known: Vec<(i32, &[i32])> = Vec::new();
        for (layer, room) in model.layers.iter().zip(&rooms) {
            if !known.contains(&(room.at, &room.starts)) {
                known.push((room.at, &room.starts));
                let places = pass.positions.places(room, layer.attention.config.n_heads)?;
                inputs.moving.push(places.at);
                inputs.fixed.push(places.rows);
            }
        }
        inputs.fixed.extend(rooms.into_iter().flat_map(|room| [room.keys, room.values]));
        Ok(inputs)
    }

    fn refs(&self) -> [Vec<&Array>; 2] {
        [&self.moving, &self.fixed].map(|arrays| arrays.iter().collect())
    }
}

impl KeptStep {
    /// The hidden states after the step, where one like it is kept; they are overwritten by the next.
    fn repeat(&mut self, inputs: &StepInputs) -> Result<Option<Array>> {
        let Some(replay) = &mut self.replay else { return Ok(None) };
        let [moving, fixed] = inputs.refs();
        let h = replay.run(&moving, &fixed)?;
        if h.is_none() {
            *self = KeptStep::default();
        }
        Ok(h)
    }

    /// Takes note of a step that leads to `h`, which is not evaluated.
    fn note(&mut self, h: &Array, inputs: &StepInputs) -> Result<()> {
        self.until_tried -= 1;
        if self.until_tried > 0 {
            return Ok(());
        }
        self.until_tried = UNTIL_COMPILED;
        let [moving, fixed] = inputs.refs();
        // Kernels of one row are short, and wait for each other no longer than they have to.
        let overlap = h.dims::<3>()?[0] == 1;
        match cuda::Replay::record(h, &moving, &fixed, overlap)? {
            cuda::Recorded::Kept(replay) => self.replay = Some(replay),
            cuda::Recorded::NotYet => {}
            cuda::Recorded::Impossible => self.is_impossible = true,
        }
        Ok(())
    }
}

impl Decoder {
    /// `ids`, `[b, l]`, to hidden states `[b, l, hidden_size]`, which must be sent to the device before
    /// the next call. Appends `l` positions to each layer's cache.
    pub fn hidden(&self, ids: &Array, caches: &mut Caches) -> Result<Array> {
        let mut pass = self.begin(ids, caches)?;
        let Some(inputs) = self.step_inputs(&mut pass, caches)? else {
            self.advance(&mut pass, caches, self.layers.len())?;
            return pass.h().share();
        };
        if let Some(h) = caches.step_mut().repeat(&inputs)? {
            caches.fill_in_place();
            return Ok(h);
        }
        self.advance(&mut pass, caches, self.layers.len())?;
        caches.step_mut().note(pass.h(), &inputs)?;
        pass.h().share()
    }

    /// What a step reads, where it is one that kernels for CUDA make in place.
    fn step_inputs(&self, pass: &mut Pass, caches: &mut Caches) -> Result<Option<StepInputs>> {
        let [_, l, _] = pass.h().dims()?;
        if l != 1 || !self.is_on_cuda() || caches.step_mut().is_impossible {
            return Ok(None);
        }
        if !caches.have_room() {
            // What is kept holds the buffers that are about to be replaced.
            *caches.step_mut() = KeptStep::default();
        }
        let dtype = pass.h().dtype();
        let mut rooms = Vec::with_capacity(self.layers.len());
        for (layer, cache) in self.layers.iter().zip(caches.layers_mut()) {
            match layer.attention.room(dtype, l, &mut pass.positions, cache)? {
                Some(room) => rooms.push(room),
                None => return Ok(None),
            }
        }
        self.prepare(pass)?;
        StepInputs::of(self, pass, rooms).map(Some)
    }
}
