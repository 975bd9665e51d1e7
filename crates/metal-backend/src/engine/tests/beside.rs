//! Rows that decode beside the prompts of others.

use std::rc::Rc;

use inference_core::Generation;
use mlx_ffi::{Device, use_device};
use serde_json::{Value, json};

use super::super::dispatcher::Dispatcher;
use super::super::group::{Group, Stepped};
use super::super::memory::Budget;
use super::super::prefill::{Computed, Prefill, Sent};
use super::super::ranks::Ranks;
use super::super::row::Row;
use super::super::served::Served;
use super::super::step_clock::StepClock;
use super::{advance, fixtures, job, options, options_of, texts, tokenizer};
use crate::cache::{Caches, PrefixCache};
use crate::files::ModelFiles;
use crate::kernels::Kernels;
use crate::load::{self, EngineOptions, LoadedModel};
use crate::sampling::Sampler;
use crate::weights::Checkpoint;

/// The model of the fixtures, served.
pub(super) fn served(options: &EngineOptions) -> Served {
    let LoadedModel { model, specs, storage, description, dtype_size, .. } =
        load::load(options, &Checkpoint::open(&options.files).unwrap(), None).unwrap();
    let sizes = (u64::MAX / 4, 512, 512);
    let budget = Budget::new(&model, (&specs, storage), dtype_size, options.device, sizes);
    Served {
        ranks: Rc::new(Ranks::none()),
        features: super::super::features::Features::new(),
        due: super::super::due::Due::default(),
        device: options.device,
        specs,
        storage,
        budget,
        context_length: description.info.context_length,
        chunk: 512,
        pass: 512,
        alone: false,
        keeps_slots: true,
        drafts: false,
        drafter_share: 0.0,
        kernels: options.kernels,
        model,
    }
}

/// A request of its own length and answer for each number, before its prompt.
fn request(served: &Served, number: usize, may_draw: bool) -> (Prefill, Generation) {
    let ids: Vec<u32> =
        (0..6 + 5 * (number as u32 % 4)).map(|id| id * 37 + number as u32).collect();
    let (job, generation) = job(ids.clone(), &tokenizer(), &[]);
    let most = 5 + 7 * (number % 5);
    let sampler = Sampler::new(job.options.clone(), 0, &ids, &[], served.model.vocab_size).unwrap();
    let caches = Caches::new(&served.specs, served.storage, 1, 100);
    (Prefill::new(Row::new(job, sampler, most), caches, 0, may_draw), generation)
}

/// The tokens of requests, each by itself.
fn alone(served: &Served, count: usize) -> Vec<Vec<String>> {
    let mut dispatcher = Dispatcher::default();
    let (mut prefixes, mut clock) = (PrefixCache::new(0, Box::new(Ok)), StepClock::start(true));
    let of = |number| {
        let (mut prefill, generation) = request(served, number, false);
        let layers = served.model.layers.len();
        advance(&mut prefill, (&served.model, &served.ranks), 512, layers);
        let Computed { rows, caches, .. } =
            prefill.end_chunk(&mut Dispatcher::default()).unwrap().unwrap();
        let mut group = Group::new(rows, caches);
        while !group.rows().is_empty() {
            group
                .step(served, (&mut prefixes, &mut dispatcher), &mut clock)
                .unwrap()
                .result
                .unwrap();
        }
        drop(group);
        texts(generation).0
    };
    (0..count).map(of).collect()
}

