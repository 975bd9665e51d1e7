//! The cost of a step beside the model: the scheduler's share, and text.
//!
//! The arithmetic of the model here is next to nothing: one layer of 32 values.
//!
//! The engine itself says where a step's time goes (`EngineStatus::step_times`), so the little that
//! the model takes is left out.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use inference_core::{GenerateOptions, LoadOptions, Prompt, StepTimes, TextModel};
use metal_backend::load_random;

const CONFIG: &str = r#"{"model_type": "qwen3", "hidden_size": 32, "intermediate_size": 32,
    "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 32,
    "vocab_size": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000, "max_position_embeddings": 4096,
    "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": true,
    "torch_dtype": "float32"}"#;
/// Selects the time of one part of a step.
type Part = fn(&StepTimes) -> Duration;
/// Tokens of each request.
const NEW: u64 = 64;

/// Takes `steps` steps or a few more, of `requests` requests together; where their time went.
fn run(model: &dyn TextModel, requests: usize, steps: u64) -> StepTimes {
    let before = model.status().step_times;
    let times = || model.status().step_times.since(&before);
    let options = GenerateOptions {
        max_tokens: Some(NEW as usize),
        temperature: Some(0.0),
        ignore_eos: true,
        ..GenerateOptions::default()
    };
    while times().steps < steps {
        let begin = |_| model.generate(&Prompt::Ids(vec![1]), &options).expect("it fits");
        let started: Vec<_> = (0..requests).map(begin).collect();
        let tokens: usize = started.into_iter().map(Iterator::count).sum();
        assert_eq!(tokens as u64, requests as u64 * NEW);
    }
    times()
}

fn benches(c: &mut Criterion) {
    let options = LoadOptions {
        backend: Some("cpu".into()),
        parallel_slots: Some(64),
        ..LoadOptions::default()
    };
    let model = load_random(CONFIG, &options).expect("the config is sound");
    let parts: [(&str, Part); 3] = [
        ("rest", |times| times.rest),
        ("text", |times| times.detokenize),
        ("all", StepTimes::total),
    ];
    let mut group = c.benchmark_group("scheduler, a step");
    group.sample_size(10);
    for requests in [1, 16, 64] {
        for (name, part) in parts {
            group.bench_function(format!("{name}, {requests} requests"), |b| {
                b.iter_custom(|steps| {
                    let times = run(model.as_ref(), requests, steps);
                    part(&times).mul_f64(steps as f64 / times.steps as f64)
                });
            });
        }
    }
    group.finish();
}

criterion_group!(scheduler, benches);
criterion_main!(scheduler);
