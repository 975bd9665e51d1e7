//! The cost of a call through the safe layer, of a chain of small operations, and of convolutions.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use mlx_ffi::ops::{Padding, conv2d};
use mlx_ffi::{Array, Device, Dtype, Result, cpu, fast, ops, use_device};

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

/// A convolution of 3 × 3 on a CPU, by MLX and by our own kernels.
fn convolutions(c: &mut Criterion) {
    use_device(Device::Cpu).expect("a CPU");
    let wave = |shape: &[i32]| {
        let size: i32 = shape.iter().product();
        let values: Vec<f32> = (0..size).map(|i| (0.37 * i as f32).sin()).collect();
        Array::from_f32(&values, shape).expect("plain data")
    };
    let (x, weight) = (wave(&[1, 64, 64, 128]), wave(&[128, 3, 3, 128]));
    let padding = Padding::around(1);
    c.bench_function("ffi/convolution of 64 x 64 pixels, 128 channels, f32, by MLX", |b| {
        b.iter(|| conv2d(&x, &weight, 1, padding).and_then(|y| y.eval()).expect("it fits"));
    });
    c.bench_function("ffi/convolution of 64 x 64 pixels, 128 channels, f32", |b| {
        b.iter(|| cpu::conv2d(&x, &weight, 1, padding).and_then(|y| y.eval()).expect("it fits"));
    });
    let as_bf16 = |x: &Array| ops::astype(x, Dtype::Bf16).expect("a type");
    let (x, weight) = (as_bf16(&x), as_bf16(&weight));
    c.bench_function("ffi/convolution of 64 x 64 pixels, 128 channels, bf16", |b| {
        b.iter(|| cpu::conv2d(&x, &weight, 1, padding).and_then(|y| y.eval()).expect("it fits"));
    });
}

criterion_group!(ffi, benches, convolutions);
criterion_main!(ffi);
