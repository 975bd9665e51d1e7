//! Where the positions of a step stand, and what they see.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use mlx_ffi::{Array, Dtype, Result, cuda, ops};

use super::rope::Turn;
use super::{Reach, Rope, Seen};
use crate::cache::{Caches, Mask, Room, View, Visible};

/// Kinds of layers of which something is kept on the device.
const MOST_KINDS: usize = 4;

/// What the steps of some rows have on the device, so that it need not be brought there for each.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// For each kind of layer: each row's first position, and what its positions are more than their
    /// indices.
    rows: Vec<(Vec<i32>, Array)>,
    /// Zeros for kernels that count.
    counters: Option<Array>,
    /// For each kind of layer, where the last step wrote.
    ends: Vec<(i32, Array)>,
}

impl Places {
    /// The index `at` on the device, which layers of one kind share, counted there from the last step's:
    /// what comes from the host for each step would have to wait for the device.
    fn end(&mut self, at: i32) -> Result<Array> {
        if let Some((_, array)) = self.ends.iter().find(|(end, _)| *end == at) {
            return array.share();
        }
        let array = match self.ends.iter().position(|(end, _)| end + 1 == at) {
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

/// The same, of the caches of these rows and the passes over them.
pub(crate) type SharedPlaces = Rc<RefCell<Places>>;

/// Where a step writes and what it sees.
#[derive(Debug)]
pub(crate) struct StepPlaces {
    /// The index of the new position.
    pub at: Array,
    /// See [`Places`].
    pub rows: Array,
    /// See [`Places`].
    pub counters: Array,
}

/// The positions of one pass through the layers: `l` for each row of the batch.
#[derive(Debug)]
pub(crate) struct Positions {
    /// The first position of each row.
    offsets: Vec<i32>,
    /// The same as `[b]`, once it was asked for.
    each: OnceCell<Array>,
    /// How they are encoded.
    reach: Reach,
    /// Layers of one kind are in the same state, so they share a mask: (visible, l, n).
    masks: Vec<((Visible, i32, i32), Mask)>,
    /// What rotates them, for each kind of layer.
    turns: Vec<(Turn, Array)>,
    /// What steps have on the device.
    places: SharedPlaces,
    /// What attention leaves for one who looks at it.
    seen: Option<Option<Seen>>,
}

impl Positions {
    /// The positions that follow those which the rows of `caches` have passed.
    pub fn after(caches: &Caches) -> Positions {
        Positions {
            offsets: caches.offsets().to_vec(),
            each: OnceCell::new(),
            reach: caches.reach(),
            masks: Vec::new(),
            turns: Vec::new(),
            places: caches.places(),
            seen: None,
        }
    }

    /// From now on, each layer leaves what its attention sees.
    pub fn watch(&mut self) {
        self.seen = Some(None);
    }

    /// Where a layer is to leave that.
    pub fn watched(&mut self) -> Option<&mut Option<Seen>> {
        self.seen.as_mut()
    }

    /// The first position of each row.
    pub fn offsets(&self) -> &[i32] {
        &self.offsets
    }

    /// Whether the rows have different positions.
    fn differ(&self) -> bool {
        self.offsets.windows(2).any(|pair| pair[0] != pair[1])
    }

    /// The first positions, `[b]`, where the rows differ. Made only now: on CUDA it takes a step's time
    /// to bring it to the device.
    pub fn each(&self) -> Result<Option<&Array>> {
        if !self.differ() {
            return Ok(None);
        }
        if let Some(each) = self.each.get() {
            return Ok(Some(each));
        }
        let each = Array::from_i32(&self.offsets, &[self.offsets.len() as i32])?;
        Ok(Some(self.each.get_or_init(|| each)))
    }

    /// How the positions are encoded.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// What rotates the `l` positions of each row, `[b or 1, l, dims]` F32: the cosines of all pairs'
    /// angles, then their sines.
    pub fn turns(&mut self, rope: &Rope, l: i32) -> Result<Array> {
        let turn = rope.turn(self.reach);
        let is_known = |(known, turns): &&(Turn, Array)| *known == turn && turns.shape()[1] == l;
        if let Some((_, turns)) = self.turns.iter().find(is_known) {
            return turns.share();
        }
        let same = self.offsets.get(..1).unwrap_or(&[0]);
        let rows = if self.differ() { &self.offsets[..] } else { same };
        let mut values = Vec::new();
        for offset in rows {
            (0..l).for_each(|i| turn.push(offset + i, &mut values));
        }
        let dims = values.len() as i32 / (rows.len() as i32 * l).max(1);
        let turns = Array::from_f32(&values, &[rows.len() as i32, l, dims])?;
        self.turns.push((turn, turns.share()?));
        Ok(turns)
    }

    /// Where a step writes and what it sees, as [`Step`](mlx_ffi::step::Step) takes it, for layers
    /// of `n_heads` heads. One layer after the other uses its counters.
    pub fn places(&mut self, room: &Room, n_heads: i32) -> Result<StepPlaces> {
        let b = room.starts.len() as i32;
        let beyond = self.offsets.iter().map(|offset| offset - room.at);
        let rows: Vec<i32> =
            room.starts.iter().copied().zip(beyond).flat_map(<[i32; 2]>::from).collect();
        let mut places = self.places.borrow_mut();
        let at = places.end(room.at)?;
        let rows = match places.rows.iter().find(|(known, _)| *known == rows) {
            Some((_, rows)) => rows.share()?,
            None => {
                if places.rows.len() == MOST_KINDS {
                    places.rows.remove(0);
                }
                let mut padded = rows.clone();
                padded.resize(rows.len().max(cuda::ON_DEVICE), 0);
                let array = Array::from_i32(&padded, &[padded.len() as i32])?;
                places.rows.push((rows, array.share()?));
                array
            }
        };
        let counters = match &places.counters {
            Some(counters) if counters.size() >= (b * n_heads) as usize => counters.share()?,
            _ => {
                let counters =
                    ops::zeros(&[(b * n_heads).max(cuda::ON_DEVICE as i32)], Dtype::I32)?;
                places.counters.insert(counters).share()?
            }
        };
        Ok(StepPlaces { at, rows, counters })
    }

    /// The mask for `l` queries over a view.
    pub fn mask(&mut self, view: &View, l: i32) -> Result<&Mask> {
        let [_, _, n, _] = view.keys.dims()?;
        let known = self.masks.iter().position(|((visible, queries, keys), _)| {
            (queries, keys) == (&l, &n) && *visible == view.visible
        });
        let index = match known {
            Some(index) => index,
            None => {
                let mask = view.visible.mask(l, n)?;
                self.masks.push(((view.visible.clone(), l, n), mask));
                self.masks.len() - 1
            }
        };
        Ok(&self.masks[index].1)
    }
}
