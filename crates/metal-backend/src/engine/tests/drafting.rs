//! Rows of a batch whose drafts are verified wherever there are any.

use std::time::Duration;

use inference_core::{Generation, Speculate};
use mlx_ffi::{Device, use_device};
use serde_json::Value;

use super::super::dispatcher::Dispatcher;
use super::super::group::Group;
use super::super::prefill::{Computed, Prefill};
use super::super::row::Row;
use super::super::served::Served;
use super::super::speculation::Drafts;
use super::super::step_clock::StepClock;
use super::beside::served;
use super::{advance, fixtures, job, options_of, texts, tokenizer};
use crate::cache::{Caches, PrefixCache};
use crate::kernels::Kernels;
use crate::sampling::Sampler;

/// The most rows of the batches here, and the longest drafts.
const ROWS: usize = 9;
const DRAFT: usize = 8;

/// A clock by which a pass of several positions takes no longer than a part of a step.
fn clock() -> StepClock {
    let mut clock = StepClock::start(false);
    for (rows, positions) in (1..=ROWS).flat_map(|rows| (1..=1 + DRAFT).map(move |of| (rows, of))) {
        let took = Duration::from_secs(if positions == 1 { 9 } else { 1 });
        (0..8).for_each(|_| clock.costs.note(rows, positions, took));
    }
    clock
}

/// The row of a prompt that repeats itself, with drafts of up to so many tokens, and its caches.
fn row(served: &Served, number: usize, drafts: usize) -> (Computed, Generation) {
    let ids: Vec<u32> =
        (0..20 + 3 * (number as u32 % 4)).map(|at| (at % 5) * 37 + number as u32).collect();
    let (mut job, generation) = job(ids.clone(), &tokenizer(), &[]);
    job.options.temperature = Some(if number.is_multiple_of(3) { 0.6 } else { 0.0 });
    if number % 3 == 1 {
        // Few ids, which repeat themselves, in draws that are made apart.
        job.options.logit_bias = (5..9).map(|id| (id, 30.0)).collect();
    }
    let sampler = Sampler::new(job.options.clone(), 7, &ids, &[], served.model.vocab_size).unwrap();
    let sampler = sampler.by_kernel(served.kernels.is_on_cuda());
    let caches = Caches::new(&served.specs, served.storage, 1, 100);
    let mut row = Row::new(job, sampler, 9 + 7 * (number % 5));
    row.drafts = Drafts::new(drafts, served.model.drafter.is_some());
    let mut prefill = Prefill::new(row, caches, 0, false);
    advance(&mut prefill, (&served.model, &served.ranks), 512, served.model.layers.len());
    (prefill.end_chunk(&mut Dispatcher::default()).unwrap().unwrap(), generation)
}

/// The tokens of `count` rows that join a batch one after the other, and how many draft tokens were
/// verified and accepted.
fn tokens(
    served: &Served,
    count: usize,
    drafts: usize,
    dispatcher: &mut Dispatcher,
) -> (Vec<Vec<String>>, usize, usize) {
    let mut prefixes = PrefixCache::new(0, Box::new(Ok));
    let (mut group, mut generations) = (None::<Group>, Vec::new());
    let (mut verified, mut accepted) = (0, 0);
    let mut step = |group: &mut Group, dispatcher: &mut Dispatcher| {
        // What the steps before took counts for nothing.
        let stepped = group.step(served, (&mut prefixes, dispatcher), &mut clock()).unwrap();
        stepped.result.unwrap();
        for drafts in stepped.left.iter().filter_map(|(row, _)| row.drafts.as_ref()) {
            verified += drafts.verified.0;
            accepted += drafts.verified.1;
        }
    };
    for number in 0..count {
        // Rows ask for drafts of other lengths, and one of them for none.
        let drafts = if number == 3 { 0 } else { drafts.min(1 + number) };
        let (Computed { rows, caches, .. }, generation) = row(served, number, drafts);
        generations.push(generation);
        match group.as_mut().filter(|group| !group.rows().is_empty()) {
            Some(group) => group.join(rows, caches, 0, dispatcher).unwrap(),
            None => group = Some(Group::new(rows, caches)),
        }
        let group = group.as_mut().unwrap();
        for _ in 0..number % 3 {
            if !group.rows().is_empty() {
                step(group, dispatcher);
            }
        }
    }
    while let Some(group) = group.as_mut().filter(|group| !group.rows().is_empty()) {
        step(group, dispatcher);
    }
    drop(group);
    (generations.into_iter().map(|generation| texts(generation).0).collect(), verified, accepted)
}

