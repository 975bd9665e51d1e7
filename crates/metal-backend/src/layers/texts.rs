//! Whole texts one behind the other in one row, where each text sees itself alone.

use std::iter;
use std::ops::Range;

use mlx_ffi::cpu::Run;

use super::Rotation;

/// How texts of similar lengths are brought to one length, so that they are attended to at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Padding {
    /// Positions that take as much time as one more group of texts.
    pub group: i32,
    /// The length of a group is a multiple of this.
    pub multiple: i32,
}

/// The texts of a pass, `[1, l, …]`, one behind the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    /// Positions of each, at least 1.
    lengths: Vec<i32>,
    /// Positions that the row has for each: its own, then others that count for nothing.
    rooms: Vec<i32>,
}

/// Neighbouring texts in rooms of one size.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    pub run: Run,
    /// Positions of each.
    pub lengths: &'a [i32],
}

impl Texts {
    /// Texts of so many positions each. Neighbours of one length are attended to at once.
    pub fn new(lengths: Vec<i32>) -> Texts {
        Texts { rooms: lengths.clone(), lengths }
    }

    /// Texts of so many positions each. Neighbours get rooms of one size where that takes less time
    /// than to attend to them by themselves.
    pub fn padded(lengths: Vec<i32>, by: Padding) -> Texts {
        let rounded = |length: &i32| (length + by.multiple - 1) / by.multiple * by.multiple;
        let rooms: Vec<i32> = lengths.iter().map(rounded).collect();
        let runs: Vec<(i64, i64)> = rooms
            .chunk_by(|one, next| one == next)
            .map(|run| (i64::from(run[0]), run.len() as i64))
            .collect();
        // Of the first so many runs: the least positions, with those of each group, and where the
        // last group begins.
        let mut best = vec![(0, 0)];
        for end in 1..=runs.len() {
            let (mut longest, mut count) = (0, 0);
            let of_group = (0..end).rev().map(|begin| {
                longest = longest.max(runs[begin].0);
                count += runs[begin].1;
                (best[begin].0 + i64::from(by.group) + longest * count, begin)
            });
            best.push(of_group.min().unwrap_or_default());
        }
        let mut sizes = Vec::new();
        let mut end = runs.len();
        while end > 0 {
            let begin = best[end].1;
            let group = &runs[begin..end];
            let longest = group.iter().map(|(length, _)| *length).max().unwrap_or(0) as i32;
            let count = group.iter().map(|(_, count)| *count).sum::<i64>() as usize;
            sizes.push(iter::repeat_n(longest, count));
            end = begin;
        }
        Texts { lengths, rooms: sizes.into_iter().rev().flatten().collect() }
    }

    /// Positions of the row.
    pub fn row(&self) -> i32 {
        self.rooms.iter().sum()
    }

    /// The range of each text's positions in the row.
    pub fn spans(&self) -> impl Iterator<Item = Range<i32>> {
        self.lengths.iter().zip(&self.rooms).scan(0, |end, (length, room)| {
            let first = *end;
            *end += room;
            Some(first..first + length)
        })
    }

    /// The texts' `values`, one behind the other, in the row: 0 where a room has more.
    pub fn laid(&self, values: &[u32]) -> Vec<u32> {
        let mut laid = vec![0; self.row() as usize];
        let mut rest = values;
        for span in self.spans() {
            let (own, others) = rest.split_at(span.len());
            laid[span.start as usize..span.end as usize].copy_from_slice(own);
            rest = others;
        }
        laid
    }

    /// For each position of the row, that in its own text; behind the text's end, its last one.
    pub fn places(&self) -> impl Iterator<Item = i32> {
        let rooms = self.lengths.iter().zip(&self.rooms);
        rooms.flat_map(|(length, room)| (0..*room).map(move |place| place.min(length - 1)))
    }

    /// Appends the cosines and sines of each position's angles.
    pub fn push_cos_sin(&self, rotation: &Rotation, to: &mut Vec<f32>) {
        let longest = self.rooms.iter().copied().max().unwrap_or(0);
        let mut of_places = Vec::new();
        (0..longest).for_each(|place| rotation.push_cos_sin(place, &mut of_places));
        let width = of_places.len() / longest.max(1) as usize;
        for room in &self.rooms {
            to.extend_from_slice(&of_places[..*room as usize * width]);
        }
    }

    /// Neighbours in rooms of one size.
    pub fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        let (mut first, mut begin) = (0, 0);
        self.rooms.chunk_by(|one, next| one == next).map(move |rooms| {
            let run = Run { first, count: rooms.len() as i32, length: rooms[0] };
            let lengths = &self.lengths[begin..begin + rooms.len()];
            first += run.count * run.length;
            begin += rooms.len();
            Group { run, lengths }
        })
    }
}

impl Group<'_> {
    /// The position behind its last one.
    pub fn end(&self) -> i32 {
        self.run.first + self.run.count * self.run.length
    }

    /// Behind the last key of each text; empty where texts fill their rooms.
    pub fn ends(&self) -> Vec<i32> {
        let is_full = self.lengths.iter().all(|length| *length == self.run.length);
        if is_full { Vec::new() } else { self.lengths.to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First positions, counts, sizes of rooms and lengths.
    fn groups(texts: &Texts) -> Vec<([i32; 3], Vec<i32>)> {
        let of = |group: Group<'_>| {
            let Run { first, count, length } = group.run;
            ([first, count, length], group.ends())
        };
        texts.groups().map(of).collect()
    }

    #[test]
    fn neighbours_of_one_length_are_one_group() {
        let texts = Texts::new(vec![2, 2, 1, 3]);
        let full = |group| (group, Vec::new());
        assert_eq!(groups(&texts), [[0, 2, 2], [4, 1, 1], [5, 1, 3]].map(full));
        assert_eq!(texts.places().collect::<Vec<_>>(), [0, 1, 0, 1, 0, 0, 1, 2]);
        assert_eq!(texts.spans().last(), Some(5..8));
        assert_eq!(texts.laid(&[1, 2, 3, 4, 5, 6, 7, 8]), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn texts_get_rooms_of_one_size_where_that_is_fewer_positions_than_a_group() {
        // Two groups take 2 · 6 + 24 positions, one 6 + 40, three 3 · 6 + 23, four 4 · 6 + 22.
        let texts = Texts::padded(vec![10, 9, 2, 1], Padding { group: 6, multiple: 1 });
        assert_eq!(groups(&texts), [([0, 2, 10], vec![10, 9]), ([20, 2, 2], vec![2, 1])]);
        assert_eq!(texts.row(), 24);
        assert_eq!(texts.spans().collect::<Vec<_>>(), [0..10, 10..19, 20..22, 22..23]);
        assert_eq!(texts.places().skip(18).collect::<Vec<_>>(), [8, 8, 0, 1, 0, 0]);
        let laid = texts.laid(&(1..23).collect::<Vec<_>>());
        assert_eq!(laid[17..], [18, 19, 0, 20, 21, 22, 0]);
        let rounded = Texts::padded(vec![10, 9, 2, 1], Padding { group: 1, multiple: 8 });
        assert_eq!(groups(&rounded), [([0, 2, 16], vec![10, 9]), ([32, 2, 8], vec![2, 1])]);
        let alone = Texts::padded(vec![10, 9, 2, 1], Padding { group: 0, multiple: 1 });
        assert_eq!(alone.row(), 22);
        assert_eq!(Texts::padded(Vec::new(), Padding { group: 1, multiple: 8 }).row(), 0);
    }
}
