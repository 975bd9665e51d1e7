//! How likely a prompt's own tokens are: the same by other ways, beside others and with a cache.

use inference_core::{
    CacheMiss, Error, FinishReason, GenerateMetrics, GenerateOptions, LoadOptions, Prompt,
    TextModel, Token,
};
use serde_json::json;

use crate::tiny::{Checkpoint, Tensor, VOCAB_SIZE};
use crate::{drawn, ids, some};

/// Two float32 passes that add in another order.
const TOLERANCE: f32 = 1e-4;

fn prompt(salt: u32, length: u32) -> Vec<u32> {
    (0..length).map(|i| 2 + (i * i + i * salt + salt) % 28).collect()
}

fn asked(max_tokens: usize) -> GenerateOptions {
    GenerateOptions { prompt_logprobs: true, top_logprobs: 3, ..some(max_tokens) }
}

fn run(
    model: &dyn TextModel,
    prompt: &[u32],
    options: &GenerateOptions,
) -> (Vec<Token>, Vec<u32>, GenerateMetrics) {
    let mut generation = model.generate(&Prompt::Ids(prompt.to_vec()), options).unwrap();
    let found = generation.by_ref().map(|token| token.unwrap().id).collect();
    let report = generation.take_prompt_logprobs().unwrap();
    (report, found, generation.outcome().unwrap().metrics.clone())
}

/// The log probability of each id but the first, from a request of its own each.
fn one_by_one(model: &dyn TextModel, prompt: &[u32]) -> Vec<f32> {
    let options = GenerateOptions { logits: true, ..some(1) };
    let after = |end: usize| {
        let prefix = Prompt::Ids(prompt[..end].to_vec());
        let token = model.generate(&prefix, &options).unwrap().next().unwrap().unwrap();
        let logits: Vec<f64> = token.logits.unwrap().into_iter().map(f64::from).collect();
        let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
        (logits[prompt[end] as usize] - sum.ln()) as f32
    };
    (1..prompt.len()).map(after).collect()
}

#[track_caller]
fn agree(found: &[Token], expected: &[f32]) {
    assert_eq!(found[0].logprob, None);
    let found: Vec<f32> = found[1..].iter().map(|token| token.logprob.unwrap()).collect();
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= TOLERANCE, "{at}: {found} {expected}");
    }
}

#[test]
fn they_are_what_single_steps_say() {
    let windowed = Checkpoint::with_sizes(2, 16, 32)
        .config("use_sliding_window", json!(true))
        .config("sliding_window", json!(9))
        .config("max_window_layers", json!(1));
    for checkpoint in [Checkpoint::with_sizes(2, 16, 32), windowed] {
        let ids = prompt(5, 70);
        let expected = one_by_one(&*checkpoint.model(), &ids);
        for chunk in [None, Some(1), Some(7), Some(32)] {
            let load = LoadOptions { prefill_chunk: chunk, ..Default::default() };
            let model = checkpoint.load(&load).unwrap();
            for max_tokens in [0, 1, 5] {
                let (report, found, metrics) = run(&*model, &ids, &asked(max_tokens));
                agree(&report, &expected);
                assert_eq!(found.len(), max_tokens);
                assert_eq!(metrics.prompt_tokens, ids.len());
            }
        }
    }
}

#[test]
fn a_context_that_is_bounded_and_exceeded_makes_no_difference_within_it() {
    let checkpoint = Checkpoint::with_sizes(2, 16, 32);
    let load = LoadOptions { context_length: Some(40), ..Default::default() };
    let model = checkpoint.load(&load).unwrap();
    let ids = prompt(5, 39);
    let expected = one_by_one(&*checkpoint.model(), &ids);
    agree(&run(&*model, &ids, &asked(30)).0, &expected);
}

#[test]
fn a_prompt_of_one_token_has_none() {
    let model = Checkpoint::qwen3().model();
    for max_tokens in [0, 2] {
        let (report, found, _) = run(&*model, &[3], &asked(max_tokens));
        let only = Token { id: 3, text: "b".into(), ..Token::default() };
        assert_eq!((report, found.len()), (vec![only], max_tokens));
    }
}

#[test]
fn without_being_asked_for_there_are_none() {
    let model = Checkpoint::qwen3().model();
    let mut generation = model.generate(&"abc".into(), &some(2)).unwrap();
    generation.by_ref().for_each(drop);
    assert_eq!(generation.take_prompt_logprobs(), None);
}

#[test]
fn they_are_there_before_the_first_token_is_looked_at() {
    let model = Checkpoint::qwen3().model();
    let mut generation = model.generate(&"abc".into(), &asked(500)).unwrap();
    generation.next().unwrap().unwrap();
    assert_eq!(generation.take_prompt_logprobs().unwrap().len(), generation.prompt_ids().len());
    assert_eq!(generation.outcome(), None);
}

#[test]
fn as_many_of_the_likeliest_are_told_as_the_vocabulary_has() {
    let model = Checkpoint::qwen3().model();
    for (top, count) in [(0, 0), (3, 3), (usize::MAX, VOCAB_SIZE)] {
        let options = GenerateOptions { top_logprobs: top, ..asked(0) };
        let (report, _, _) = run(&*model, &prompt(1, 20), &options);
        assert_eq!(report[0].top_logprobs, []);
        for token in &report[1..] {
            let found = &token.top_logprobs;
            assert_eq!(found.len(), count);
            assert!(found.is_sorted_by(|a, b| a.logprob >= b.logprob), "{found:?}");
            if count == VOCAB_SIZE {
                let sum: f32 = found.iter().map(|top| top.logprob.exp()).sum();
                assert!((sum - 1.0).abs() < 1e-4, "{sum}");
                let own = found.iter().find(|top| top.id == token.id).unwrap();
                assert_eq!(Some(own.logprob), token.logprob);
            }
        }
    }
}