#[test]
fn rows_say_with_drafts_what_they_say_without() {
    use_device(Device::Cpu).unwrap();
    // Windows, experts, sinks, latents, shared keys, several streams; recurrent states, alone and
    // beside keys.
    let keys = ["qwen3", "gemma3_text", "qwen3_moe", "gpt_oss", "deepseek_v3", "gemma3n"];
    let recurrent = ["qwen3_5", "lfm2", "nemotron_h", "falcon_h1"];
    let (mut all, mut right) = (0, 0);
    for model in keys.into_iter().chain(recurrent) {
        let kinds = [Kernels::CPU, Kernels::Mlx];
        let count = if matches!(model, "qwen3" | "qwen3_5") { 2 } else { 1 };
        // Lookups, and a layer of the model's own.
        let who = [Speculate::Off, Speculate::Mtp];
        let who = who.into_iter().take(if model == "qwen3_5" { 2 } else { 1 });
        let all_ways = who.flat_map(|who| kinds.into_iter().take(count).map(move |of| (who, of)));
        for (speculate, kernels) in all_ways {
            // In f32, products of several positions sum as those of one do.
            let f32 = Some(inference_core::Dtype::F32);
            let mut options = options_of(model, (Device::Cpu, kernels), f32);
            options.load.speculate = speculate;
            let mut served = served(&options);
            served.keeps_slots = kernels == Kernels::CPU;
            let of = |drafts| tokens(&served, ROWS, drafts, &mut Dispatcher::default());
            let (expected, none, _) = of(0);
            let (found, verified, accepted) = of(DRAFT);
            assert_eq!(found, expected, "{model}, {kernels:?}");
            assert!(none == 0 && verified > 20, "{model}: {verified} draft tokens");
            (all, right) = (all + verified, right + accepted);
        }
    }
    assert!(right > 100 && right + 100 < all, "{right} of {all} draft tokens accepted");
}

/// The caches of a prompt that was computed, whose ids a drafter took in, and its row.
fn computed(served: &Served, ids: &[u32]) -> Computed {
    let (job, _generation) = job(ids.to_vec(), &tokenizer(), &[]);
    let sampler = Sampler::new(job.options.clone(), 7, ids, &[], served.model.vocab_size).unwrap();
    let caches = Caches::new(&served.specs, served.storage, 1, 1000).with_followed(true);
    let mut prefill = Prefill::new(Row::new(job, sampler, 9), caches, 0, false);
    let layers = served.model.layers.len();
    advance(&mut prefill, (&served.model, &served.ranks), 512, layers);
    prefill.end_chunk(&mut Dispatcher::default()).unwrap().unwrap()
}

#[test]
fn a_layer_that_drafts_says_what_the_reference_makes_of_it() {
    use_device(Device::Cpu).unwrap();
    let golden = fixtures().join("golden/heads.json");
    let golden: Value = serde_json::from_str(&std::fs::read_to_string(golden).unwrap()).unwrap();
    let ids = |value: &Value| -> Vec<u32> { serde_json::from_value(value.clone()).unwrap() };
    for (name, prompts) in golden.as_object().unwrap() {
        for kernels in [Kernels::CPU, Kernels::Mlx] {
            let f32 = Some(inference_core::Dtype::F32);
            let mut options = options_of(name, (Device::Cpu, kernels), f32);
            options.load.speculate = Speculate::Mtp;
            let served = served(&options);
            let drafter = served.model.drafter.as_ref().unwrap();
            for prompt in prompts.as_array().unwrap() {
                let next = prompt["next"].as_u64().unwrap() as u32;
                let all = [ids(&prompt["prompt"]), vec![next]].concat();
                let Computed { mut caches, .. } = computed(&served, &all);
                // What is proposed leaves the caches as they were.
                for _ in 0..2 {
                    let found = drafter.propose(&served.model, &[next], 3, &mut caches).unwrap();
                    let found = found.to_vec_u32().unwrap();
                    assert_eq!(found, ids(&prompt["drafts"]), "{name}, {kernels:?}, {all:?}");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn rows_on_cuda_say_with_captured_drafts_about_what_they_say_without() {
    use_device(Device::Gpu).unwrap();
    let dtype = Some(inference_core::Dtype::Bf16);
    for model in ["qwen3", "gemma3_text"] {
        let served = served(&options_of(model, (Device::Gpu, Kernels::Cuda), dtype));
        for count in [1, ROWS] {
            let mut dispatcher = Dispatcher::among(None, true);
            let (expected, ..) = tokens(&served, count, 0, &mut dispatcher);
            // At first, kernels are still being compiled.
            for turn in 0..8 {
                let (found, verified, _) = tokens(&served, count, DRAFT, &mut dispatcher);
                assert!(verified > 0, "turn {turn}");
                let same = found.iter().flatten().zip(expected.iter().flatten());
                let same = same.filter(|(found, expected)| found == expected).count();
                let all = expected.iter().flatten().count();
                // Products of other positions may sum in another order.
                assert!(2 * same > all, "{model}, turn {turn}: {same} of {all} tokens");
            }
            assert!(dispatcher.keeps_any(), "{model}, {count} rows: passes are captured");
        }
    }
}
