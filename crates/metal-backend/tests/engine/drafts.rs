//! Speculative decoding: rows with drafts get the tokens that they get without, whatever runs
//! beside them.

use inference_core::{
    Constraint, Error, FinishReason, GenerateMetrics, GenerateOptions, LoadOptions, PenaltyScope,
    Prompt, TextModel, Token,
};
use proptest::prelude::*;
use serde_json::json;

use crate::alike::prompt;
use crate::draft_models::drafters;
use crate::tiny::Checkpoint;
use crate::{drawn, some};

/// With `count` draft tokens.
fn drafting(count: usize, options: GenerateOptions) -> GenerateOptions {
    GenerateOptions { draft_tokens: Some(count), ..options }
}

/// Each draft is verified, whether that pays or not: where rows are computed alone.
pub fn verifying() -> LoadOptions {
    LoadOptions { batch_invariant: true, ..Default::default() }
}

/// A prompt that repeats itself.
pub fn repeated(salt: u32, length: usize) -> Vec<u32> {
    prompt(salt, 7).into_iter().cycle().take(length).collect()
}

pub type Ended = (Vec<Token>, FinishReason, GenerateMetrics);

pub fn run(model: &dyn TextModel, prompt: &[u32], options: &GenerateOptions) -> Ended {
    let mut generation = model.generate(&Prompt::Ids(prompt.to_vec()), options).unwrap();
    let tokens = generation.by_ref().map(|token| token.unwrap()).collect();
    let outcome = generation.outcome().unwrap();
    (tokens, outcome.finish_reason.clone(), outcome.metrics.clone())
}

pub fn ids((tokens, ..): &Ended) -> Vec<u32> {
    tokens.iter().map(|token| token.id).collect()
}

#[test]
fn every_option_of_a_draw_is_honoured_with_drafts() {
    let model = Checkpoint::with_sizes(2, 8, 16).load(&verifying()).unwrap();
    let regex = GenerateOptions {
        constraint: Some(Constraint::Regex("(abc )+".into())),
        max_tokens: Some(60),
        ..Default::default()
    };
    let requests = [
        some(120),
        drawn(120, 3),
        GenerateOptions { logprobs: true, top_logprobs: 2, logits: true, ..drawn(60, 4) },
        GenerateOptions { top_k: Some(3), top_p: Some(0.9), min_p: Some(0.01), ..drawn(90, 5) },
        GenerateOptions { repetition_penalty: Some(1.3), penalty_window: Some(5), ..some(90) },
        GenerateOptions {
            presence_penalty: Some(0.5),
            penalty_scope: PenaltyScope::Generated,
            ..drawn(90, 6)
        },
        GenerateOptions { logit_bias: [(3, 2.0), (5, f32::NEG_INFINITY)].into(), ..drawn(90, 7) },
        GenerateOptions { temperature: Some(1.0), seed: Some(8), ..regex.clone() },
        regex,
        GenerateOptions { ignore_eos: false, ..drawn(200, 9) },
        GenerateOptions { stop_token_ids: vec![7, 9], ..drawn(200, 10) },
        GenerateOptions { stop: vec!["ab".into(), "d".into()], ..drawn(200, 11) },
        some(1),
        some(2),
        some(0),
    ];
    let mut accepted = 0;
    for options in requests {
        let prompt = repeated(2, 40);
        let without = run(&*model, &prompt, &options);
        assert_eq!((without.2.draft_tokens, without.2.accepted_draft_tokens), (0, 0));
        for count in [1, 3, 8] {
            let with = run(&*model, &prompt, &drafting(count, options.clone()));
            assert_eq!(ids(&with), ids(&without), "{options:?}");
            assert_eq!(with.1, without.1, "{options:?}");
            for (with, without) in with.0.iter().zip(&without.0) {
                assert_eq!(with.text, without.text);
                assert_eq!(with.top_logprobs.len(), without.top_logprobs.len());
                let near = |a: f32, b: f32| (a - b).abs() < 2e-4;
                assert_eq!(with.logprob.is_some(), without.logprob.is_some());
                assert!(near(with.logprob.unwrap_or(0.0), without.logprob.unwrap_or(0.0)));
                let logits = |token: &Token| token.logits.clone().unwrap_or_default();
                let (with, without) = (logits(with), logits(without));
                assert_eq!(with.len(), without.len());
                assert!(with.iter().zip(without).all(|(a, b)| near(*a, b)));
            }
            assert!(
                with.2.accepted_draft_tokens <= with.2.draft_tokens.min(with.2.generated_tokens)
            );
            accepted += with.2.accepted_draft_tokens;
        }
    }
    assert!(accepted > 100, "{accepted}");
}

#[test]
fn a_row_that_repeats_itself_takes_fewer_passes() {
    let model = Checkpoint::qwen3().load(&verifying()).unwrap();
    let options = GenerateOptions { logit_bias: [(5, 1000.0)].into(), ..some(101) };
    let steps = |options: &GenerateOptions| {
        let before = model.status().step_times.steps;
        let ended = run(&*model, &[3, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5], options);
        assert_eq!(ids(&ended), [5; 101]);
        (model.status().step_times.steps - before, ended.2)
    };
    // The first token is drawn from the prompt's own pass.
    assert_eq!(steps(&options).0, 100);
    let (passes, metrics) = steps(&drafting(1, options));
    // Each pass has one draft token and gives two.
    assert_eq!((passes, metrics.draft_tokens, metrics.accepted_draft_tokens), (50, 50, 50));
}

