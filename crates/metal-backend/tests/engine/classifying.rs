//! Classifications: what a batch gives is what each prompt gives by itself, and nobody waits long.

use std::time::{Duration, Instant};

use inference_core::{
    CancelToken, ClassifyOptions, ClassifyResult, Error, GenerateOptions, LoadOptions, Prompt,
    TextModel, Token,
};
use proptest::prelude::*;
use serde_json::json;

use crate::tiny::Checkpoint;
use crate::{endless, ids, slow, some};

/// Rows of a batch may be summed in another order than one row.
const TOLERANCE: f32 = 1e-4;

fn labels(labels: &[&str]) -> ClassifyOptions {
    let labels = labels.iter().map(|label| (*label).to_owned()).collect();
    ClassifyOptions { labels, generate: GenerateOptions { logits: true, ..Default::default() } }
}

fn cancelled_by(cancel: CancelToken) -> ClassifyOptions {
    let generate = GenerateOptions { cancel, ..Default::default() };
    ClassifyOptions { generate, ..Default::default() }
}

fn classify(
    model: &dyn TextModel,
    prompts: &[Prompt],
    options: &ClassifyOptions,
) -> Vec<ClassifyResult> {
    model.classify(prompts, options).unwrap()
}

/// The log probability of `ids` after `prompt`, step by step from what a generation reports.
fn step_by_step(model: &dyn TextModel, prompt: &[u32], ids: &[u32]) -> f32 {
    let mut before = prompt.to_vec();
    let mut sum = 0.0;
    for id in ids {
        let options = GenerateOptions { logits: true, ..some(1) };
        let mut generation = model.generate(&Prompt::Ids(before.clone()), &options).unwrap();
        let logits = generation.next().unwrap().unwrap().logits.unwrap();
        let total: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
        sum += logits[*id as usize] - total.ln() as f32;
        before.push(*id);
    }
    sum
}

fn close(found: f32, expected: f32) {
    assert!((found - expected).abs() <= TOLERANCE, "{found} {expected}");
}

const LABELS: [&str; 5] = ["a", "abc", "hello there", "ab", "zzz"];

/// The log probability of `count` times `id` after `prompt`, from a generation that is forced to
/// say it.
fn forced(model: &dyn TextModel, prompt: &[u32], id: u32, count: usize) -> f32 {
    let bias = GenerateOptions { logit_bias: [(id, 1000.0)].into(), ..some(count) };
    let options = GenerateOptions { logits: true, temperature: Some(0.0), ..bias };
    let generation = model.generate(&Prompt::Ids(prompt.to_vec()), &options).unwrap();
    let logprob = |token: Token| {
        assert_eq!(token.id, id);
        let logits = token.logits.unwrap();
        let total: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
        logits[id as usize] - total.ln() as f32
    };
    generation.map(Result::unwrap).map(logprob).sum()
}

/// Checks a classification against generations of each prompt.
fn is_what_generations_say(model: &dyn TextModel, prompts: &[Vec<u32>], exactly: bool) {
    let options = labels(&LABELS);
    let asked: Vec<Prompt> = prompts.iter().cloned().map(Prompt::Ids).collect();
    let results = classify(model, &asked, &options);
    assert_eq!(results.len(), prompts.len());
    for (prompt, result) in prompts.iter().zip(&results) {
        let options = GenerateOptions { logits: true, logprobs: true, ..some(1) };
        let mut generation = model.generate(&Prompt::Ids(prompt.clone()), &options).unwrap();
        let token = generation.next().unwrap().unwrap();
        assert_eq!(result.token.id, token.id, "{prompt:?}");
        assert_eq!(result.token.text, token.text);
        close(result.token.logprob.unwrap(), token.logprob.unwrap());
        let pairs = result.logits.iter().flatten().zip(token.logits.iter().flatten());
        assert_eq!(pairs.clone().count(), crate::tiny::VOCAB_SIZE);
        pairs.for_each(|(found, expected)| close(*found, *expected));
        if exactly {
            assert_eq!(result.logits, token.logits, "{prompt:?}");
            assert_eq!(result.token.logprob, token.logprob);
        }
        for (label, score) in LABELS.iter().zip(&result.labels) {
            let ids = model.encode(label).unwrap();
            assert_eq!(score.tokens, ids.len());
            close(score.logprob, step_by_step(model, prompt, &ids));
        }
    }
    if exactly {
        for (prompt, result) in asked.iter().zip(&results) {
            assert_eq!(*result, classify(model, std::slice::from_ref(prompt), &options)[0]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 20, ..Default::default() })]

    #[test]
    fn each_prompt_is_what_it_is_alone(
        prompts in prop::collection::vec(prop::collection::vec(2..30u32, 1..60), 1..12),
        chunk in prop::option::of(1..80usize),
        window in prop::option::of(4..30usize),
        batch_invariant in prop::bool::weighted(0.3),
        original in prop::option::weighted(0.4, 2..60usize),
    ) {
        let mut checkpoint = Checkpoint::with_sizes(2, 16, 32);
        if let Some(original) = original {
            checkpoint = checkpoint.longrope(original);
        }
        if let Some(window) = window {
            checkpoint = checkpoint
                .config("use_sliding_window", json!(true))
                .config("sliding_window", json!(window))
                .config("max_window_layers", json!(1));
        }
        let options =
            LoadOptions { prefill_chunk: chunk, batch_invariant, ..Default::default() };
        let model = checkpoint.load(&options).unwrap();
        is_what_generations_say(&*model, &prompts, batch_invariant);
    }
}

