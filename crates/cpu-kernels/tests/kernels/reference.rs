//! Every kernel against a plain product in f64, under every level of this processor.

use super::plain::{self, Case, Kind, all_kinds};
use cpu_kernels::{
    Dtype, Error, Level, Packing, Problem, Weights, matmul, matmul_at, unpack, unpack_at,
};
use proptest::prelude::*;

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

/// Every level, with rows that are steps and with rows of a prompt.
fn levels() -> impl Iterator<Item = (Level, usize)> {
    Level::available().iter().flat_map(|level| [(*level, 1), (*level, 64)])
}

/// Every level, with x as it is and with x that may be rounded.
fn ways() -> impl Iterator<Item = (Level, usize, bool)> {
    levels().flat_map(|(level, positions)| [(level, positions, false), (level, positions, true)])
}

#[test]
fn odd_sizes_agree_with_the_plain_product() {
    for kind in all_kinds() {
        for dtype in DTYPES {
            for (m, n, units) in [
                (1, 1, 1),
                (1, 3, 5),
                (2, 17, 3),
                (3, 5, 9),
                (7, 6, 8),
                (64, 4, 4),
                (65, 9, 11),
                (13, 70, 2),
                (5, 6, 37),
            ] {
                let k = if kind.group_size() == 0 {
                    units * 37 + m % 3
                } else {
                    units * kind.group_size()
                };
                let mut case = Case::random(kind, dtype, m, n, k, (m * n) as u64);
                case.check();
                case.rounded = true;
                case.check();
            }
        }
    }
}

#[test]
fn packed_weights_are_unpacked_to_their_values() {
    let packed = all_kinds().into_iter().filter(|kind| kind.group_size() > 0);
    for kind in packed {
        // A row that ends within a chunk of every kernel, and one that is whole chunks.
        for (n, k) in [(5, 3 * kind.group_size()), (1, 256)] {
            let case = Case::random(kind, Dtype::F32, 1, n, k, 7);
            for (dtype, step) in
                DTYPES.into_iter().zip([2f64.powi(-22), 2f64.powi(-10), 2f64.powi(-7)])
            {
                for &level in Level::available() {
                    let mut out = vec![0xff; n * k * dtype.size()];
                    unpack_at(level, case.weights(), [n, k], dtype, &mut out)
                        .expect("the sizes fit");
                    for (i, found) in plain::values(dtype, &out).into_iter().enumerate() {
                        let expected = case.weight(i / k, i % k);
                        // Of a sum of a code and a bias, a rounding of both may be all that is
                        // left.
                        let bound = step * expected.abs() + 1e-6;
                        assert!(
                            (f64::from(found) - expected).abs() <= bound,
                            "{kind:?} {dtype:?} {level:?} {i}: {found}, not {expected}"
                        );
                    }
                }
            }
        }
    }
    let weights = Weights::Dense { dtype: Dtype::F32, data: &[0; 8] };
    let error = unpack(weights, [1, 2], Dtype::F32, &mut [0; 8]).expect_err("they are numbers");
    assert_eq!(error.to_string(), "weights that are not packed are numbers already");
    let case = Case::random(all_kinds()[3], Dtype::F32, 1, 1, 32, 7);
    let error = unpack(case.weights(), [1, 32], Dtype::F32, &mut [0; 8]).expect_err("no room");
    assert_eq!(error.to_string(), "out has 8 bytes, expected the product of [1, 32, 4]");
}

#[test]
fn a_vocabulary_of_rows_agrees() {
    let affine = |bits| Kind::Packed(Packing::Affine { bits, scales: Dtype::Bf16 }, 64);
    for kind in [affine(4), Kind::Dense(Dtype::Bf16)] {
        Case::random(kind, Dtype::Bf16, 1, 151936, 64, 1).check();
    }
}

#[test]
fn rows_that_are_longer_than_a_core_keeps_agree() {
    for kind in [Kind::Dense(Dtype::Bf16), Kind::Packed(Packing::Mxfp4, 32)] {
        Case::random(kind, Dtype::Bf16, 5, 4, 100_352, 1).check();
    }
}

