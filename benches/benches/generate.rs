//! Whole requests: prefill, decode, a batch, a classification, and a chat by way of the facade.
//!
//! Measured is the demo model, the model that `ML_MODEL` names (a folder or a file of GGUF), or
//! random weights in the sizes that `ML_SHAPE` names: a shape of `ml bench --shape`, or a file with
//! a `config.json`.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use inference_core::{
    ClassifyOptions, GenerateOptions, LoadOptions, Prompt, TextModel, load_model,
};
use ml::{GenOpts, Message, MlxBackend, StreamingBackend};

/// Requests of a batch.
const BATCHES: [usize; 2] = [4, 16];
/// Prompts of a classification.
const PROMPTS: usize = 16;

/// How long prompts and answers are.
struct Sizes {
    /// Ids of a prompt.
    prompt: usize,
    /// Tokens of an answer.
    new: usize,
}

fn model() -> Arc<dyn TextModel> {
    metal_backend::register().expect("nothing else registers these names");
    let parallel_slots = BATCHES.iter().max().copied();
    let options = LoadOptions { parallel_slots, ..LoadOptions::default() };
    let given = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let loaded = match (given("ML_MODEL"), given("ML_SHAPE")) {
        (Some(_), Some(_)) => panic!("ML_MODEL and ML_SHAPE are given: choose one"),
        (Some(folder), None) => load_model(Path::new(&folder), &options),
        (None, Some(shape)) => metal_backend::load_random(&config(&shape), &options),
        (None, None) => {
            let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cli/demo-model");
            load_model(&demo, &options)
        }
    };
    Arc::from(loaded.unwrap_or_else(|error| panic!("{error}")))
}

/// The `config.json` of a shape: a file's, or what the program prints of a released model's.
fn config(shape: &str) -> String {
    if Path::new(shape).is_file() {
        return fs::read_to_string(shape).unwrap_or_else(|error| panic!("{shape}: {error}"));
    }
    let mut program = Command::new(env!("CARGO"));
    program.args(["run", "--quiet", "--release", "-p", "ml-on-mlx", "--"]);
    program.args(["bench", "--print-config", "--shape", shape]);
    let printed = program.output().expect("cargo runs");
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    String::from_utf8(printed.stdout).expect("JSON is UTF-8")
}

/// A prompt of so many ids, another one for each `row`.
fn prompt(model: &dyn TextModel, row: usize, ids: usize) -> Prompt {
    // Ids in the middle of a vocabulary are words.
    let vocab = model.info().vocab_size;
    let id = |at: usize| (vocab / 4 + (row * 7919 + at * 31) % (vocab / 2).max(1)) as u32;
    Prompt::Ids((0..ids).map(id).collect())
}

fn options(new: usize) -> GenerateOptions {
    GenerateOptions {
        max_tokens: Some(new),
        temperature: Some(0.0),
        ignore_eos: true,
        ..GenerateOptions::default()
    }
}

fn prefill(c: &mut Criterion, model: &dyn TextModel, sizes: &Sizes) {
    let mut group = c.benchmark_group("prefill");
    group.sample_size(10);
    for ids in [sizes.prompt / 8, sizes.prompt] {
        let prompt = prompt(model, 0, ids);
        group.throughput(Throughput::Elements(ids as u64));
        group.bench_function(BenchmarkId::from_parameter(ids), |b| {
            b.iter(|| model.generate(&prompt, &options(0)).expect("it fits").count());
        });
    }
    group.finish();
}

fn decode(c: &mut Criterion, model: &dyn TextModel, sizes: &Sizes) {
    let mut group = c.benchmark_group("decode");
    group.sample_size(10);
    group.throughput(Throughput::Elements(sizes.new as u64));
    let prompt = prompt(model, 0, 1);
    group.bench_function(BenchmarkId::from_parameter(sizes.new), |b| {
        b.iter(|| {
            let generation = model.generate(&prompt, &options(sizes.new)).expect("it fits");
            assert_eq!(generation.count(), sizes.new);
        });
    });
    group.finish();
}

fn batches(c: &mut Criterion, model: &dyn TextModel, sizes: &Sizes) {
    for requests in BATCHES {
        let mut group = c.benchmark_group(format!("batch {requests}"));
        group.sample_size(10);
        group.throughput(Throughput::Elements((requests * sizes.new) as u64));
        let prompts: Vec<Prompt> =
            (0..requests).map(|row| prompt(model, row, sizes.prompt / 8)).collect();
        let name = format!("{} after {}", sizes.new, sizes.prompt / 8);
        group.bench_function(name, |b| {
            b.iter(|| {
                let results = model.batch_generate(&prompts, &options(sizes.new));
                let results = results.expect("the options are sound");
                assert!(results.iter().all(|result| result.tokens.len() == sizes.new));
            });
        });
        group.finish();
    }
}

fn classify(c: &mut Criterion, model: &dyn TextModel, sizes: &Sizes) {
    let mut group = c.benchmark_group("classify");
    group.sample_size(10);
    let ids = sizes.prompt / 8;
    let prompts: Vec<Prompt> = (0..PROMPTS).map(|row| prompt(model, row, ids)).collect();
    group.throughput(Throughput::Elements((PROMPTS * ids) as u64));
    group.bench_function(format!("{PROMPTS} prompts of {ids}"), |b| {
        b.iter(|| model.classify(&prompts, &ClassifyOptions::default()).expect("they fit").len());
    });
    group.finish();
}

/// Tokens that a chat answers with, one after the other, as programs of the facade get them.
fn chat(c: &mut Criterion, model: &Arc<dyn TextModel>, sizes: &Sizes) {
    let mlx = MlxBackend::over(Arc::clone(model));
    let opts =
        GenOpts { temperature: Some(0.0), max_tokens: Some(sizes.new), ..GenOpts::default() };
    let answered = || {
        // Random weights know one letter.
        let asked = [Message::user("aaaa")];
        let reply = mlx.chat_stream(&asked, &opts, &mut |_| Ok(()));
        reply.map(|reply| reply.outcome.metrics.generated_tokens)
    };
    // An answer ends by itself, so what it has is counted.
    let tokens = match answered() {
        Ok(tokens) => tokens,
        Err(error) => return eprintln!("chat (facade): left out: {error}"),
    };
    let mut group = c.benchmark_group("chat (facade)");
    group.sample_size(10);
    group.throughput(Throughput::Elements(tokens as u64));
    group.bench_function(format!("{tokens} tokens"), |b| b.iter(&answered));
    group.finish();
}

fn benches(c: &mut Criterion) {
    let model = model();
    let context = model.info().context_length;
    let sizes = Sizes { prompt: 512.min(context / 2), new: 64.min(context / 4) };
    prefill(c, model.as_ref(), &sizes);
    decode(c, model.as_ref(), &sizes);
    batches(c, model.as_ref(), &sizes);
    classify(c, model.as_ref(), &sizes);
    chat(c, &model, &sizes);
}

criterion_group!(generate, benches);
criterion_main!(generate);