#[test]
fn no_other_option_changes_them() {
    let model = Checkpoint::with_sizes(2, 16, 32).model();
    let ids = prompt(3, 40);
    let (expected, _, _) = run(&*model, &ids, &asked(3));
    let options = GenerateOptions {
        prompt_logprobs: true,
        top_logprobs: 3,
        logit_bias: [(4, 50.0)].into(),
        repetition_penalty: Some(1.5),
        top_k: Some(1),
        stop: vec!["a".into()],
        ..drawn(3, 7)
    };
    assert_eq!(run(&*model, &ids, &options).0, expected);
    let plain = model.generate(&Prompt::Ids(ids.clone()), &some(9)).unwrap();
    assert_eq!(run(&*model, &ids, &asked(9)).1, self::ids(plain), "nor do they change a token");
}

#[test]
fn a_prefix_cache_leaves_out_nothing_that_is_asked_for() {
    let checkpoint = Checkpoint::with_sizes(2, 16, 32);
    let load = LoadOptions { prefix_cache: Some(1 << 20), ..Default::default() };
    let (without, with) = (checkpoint.model(), checkpoint.load(&load).unwrap());
    let ids = prompt(1, 200);
    let (expected, _, metrics) = run(&*without, &ids, &asked(0));
    assert_eq!(metrics.cache_miss, Some(CacheMiss::Off));
    for _ in 0..2 {
        let (report, _, metrics) = run(&*with, &ids, &asked(1));
        assert_eq!(report, expected);
        let cached = (metrics.cached_prompt_tokens, metrics.cache_miss);
        assert_eq!(cached, (0, Some(CacheMiss::PromptLogprobs)));
    }
    // What was computed serves those who need no more than its end.
    let mut generation = with.generate(&Prompt::Ids(ids), &some(1)).unwrap();
    generation.by_ref().for_each(drop);
    assert_eq!(generation.outcome().unwrap().metrics.cached_prompt_tokens, 192);
}

#[test]
fn rows_beside_each_other_are_what_they_are_alone() {
    let model = Checkpoint::with_sizes(2, 16, 32)
        .load(&LoadOptions { prefill_chunk: Some(32), ..Default::default() })
        .unwrap();
    let prompts: Vec<Vec<u32>> = (1..9).map(|salt| prompt(salt, 30 * salt)).collect();
    let alone: Vec<_> = prompts
        .iter()
        .map(|ids| {
            let plain = model.generate(&Prompt::Ids(ids.clone()), &drawn(40, 1)).unwrap();
            (run(&*model, ids, &asked(2)).0, self::ids(plain))
        })
        .collect();
    std::thread::scope(|scope| {
        for (ids, (report, tokens)) in prompts.iter().zip(&alone) {
            let model = &model;
            scope.spawn(move || assert_eq!(run(&**model, ids, &asked(2)).0, *report));
            scope.spawn(move || {
                let plain = model.generate(&Prompt::Ids(ids.clone()), &drawn(40, 1)).unwrap();
                assert_eq!(self::ids(plain), *tokens);
            });
        }
    });
}

#[test]
fn one_that_is_cancelled_leaves_the_engine_to_others() {
    let model = crate::slow();
    let options = asked(0);
    let generation = model.generate(&crate::endless(), &options).unwrap();
    options.cancel.cancel();
    let mut generation = generation;
    assert_eq!(generation.by_ref().count(), 0);
    assert_eq!(generation.outcome().unwrap().finish_reason, FinishReason::Cancelled);
    assert_eq!(generation.take_prompt_logprobs(), None);
    assert_eq!(run(&*model, &prompt(1, 20), &asked(0)).0.len(), 20);
}

#[test]
fn a_model_that_computes_no_numbers_is_an_error() {
    let nan = Tensor { data: [0, 0, 0xc0, 0x7f].repeat(8), ..Tensor::noise("n", &[8]) };
    let model = Checkpoint::qwen3().tensor("model.norm.weight", nan).model();
    let mut generation = model.generate(&"abc".into(), &asked(0)).unwrap();
    match generation.next() {
        Some(Err(Error::Engine(reason))) => assert!(reason.contains("no numbers"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_they_take_is_part_of_the_arithmetic() {
    if !crate::is_alone("prompt_logprobs::what_they_take_is_part_of_the_arithmetic") {
        return;
    }
    let checkpoint = Checkpoint::qwen3();
    let load = LoadOptions { memory_limit: Some(1 << 18), ..Default::default() };
    let model = checkpoint.load(&load).unwrap();
    let ids = prompt(1, 2000);
    let needed = |options: &GenerateOptions| {
        let mut generation = model.generate(&Prompt::Ids(ids.clone()), options).unwrap();
        match generation.next() {
            Some(Err(Error::Memory { what, needed, .. })) => (what, needed),
            other => panic!("{other:?}"),
        }
    };
    let (what, plain) = needed(&some(0));
    assert_eq!(what, "a prompt of 2000 tokens with 0 new ones");
    let top = |top_logprobs| GenerateOptions { top_logprobs, ..asked(0) };
    let (what, none) = needed(&top(0));
    assert_eq!(what, "a prompt of 2000 tokens with 0 new ones and its log probabilities");
    assert!(none > plain);
    assert_eq!(needed(&top(usize::MAX)).1, none + (2000 * VOCAB_SIZE * 8) as u64);
}
