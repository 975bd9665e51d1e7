//! The order in which files store rows and columns.

use super::metadata::{Rows, Tiles};
use super::reader::Stored;
use crate::error::{Error, Result};

/// The order of a tensor's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    AsStored,
    /// Rows of heads of so many stand in pairs: those of the first and of the second half
    /// alternate.
    Paired(usize),
    /// Behind the first rows, heads of so many rows stand in tiles.
    Tiled {
        first: usize,
        size: usize,
        tiles: Tiles,
    },
    /// Of each `of` rows, `size` behind the first `first` ones.
    Picked {
        first: usize,
        size: usize,
        of: usize,
    },
}

impl Order {
    /// The order of the rows of the tensor `name`.
    ///
    /// # Errors
    /// Heads that do not divide them.
    pub fn of(name: &str, stored: &Stored, rows: Rows) -> Result<Order> {
        let all = stored.shape.first().copied().unwrap_or(0);
        if rows != Rows::InOrder && stored.shape.len() < 2 && stored.kind.block().0 > 1 {
            return Err(Error::model(format!(
                "tensor `{name}` is a vector in blocks, whose values stand in another order; use a folder of safetensors"
            )));
        }
        let size_of = |rows: u64, heads: u64| {
            let size = rows / heads.max(1);
            (size * heads == rows).then_some(size as usize).ok_or_else(|| {
                Error::model(format!("{heads} heads do not divide {rows} rows of `{name}`"))
            })
        };
        Ok(match rows {
            Rows::InOrder => Order::AsStored,
            Rows::Paired(heads) => match size_of(all, heads)? {
                size if size.is_multiple_of(2) => Order::Paired(size),
                size => {
                    return Err(Error::model(format!(
                        "heads of `{name}` have {size} rows, no pairs"
                    )));
                }
            },
            Rows::Tiled(first, tiles) => {
                let size = size_of(all.saturating_sub(first), tiles.groups * tiles.heads)?;
                Order::Tiled { first: first as usize, size, tiles }
            }
            Rows::Picked { first, size, of } => {
                if of == 0 || !all.is_multiple_of(of) || first.saturating_add(size) > of {
                    return Err(Error::model(format!(
                        "`{name}` has {all} rows, which are no groups of {of}"
                    )));
                }
                Order::Picked { first: first as usize, size: size as usize, of: of as usize }
            }
        })
    }

    /// The place in the file of the row that is given out at place `row`.
    pub fn place(self, row: usize) -> usize {
        match self {
            Order::AsStored => row,
            Order::Paired(size) => {
                let (head, at) = (row / size, row % size);
                head * size + at % (size / 2) * 2 + at / (size / 2)
            }
            Order::Picked { first, size, of } => row / size * of + first + row % size,
            Order::Tiled { first, .. } if row < first => row,
            Order::Tiled { first, size, tiles } => {
                let (head, at) = ((row - first) / size, (row - first) % size);
                first + tiles.place(head) * size + at
            }
        }
    }
}

/// How heads of columns, of which `unit` stay together, are put into order; none where they are.
///
/// # Errors
/// Heads that do not divide the columns, or that share a group of packed weights; a vector.
pub(super) fn columns(
    name: &str,
    stored: &Stored,
    columns: Option<Tiles>,
    unit: usize,
) -> Result<Option<Tiles>> {
    let tiles = columns.filter(|tiles| tiles.heads > 1);
    let Some(Tiles { groups, heads }) = tiles else { return Ok(None) };
    let (all, count) = (stored.shape.last().copied().unwrap_or(0), (groups * heads).max(1));
    let is_matrix = stored.shape.len() > 1;
    if !is_matrix || all % count != 0 || !(all / count).is_multiple_of(unit as u64) {
        return Err(Error::model(format!(
            "{count} heads do not divide {all} columns of `{name}`; use a folder of safetensors"
        )));
    }
    Ok(tiles)
}

/// Puts the heads of a row into the order that other checkpoints have.
pub(super) fn in_turn(row: &mut [u8], tiles: Tiles) {
    let stored = row.to_vec();
    let size = row.len() / (tiles.groups * tiles.heads).max(1) as usize;
    for (head, out) in row.chunks_exact_mut(size.max(1)).enumerate() {
        out.copy_from_slice(&stored[tiles.place(head) * size..][..size]);
    }
}
