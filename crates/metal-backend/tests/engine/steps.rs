//! The steps of a generation: how many there are, what they leave behind, and what a failure says
//! of when it came.

use std::time::Duration;

use inference_core::{Error, GenerateOptions, Prompt, TextModel};
use mlx_ffi::{Array, Device, Dtype, QuantMode, Quantization, async_eval, memory, ops, quantize};
use serde_json::json;

use crate::tiny::{Checkpoint, Tensor};
use crate::{drawn, ids, is_alone, some};

/// How many passes of the model `run` begins.
fn passes(model: &dyn TextModel, run: impl FnOnce()) -> u64 {
    let begun = || model.status().step_times.steps;
    let before = begun();
    run();
    begun() - before
}

#[test]
fn a_pass_is_sent_before_the_last_one_is_read() {
    let model = Checkpoint::qwen3().model();
    let options = drawn(20, 3);
    let mut told = Vec::new();
    // The first token is drawn from the prompt's own pass. The length is known ahead: no pass is
    // begun behind the last token.
    let count = passes(&*model, || told = ids(model.generate(&"abc".into(), &options).unwrap()));
    assert_eq!((told.len(), count), (20, 19));
    // That an id ends the text is known once it is read. The pass behind it was sent by then.
    for stop in &told[..12] {
        let at = told.iter().position(|id| id == stop).unwrap();
        let options = GenerateOptions { stop_token_ids: vec![*stop], ..options.clone() };
        let mut found = Vec::new();
        let count =
            passes(&*model, || found = ids(model.generate(&"abc".into(), &options).unwrap()));
        let passes = if at == 0 { 0 } else { at as u64 + 1 };
        assert_eq!((&found[..], count), (&told[..at], passes), "{stop}");
    }
}

#[test]
fn freed_memory_is_given_back_while_steps_go_on() {
    const FREED: usize = 8 << 20;
    if !is_alone("steps::freed_memory_is_given_back_while_steps_go_on") {
        return;
    }
    let checkpoint = Checkpoint::qwen3().config("max_position_embeddings", json!(1_000_000));
    let model = checkpoint.model();
    let mut generation = model.generate(&"abc".into(), &some(900_000)).unwrap();
    generation.next().unwrap().unwrap();
    let free = || {
        mlx_ffi::use_device(Device::Cpu).unwrap();
        ops::zeros(&[FREED as i32 / 4], Dtype::F32).unwrap().eval().unwrap();
        memory::cached().unwrap() >= FREED
    };
    // The engine may give it back just then.
    assert!((0..100).any(|_| free()), "what is freed is not kept");
    let steps = || {
        let status = model.status();
        assert_eq!(status.running, 1, "the generation ended, and gave everything back");
        status.step_times.steps
    };
    let first = steps();
    while steps() < first + 2 * 256 {
        std::thread::yield_now();
    }
    assert!(memory::cached().unwrap() < FREED, "nothing was given back in 512 steps");
}

#[test]
fn what_fails_on_the_callers_stream_is_not_the_generations() {
    // Its failures stay on a stream, which another test must not get.
    if !is_alone("steps::what_fails_on_the_callers_stream_is_not_the_generations") {
        return;
    }
    let model = Checkpoint::qwen3().model();
    let expected = ids(model.generate(&"abc".into(), &drawn(200, 1)).unwrap());
    mlx_ffi::use_device(Device::Cpu).unwrap();
    // Nothing refuses it before its kernel runs.
    let failing = || -> mlx_ffi::Result<Array> {
        let affine = Quantization { mode: QuantMode::Affine, bits: 4, group_size: 64 };
        Ok(quantize(&ops::zeros(&[2, 64], Dtype::F64)?, affine)?.weight)
    };
    let mut generation = model.generate(&"abc".into(), &drawn(200, 1)).unwrap();
    let mut found = Vec::new();
    let mut failed = 0;
    for token in generation.by_ref() {
        found.push(token.unwrap().id);
        let queued = failing().unwrap();
        failed += usize::from(async_eval([&queued]).and_then(|()| queued.eval()).is_err());
    }
    assert_eq!(found, expected);
    assert!(failed > 0, "nothing failed here");
}

#[test]
fn a_failure_says_when_it_came() {
    let nan = f32::NAN.to_le_bytes().repeat(8);
    let norm = Tensor { dtype: safetensors::Dtype::F32, shape: vec![8], data: nan };
    let model = Checkpoint::qwen3().tensor("model.norm.weight", norm).model();
    let failure = |options: GenerateOptions| match model.generate(&"abc".into(), &options) {
        Ok(mut generation) => generation.find_map(Result::err).unwrap(),
        Err(error) => error,
    };
    let no_numbers = |phase: &str, error| match error {
        Error::Engine(text) => {
            let expected = format!("{phase}: the model's logits are no numbers");
            assert!(text.starts_with(&expected), "{text}");
        }
        other => panic!("{other:?}"),
    };
    no_numbers("decode step 0", failure(some(4)));
    no_numbers("prefill", failure(GenerateOptions { prompt_logprobs: true, ..some(4) }));
}

#[test]
fn a_short_prompt_does_not_wait_for_a_long_one() {
    let checkpoint =
        Checkpoint::with_sizes(4, 256, 512).config("max_position_embeddings", json!(8192));
    let model = checkpoint.model();
    let prompt = |length: u32| Prompt::Ids((0..length).map(|i| 2 + (i * 7) % 30).collect());
    let first_token = || -> Duration {
        let (_, outcome) = model.generate(&prompt(256), &some(1)).unwrap().collect_text().unwrap();
        outcome.metrics.time_to_first_token.unwrap()
    };
    let alone = (0..3).map(|_| first_token()).min().unwrap();
    // Other work on the machine may make any one of them late.
    let besides = (0..6).map(|_| {
        let long = model.generate(&prompt(4096), &some(1)).unwrap();
        while model.status().running == 0 {
            std::thread::yield_now();
        }
        let beside = first_token();
        assert_eq!(model.status().running, 1, "the long prompt is not under way any more");
        drop(long);
        beside
    });
    let besides: Vec<Duration> = besides.collect();
    // It shares the device with the long one, which takes more than ten times as long.
    assert!(besides.iter().any(|beside| *beside <= 5 * alone), "{alone:?} alone, {besides:?}");
}
