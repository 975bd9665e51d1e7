//! The offsets of a step, kept on the device from one step to the next.

use std::cell::RefCell;
use std::rc::Rc;

use mlx_ffi::step::Counters;
use mlx_ffi::{Array, Result, cuda, ops};

use crate::cache::Slot;

/// Kinds of layers of which something is kept on the device.
const MOST_KINDS: usize = 4;

/// The offsets of some rows' steps, kept on the device so that no step has to bring them there.
#[derive(Debug, Default)]
pub(crate) struct StepOffsets {
    /// For each kind of layer: each row's first position, and what its positions are more than
    /// their indices.
    rows: Vec<(Vec<i32>, Array)>,
    /// Zeros for kernels that count.
    counters: Option<Counters>,
    /// For each kind of layer, where the last step wrote.
    ends: Vec<(i32, Array)>,
}

impl StepOffsets {
    /// The index `at` on the device, which layers of one kind share. A step's is `counted` there
    /// from the last step's: what comes from the host for each step would have to wait for the
    /// device.
    fn end(&mut self, at: i32, counted: bool) -> Result<Array> {
        if let Some((_, array)) = self.ends.iter().find(|(end, _)| *end == at) {
            return array.share();
        }
        let array = match self.ends.iter().position(|(end, _)| counted && end + 1 == at) {
            Some(known) => {
                let (_, last) = self.ends.swap_remove(known);
                ops::add(&last, &Array::from_i32(&[1], &[1])?)?
            }
            None => Array::from_i32(&[at; cuda::ON_DEVICE], &[cuda::ON_DEVICE as i32])?,
        };
        if self.ends.len() == MOST_KINDS {
            self.ends.remove(0);
        }
        self.ends.push((at, array.share()?));
        Ok(array)
    }
}

/// The offsets of some rows, which all passes over them share.
pub(crate) type SharedOffsets = Rc<RefCell<StepOffsets>>;

/// The offsets of a step: its new position, and the first position of each row.
#[derive(Debug)]
pub(crate) struct SlotOffsets {
    /// The index of the new position.
    pub at: Array,
    /// See [`StepOffsets`].
    pub rows: Array,
    /// See [`StepOffsets`].
    pub counters: Counters,
}

/// The offsets of a chunk: its first new position, and the first position of each row.
#[derive(Debug)]
pub(crate) struct ChunkOffsets {
    /// The index of the first new position.
    pub at: Array,
    /// See [`StepOffsets`].
    pub rows: Array,
}

impl StepOffsets {
    /// The offsets of a step over rows at `positions`, for layers of `n_heads` heads whose new
    /// position goes into `slot`. The layers use the counters one after the other.
    pub fn of(&mut self, slot: &Slot, positions: &[i32], n_heads: i32) -> Result<SlotOffsets> {
        let count = slot.starts.len() as i32 * n_heads;
        let ChunkOffsets { at, rows } = self.places(slot, positions, true)?;
        let counters = match &self.counters {
            Some(counters) if counters.count() >= count as usize => counters.share()?,
            _ => self.counters.insert(Counters::new(count)?).share()?,
        };
        Ok(SlotOffsets { at, rows, counters })
    }

    /// The offsets of a chunk whose rows begin at `positions` and go into `slot`.
    pub fn of_chunk(&mut self, slot: &Slot, positions: &[i32]) -> Result<ChunkOffsets> {
        self.places(slot, positions, false)
    }

    fn places(&mut self, slot: &Slot, positions: &[i32], counted: bool) -> Result<ChunkOffsets> {
        let beyond = positions.iter().map(|position| position - slot.at);
        let rows: Vec<i32> =
            slot.starts.iter().copied().zip(beyond).flat_map(<[i32; 2]>::from).collect();
        let at = self.end(slot.at, counted)?;
        let rows = match self.rows.iter().find(|(known, _)| *known == rows) {
            Some((_, rows)) => rows.share()?,
            None => {
                if self.rows.len() == MOST_KINDS {
                    self.rows.remove(0);
                }
                let mut padded = rows.clone();
                padded.resize(rows.len().max(cuda::ON_DEVICE), 0);
                let array = Array::from_i32(&padded, &[padded.len() as i32])?;
                self.rows.push((rows, array.share()?));
                array
            }
        };
        Ok(ChunkOffsets { at, rows })
    }
}