#[test]
fn what_outgrows_a_bounded_context_is_what_generations_say() {
    let options = LoadOptions { context_length: Some(20), ..Default::default() };
    let model = Checkpoint::with_sizes(2, 16, 32).load(&options).unwrap();
    let prompt = |count: u32| -> Vec<u32> { (0..count).map(|at| 2 + (at * 7) % 30).collect() };
    let prompts = [3, 20, 45, 19, 7, 21, 60, 16].map(prompt);
    let asked = prompts.clone().map(Prompt::Ids);
    let texts = ["z", "aaa", "hhhhhhh"];
    for (prompt, result) in prompts.iter().zip(classify(&*model, &asked, &labels(&texts))) {
        for (text, score) in texts.iter().zip(&result.labels) {
            let id = model.encode(&text[..1]).unwrap()[0];
            close(score.logprob, forced(&*model, prompt, id, text.len()));
        }
    }
}

#[test]
fn one_bad_prompt_or_label_refuses_the_call_by_its_name() {
    let model = Checkpoint::qwen3().model();
    let plain = ClassifyOptions::default();
    let refused = |prompts: &[Prompt], options| model.classify(prompts, options).unwrap_err();
    assert_eq!(refused(&["abc".into(), "".into()], &plain), Error::EmptyPrompt);
    let long = Prompt::Ids(vec![3; 5000]);
    assert_eq!(
        refused(&["abc".into(), long], &plain),
        Error::PromptTooLong { tokens: 5000, limit: 4096 }
    );
    let unknown = refused(&[Prompt::Ids(vec![99])], &plain);
    assert!(matches!(&unknown, Error::Prompt(reason) if reason.contains("99")), "{unknown}");
    let empty = refused(&["abc".into()], &labels(&["a", ""]));
    assert!(matches!(empty, Error::InvalidOption { option: "labels", .. }), "{empty}");
    assert!(model.classify(&["abc".into()], &plain).is_ok());
}

#[test]
fn what_fits_no_memory_is_refused_with_the_numbers_and_less_is_taken_in_smaller_batches() {
    let checkpoint = Checkpoint::qwen3().config("max_position_embeddings", json!(1_000_000));
    let limited = |bytes: u64| {
        let options = LoadOptions { memory_limit: Some(bytes), ..Default::default() };
        checkpoint.load(&options).unwrap()
    };
    let model = limited(8 << 20);
    let error = model.classify(&[endless()], &ClassifyOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Memory { .. }), "{error}");
    let prompts: Vec<Prompt> = (0..64).map(|i| Prompt::Ids(vec![2 + i % 20; 8])).collect();
    let expected = classify(&*limited(1 << 30), &prompts, &labels(&LABELS));
    for (found, expected) in classify(&*model, &prompts, &labels(&LABELS)).iter().zip(expected) {
        assert_eq!(found.token.id, expected.token.id);
        close(found.labels[2].logprob, expected.labels[2].logprob);
    }
}

