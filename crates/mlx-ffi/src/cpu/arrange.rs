//! Rows of caches put together from stretches of others, on all cores: MLX's `concatenate` and
//! `take` copy element by element on one.

use cpu_kernels::{Arrange, Pieces, Source};

use super::failed;
use super::operation::{Inputs, Outcome, operation};
use crate::{Array, Error, Result};

/// Of `sources`, each `[b, heads, n, width]` of one type, any type: `[rows.len(), heads, capacity,
/// width]`, each row made of its pieces, with zeros behind them.
///
/// # Errors
/// Sources that do not fit each other; pieces that are not there or do not fit; a stream of the
/// GPU.
pub fn arrange(sources: &[&Array], rows: Vec<Pieces>, capacity: i32) -> Result<Array> {
    let Some(like) = sources.first() else {
        return Err(Error::new("rows are arranged from at least one source"));
    };
    let [_, heads, _, width] = like.dims()?;
    let mut held = Vec::with_capacity(sources.len());
    for source in sources {
        let [b, source_heads, n, source_width] = source.dims()?;
        if [source_heads, source_width] != [heads, width] || source.dtype() != like.dtype() {
            return Err(Error::new(format!("rows of {source:?} do not fit those of {like:?}")));
        }
        held.push([b as usize, n as usize]);
    }
    let positions =
        usize::try_from(capacity).map_err(|_| Error::new(format!("{capacity} positions")))?;
    rows.iter().try_for_each(|row| row.check(&held, positions)).map_err(failed)?;
    let shape = [rows.len() as i32, heads, capacity, width];
    let outcome = Outcome::row_major(like.dtype(), &shape);
    let size = like.dtype().size();
    let (heads, width) = (heads as usize, width as usize * size);
    operation(sources, Inputs::Strided, outcome, move |inputs, out| {
        let sources: Vec<Source<'_>> = inputs
            .iter()
            .zip(&held)
            .map(|(view, &[rows, positions])| {
                let strides = view.strides().map(|stride| stride * size);
                Source { data: view.bytes, rows, positions, strides }
            })
            .collect();
        let (sources, rows) = (&sources[..], &rows[..]);
        let task = Arrange { sources, rows, heads, capacity: positions, width, out };
        cpu_kernels::arrange(task).map_err(failed)
    })
}
