//! Batches over a model whose requests run together.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fake_model::{FakeModel, prompt_logprobs};
use inference_core::{
    BatchResult, Error, FinishReason, GenerateMetrics, GenerateOptions, Prompt, TextModel,
};

fn prompts(ids: &[&[u32]]) -> Vec<Prompt> {
    ids.iter().map(|ids| Prompt::from(ids.to_vec())).collect()
}

fn ids(result: &BatchResult) -> Vec<u32> {
    result.tokens.iter().map(|token| token.id).collect()
}

#[test]
fn results_come_in_the_order_of_the_prompts() {
    let model = FakeModel::echo("fake");
    let results = model
        .batch_generate(&prompts(&[&[1, 2], &[3], &[4, 5, 6]]), &GenerateOptions::default())
        .unwrap();
    assert_eq!(results.iter().map(ids).collect::<Vec<_>>(), [vec![1, 2], vec![3], vec![4, 5, 6]]);
    let outcome = results[2].outcome.as_ref().unwrap();
    assert_eq!(outcome.finish_reason, FinishReason::EndOfSequence(2));
    assert_eq!(outcome.metrics.generated_tokens, 3);
    assert_eq!(results[2].error, None);
}

#[test]
fn each_result_has_its_own_prompts_log_probabilities() {
    let model = FakeModel::echo("fake");
    let asked = GenerateOptions { prompt_logprobs: true, ..Default::default() };
    let results = model.batch_generate(&prompts(&[&[1, 2], &[], &[4, 5, 6]]), &asked).unwrap();
    assert_eq!(results[0].prompt_logprobs, Some(prompt_logprobs(&[1, 2], 0)));
    assert_eq!(results[1].prompt_logprobs, None);
    assert_eq!(results[2].prompt_logprobs, Some(prompt_logprobs(&[4, 5, 6], 0)));
    let results = model.batch_generate(&prompts(&[&[1, 2]]), &GenerateOptions::default()).unwrap();
    assert_eq!(results[0].prompt_logprobs, None, "not asked for");
}

#[test]
fn the_models_metrics_are_the_batchs_sums_and_the_time_of_the_call() {
    let metrics = GenerateMetrics {
        cached_prompt_tokens: 1,
        prefill_duration: Duration::from_millis(2),
        decode_duration: Duration::from_millis(5),
        total_duration: Duration::from_secs(3600),
        time_to_first_token: Some(Duration::from_millis(2)),
        peak_memory_bytes: 7,
        active_memory_bytes: 3,
        ..GenerateMetrics::default()
    };
    let model = FakeModel { metrics, ..FakeModel::echo("fake") };
    let batch = prompts(&[&[1, 2], &[], &[3], &[7, u32::MAX], &[4, 5, 6]]);
    model.batch_generate(&batch, &GenerateOptions::default()).unwrap();
    let sums = model.metrics().unwrap();
    assert_eq!(sums.requests, 3, "two ended with an error");
    assert_eq!((sums.prompt_tokens, sums.cached_prompt_tokens, sums.generated_tokens), (6, 3, 6));
    assert_eq!(sums.prefill_duration, Duration::from_millis(6));
    assert_eq!(sums.time_to_first_token, Some(Duration::from_millis(2)));
    assert_eq!((sums.peak_memory_bytes, sums.active_memory_bytes), (7, 3));
    // Three tokens came after the first ones, in 15 ms.
    assert!((sums.decode_tokens_per_second() - 200.0).abs() < 1e-6);
    // The requests took an hour each, the call did not.
    assert!(sums.total_duration < Duration::from_secs(600), "{:?}", sums.total_duration);
    model.batch_generate(&[], &GenerateOptions::default()).unwrap();
    let nothing = GenerateMetrics { total_duration: Duration::ZERO, ..model.metrics().unwrap() };
    assert_eq!(nothing, GenerateMetrics::default(), "nothing cost nothing");
}

#[test]
fn a_closed_model_refuses_an_empty_batch_too() {
    let model = FakeModel::echo("fake");
    assert_eq!(model.check_open(), Ok(()));
    model.close();
    assert_eq!(model.check_open(), Err(Error::Closed));
    assert_eq!(model.batch_generate(&[], &GenerateOptions::default()), Err(Error::Closed));
}

#[test]
fn no_prompts_give_no_results() {
    let results = FakeModel::echo("fake").batch_generate(&[], &GenerateOptions::default());
    assert_eq!(results, Ok(vec![]));
}

#[test]
fn one_prompts_error_leaves_the_others_alone() {
    let model = FakeModel::echo("fake");
    let results = model
        .batch_generate(&prompts(&[&[], &[7, u32::MAX], &[8]]), &GenerateOptions::default())
        .unwrap();
    assert_eq!(results[0].error, Some(Error::EmptyPrompt), "refused before it was queued");
    assert_eq!(ids(&results[1]), [7], "what came before the error is kept");
    assert!(matches!(results[1].error, Some(Error::Engine(_))));
    assert_eq!(results[1].outcome, None);
    assert_eq!((ids(&results[2]), &results[2].error), (vec![8], &None));
}

#[test]
fn what_concerns_every_prompt_fails_the_call() {
    let bad = GenerateOptions { temperature: Some(f32::NAN), ..Default::default() };
    let error = FakeModel::echo("fake").batch_generate(&prompts(&[&[1]]), &bad).unwrap_err();
    assert!(matches!(error, Error::InvalidOption { option: "temperature", .. }));

    let unsupported = Error::Unsupported { what: "stop".into(), reason: "no text".into() };
    for failure in [Error::Closed, unsupported] {
        let model = FakeModel { refusal: Some(failure.clone()), ..FakeModel::echo("fake") };
        let result = model.batch_generate(&prompts(&[&[1]]), &GenerateOptions::default());
        assert_eq!(result, Err(failure));
    }
}

#[test]
fn a_batch_longer_than_the_queue_waits_for_its_own_oldest_request() {
    let model = FakeModel { queue: 1, ..FakeModel::echo("fake") };
    let many: Vec<Prompt> = (0..50).map(|id| Prompt::from(vec![id])).collect();
    let results = model.batch_generate(&many, &GenerateOptions::default()).unwrap();
    for (id, result) in (0..).zip(&results) {
        assert_eq!((ids(result), &result.error), (vec![id], &None));
    }
}

#[test]
fn a_queue_that_others_fill_is_each_prompts_own_error() {
    let model = FakeModel { queue: 0, ..FakeModel::echo("fake") };
    let results =
        model.batch_generate(&prompts(&[&[1], &[2]]), &GenerateOptions::default()).unwrap();
    assert!(results.iter().all(|r| r.error == Some(Error::QueueFull { limit: 0 })));
    assert_eq!(model.seen.refused.load(Ordering::SeqCst), 3, "the first result frees no place");
}
