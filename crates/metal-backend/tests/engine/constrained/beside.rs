//! Constrained rows in batches with others.

use inference_core::{Error, GenerateOptions, Generation, LoadOptions, Prompt};
use serde_json::json;

use super::{DEMO, RANDOM, drawn, person, regex, schema};
use crate::tiny::Checkpoint;

/// Ids, text and how it ended.
type Ended = (Vec<u32>, String, Result<String, Error>);

fn read(mut generation: Generation) -> Ended {
    let (mut ids, mut text, mut failed) = (Vec::new(), String::new(), None);
    for token in generation.by_ref() {
        match token {
            Ok(token) => {
                ids.push(token.id);
                text.push_str(&token.text);
            }
            Err(error) => failed = Some(error),
        }
    }
    let reason = match failed {
        Some(error) => Err(error),
        None => Ok(format!("{:?}", generation.outcome().unwrap().finish_reason)),
    };
    (ids, text, reason)
}

fn free(max_tokens: usize) -> GenerateOptions {
    GenerateOptions { constraint: None, max_tokens: Some(max_tokens), ..regex("") }
}

#[test]
fn each_row_of_a_mixed_batch_is_what_it_is_alone() {
    let forbidden = [(b'e' as u32, f32::NEG_INFINITY)].into();
    let requests = [
        schema(&person()),
        drawn(schema(&person()), 1.0, 5),
        drawn(free(60), 1.0, 6),
        free(40),
        GenerateOptions { stop: vec!["age".into()], ..drawn(schema(&person()), 1.0, 7) },
        GenerateOptions { max_tokens: Some(9), ..drawn(regex("[a-z ]{30,60}"), 1.0, 8) },
        GenerateOptions { logit_bias: forbidden, logprobs: true, ..regex("[a-z]{3,20}[.]") },
        GenerateOptions { repetition_penalty: Some(1.2), ..drawn(regex("[a-z ]{20}"), 1.0, 9) },
    ];
    for model in [&*DEMO, &*RANDOM] {
        let start = |options: &GenerateOptions| {
            model.generate(&Prompt::from("Mara is 31 and"), options).unwrap()
        };
        let alone: Vec<Ended> = requests.iter().map(|options| read(start(options))).collect();
        for order in 0..3 {
            let mut started: Vec<_> = requests.iter().map(start).map(Some).collect();
            let rotated = (0..started.len()).map(|i| (i + 3 * order) % requests.len());
            for index in rotated.collect::<Vec<_>>() {
                let found = read(started[index].take().unwrap());
                assert_eq!(found, alone[index], "{:?}", requests[index]);
            }
        }
    }
}

#[test]
fn a_row_that_no_token_can_follow_ends_alone() {
    // The only token that the constraint allows after these is forbidden.
    let z = RANDOM.encode("z").unwrap()[0];
    let stuck = GenerateOptions { logit_bias: [(z, f32::NEG_INFINITY)].into(), ..regex("abcz") };
    let requests = [drawn(free(30), 1.0, 1), stuck, drawn(regex("[a-z]{30}"), 1.0, 2)];
    let start = |options: &GenerateOptions| RANDOM.generate(&Prompt::from("a"), options).unwrap();
    let alone: Vec<Ended> = requests.iter().map(|options| read(start(options))).collect();
    let failure = alone[1].2.as_ref().unwrap_err();
    assert!(matches!(failure, Error::InvalidOption { option: "logit_bias", .. }), "{failure}");
    assert!(alone[0].2.is_ok() && alone[2].2.is_ok());
    let started: Vec<_> = requests.iter().map(start).collect();
    assert_eq!(started.into_iter().map(read).collect::<Vec<_>>(), alone);
}

#[test]
fn a_constrained_row_that_is_set_back_goes_on_where_it_was() {
    if !crate::is_alone(
        "constrained::beside::a_constrained_row_that_is_set_back_goes_on_where_it_was",
    ) {
        return;
    }
    let checkpoint = Checkpoint::qwen3().config("max_position_embeddings", json!(100_000));
    let options = |seed| GenerateOptions {
        max_tokens: Some(1500),
        ..drawn(regex("((abc|xyz){240} ){2}end"), 1.0, seed)
    };
    let model = checkpoint.model();
    let prompt = Prompt::from("abc");
    let mut active = 0;
    let alone: Vec<Ended> = (0..4)
        .map(|seed| {
            let mut generation = model.generate(&prompt, &options(seed)).unwrap();
            let mut found = (Vec::new(), String::new());
            for token in generation.by_ref() {
                let token = token.unwrap();
                found.0.push(token.id);
                found.1.push_str(&token.text);
            }
            let outcome = generation.outcome().unwrap();
            active = outcome.metrics.active_memory_bytes;
            (found.0, found.1, Ok(format!("{:?}", outcome.finish_reason)))
        })
        .collect();
    drop(model);
    for (_, text, reason) in &alone {
        assert!(text.len() == 1445 && text.ends_with(" end"), "{text}");
        assert!(reason.as_ref().unwrap().starts_with("EndOfSequence"), "{reason:?}");
    }
    // A position takes 32 bytes: room for two and a half rows and what a step needs.
    let limit = active + 32 * 3800 + 40 * 1024;
    let load = LoadOptions { memory_limit: Some(limit), ..Default::default() };
    let model = checkpoint.load(&load).unwrap();
    let started: Vec<_> =
        (0..4).map(|seed| model.generate(&prompt, &options(seed)).unwrap()).collect();
    assert_eq!(started.into_iter().map(read).collect::<Vec<_>>(), alone);
}

#[test]
fn what_a_prefix_cache_holds_changes_no_constrained_text() {
    let options = LoadOptions { prefix_cache: Some(1 << 20), ..Default::default() };
    let model = Checkpoint::with_sizes(2, 16, 32).load(&options).unwrap();
    let prompt = Prompt::Ids((0..150).map(|i| 2 + i * 7 % 26).collect());
    let request = drawn(regex("([a-m][n-z]){50}"), 1.0, 3);
    let run = || {
        let mut generation = model.generate(&prompt, &request).unwrap();
        let ids: Vec<u32> = generation.by_ref().map(|token| token.unwrap().id).collect();
        (ids, generation.outcome().unwrap().metrics.cached_prompt_tokens)
    };
    let (first, cached) = run();
    assert_eq!(cached, 0);
    assert_eq!(run(), (first, 128));
}
