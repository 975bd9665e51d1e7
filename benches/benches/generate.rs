//! Whole requests on the demo model: prefill alone, and a decode step.

use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use inference_core::{GenerateOptions, LoadOptions, Prompt, load_model};

fn benches(c: &mut Criterion) {
    metal_backend::register().expect("nothing else registers these names");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cli/demo-model");
    let model = load_model(&folder, &LoadOptions::default()).expect("the demo model loads");
    let request = |ids: usize, new: usize| {
        let prompt = Prompt::Ids((0..ids as u32).map(|id| 300 + id).collect());
        let options = GenerateOptions {
            max_tokens: Some(new),
            temperature: Some(0.0),
            ignore_eos: true,
            ..GenerateOptions::default()
        };
        model.generate(&prompt, &options).expect("the request fits").count()
    };
    let mut group = c.benchmark_group("generate");
    group.sample_size(10);
    group.throughput(Throughput::Elements(64));
    group.bench_function("prefill 64", |b| b.iter(|| request(64, 0)));
    group.throughput(Throughput::Elements(16));
    group.bench_function("decode 16 after a prompt of 1", |b| b.iter(|| request(1, 16)));
    group.finish();
}

criterion_group!(generate, benches);
criterion_main!(generate);