#[test]
fn requests_that_may_outgrow_their_caches_refuse_drafts_by_name() {
    let refusal = |model: &dyn TextModel, options: &GenerateOptions| {
        let mut generation = match model.generate(&Prompt::Ids(vec![3; 10]), options) {
            Ok(generation) => generation,
            Err(error) => return Some(error),
        };
        generation.find_map(Result::err)
    };
    let bounded = LoadOptions { context_length: Some(20), ..Default::default() };
    let model = Checkpoint::qwen3().load(&bounded).unwrap();
    match refusal(&*model, &drafting(2, some(11))) {
        Some(Error::Unsupported { what, reason }) => {
            assert_eq!(what, "draft_tokens");
            assert!(reason.contains("context_length"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(refusal(&*model, &drafting(2, some(10))), None);
    assert_eq!(refusal(&*model, &some(11)), None);
    let many = refusal(&*model, &drafting(65, some(5))).unwrap().to_string();
    assert!(many.contains("draft_tokens") && many.contains("above 64"), "{many}");
}

#[test]
fn recurrent_states_go_back_to_what_was_drawn() {
    let (mut verified, mut accepted) = (0, 0);
    for (name, hybrid) in [
        ("hybrid", Checkpoint::hybrid as fn(usize) -> Checkpoint),
        ("convolutions", Checkpoint::convolutions),
        ("falcon_h1", Checkpoint::falcon_h1),
    ] {
        let model = hybrid(4).load(&verifying()).unwrap();
        for options in [some(90), drawn(60, 3)] {
            for (salt, count) in [(1, 1), (2, 3), (3, 8)] {
                let prompt = repeated(salt, 40);
                let without = run(&*model, &prompt, &options);
                let with = run(&*model, &prompt, &drafting(count, options.clone()));
                assert_eq!(ids(&with), ids(&without), "{name}, {count} draft tokens, {options:?}");
                verified += with.2.draft_tokens;
                accepted += with.2.accepted_draft_tokens;
            }
        }
    }
    assert!(accepted > 0 && verified > accepted, "{accepted} of {verified} accepted");
}

/// Requests at once: salt and length of a prompt, tokens, draft tokens, and whether it is
/// cancelled.
type Requests = Vec<(u32, usize, usize, usize, bool)>;

fn requests() -> impl Strategy<Value = Requests> {
    // Long drafts of several rows are cut.
    let drafts = prop_oneof![0..6usize, 20..65usize];
    let request = (0..3u32, 1..120usize, 1..90usize, drafts, any::<bool>());
    prop::collection::vec(request, 2..8)
}

/// Models whose states can be cut back, and those whose states go back to copies.
fn kinds() -> [Checkpoint; 6] {
    let sliding = Checkpoint::with_sizes(2, 8, 16)
        .config("use_sliding_window", json!(true))
        .config("sliding_window", json!(12));
    let (hybrid, both) = (Checkpoint::hybrid_that_drafts(4), Checkpoint::falcon_h1(4));
    let plain = Checkpoint::with_sizes(2, 8, 16);
    let latent = Checkpoint::latent_that_drafts(2);
    [plain, sliding, latent, Checkpoint::lending(), hybrid, both]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn rows_with_drafts_are_what_they_are_alone_without(
        requests in requests(),
        kind in 0..6usize,
        slots in 1..8usize,
        kv_bits in prop::option::of(prop::sample::select(vec![4, 8])),
        kept in 1..60u64,
        batch_invariant in any::<bool>(),
        drafter in prop::option::of(0..3usize),
    ) {
        let checkpoint = &kinds()[kind];
        // A head of four values is not packed.
        let kv_bits = kv_bits.filter(|_| kind == 2);
        let plain = LoadOptions { kv_bits, prefill_chunk: Some(33), ..Default::default() };
        let without = checkpoint.load(&plain).unwrap();
        let shared = LoadOptions {
            prefix_cache: Some(kept * 16_384),
            parallel_slots: Some(slots),
            batch_invariant,
            ..plain
        };
        // Heads of another size are not packed as those of the model are.
        let drafter = drafter.filter(|_| kv_bits.is_none()).map(|of| drafters()[of].write());
        let draft_model = drafter.as_ref().map(|folder| folder.path().to_owned());
        let shared = LoadOptions { draft_model, ..shared };
        let with = checkpoint.load(&shared).unwrap();
        let mut running = Vec::new();
        for (at, (salt, length, tokens, drafts, cancel)) in requests.into_iter().enumerate() {
            let prompt = repeated(salt, length);
            let options = match at % 2 {
                0 => drawn(tokens, at as u64),
                _ => some(tokens),
            };
            let asked = drafting(drafts, options.clone());
            let generation = with.generate(&Prompt::Ids(prompt.clone()), &asked).unwrap();
            if cancel { drop(generation) } else { running.push((prompt, options, generation)) }
        }
        for (prompt, options, generation) in running {
            let found: Vec<u32> = generation.map(|token| token.unwrap().id).collect();
            prop_assert_eq!(found, ids(&run(&*without, &prompt, &options)));
        }
    }
}
