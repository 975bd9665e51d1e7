//! New buffers from the rows of others.

use std::ops::Range;

use mlx_ffi::{Array, Indices, Result, cpu, on_cpu, ops};

use super::buffer::{between, positions};

/// The rows of new buffers, group by group.
pub(super) struct Arrangement<'a> {
    pub groups: Vec<Group<'a>>,
    /// Positions of the new buffers.
    pub capacity: i32,
}

/// Rows that are made alike: zeros, stretches one behind the other, and zeros again.
pub(super) struct Group<'a> {
    /// Their indices in what the stretches are taken from.
    pub rows: Vec<usize>,
    /// Positions of zeros in front.
    pub before: i32,
    /// Positions of buffers, each `[b, n_kv_heads, capacity, …]`. There may be no buffers where
    /// there are no positions.
    pub stretches: Vec<(&'a [Array], Range<i32>)>,
}

impl Arrangement<'_> {
    /// The buffers; none where there are none to take from.
    pub fn make(&self) -> Result<Vec<Array>> {
        let is_on_cpu = on_cpu()?;
        let likes = self.groups.iter().flat_map(|group| &group.stretches);
        let likes = likes.map(|(parts, _)| *parts).find(|parts| !parts.is_empty()).unwrap_or(&[]);
        let make = |(index, like)| match is_on_cpu {
            true => self.by_our_kernel(index, like),
            false => self.by_mlx(index, like),
        };
        likes.iter().enumerate().map(make).collect()
    }

    /// The buffer at an index, which is otherwise as `like`, in one operation.
    fn by_our_kernel(&self, index: usize, like: &Array) -> Result<Array> {
        // There may be no other source: rows of zeros alone have a shape and a type too.
        let mut sources = vec![like];
        let mut rows = Vec::new();
        for group in &self.groups {
            let first = sources.len();
            sources.extend(group.held().map(|(parts, _)| &parts[index]));
            rows.extend(group.rows.iter().map(|&row| {
                let stretch = |(source, (_, positions)): (usize, &(_, Range<i32>))| cpu::Stretch {
                    source,
                    row,
                    positions: positions.start as usize..positions.end as usize,
                };
                let stretches = (first..).zip(group.held()).map(stretch).collect();
                cpu::Pieces { before: group.before as usize, stretches }
            }));
        }
        cpu::arrange(&sources, rows, self.capacity)
    }

    /// The buffer at an index by MLX's operations.
    fn by_mlx(&self, index: usize, like: &Array) -> Result<Array> {
        let is_only = self.groups.len() == 1;
        let group = |group: &Group<'_>| group.by_mlx(index, like, self.capacity, is_only);
        let groups: Vec<Array> = self.groups.iter().map(group).collect::<Result<_>>()?;
        ops::concatenate(&groups.iter().collect::<Vec<_>>(), 0)
    }
}

impl<'a> Group<'a> {
    /// Rows of the same positions of buffers, which end at `end`.
    pub fn ending(end: i32, rows: Vec<usize>, parts: &'a [Array], positions: Range<i32>) -> Self {
        let before = end - (positions.end - positions.start);
        Group { rows, before, stretches: vec![(parts, positions)] }
    }

    /// The stretches that have any positions.
    fn held(&self) -> impl Iterator<Item = &(&'a [Array], Range<i32>)> {
        self.stretches.iter().filter(|(_, positions)| !positions.is_empty())
    }

    /// The group's rows of the buffer, of which there are others unless it `is_only`.
    fn by_mlx(&self, index: usize, like: &Array, capacity: i32, is_only: bool) -> Result<Array> {
        let [_, n_kv_heads, _, width] = like.dims()?;
        let b = self.rows.len() as i32;
        let zeros = |count| ops::zeros(&[b, n_kv_heads, count, width], like.dtype());
        let mut pieces = Vec::new();
        if self.before > 0 {
            pieces.push(zeros(self.before)?);
        }
        for (parts, held) in self.held() {
            let (part, count) = (&parts[index], held.end - held.start);
            // Alone it would stay a view of the whole buffer, and hold it.
            let copied = is_only && count == capacity && count < positions(part);
            pieces.push(self.taken(&between(part, held.start, held.end)?, copied)?);
        }
        let end: i32 = pieces.iter().map(positions).sum();
        if end < capacity {
            pieces.push(zeros(capacity - end)?);
        }
        ops::concatenate(&pieces.iter().collect::<Vec<_>>(), 2)
    }

    /// The group's rows of `x`; a copy, where these are not all: a view would hold the others.
    fn taken(&self, x: &Array, copied: bool) -> Result<Array> {
        if !copied && self.rows.iter().copied().eq(0..x.shape()[0] as usize) {
            return x.share();
        }
        let indices: Vec<u32> = self.rows.iter().map(|row| *row as u32).collect();
        ops::take(x, &Indices::from_u32(&indices, &[indices.len() as i32])?, 0)
    }
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{Device, use_device};
    use proptest::prelude::*;

    use super::*;

    /// `[b, 2, n, 3]`, of which no value is zero.
    fn buffer(b: usize, n: i32, first: i32) -> Array {
        let values: Vec<i32> = (first..first + b as i32 * 6 * n).collect();
        Array::from_i32(&values, &[b as i32, 2, n, 3]).unwrap()
    }

    proptest! {
        #[test]
        fn mlx_and_our_kernel_make_the_same_buffers(
            sizes in prop::collection::vec((1..4usize, 0..6i32), 1..4),
            groups in prop::collection::vec(
                (
                    any::<prop::sample::Index>(),
                    prop::collection::vec(any::<prop::sample::Index>(), 1..4),
                    0..3i32,
                    prop::collection::vec((any::<prop::sample::Index>(), 0..6i32, 0..6i32), 0..3),
                ),
                1..4,
            ),
            room in 0..3i32,
        ) {
            use_device(Device::Cpu).unwrap();
            let buffers: Vec<[Array; 1]> =
                sizes.iter().map(|(b, n)| [buffer(*b, *n, 1 + 1000 * n)]).collect();
            let groups: Vec<Group<'_>> = groups
                .into_iter()
                .map(|(source, rows, before, spans)| {
                    // Of sources of as many rows, as the stretches of a group are.
                    let b = sizes[source.index(sizes.len())].0;
                    let alike: Vec<usize> =
                        (0..sizes.len()).filter(|at| sizes[*at].0 == b).collect();
                    let rows = rows.iter().map(|row| row.index(b)).collect();
                    let stretch = |(source, x, y): (prop::sample::Index, i32, i32)| {
                        let source = alike[source.index(alike.len())];
                        let n = sizes[source].1;
                        (&buffers[source][..], x.min(y).min(n)..x.max(y).min(n))
                    };
                    Group { rows, before, stretches: spans.into_iter().map(stretch).collect() }
                })
                .collect();
            let length = |group: &Group<'_>| {
                group.before + group.held().map(|(_, held)| held.end - held.start).sum::<i32>()
            };
            let capacity = (groups.iter().map(length).max().unwrap_or(0) + room).max(1);
            let arrangement = Arrangement { groups, capacity };
            let like = &buffers[0][0];
            let found = arrangement.by_our_kernel(0, like).unwrap();
            let expected = arrangement.by_mlx(0, like).unwrap();
            prop_assert_eq!(found.shape(), expected.shape());
            let values = |x: &Array| ops::astype(x, mlx_ffi::Dtype::F32).unwrap().to_vec_f32();
            prop_assert_eq!(values(&found).unwrap(), values(&expected).unwrap());
        }
    }
}