#[test]
fn rows_that_decode_beside_prompts_say_what_they_say_alone() {
    use_device(Device::Cpu).unwrap();
    // Windows, experts, sinks, layers without positions, and norms behind layers; recurrent states,
    // alone and beside keys.
    let attention = ["qwen3", "gemma3_text", "qwen3_moe", "gpt_oss", "smollm3", "olmo2"];
    let recurrent = ["qwen3_5", "lfm2", "nemotron_h", "falcon_h1"];
    // MLX's products are slow on a CPU, and one model of each kind has all that they differ in.
    let by_mlx = ["qwen3", "falcon_h1"];
    for model in attention.into_iter().chain(recurrent) {
        for kernels in [Kernels::Mlx, Kernels::CPU] {
            if kernels == Kernels::Mlx && !by_mlx.contains(&model) {
                continue;
            }
            // In f32, products of prompts sum as those of steps do.
            let f32 = Some(inference_core::Dtype::F32);
            let served = served(&options_of(model, (Device::Cpu, kernels), f32));
            let expected = alone(&served, 24);
            for steps in [Steps::InPass, Steps::Behind] {
                let found = beside(&served, 24, &mut Dispatcher::default(), steps);
                assert_eq!(found, expected, "{model}, {kernels:?}, {steps:?}");
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn rows_that_decode_beside_prompts_on_cuda_say_about_what_they_say_alone() {
    use_device(Device::Gpu).unwrap();
    let dtype = Some(inference_core::Dtype::Bf16);
    let served = served(&options_of("qwen3", (Device::Gpu, Kernels::Cuda), dtype));
    let expected = alone(&served, 24);
    let mut dispatcher = Dispatcher::among(None, true);
    // At first, kernels are still being compiled. Then all is sent past MLX.
    for turn in 0..6 {
        let steps = if turn < 4 { Steps::InPass } else { Steps::Behind };
        let found = beside(&served, 24, &mut dispatcher, steps);
        let same = found.iter().zip(&expected).filter(|(found, expected)| found == expected);
        // Products of other rows may sum in another order.
        let same = same.count();
        assert!(same >= 18, "{same} of 24 say the same: {found:?}, {expected:?}");
    }
    assert!(dispatcher.sends_all(), "layers are sent past MLX");
}

/// Options for a model like `model`, but of sizes that kernels for CUDA take, with weights drawn at
/// random.
fn options_of_sizes(model: &str, sizes: &Value, with: (Device, Kernels)) -> EngineOptions {
    let path = fixtures().join("models").join(model).join("config.json");
    let outer: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut config = outer.get("text_config").unwrap_or(&outer).clone();
    for (key, value) in sizes.as_object().unwrap() {
        config[key] = value.clone();
    }
    let files = ModelFiles::Random(config.to_string().into());
    let config = load::config(&files).unwrap();
    EngineOptions { files, config, ..options_of(model, with, Some(inference_core::Dtype::Bf16)) }
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn rows_with_recurrent_states_decode_beside_prompts_on_cuda() {
    use_device(Device::Gpu).unwrap();
    let rope = json!({"mrope_interleaved": true, "mrope_section": [4, 2, 2], "rope_type": "default",
                      "rope_theta": 1e7, "partial_rotary_factor": 0.25});
    let delta = json!({"hidden_size": 128, "intermediate_size": 128, "head_dim": 64,
                       "num_attention_heads": 4, "num_key_value_heads": 2, "rope_parameters": rope,
                       "linear_key_head_dim": 64, "linear_value_head_dim": 64,
                       "linear_num_key_heads": 1, "linear_num_value_heads": 4});
    let convolution = json!({"hidden_size": 128, "block_dim": 128, "block_ff_dim": 384, "conv_dim": 128,
                             "conv_dim_out": 128, "conv_bias": false, "num_attention_heads": 4, "num_heads": 4});
    let scan = json!({"hidden_size": 128, "intermediate_size": 128, "head_dim": 32,
                      "num_attention_heads": 4, "mamba_d_ssm": 512, "mamba_d_head": 64,
                      "mamba_n_heads": 8, "mamba_d_state": 64, "mamba_n_groups": 1});
    for (model, sizes) in [("qwen3_5", delta), ("lfm2", convolution), ("falcon_h1", scan)] {
        let served = served(&options_of_sizes(model, &sizes, (Device::Gpu, Kernels::Cuda)));
        let expected = alone(&served, 24);
        let mut dispatcher = Dispatcher::among(None, true);
        for turn in 0..6 {
            let steps = if turn < 4 { Steps::InPass } else { Steps::Behind };
            let found = beside(&served, 24, &mut dispatcher, steps);
            // Of random weights, what is most likely is so by little. A few ids differ, and what
            // follows goes other ways.
            let count = |(found, expected): (&Vec<String>, &Vec<String>)| {
                found.iter().zip(expected).take_while(|(found, expected)| found == expected).count()
            };
            let same: usize = found.iter().zip(&expected).map(count).sum();
            let all: usize = expected.iter().map(Vec::len).sum();
            assert!(2 * same > all, "{model}: {same} of {all} tokens before the first other one");
        }
        assert!(dispatcher.sends_all(), "{model}: layers are sent past MLX");
    }
}

/// The place of rows' steps beside others' prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Steps {
    /// In the pass of the prompts.
    InPass,
    /// Behind the pass, while it is in flight.
    Behind,
}

/// The tokens of requests that decode beside others' prompts.
fn beside(
    served: &Served,
    all: usize,
    dispatcher: &mut Dispatcher,
    steps: Steps,
) -> Vec<Vec<String>> {
    let (mut prefixes, mut clock) = (PrefixCache::new(0, Box::new(Ok)), StepClock::start(true));
    let layers = served.model.layers.len();
    let mut beside = 0;
    let (mut group, mut generations) = (None::<Group>, Vec::new());
    for number in (0..all).step_by(2) {
        // Two prompts share a pass, of which the shorter one is filled up.
        let (mut prefill, first) = request(served, number, number % 4 == 0);
        let (other, second) = request(served, number + 1, number % 4 == 0);
        prefill.join(vec![other], dispatcher).unwrap();
        generations.extend([first, second]);
        let mut stepped = None;
        let joins = group.as_mut().filter(|_| steps == Steps::InPass);
        let joining = joins.map(|group| group.join_pass().unwrap());
        beside += joining.as_ref().map_or(0, |joining| joining.rows());
        let with = (&served.model, &*served.ranks);
        prefill
            .advance(with, 512, layers, joining, dispatcher, |what| match (&mut group, what) {
                (Some(group), Sent::Rows(leaving)) => {
                    stepped = Some(group.leave_pass(leaving, served, &mut prefixes, &mut clock));
                }
                (Some(group), Sent::All)
                    if steps == Steps::Behind && group.can_step_behind(served) =>
                {
                    beside += group.rows().len();
                    stepped = Some(group.step_behind(served, &mut prefixes, &mut clock));
                }
                _ => {}
            })
            .unwrap();
        let are_given_back = stepped.is_some() == group.is_some();
        assert!(are_given_back || steps == Steps::Behind, "rows are given back");
        if let (Some(group), Some(stepped)) = (&mut group, stepped) {
            stepped.unwrap().result.unwrap();
            assert!(group.take_has_stepped() && !group.take_has_stepped());
        }
        let Computed { mut rows, caches, firsts } = prefill.end_chunk(dispatcher).unwrap().unwrap();
        assert_eq!(firsts.is_some(), number % 4 == 0);
        if let Some(firsts) = firsts {
            let left = firsts.take_in(&served.ranks, &mut rows, |_| true, &mut clock).unwrap();
            assert!(left.is_empty());
        }
        match group.as_mut().filter(|group| !group.rows().is_empty()) {
            Some(group) => group.join(rows, caches, 2, dispatcher).unwrap(),
            None => group = Some(Group::new(rows, caches)),
        }
        // Steps come between, and what they drew is read in the next pass.
        for _ in 0..number % 3 {
            let group = group.as_mut().unwrap();
            if !group.rows().is_empty() {
                group
                    .step(served, (&mut prefixes, dispatcher), &mut clock)
                    .unwrap()
                    .result
                    .unwrap();
            }
        }
        group = group.filter(|group| !group.rows().is_empty());
    }
    while let Some(group) = group.as_mut().filter(|group| !group.rows().is_empty()) {
        group.step(served, (&mut prefixes, dispatcher), &mut clock).unwrap().result.unwrap();
    }
    drop(group);
    assert!(beside > 30, "{beside} rows decoded beside prompts");
    generations.into_iter().map(|generation| texts(generation).0).collect()
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn a_prompt_by_itself_stays_where_it_is_between_its_parts_on_cuda() {
    use_device(Device::Gpu).unwrap();
    let dtype = Some(inference_core::Dtype::Bf16);
    let served = served(&options_of("qwen3", (Device::Gpu, Kernels::Cuda), dtype));
    let mut dispatcher = Dispatcher::among(None, true);
    let (mut prefill, _generation) = request(&served, 3, true);
    let with = (&served.model, &*served.ranks);
    while prefill.waiting(6).left > 0 {
        prefill.advance(with, 6, served.model.layers.len(), None, &mut dispatcher, |_| {}).unwrap();
        let layout = prefill.caches.layout();
        prefill.join(Vec::new(), &mut dispatcher).unwrap();
        assert_eq!(prefill.caches.layout(), layout, "buffers are those that they were");
    }
}

#[test]
fn rows_take_the_slots_of_others_and_say_what_they_say_alone() {
    use_device(Device::Cpu).unwrap();
    let mut served = served(&options());
    let row = |served: &Served, number: usize| {
        let (mut prefill, generation) = request(served, number, false);
        let layers = served.model.layers.len();
        advance(&mut prefill, (&served.model, &served.ranks), 512, layers);
        (prefill.end_chunk(&mut Dispatcher::default()).unwrap().unwrap(), generation)
    };
    let (mut prefixes, mut clock) = (PrefixCache::new(0, Box::new(Ok)), StepClock::start(true));
    let mut dispatcher = Dispatcher::default();
    let mut step = |group: &mut Group, served: &Served| {
        let Stepped { left, result } =
            group.step(served, (&mut prefixes, &mut dispatcher), &mut clock).unwrap();
        result.unwrap();
        left.len()
    };
    let all = 24;
    let expected = alone(&served, all);
    for keeps_slots in [true, false] {
        served.keeps_slots = keeps_slots;
        let (mut group, mut generations) = (None::<Group>, Vec::new());
        let (mut reused, mut vacancies) = (0, 0);
        for number in 0..all {
            let (Computed { rows, caches, .. }, generation) = row(&served, number);
            generations.push(generation);
            match group.as_mut().filter(|group| !group.rows().is_empty()) {
                Some(group) => {
                    let slots = group.caches().slots();
                    group.join(rows, caches, 0, &mut Dispatcher::default()).unwrap();
                    reused += usize::from(group.caches().slots() == slots);
                }
                None => group = Some(Group::new(rows, caches)),
            }
            let group = group.as_mut().unwrap();
            for _ in 0..number % 6 {
                if !group.rows().is_empty() {
                    step(group, &served);
                    vacancies += group.caches().slots() - group.rows().len();
                }
            }
        }
        let mut group = group.unwrap();
        // Slots that stay vacant are given up.
        while !group.rows().is_empty() {
            step(&mut group, &served);
        }
        drop(group);
        for (number, (generation, expected)) in generations.into_iter().zip(&expected).enumerate() {
            assert_eq!(&texts(generation).0, expected, "row {number}, slots kept: {keeps_slots}");
        }
        assert_eq!(reused > 3, keeps_slots, "{reused} rows took the slots of others");
        assert_eq!(vacancies > 0, keeps_slots);
    }
}
