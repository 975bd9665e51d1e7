//! Words of codes, from the orders in which vendors lay them to rows whose codes follow each other.

use std::thread;

/// Words of a cache line: so many columns are turned together.
const TILE: usize = 16;
/// Words below which a thread is not worth its start.
const LEAST: usize = 1 << 16;
/// The row of a matrix that each code of a word of AWQ belongs to, of eight rows.
pub(super) const OF_AWQ: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// The code at `index` of a row of words, whose codes of `bits` follow each other from the lowest
/// bit on.
pub(super) fn code(words: &[u32], index: usize, bits: usize) -> u32 {
    let bit = index * bits;
    let (at, shift) = (bit / 32, bit % 32);
    let low = words[at] >> shift;
    let high = if shift + bits > 32 { words[at + 1] << (32 - shift) } else { 0 };
    (low | high) & (u32::MAX >> (32 - bits))
}

/// The transposed of `words`, `[rows, columns]`: `[columns, rows]`.
pub(super) fn turned(words: &[u32], rows: usize, columns: usize) -> Vec<u32> {
    let mut out = vec![0; words.len()];
    in_parts(&mut out, rows, TILE, |first, out| {
        let count = out.len() / rows;
        for row in 0..rows {
            let from = &words[row * columns + first..][..count];
            for (at, word) in from.iter().enumerate() {
                out[at * rows + row] = *word;
            }
        }
    });
    out
}

/// The codes of AWQ, `[inputs, outputs / 8]`, as `[outputs, inputs / 8]`: eight inputs a word.
pub(super) fn of_awq(words: &[u32], inputs: usize, outputs: usize) -> Vec<u32> {
    let (columns, length) = (outputs / 8, inputs / 8);
    let mut out = vec![0; words.len()];
    in_parts(&mut out, length, 8 * TILE, |first, out| {
        for eight in 0..out.len() / length / 8 {
            for at in 0..length {
                let column = first / 8 + eight;
                let from: [u32; 8] =
                    std::array::from_fn(|i| words[(at * 8 + i) * columns + column]);
                for (nibble, row) in OF_AWQ.into_iter().enumerate() {
                    let codes = from.iter().enumerate();
                    let word = codes.map(|(i, word)| (word >> (4 * nibble) & 15) << (4 * i));
                    out[(eight * 8 + row) * length + at] = word.fold(0, |all, code| all | code);
                }
            }
        }
    });
    out
}

/// Lets threads fill `out`, rows of `length` words, `few` rows after the other: each call has the
/// number of its first row.
fn in_parts(out: &mut [u32], length: usize, few: usize, fill: impl Fn(usize, &mut [u32]) + Sync) {
    if out.is_empty() || length == 0 {
        return;
    }
    let rows = out.len() / length;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(out.len() / LEAST + 1);
    let each = rows.div_ceil(threads).next_multiple_of(few);
    thread::scope(|scope| {
        for (part, out) in out.chunks_mut(each * length).enumerate() {
            let fill = &fill;
            scope.spawn(move || {
                for (at, out) in out.chunks_mut(few * length).enumerate() {
                    fill(part * each + at * few, out);
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_follow_each_other_across_words() {
        // 32 codes of three bits in three words.
        let codes: Vec<u32> = (0..32).map(|at| at * 5 % 8).collect();
        let all = codes.iter().rev().fold(0_u128, |all, code| all << 3 | u128::from(*code));
        let words = [all as u32, (all >> 32) as u32, (all >> 64) as u32];
        assert!((0..32).all(|at| code(&words, at, 3) == codes[at]));
        assert_eq!(code(&[0xffff_ff80], 0, 8), 0x80);
        assert_eq!(code(&[7], 0, 32), 7);
    }

    #[test]
    fn matrices_are_turned_whatever_their_sizes() {
        for (rows, columns) in [(1, 1), (3, 5), (17, 33), (4, 1000), (300, 517)] {
            let words: Vec<u32> = (0..(rows * columns) as u32).collect();
            let out = turned(&words, rows, columns);
            let expected = (0..columns).flat_map(|c| (0..rows).map(move |r| r * columns + c));
            assert!(out.into_iter().map(|word| word as usize).eq(expected), "{rows} x {columns}");
        }
    }

    #[test]
    fn each_code_of_awq_finds_its_row_and_column() {
        let (inputs, outputs) = (64, 264);
        let of = |input: usize, output: usize| ((input * 7 + output * 3) % 16) as u32;
        let mut words = vec![0; inputs * outputs / 8];
        for input in 0..inputs {
            for output in 0..outputs {
                let nibble = OF_AWQ.iter().position(|row| *row == output % 8).expect("one of 8");
                words[input * outputs / 8 + output / 8] |= of(input, output) << (4 * nibble);
            }
        }
        let out = of_awq(&words, inputs, outputs);
        for output in 0..outputs {
            let row = &out[output * inputs / 8..];
            assert!((0..inputs).all(|input| code(row, input, 4) == of(input, output)), "{output}");
        }
    }
}
