//! Epilogues of products, under every level.

use super::numbers::{push, random, value};
use cpu_kernels::{
    Activation, Dtype, Finish, Level, Problem, Weights, finished_matmul, finished_matmul_at,
};

const DTYPE: Dtype = Dtype::F32;

fn values(count: usize, seed: u64) -> Vec<u8> {
    let (mut state, mut bytes) = (seed, Vec::new());
    (0..count).for_each(|_| push(DTYPE, &mut bytes, random(&mut state)));
    bytes
}

#[test]
fn a_finished_product_is_the_product_with_all_that_becomes_of_it() {
    for (m, n, k) in [(1, 5, 9), (6, 40, 33), (7, 70, 50), (25, 33, 1100), (40, 7, 2048)] {
        let (x, w, bias) = (values(m * k, 1), values(n * k, 2), values(n, 3));
        let residual = values(m * n, 4);
        let run = |level: Level, finish: Finish<'_>| {
            let mut out = vec![0; m * n * 4];
            let weights = Weights::Dense { dtype: DTYPE, data: &w };
            let problem =
                Problem { m, positions: m, n, k, dtype: DTYPE, x: &x, weights, out: &mut out };
            finished_matmul_at(level, problem, finish).expect("the sizes fit");
            out
        };
        for &level in Level::available() {
            let product = run(level, Finish::default());
            for given in 0..8 {
                let finish = Finish {
                    bias: (given & 1 > 0).then_some(&bias),
                    activation: (given & 2 > 0).then_some(Activation::Relu),
                    residual: (given & 4 > 0).then_some(&residual),
                };
                let found = run(level, finish);
                for i in 0..m * n {
                    let mut expected = value(DTYPE, &product, i) as f32;
                    if finish.bias.is_some() {
                        expected += value(DTYPE, &bias, i % n) as f32;
                    }
                    if finish.activation.is_some() {
                        expected = expected.max(0.0);
                    }
                    if finish.residual.is_some() {
                        expected += value(DTYPE, &residual, i) as f32;
                    }
                    let found = value(DTYPE, &found, i) as f32;
                    assert_eq!(found, expected, "{level:?} {m} x {n} x {k}, {given}: {i}");
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let refused = |dtype: Dtype, finish: Finish<'_>| {
        let size = dtype.size();
        let (x, w, mut out) = (vec![0; 2 * 3 * size], vec![0; 4 * 3 * size], vec![7; 8 * size]);
        let weights = Weights::Dense { dtype, data: &w };
        let problem =
            Problem { m: 2, positions: 2, n: 4, k: 3, dtype, x: &x, weights, out: &mut out };
        let error = finished_matmul(problem, finish).expect_err("it does not fit").to_string();
        assert!(out.iter().all(|&byte| byte == 7), "{error}");
        error
    };
    let bytes = [0; 32];
    let error = refused(DTYPE, Finish { bias: Some(&bytes[..12]), ..Finish::default() });
    assert!(error.contains("the bias has 12 bytes"), "{error}");
    let error = refused(DTYPE, Finish { residual: Some(&bytes[..28]), ..Finish::default() });
    assert!(error.contains("the residual has 28 bytes"), "{error}");
    let error = refused(Dtype::Bf16, Finish { bias: Some(&bytes[..8]), ..Finish::default() });
    assert!(error.contains("Bf16"), "{error}");
}
