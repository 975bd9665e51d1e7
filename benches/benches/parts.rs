//! The engine's parts by themselves, on the demo model: a layer, a prefill chunk, a decode step, a
//! draw.

use std::path::Path;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use inference_core::GenerateOptions;
use metal_backend::parts::{Draws, Model};
use mlx_ffi::Array;

/// Ids of a chunk, and steps that follow one before it is computed anew, so that the context stays
/// between one and two chunks.
const CHUNK: usize = 64;

fn model(c: &mut Criterion) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cli/demo-model");
    let model = Model::load(&folder).expect("the demo model loads");
    let mut group = c.benchmark_group("parts");
    group.sample_size(10);
    for ids in [1, CHUNK] {
        group.throughput(Throughput::Elements(ids as u64));
        group.bench_function(format!("one layer, {ids} ids"), |b| {
            b.iter(|| model.layer(ids).expect("the ids fit"));
        });
    }
    group.bench_function(format!("a prefill chunk of {CHUNK} ids"), |b| {
        b.iter(|| model.prefill(CHUNK).expect("the ids fit"));
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function(format!("a decode step after {CHUNK} to {} ids", 2 * CHUNK), |b| {
        b.iter_custom(|iterations| {
            let mut context = model.prefill(CHUNK).expect("the ids fit");
            let mut time = Duration::ZERO;
            for number in 0..iterations {
                if number > 0 && number.is_multiple_of(CHUNK as u64) {
                    context = model.prefill(CHUNK).expect("the ids fit");
                }
                let began = Instant::now();
                model.step(&mut context).expect("there is room");
                time += began.elapsed();
            }
            time
        });
    });
    group.finish();
}

fn sampler(c: &mut Criterion) {
    const VOCAB: usize = 32_000;
    let wave: Vec<f32> = (0..VOCAB).map(|id| 8.0 * (id as f32 * 0.7).sin()).collect();
    let logits = Array::from_f32(&wave, &[1, VOCAB as i32]).expect("plain data");
    let prompt: Vec<u32> = (0..256).collect();
    let greedy = GenerateOptions { temperature: Some(0.0), ..GenerateOptions::default() };
    let drawn = GenerateOptions { temperature: Some(0.8), ..GenerateOptions::default() };
    let filtered = GenerateOptions { top_p: Some(0.9), top_k: Some(40), ..drawn.clone() };
    let penalised = GenerateOptions { repetition_penalty: Some(1.1), ..filtered.clone() };
    let mut group = c.benchmark_group("sampler, 32000 ids");
    group.sample_size(20);
    let all = [
        ("greedy", greedy),
        ("a draw", drawn),
        ("top-p and top-k", filtered),
        ("those and a repetition penalty", penalised),
    ];
    for (name, options) in all {
        group.bench_function(name, |b| {
            let draws = Draws::new(options.clone(), &prompt, VOCAB as i32);
            let mut draws = draws.expect("plain options");
            b.iter(|| draws.next(&logits).expect("finite logits"));
        });
    }
    group.finish();
}

criterion_group!(parts, model, sampler);
criterion_main!(parts);