#[test]
fn empty_products_are_empty_or_zero() {
    for kind in all_kinds() {
        for level in Level::available() {
            for (m, n, k) in [(0, 3, 128), (3, 0, 128), (2, 3, 0)] {
                let mut case = Case::random(kind, Dtype::F32, m, n, k, 1);
                case.out.fill(1);
                case.run(*level);
                assert!(case.out.iter().all(|&byte| byte == 0));
            }
        }
    }
}

#[test]
fn a_row_does_not_depend_on_the_other_rows() {
    for kind in all_kinds() {
        for dtype in DTYPES {
            let k = if kind.group_size() == 0 { 333 } else { 5 * kind.group_size() };
            for (level, positions, rounded) in ways() {
                let mut all = Case::random(kind, dtype, 19, 11, k, 3);
                (all.positions, all.rounded) = (positions, rounded);
                all.run(level);
                for count in [1, 2, 3, 4, 6, 8] {
                    let mut some = all.rows(19 - count..19);
                    some.run(level);
                    let size = 11 * dtype.size();
                    assert!(
                        some.out == all.out[(19 - count) * size..],
                        "{kind:?} {dtype:?} {level:?} {rounded}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_row_alone_is_the_row_of_a_long_prompt() {
    for kind in all_kinds() {
        for dtype in DTYPES {
            // Several chunks and a rest; as many rows as a prefill has.
            let k = if kind.group_size() == 0 { 1099 } else { 1024 + kind.group_size() };
            for (level, positions, rounded) in ways() {
                let mut all = Case::random(kind, dtype, 512, 5, k, 3);
                (all.positions, all.rounded) = (positions, rounded);
                all.run(level);
                for count in [1, 8] {
                    let mut some = all.rows(512 - count..512);
                    some.run(level);
                    let size = 5 * dtype.size();
                    let same = some.out == all.out[(512 - count) * size..];
                    assert!(same, "{kind:?} {dtype:?} {level:?} {rounded} {count}");
                }
            }
        }
    }
}

#[test]
fn what_is_not_finite_stays_so() {
    for kind in all_kinds() {
        for dtype in DTYPES {
            for (level, positions, rounded) in ways() {
                for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut case = Case::random(kind, dtype, 8, 5, 256, 4);
                    (case.positions, case.rounded) = (positions, rounded);
                    case.set_x(3 * 256 + 77, value);
                    case.run(level);
                    for (i, value) in case.values().into_iter().enumerate() {
                        assert_eq!(
                            value.is_finite(),
                            i / 5 != 3,
                            "{kind:?} {dtype:?} {level:?} {rounded} {i}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused_and_nothing_is_written() {
    let x = [0; 16];
    let mut out = [7; 12];
    let weights = Weights::Dense { dtype: Dtype::F32, data: &[0; 44] };
    let error = matmul(Problem {
        m: 1,
        positions: 1,
        n: 3,
        k: 4,
        dtype: Dtype::F32,
        x: &x,
        weights,
        out: &mut out,
    });
    let expected = "weights has 44 bytes, expected the product of [3, 4, 4]";
    assert_eq!(error.map_err(|error: Error| error.to_string()), Err(expected.to_owned()));
    assert_eq!(out, [7; 12]);
}

#[test]
fn a_level_that_is_missing_is_refused() {
    let missing =
        [Level::Avx2, Level::Avx512].into_iter().find(|l| !Level::available().contains(l));
    if let Some(level) = missing {
        let weights = Weights::Dense { dtype: Dtype::F32, data: &[] };
        let problem = Problem {
            m: 0,
            positions: 1,
            n: 0,
            k: 0,
            dtype: Dtype::F32,
            x: &[],
            weights,
            out: &mut [],
        };
        assert!(matmul_at(level, problem).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn any_size_agrees_with_the_plain_product(
        (kind, dtype) in (0..all_kinds().len(), 0..3usize),
        (m, n, units) in (1..12usize, 1..40usize, 1..12usize),
        extra in 0..100usize,
        rounded: bool,
        seed: u64,
    ) {
        let kind = all_kinds()[kind];
        let k = if kind.group_size() == 0 { units * 64 + extra } else { units * kind.group_size() };
        let mut case = Case::random(kind, DTYPES[dtype], m, n, k, seed);
        case.rounded = rounded;
        case.check();
    }
}
