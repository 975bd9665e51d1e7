//! The text side: tokenizing, rendering a chat, detokenizing, stop strings.

use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use inference_text::{AddSpecial, Detokenizer, SkipSpecial, StopMatcher, Tokenizer};

const STORY: &str = "Once there was a friendly fox named Benno who had a home in a lighthouse. ";

fn benches(c: &mut Criterion) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cli/demo-model");
    let tokenizer = Tokenizer::from_dir(&folder).expect("the demo model is in the repository");
    let text = STORY.repeat(100);
    let ids = tokenizer.encode(&text, AddSpecial::Never).expect("plain text");
    let mut group = c.benchmark_group("text");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("encode", |b| {
        b.iter(|| tokenizer.encode(&text, AddSpecial::Never).expect("plain text"));
    });
    group.throughput(Throughput::Elements(ids.len() as u64));
    group.bench_function("detokenize", |b| {
        b.iter(|| {
            let mut detokenizer =
                Detokenizer::new(&tokenizer, SkipSpecial::Yes).expect("a known decoder");
            ids.iter().map(|id| detokenizer.push(*id).len()).sum::<usize>()
        });
    });
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("match 16 stop strings", |b| {
        let stops: Vec<String> = (0..16).map(|n| format!("lighthouse keeper {n}")).collect();
        b.iter(|| {
            let mut matcher = StopMatcher::new(&stops).expect("no empty stop string");
            text.split_inclusive(' ').map(|piece| matcher.push(piece).text.len()).sum::<usize>()
        });
    });
    group.finish();
}

criterion_group!(text, benches);
criterion_main!(text);
