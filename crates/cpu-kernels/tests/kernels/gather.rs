//! Rows that name their matrices: bit for bit what a product with all matrices holds.

use super::plain::{Case, all_kinds};
use cpu_kernels::{Dtype, Gather, Level, Weights, gather_matmul};

const MATRICES: usize = 5;
const N: usize = 11;

/// The rows of `all`, a product with the rows of all matrices, that `indices` name.
fn expected(all: &Case, indices: &[u32]) -> Vec<u8> {
    let size = N * all.dtype.size();
    let shared = indices.len() / all.m;
    let row = |(r, &index): (usize, &u32)| {
        &all.out[(r / shared * MATRICES + index as usize) * size..][..size]
    };
    indices.iter().enumerate().flat_map(row).copied().collect()
}

#[test]
fn rows_get_the_matrix_that_they_name() {
    // One row, one for each index, and one for three indices each; matrices that nobody names and
    // some that several do.
    let cases: [(usize, &[u32]); 5] = [
        (1, &[3]),
        (1, &[4, 0, 2]),
        (6, &[2, 0, 2, 2, 4, 0]),
        (3, &[1, 0, 3, 3, 1, 4, 1, 3, 0]),
        (24, &[1; 24]),
    ];
    for kind in all_kinds() {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let k = if kind.group_size() == 0 { 77 } else { 3 * kind.group_size() };
            for (positions, (x_rows, indices)) in
                [1, 128].into_iter().flat_map(|n| cases.map(|case| (n, case)))
            {
                let mut all = Case::random(kind, dtype, x_rows, MATRICES * N, k, 9);
                all.positions = positions;
                all.run(Level::current());
                let mut out = vec![0xff; indices.len() * N * dtype.size()];
                let gather = Gather {
                    x_rows,
                    matrices: MATRICES,
                    positions,
                    n: N,
                    k,
                    dtype,
                    x: &all.x[1..],
                    indices,
                    weights: all.weights(),
                    out: &mut out,
                };
                gather_matmul(gather).expect("the sizes fit");
                assert!(out == expected(&all, indices), "{kind:?} {dtype:?} {indices:?}");
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_written() {
    let refusal = |x_rows, indices: &[u32], data: &[u8], out_size| {
        let mut out = vec![7; out_size];
        let weights = Weights::Dense { dtype: Dtype::F32, data };
        let gather = Gather {
            x_rows,
            matrices: 2,
            positions: 1,
            n: 3,
            k: 1,
            dtype: Dtype::F32,
            x: &[0; 8],
            indices,
            weights,
            out: &mut out,
        };
        let error = gather_matmul(gather).expect_err("it does not fit").to_string();
        assert_eq!(out, vec![7; out_size]);
        error
    };
    assert_eq!(refusal(2, &[0, 2], &[0; 24], 24), "index 2 of 2 matrices");
    assert_eq!(refusal(2, &[0, 1, 0], &[0; 24], 36), "2 rows do not share 3 indices");
    assert_eq!(refusal(0, &[0, 1], &[0; 24], 24), "0 rows do not share 2 indices");
    let weights = "weights has 20 bytes, expected the product of [6, 1, 4]";
    assert_eq!(refusal(2, &[0, 1], &[0; 20], 24), weights);
    let out = "out has 20 bytes, expected the product of [2, 3, 4]";
    assert_eq!(refusal(2, &[0, 1], &[0; 24], 20), out);
    let x = "x has 8 bytes, expected the product of [1, 1, 4]";
    assert_eq!(refusal(1, &[0, 1], &[0; 24], 24), x);
}

#[test]
fn no_indices_are_no_work() {
    let weights = Weights::Dense { dtype: Dtype::F32, data: &[] };
    let gather = Gather {
        x_rows: 0,
        matrices: 0,
        positions: 1,
        n: 4,
        k: 4,
        dtype: Dtype::F32,
        x: &[],
        indices: &[],
        weights,
        out: &mut [],
    };
    gather_matmul(gather).expect("nothing is wrong with nothing");
}
