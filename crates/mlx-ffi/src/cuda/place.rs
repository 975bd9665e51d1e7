//! Rows of a cache, copied into the slots of another's buffers.

use super::constants::{PLACE_NUMBERS, THREADS};
use super::kernel::{Constant, Launch, Source};
use super::launch::{ON_DEVICE, first, launch};
use crate::{Array, Dtype, Error, Result};

/// Blocks that copy the positions of one head of a row.
pub(super) const BLOCKS: i32 = 8;
/// The most heads, and the most rows at once.
pub(super) const MOST: i32 = 1 << 15;

const PLACE: Source = Source {
    name: c"place",
    inputs: &[c"from", c"into", c"places"],
    outputs: &[c"done"],
    body: include_str!("place.cu"),
    header: include_str!("chained.cu"),
    takes_strides: true,
    written: &[1],
};

const COPY: Source = Source {
    name: c"copy_positions",
    inputs: &[
        c"part0", c"part1", c"part2", c"part3", c"part4", c"part5", c"part6", c"part7", c"part8",
        c"part9", c"part10", c"part11", c"part12", c"part13", c"part14", c"part15", c"places",
    ],
    outputs: &[c"kept"],
    body: include_str!("copy.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("copy_positions.cu")),
    takes_strides: true,
    written: &[],
};
/// Buffers of which one launch copies.
const PARTS: usize = COPY.inputs.len() - 1;

/// A copy of some positions of a row into a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The row's index in the buffer that is read.
    pub row: i32,
    /// The slot's index in the buffer that is written.
    pub slot: i32,
    /// The first position that is read.
    pub first: i32,
    /// The first position that is written.
    pub at: i32,
    /// How many positions are copied.
    pub count: i32,
    /// Positions in front of these that become zeros.
    pub before: i32,
}

/// Places on the device, for [`place`] in any number of buffers.
#[derive(Debug)]
pub struct Places {
    rows: i32,
    /// Positions of each; `None` where they have different numbers.
    count: Option<i32>,
    array: Array,
}

impl Places {
    /// At least one, of slots that differ.
    ///
    /// # Errors
    /// None of them, or too many; those of MLX.
    pub fn new(places: &[Place]) -> Result<Places> {
        let rows = i32::try_from(places.len()).unwrap_or(i32::MAX);
        if !(1..=MOST).contains(&rows) {
            return Err(Error::new(format!("{rows} rows are placed at once")));
        }
        let numbers = |place: &Place| -> [i32; PLACE_NUMBERS] {
            [place.row, place.slot, place.first, place.at, place.count, place.before]
        };
        // More than are kept in the host's memory.
        let numbers: Vec<i32> = places.iter().flat_map(numbers).collect();
        let array = Array::from_i32(&numbers, &[numbers.len() as i32])?;
        let count = places[0].count;
        let count = places.iter().all(|place| place.count == count).then_some(count);
        Ok(Places { rows, count, array })
    }
}

/// Copies rows of `from`, `[rows, heads, positions, width]`, into slots of `into`, `[slots, heads,
/// capacity, width]`, in place: the buffer of `into` afterwards. A place that is not inside both
/// copies nothing. MLX does not know of the write: earlier reads of those slots must be in flight
/// before it, and so must the result before it is read.
///
/// # Errors
/// Buffers of other heads, widths or types; a device without CUDA.
pub fn place(from: &Array, into: &Array, places: &Places) -> Result<Array> {
    let [_, heads, _, width] = from.dims()?;
    let [_, into_heads, _, into_width] = into.dims()?;
    let are_alike = (heads, width, from.dtype()) == (into_heads, into_width, into.dtype());
    if !are_alike || !(1..=MOST).contains(&heads) {
        return Err(Error::new(format!("rows of {from:?} have no place in {into:?}")));
    }
    let constants = [(c"T", Constant::Type(from.dtype()))];
    let outputs: [(&[i32], Dtype); 1] = [(&[ON_DEVICE as i32], Dtype::I32)];
    let grid = [THREADS * BLOCKS, heads, places.rows];
    let all = Launch { grid, block: [THREADS, 1, 1], constants: &constants, outputs: &outputs };
    let found = launch(&PLACE, &[from, into, &places.array], &all)?;
    match <[Array; 2]>::try_from(found) {
        Ok([_, into]) => Ok(into),
        Err(found) => Err(Error::new(format!("{} results of rows that are placed", found.len()))),
    }
}

/// The positions that `places` read, as many for each, of each of `parts`, `[rows, heads,
/// positions, width]`, which have one type, as many heads and one width. A result is `[n, heads,
/// count, width]`, and has the rows of up to 16 parts, one part after the other. If the positions
/// are not inside of a part, their copy holds anything.
///
/// # Errors
/// Buffers that are not alike, or of too many heads; no positions, or other numbers of them for
/// other rows; a device without CUDA.
pub fn copied(parts: &[&Array], places: &Places) -> Result<Vec<Array>> {
    let count = places.count.unwrap_or(0);
    parts.chunks(PARTS).map(|together| side_by_side(together, count, places)).collect()
}

fn side_by_side(parts: &[&Array], count: i32, places: &Places) -> Result<Array> {
    let kind = |part: &Array| {
        let [_, heads, _, width] = part.dims()?;
        Ok::<_, Error>((heads, width, part.dtype()))
    };
    let (heads, width, dtype) = kind(parts[0])?;
    let copies = parts.len() as i32 * places.rows;
    let mut are_alike = (1..=MOST).contains(&heads) && (1..=MOST).contains(&copies) && count >= 1;
    for part in parts {
        are_alike &= kind(part)? == (heads, width, dtype);
    }
    if !are_alike {
        return Err(Error::new(format!("{count} positions of {parts:?} are copied")));
    }
    let mut inputs = parts.to_vec();
    // What the last launch does not need is not read.
    inputs.resize(PARTS, parts[0]);
    inputs.push(&places.array);
    let shape = [copies, heads, count, width];
    let outputs: [(&[i32], Dtype); 1] = [(&shape, dtype)];
    let constants = [(c"T", Constant::Type(dtype))];
    let grid = [THREADS * BLOCKS, heads, copies];
    let all = Launch { grid, block: [THREADS, 1, 1], constants: &constants, outputs: &outputs };
    first(launch(&COPY, &inputs, &all)?)
}
