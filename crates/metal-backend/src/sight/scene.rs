//! The pictures and sounds of one prompt, and where they lie in it.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::prepared::Prepared;

/// The pictures and sounds of one prompt.
#[derive(PartialEq)]
pub(crate) struct Scene {
    pub shown: Vec<Shown>,
    /// Of each id of the prompt, the positions that rotations take: by time, row and column.
    positions: Option<Vec<[i32; 3]>>,
    /// The id whose vector stands for what is shown where only ids count.
    pub filler: u32,
}

/// A picture or a sound of a prompt.
#[derive(PartialEq)]
pub(crate) struct Shown {
    pub prepared: Arc<Prepared>,
    /// Its own ids in the prompt.
    pub places: Range<usize>,
    /// Those in whose place its vectors stand.
    pub runs: Vec<Range<usize>>,
}

impl Shown {
    /// One whose own ids begin at `at`.
    pub fn new(prepared: Arc<Prepared>, at: usize) -> Shown {
        let own = prepared.own;
        let places = at..at + prepared.ids.len();
        let mut runs: Vec<Range<usize>> = Vec::new();
        let last = prepared.ids.len().saturating_sub(1);
        let is_vector =
            |index: usize, id: u32| id == own || prepared.ends_with_vector && index == last;
        for (index, _) in prepared.ids.iter().enumerate().filter(|(at, id)| is_vector(*at, **id)) {
            match runs.last_mut() {
                Some(run) if run.end == at + index => run.end += 1,
                _ => runs.push(at + index..at + index + 1),
            }
        }
        Shown { prepared, places, runs }
    }

    /// Its positions see each other, so that all of them must be computed at once.
    fn sees_whole(&self) -> bool {
        self.prepared.sees_whole
    }

    /// From the first position that it takes to behind the last one.
    fn span(&self) -> Range<usize> {
        let end = self.runs.last().map_or(self.places.start, |run| run.end);
        self.runs.first().map_or(end, |run| run.start)..end
    }

    /// How many vectors it has.
    pub fn vectors(&self) -> usize {
        self.runs.iter().map(Range::len).sum()
    }
}

impl Scene {
    /// A scene of what lies at these places of a prompt of so many ids, whose positions may have
    /// rows and columns.
    pub fn new(
        placed: &[(Arc<Prepared>, usize)],
        ids: usize,
        has_places: bool,
        filler: u32,
    ) -> Scene {
        let shown: Vec<Shown> =
            placed.iter().map(|(prepared, at)| Shown::new(Arc::clone(prepared), *at)).collect();
        let positions = has_places.then(|| positions(&shown, ids));
        Scene { shown, positions, filler }
    }

    /// The time of its preparation.
    pub fn preparation(&self) -> Duration {
        self.shown.iter().map(|one| one.prepared.took).sum()
    }

    /// The end of a chunk that begins at `done` and should end at `end`.
    pub fn chunk_end(&self, done: usize, end: usize) -> usize {
        let mut cut = self.shown.iter().filter(|one| one.sees_whole()).map(Shown::span);
        match cut.find(|span| span.start < end && end < span.end) {
            Some(span) if span.start > done => span.start,
            Some(span) => span.end,
            None => end,
        }
    }

    /// The most positions that must be computed at once.
    pub fn longest(&self) -> usize {
        let spans = self.shown.iter().filter(|one| one.sees_whole()).map(|one| one.span().len());
        spans.max().unwrap_or(0)
    }

    /// The positions of the pictures that see each other, among those of a chunk.
    pub fn spans(&self, chunk: &Range<usize>) -> Vec<Range<i32>> {
        let within = |run: &Range<usize>| chunk.start <= run.start && run.end <= chunk.end;
        let runs = self.shown.iter().filter(|one| one.sees_whole()).flat_map(|one| &one.runs);
        let at = |index: usize| (index - chunk.start) as i32;
        runs.filter(|run| within(run)).map(|run| at(run.start)..at(run.end)).collect()
    }

    /// Returns true when a prefix of so many ids ends inside of a picture or a sound.
    pub fn is_inside(&self, end: usize) -> bool {
        self.shown.iter().any(|one| one.places.start < end && end < one.places.end)
    }

    /// By what a prompt that begins with `ids` is known: other pictures and sounds give others.
    pub fn keys<'a>(&self, ids: &'a [u32]) -> Cow<'a, [u32]> {
        let mut keys = ids.to_vec();
        for one in &self.shown {
            let words = one.prepared.digest.as_chunks::<4>().0;
            for (index, at) in one.places.clone().enumerate() {
                let word = u32::from_le_bytes(words[index % words.len()]);
                // No id is that large.
                keys[at] = 1 << 31 | word ^ (index as u32).wrapping_mul(0x9e37_79b9);
            }
        }
        Cow::Owned(keys)
    }

    /// The positions that rotations take of some ids, where they are not their places; ids behind
    /// the prompt go on one by one.
    pub fn positions(&self, chunk: Range<usize>) -> Option<Vec<[i32; 3]>> {
        let known = self.positions.as_ref()?;
        let delta = self.delta();
        let of = |at: usize| known.get(at).copied().unwrap_or([at as i32 + delta; 3]);
        Some(chunk.map(of).collect())
    }

    /// The difference between the positions behind the prompt and their indices.
    pub fn delta(&self) -> i32 {
        let last = |known: &Vec<[i32; 3]>| known.iter().flatten().max().copied();
        self.positions
            .as_ref()
            .map_or(0, |known| last(known).map_or(0, |last| last + 1 - known.len() as i32))
    }
}

/// Of each id of a prompt, its positions by time, row and column: those of text go on one by one; a
/// picture has one time, and its rows and columns begin there.
fn positions(shown: &[Shown], ids: usize) -> Vec<[i32; 3]> {
    let (mut positions, mut next) = (Vec::with_capacity(ids), 0);
    let text = |positions: &mut Vec<[i32; 3]>, next: &mut i32, until: usize| {
        while positions.len() < until {
            positions.push([*next; 3]);
            *next += 1;
        }
    };
    for one in shown {
        for run in &one.runs {
            text(&mut positions, &mut next, run.start);
            let [rows, columns] = one.prepared.cells;
            let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| [row, column]));
            positions.extend(cells.map(|[row, column]| [next, next + row, next + column]));
            next += rows.max(columns);
        }
    }
    text(&mut positions, &mut next, ids);
    positions
}
