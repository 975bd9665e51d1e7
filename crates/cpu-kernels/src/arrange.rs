//! Rows of keys or values put together from stretches of others, as rows join and leave a batch.

use std::mem::take;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::problem::buffer;
use crate::{Error, pool};

/// Neighbouring positions of a row of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The index of the source.
    pub source: usize,
    /// The row of it.
    pub row: usize,
    /// The positions.
    pub positions: Range<usize>,
}

/// The stretches that make up a row of the result; zeros follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    /// Positions of zeros before the first stretch.
    pub before: usize,
    /// One behind the other.
    pub stretches: Vec<Stretch>,
}

/// `[rows, heads, positions, width]`, the bytes of a position side by side.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// From the first byte to the last.
    pub data: &'a [u8],
    /// Rows.
    pub rows: usize,
    /// Positions of each row.
    pub positions: usize,
    /// Bytes from one row, head and position to the next.
    pub strides: [usize; 3],
}

/// Rows of the result, each made of its pieces.
#[derive(Debug)]
pub struct Arrange<'a> {
    /// Sources of the pieces.
    pub sources: &'a [Source<'a>],
    /// For each row of the result, its pieces.
    pub rows: &'a [Pieces],
    /// Heads of all sources and of the result.
    pub heads: usize,
    /// Positions of a row of the result.
    pub capacity: usize,
    /// Bytes of a position of a head.
    pub width: usize,
    /// `[rows.len(), heads, capacity, width]`.
    pub out: &'a mut [u8],
}

/// Copies what `task.rows` names to `task.out`, and fills the rest with zeros.
///
/// # Errors
/// Pieces that are not there or do not fit, buffers whose sizes do not fit; nothing is written
/// then.
///
/// # Examples
/// ```
/// use cpu_kernels::{Arrange, Pieces, Source, Stretch, arrange};
///
/// // Two rows of one head with three positions of a byte.
/// let source = Source { data: b"abcdef", rows: 2, positions: 3, strides: [3, 3, 1] };
/// let row = |before, row, positions| {
///     Pieces { before, stretches: vec![Stretch { source: 0, row, positions }] }
/// };
/// let rows = [row(0, 1, 0..3), row(2, 0, 1..2)];
/// let mut out = [b'x'; 8];
/// let (sources, out_of) = (&[source], &mut out);
/// arrange(Arrange { sources, rows: &rows, heads: 1, capacity: 4, width: 1, out: out_of })?;
/// assert_eq!(&out, b"def\0\0\0b\0");
/// # Ok::<(), cpu_kernels::Error>(())
/// ```
pub fn arrange(task: Arrange<'_>) -> Result<(), Error> {
    task.check()?;
    let Arrange { sources, rows, heads, capacity, width, out } = task;
    if out.is_empty() {
        return Ok(());
    }
    // Each unit locks its own part.
    let parts: Vec<Mutex<&mut [u8]>> =
        out.chunks_exact_mut(capacity * width).map(Mutex::new).collect();
    pool::run(parts.len(), &|unit| {
        let mut out = parts[unit].lock().unwrap_or_else(PoisonError::into_inner);
        rows[unit / heads].fill(sources, unit % heads, width, &mut out);
    });
    Ok(())
}

impl Pieces {
    /// Checks that the pieces are there, for the rows and positions of each source, and fit into
    /// `capacity` positions.
    ///
    /// # Errors
    /// They are not, or do not.
    pub fn check(&self, sources: &[[usize; 2]], capacity: usize) -> Result<(), Error> {
        let mut end = self.before;
        for Stretch { source, row, positions } in &self.stretches {
            let Some(&[rows, held]) = sources.get(*source) else {
                return Err(Error(format!("source {source} of {}", sources.len())));
            };
            if *row >= rows || positions.start > positions.end || positions.end > held {
                return Err(Error(format!(
                    "no positions {positions:?} of row {row} among {rows} rows of {held}"
                )));
            }
            end = end.saturating_add(positions.len());
        }
        if end > capacity {
            return Err(Error(format!("a row of {end} positions, expected at most {capacity}")));
        }
        Ok(())
    }

    /// Writes a head of the row.
    fn fill(&self, sources: &[Source<'_>], head: usize, width: usize, out: &mut [u8]) {
        let (before, mut rest) = out.split_at_mut(self.before * width);
        before.fill(0);
        for Stretch { source, row, positions } in &self.stretches {
            if positions.is_empty() {
                continue;
            }
            let to;
            (to, rest) = take(&mut rest).split_at_mut(positions.len() * width);
            let Source { data, strides: [row_step, head_step, step], .. } = sources[*source];
            let from = &data[row * row_step + head * head_step + positions.start * step..];
            if step == width {
                to.copy_from_slice(&from[..to.len()]);
                continue;
            }
            for (i, to) in to.chunks_exact_mut(width).enumerate() {
                to.copy_from_slice(&from[i * step..][..width]);
            }
        }
        rest.fill(0);
    }
}

impl Arrange<'_> {
    fn check(&self) -> Result<(), Error> {
        let Arrange { sources, rows, heads, capacity, width, .. } = *self;
        for (index, source) in sources.iter().enumerate() {
            source.check(index, heads, width)?;
        }
        let sizes: Vec<[usize; 2]> =
            sources.iter().map(|source| [source.rows, source.positions]).collect();
        rows.iter().try_for_each(|row| row.check(&sizes, capacity))?;
        buffer("out", self.out, &[rows.len(), heads, capacity, width])
    }
}

impl Source<'_> {
    /// That the buffer has all positions of `width` bytes.
    fn check(&self, index: usize, heads: usize, width: usize) -> Result<(), Error> {
        let Source { data, rows, positions, strides } = *self;
        let sizes = [rows, heads, positions];
        let end = || {
            sizes.into_iter().zip(strides).try_fold(width, |end, (count, stride)| {
                (count - 1).checked_mul(stride).and_then(|last| end.checked_add(last))
            })
        };
        if sizes.contains(&0) || end().is_some_and(|end| end <= data.len()) {
            return Ok(());
        }
        Err(Error(format!(
            "source {index} has {} bytes, too few for {sizes:?} of {width} by {strides:?}",
            data.len()
        )))
    }
}
