//! Rows put together from stretches of others, against a copy byte by byte.

use cpu_kernels::{Arrange, Pieces, Source, Stretch, arrange};
use proptest::prelude::*;

/// A source in a layout of its own.
#[derive(Clone, Debug)]
struct Held {
    data: Vec<u8>,
    rows: usize,
    positions: usize,
    strides: [usize; 3],
}

impl Held {
    /// Heads before positions or after them, with `gap` bytes of no position behind each.
    fn new([rows, heads, positions, width]: [usize; 4], gap: usize, heads_last: bool) -> Held {
        let step = width + gap;
        let strides = match heads_last {
            true => [positions * heads * step, step, heads * step],
            false => [heads * positions * step, positions * step, step],
        };
        let size = (rows * heads * positions * step).saturating_sub(gap);
        let data = (0..size).map(|i| (i * 7 % 251) as u8 + 1).collect();
        Held { data, rows, positions, strides }
    }

    fn source(&self) -> Source<'_> {
        let Held { rows, positions, strides, .. } = *self;
        Source { data: &self.data, rows, positions, strides }
    }
}

fn arranged(
    held: &[Held],
    rows: &[Pieces],
    [heads, capacity, width]: [usize; 3],
) -> Result<Vec<u8>, cpu_kernels::Error> {
    let sources: Vec<Source<'_>> = held.iter().map(Held::source).collect();
    let mut out = vec![0xff; rows.len() * heads * capacity * width];
    arrange(Arrange { sources: &sources, rows, heads, capacity, width, out: &mut out })?;
    Ok(out)
}

fn plain(held: &[Held], rows: &[Pieces], [heads, capacity, width]: [usize; 3]) -> Vec<u8> {
    let mut out = Vec::new();
    for pieces in rows {
        for head in 0..heads {
            let end = out.len() + capacity * width;
            out.resize(out.len() + pieces.before * width, 0);
            for Stretch { source, row, positions } in &pieces.stretches {
                let Held { data, strides: [row_step, head_step, step], .. } = &held[*source];
                for position in positions.clone() {
                    let first = row * row_step + head * head_step + position * step;
                    out.extend((first..first + width).map(|at| data[at]));
                }
            }
            out.resize(end, 0);
        }
    }
    out
}

#[derive(Clone, Debug)]
struct Case {
    held: Vec<Held>,
    rows: Vec<Pieces>,
    sizes: [usize; 3],
}

fn cases() -> impl Strategy<Value = Case> {
    let source = (1..4usize, 0..9usize, 0..3usize, any::<bool>());
    let stretch = any::<[prop::sample::Index; 4]>();
    let row = (0..5usize, prop::collection::vec(stretch, 0..4));
    let sizes = (1..5usize, 1..40usize, 0..6usize);
    let all = (sizes, prop::collection::vec(source, 1..4), prop::collection::vec(row, 0..6));
    all.prop_map(|((heads, width, room), sources, rows)| {
        let held: Vec<Held> = sources
            .into_iter()
            .map(|(rows, positions, gap, heads_last)| {
                Held::new([rows, heads, positions, width], gap, heads_last)
            })
            .collect();
        let stretch = |[source, row, a, b]: [prop::sample::Index; 4]| {
            let source = source.index(held.len());
            let Held { rows, positions, .. } = held[source];
            let (a, b) = (a.index(positions + 1), b.index(positions + 1));
            Stretch { source, row: row.index(rows), positions: a.min(b)..a.max(b) }
        };
        let rows: Vec<Pieces> = rows
            .into_iter()
            .map(|(before, stretches)| Pieces {
                before,
                stretches: stretches.into_iter().map(stretch).collect(),
            })
            .collect();
        let length = |row: &Pieces| {
            row.before + row.stretches.iter().map(|stretch| stretch.positions.len()).sum::<usize>()
        };
        let capacity = rows.iter().map(length).max().unwrap_or(0) + room;
        Case { held, rows, sizes: [heads, capacity, width] }
    })
}

proptest! {
    #[test]
    fn every_row_is_zeros_its_stretches_and_zeros_in_any_layout(case in cases()) {
        let Case { held, rows, sizes } = case;
        prop_assert_eq!(arranged(&held, &rows, sizes).unwrap(), plain(&held, &rows, sizes));
    }
}

#[test]
fn what_is_not_there_or_does_not_fit_is_refused_by_name() {
    let held = [Held::new([2, 3, 4, 5], 1, false)];
    let row = |before, source, row, positions| {
        vec![Pieces { before, stretches: vec![Stretch { source, row, positions }] }]
    };
    assert!(arranged(&held, &row(2, 0, 1, 0..4), [3, 6, 5]).is_ok());
    #[allow(clippy::reversed_empty_ranges, reason = "one of what is refused")]
    let reversed = 3..2;
    for (rows, expected) in [
        (row(0, 1, 0, 0..1), "source 1 of 1"),
        (row(0, 0, 2, 0..1), "no positions 0..1 of row 2 among 2 rows of 4"),
        (row(0, 0, 0, 2..5), "no positions 2..5 of row 0 among 2 rows of 4"),
        (row(0, 0, 0, reversed), "no positions 3..2 of row 0 among 2 rows of 4"),
        (row(3, 0, 0, 0..4), "a row of 7 positions, expected at most 6"),
        (row(usize::MAX, 0, 0, 0..4), "expected at most 6"),
    ] {
        let error = arranged(&held, &rows, [3, 6, 5]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let error = arranged(&held, &row(0, 0, 0, 0..4), [4, 6, 5]).unwrap_err().to_string();
    assert!(error.starts_with("source 0 has 143 bytes, too few for [2, 4, 4] of 5"), "{error}");
    let sources = [held[0].source()];
    let rows = row(0, 0, 0, 0..4);
    let mut out = [0xff; 89];
    let (sources, rows, out_of) = (&sources[..], &rows[..], &mut out[..]);
    let short = Arrange { sources, rows, heads: 3, capacity: 6, width: 5, out: out_of };
    assert!(arrange(short).unwrap_err().to_string().starts_with("out has 89 bytes"));
    assert_eq!(out, [0xff; 89]);
}
