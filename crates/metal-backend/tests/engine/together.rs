//! Many callers and many prompts at once.

use std::time::Duration;

use inference_core::{ClassifyOptions, Error, FinishReason, GenerateOptions, Prompt};

use crate::tiny::Checkpoint;
use crate::{drawn, ids, one_slot, some};

#[test]
fn each_of_many_threads_gets_what_it_gets_alone() {
    let model = Checkpoint::with_sizes(2, 8, 16).model();
    let prompt =
        |i: u64| Prompt::Ids((0..5 + i as u32).map(|k| 2 + (k * 7 + i as u32) % 30).collect());
    let alone: Vec<_> =
        (0..16).map(|i| ids(model.generate(&prompt(i), &drawn(20, i)).unwrap())).collect();
    std::thread::scope(|scope| {
        for (i, expected) in alone.iter().enumerate() {
            let model = &model;
            scope.spawn(move || {
                for _ in 0..3 {
                    let i = i as u64;
                    assert_eq!(ids(model.generate(&prompt(i), &drawn(20, i)).unwrap()), *expected);
                }
            });
        }
    });
}

#[test]
fn two_models_live_in_one_process() {
    let (one, two) = (Checkpoint::qwen3().model(), Checkpoint::with_sizes(2, 16, 32).model());
    let expected =
        [&one, &two].map(|model| ids(model.generate(&"abc".into(), &drawn(30, 1)).unwrap()));
    std::thread::scope(|scope| {
        for (model, expected) in [(&one, &expected[0]), (&two, &expected[1])] {
            scope.spawn(move || {
                for _ in 0..10 {
                    assert_eq!(
                        ids(model.generate(&"abc".into(), &drawn(30, 1)).unwrap()),
                        *expected
                    );
                }
            });
        }
    });
    drop(one);
    assert_eq!(ids(two.generate(&"abc".into(), &drawn(30, 1)).unwrap()), expected[1]);
}

#[test]
fn one_bad_prompt_of_a_batch_leaves_the_others_alone() {
    let model = Checkpoint::qwen3().model();
    let prompts =
        ["abc".into(), "".into(), Prompt::Ids(vec![99]), Prompt::Ids(vec![3; 5000]), "cab".into()];
    let results = model.batch_generate(&prompts, &some(4)).unwrap();
    let errors: Vec<_> = results.iter().map(|result| result.error.clone()).collect();
    assert_eq!(errors[0], None);
    assert_eq!(errors[1], Some(Error::EmptyPrompt));
    assert!(matches!(&errors[2], Some(Error::Prompt(reason)) if reason.contains("99")));
    assert_eq!(errors[3], Some(Error::PromptTooLong { tokens: 5000, limit: 4096 }));
    assert_eq!(errors[4], None);
    for (index, prompt) in [(0, "abc"), (4, "cab")] {
        let alone = ids(model.generate(&prompt.into(), &some(4)).unwrap());
        assert!(results[index].tokens.iter().map(|token| token.id).eq(alone));
        let outcome = results[index].outcome.as_ref().unwrap();
        assert_eq!(outcome.finish_reason, FinishReason::Length);
    }
    let bad = GenerateOptions { top_p: Some(2.0), ..some(4) };
    assert!(matches!(model.batch_generate(&prompts, &bad), Err(Error::InvalidOption { .. })));
}

#[test]
fn classifying_gives_the_first_greedy_token() {
    let model = Checkpoint::qwen3().model();
    let prompts: Vec<Prompt> = vec!["abc".into(), "hello there".into()];
    let generate = GenerateOptions { logits: true, ..Default::default() };
    let options = ClassifyOptions { generate, ..Default::default() };
    for (prompt, result) in prompts.iter().zip(model.classify(&prompts, &options).unwrap()) {
        let first = ids(model.generate(prompt, &some(1)).unwrap());
        assert_eq!(vec![result.token.id], first);
        let logits = result.logits.unwrap();
        let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
        assert_eq!(best, Some(result.token.id as usize));
        let total: f32 = logits.iter().map(|logit| logit.exp()).sum();
        let logprob = logits[result.token.id as usize] - total.ln();
        assert!((result.token.logprob.unwrap() - logprob).abs() < 1e-5);
    }
    let plain = model.classify(&prompts, &ClassifyOptions::default()).unwrap();
    assert!(plain.iter().all(|result| result.logits.is_none()));
    assert!(model.classify(&[], &ClassifyOptions::default()).unwrap().is_empty());
    let one_bad = ["abc".into(), "".into()];
    let error = model.classify(&one_bad, &ClassifyOptions::default()).unwrap_err();
    assert_eq!(error, Error::EmptyPrompt);
}