#[test]
fn a_draw_is_the_first_one_of_a_generation() {
    let model = Checkpoint::qwen3().model();
    let prompts: Vec<Prompt> = vec!["abc".into(), "hello there".into(), "cab".into()];
    let drawn = |seed| GenerateOptions {
        temperature: Some(5.0),
        top_k: Some(20),
        seed: Some(seed),
        ..Default::default()
    };
    let mut asked: Vec<GenerateOptions> = (0..6).map(drawn).collect();
    asked.extend([
        GenerateOptions { repetition_penalty: Some(4.0), ..Default::default() },
        GenerateOptions {
            presence_penalty: Some(9.0),
            penalty_window: Some(1),
            ..Default::default()
        },
        GenerateOptions { logit_bias: [(7, 1e4)].into(), ..Default::default() },
        GenerateOptions { top_logprobs: 3, special_tokens: true, ..Default::default() },
    ]);
    let plain = classify(&*model, &prompts, &ClassifyOptions::default());
    let mut differ = 0;
    for generate in asked {
        let options = ClassifyOptions { generate: generate.clone(), ..Default::default() };
        let results = classify(&*model, &prompts, &options);
        for ((prompt, result), plain) in prompts.iter().zip(results).zip(&plain) {
            let one = GenerateOptions { max_tokens: Some(1), logprobs: true, ..generate.clone() };
            let mut generation = model.generate(prompt, &one).unwrap();
            let first = generation.next().unwrap().unwrap();
            assert_eq!((result.token.id, &result.token.text), (first.id, &first.text));
            let logprobs = (result.token.logprob.unwrap(), first.logprob.unwrap());
            assert!((logprobs.0 - logprobs.1).abs() < TOLERANCE, "{logprobs:?}");
            assert_eq!(result.token.top_logprobs.len(), generate.top_logprobs);
            differ += usize::from(result.token.id != plain.token.id);
        }
    }
    assert!(differ > 5, "the options change something: {differ}");
}

#[test]
fn it_ends_where_it_is_cancelled_or_the_model_is_closed() {
    let model = slow();
    let cancel = CancelToken::with_deadline(Instant::now() + Duration::from_millis(100));
    let options = cancelled_by(cancel);
    let started = Instant::now();
    assert_eq!(model.classify(&["abc".into(), endless()], &options), Err(Error::Cancelled));
    // One that waits behind another one ends, too.
    std::thread::scope(|scope| {
        let running = scope.spawn(|| model.classify(&[endless()], &ClassifyOptions::default()));
        std::thread::sleep(Duration::from_millis(50));
        let cancel = CancelToken::with_deadline(Instant::now() + Duration::from_millis(50));
        let options = cancelled_by(cancel);
        assert_eq!(model.classify(&["abc".into()], &options), Err(Error::Cancelled));
        assert_eq!(model.status().running, 1);
        model.close();
        assert_eq!(running.join().unwrap(), Err(Error::Closed));
    });
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn a_generation_goes_on_beside_a_long_classification() {
    let checkpoint = Checkpoint::qwen3().config("max_position_embeddings", json!(1_000_000));
    let options = LoadOptions { prefill_chunk: Some(1), ..Default::default() };
    let model = checkpoint.load(&options).unwrap();
    let alone = ids(model.generate(&"abc".into(), &some(20)).unwrap());
    let cancel = CancelToken::new();
    std::thread::scope(|scope| {
        let options = cancelled_by(cancel.clone());
        let long = scope.spawn(|| model.classify(&[endless()], &{ options }));
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(ids(model.generate(&"abc".into(), &some(20)).unwrap()), alone);
        // A short classification does not wait for the whole of a long one either.
        let status = model.status();
        assert_eq!((status.running, status.waiting), (1, 0));
        cancel.cancel();
        assert_eq!(long.join().unwrap(), Err(Error::Cancelled));
    });
}

#[test]
fn with_one_slot_requests_run_in_the_order_in_which_they_came() {
    let model = slow();
    let running = model.generate(&endless(), &some(5)).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| model.classify(&["abc".into()], &ClassifyOptions::default()));
        std::thread::sleep(Duration::from_millis(50));
        let status = model.status();
        assert_eq!((status.running, status.waiting), (1, 1));
        drop(running);
        assert_eq!(waiting.join().unwrap().unwrap().len(), 1);
    });
    let metrics = model.metrics().unwrap();
    assert_eq!((metrics.prompt_tokens, metrics.generated_tokens), (2, 0));
    assert!(metrics.queue_duration >= Duration::from_millis(40), "{metrics:?}");
}
