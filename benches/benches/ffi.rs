//! What a call through the safe layer costs, and a chain of small operations.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use mlx_ffi::{Array, Dtype, Result, fast, ops};

/// Operations of the chain.
const LENGTH: usize = 100;

fn chain(x: &Array) -> Result<Array> {
    let mut y = x.share()?;
    for _ in 0..LENGTH {
        y = ops::add(&y, x)?;
    }
    Ok(y)
}

fn benches(c: &mut Criterion) {
    let x = Array::from_f32(&[1.0; 1024], &[1, 1024]).expect("plain data");
    let weight = Array::from_f32(&[1.0; 1024], &[1024]).expect("plain data");
    c.bench_function("ffi/build one add", |b| {
        b.iter(|| ops::add(black_box(&x), black_box(&x)).expect("shapes fit"));
    });
    c.bench_function("ffi/build one rms_norm", |b| {
        b.iter(|| fast::rms_norm(black_box(&x), Some(&weight), 1e-6).expect("shapes fit"));
    });
    c.bench_function("ffi/build and run a chain of 100 adds", |b| {
        b.iter(|| chain(black_box(&x)).and_then(|y| y.eval()).expect("shapes fit"));
    });
    let matrix = ops::zeros(&[1024, 1024], Dtype::F32).expect("plain data");
    matrix.eval().expect("zeros");
    c.bench_function("ffi/matrix times vector, 1024 x 1024 f32", |b| {
        let run = || ops::matmul(&x, &ops::swap_axes(&matrix, 0, 1)?)?.eval();
        b.iter(|| run().expect("shapes fit"));
    });
}

criterion_group!(ffi, benches);
criterion_main!(ffi);