#[test]
fn metrics_are_consistent() {
    let model = Checkpoint::qwen3().model();
    let mut generation = model.generate(&"hello there".into(), &some(30)).unwrap();
    assert_eq!(generation.by_ref().count(), 30);
    let metrics = generation.outcome().unwrap().metrics.clone();
    assert_eq!(metrics.prompt_tokens, generation.prompt_ids().len());
    assert_eq!((metrics.generated_tokens, metrics.cached_prompt_tokens), (30, 0));
    let parts = metrics.queue_duration + metrics.prefill_duration + metrics.decode_duration;
    assert!(parts <= metrics.total_duration, "{metrics:?}");
    let first = metrics.time_to_first_token.unwrap();
    assert!(metrics.queue_duration + metrics.prefill_duration <= first, "{metrics:?}");
    assert!(first <= metrics.total_duration, "{metrics:?}");
    assert!(metrics.decode_duration > Duration::ZERO);
    assert!(metrics.peak_memory_bytes >= metrics.active_memory_bytes);
    assert!(metrics.prefill_tokens_per_second() > 0.0 && metrics.decode_tokens_per_second() > 0.0);
    assert_eq!(model.metrics(), Some(metrics));
}

#[test]
fn metrics_after_a_batch_are_its_sums() {
    let model = Checkpoint::qwen3().model();
    let prompts: Vec<Prompt> = vec!["abc".into(), "".into(), "hello there".into(), "cab".into()];
    let results = model.batch_generate(&prompts, &some(5)).unwrap();
    let each: Vec<_> = results.iter().filter_map(|result| result.outcome.as_ref()).collect();
    let sums = model.metrics().unwrap();
    assert_eq!((sums.requests, sums.generated_tokens), (3, 15));
    let prompt_tokens: usize = each.iter().map(|outcome| outcome.metrics.prompt_tokens).sum();
    assert_eq!(sums.prompt_tokens, prompt_tokens);
    let decode: Duration = each.iter().map(|outcome| outcome.metrics.decode_duration).sum();
    assert_eq!(sums.decode_duration, decode);
    // What follows is told of alone again.
    model.generate(&"abc".into(), &some(2)).unwrap().collect_text().unwrap();
    let last = model.metrics().unwrap();
    assert_eq!((last.requests, last.generated_tokens), (1, 2));
}

#[test]
fn an_outcome_says_whether_draws_were_greedy() {
    let model = Checkpoint::qwen3().model();
    for (temperature, greedy) in [(None, true), (Some(0.0), true), (Some(0.7), false)] {
        let options = GenerateOptions { temperature, top_p: Some(0.9), ..some(2) };
        let (_, outcome) = model.generate(&"abc".into(), &options).unwrap().collect_text().unwrap();
        assert_eq!(outcome.greedy, greedy, "{temperature:?}");
    }
}

#[test]
fn a_slow_consumer_does_not_lengthen_the_decode_time() {
    let model = Checkpoint::qwen3().model();
    let mut generation = model.generate(&"abc".into(), &some(10)).unwrap();
    for token in generation.by_ref() {
        token.unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    let metrics = &generation.outcome().unwrap().metrics;
    assert!(metrics.decode_duration < Duration::from_millis(400), "{metrics:?}");
    assert!(metrics.total_duration < Duration::from_millis(450), "{metrics:?}");
}

#[test]
fn waiting_in_the_queue_is_told_apart_from_working() {
    let model = one_slot();
    let first = model.generate(&"abc".into(), &some(600)).unwrap();
    let mut second = model.generate(&"abc".into(), &some(1)).unwrap();
    assert_eq!(second.by_ref().count(), 1);
    let (_, first) = first.collect_text().unwrap();
    let metrics = &second.outcome().unwrap().metrics;
    assert!(metrics.queue_duration > first.metrics.decode_duration / 2, "{metrics:?}");
    assert!(metrics.prefill_duration < metrics.queue_duration, "{metrics:?}");
}
