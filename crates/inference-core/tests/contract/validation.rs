//! Options: which values are taken, and that a refusal names the option.

use inference_core::{
    ClassifyOptions, Constraint, Dry, Dtype, Error, GenerateOptions, LoadOptions, PenaltyScope,
    ReasoningMarks, Xtc,
};

type Set<T> = fn(&mut GenerateOptions, T);
type SetLoad = fn(&mut LoadOptions, usize);

/// An option that takes a float: its name, how to set it, values to take, and values to refuse
/// beside NaN and the infinities, which none takes.
type Float = (&'static str, Set<f32>, &'static [f32], &'static [f32]);

#[track_caller]
fn refused(result: inference_core::Result<()>, name: &str) {
    match result {
        Err(Error::InvalidOption { option, reason }) => {
            assert_eq!(option, name);
            assert!(!reason.is_empty());
        }
        other => panic!("`{name}`: expected a refusal, found {other:?}"),
    }
}

/// The penalty on repeats of `options`.
fn dry(options: &mut GenerateOptions) -> &mut Dry {
    options.dry.get_or_insert_default()
}

const FLOATS: [Float; 12] = [
    ("temperature", |o, v| o.temperature = Some(v), &[0.0, -0.0, 0.7, f32::MAX], &[-1e-9, -0.7]),
    ("top_p", |o, v| o.top_p = Some(v), &[1.0, 0.5, 1e-40, 0.0], &[-1e-9, -0.5, 1.000_001]),
    ("typical_p", |o, v| o.typical_p = Some(v), &[0.0, 0.5, 1.0], &[-1e-9, 1.000_001]),
    ("top_n_sigma", |o, v| o.top_n_sigma = Some(v), &[-1.0, 0.0, 9.0], &[]),
    ("dry.multiplier", |o, v| dry(o).multiplier = v, &[0.0, 0.8], &[-0.1]),
    ("dry.base", |o, v| dry(o).base = v, &[1.0, 1.75], &[0.99]),
    ("min_p", |o, v| o.min_p = Some(v), &[0.0, 0.05, 1.0], &[-1e-9, 1.000_001]),
    (
        "repetition_penalty",
        |o, v| o.repetition_penalty = Some(v),
        &[1e-40, 1.0, 1.1, f32::MAX],
        &[0.0, -1.0],
    ),
    ("presence_penalty", |o, v| o.presence_penalty = Some(v), &[f32::MIN, 0.0, f32::MAX], &[]),
    ("frequency_penalty", |o, v| o.frequency_penalty = Some(v), &[f32::MIN, 0.0, f32::MAX], &[]),
    (
        "xtc.probability",
        |o, v| o.xtc = Some(Xtc { probability: v, threshold: 0.1 }),
        &[0.0, 0.5, 1.0],
        &[-1e-9, 1.000_001],
    ),
    (
        "xtc.threshold",
        |o, v| o.xtc = Some(Xtc { probability: 0.5, threshold: v }),
        &[0.0, 0.1, 0.5],
        &[-1e-9, 0.500_001],
    ),
];

fn with<T>(set: fn(&mut GenerateOptions, T), value: T) -> inference_core::Result<()> {
    let mut options = GenerateOptions::default();
    set(&mut options, value);
    options.validate()
}

#[test]
fn the_defaults_are_valid() {
    assert_eq!(GenerateOptions::default().validate(), Ok(()));
    assert_eq!(LoadOptions::default().validate(), Ok(()));
}

#[test]
fn floats_are_taken_within_their_range_up_to_its_ends() {
    for (name, set, taken, _) in FLOATS {
        for &value in taken {
            assert_eq!(with(set, value), Ok(()), "{name} = {value}");
        }
    }
}

#[test]
fn floats_outside_their_range_are_refused_by_name() {
    for (name, set, _, out_of_range) in FLOATS {
        for &value in out_of_range {
            refused(with(set, value), name);
        }
    }
}

#[test]
fn no_float_option_takes_nan_or_an_infinity() {
    for (name, set, _, _) in FLOATS {
        for value in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            refused(with(set, value), name);
        }
    }
}

#[test]
fn a_refusal_gives_the_value_and_the_range() {
    let text = |set: Set<f32>, value| with(set, value).unwrap_err().to_string();
    assert_eq!(
        text(|o, v| o.temperature = Some(v), -1.0),
        "option `temperature`: -1 is not at least 0 and finite"
    );
    assert_eq!(
        text(|o, v| o.top_p = Some(v), 2.0),
        "option `top_p`: 2 is not at least 0 and at most 1"
    );
    assert_eq!(
        text(|o, v| o.presence_penalty = Some(v), f32::NAN),
        "option `presence_penalty`: NaN is not finite"
    );
}

#[test]
fn a_logit_bias_may_forbid_an_id_but_not_force_or_confuse_it() {
    let bias = |value| with(|o, v| o.logit_bias = [(7, v)].into(), value);
    for value in [0.0, -100.0, f32::MAX, f32::NEG_INFINITY] {
        assert_eq!(bias(value), Ok(()), "{value}");
    }
    refused(bias(f32::NAN), "logit_bias");
    refused(bias(f32::INFINITY), "logit_bias");
    assert!(bias(f32::NAN).unwrap_err().to_string().contains("token 7"));
}

#[test]
fn an_empty_stop_string_is_refused_with_its_index() {
    let stop = |stop: &[&str]| {
        with(|o: &mut GenerateOptions, v| o.stop = v, stop.iter().map(|s| s.to_string()).collect())
    };
    assert_eq!(stop(&["\n", " "]), Ok(()));
    refused(stop(&["\n", ""]), "stop");
    assert!(stop(&["\n", ""]).unwrap_err().to_string().contains("string 1"));
}

#[test]
fn counts_that_mean_something_at_zero_take_it() {
    let options = GenerateOptions {
        max_tokens: Some(0),
        top_k: Some(0),
        top_logprobs: 0,
        seed: Some(0),
        ..Default::default()
    };
    assert_eq!(options.validate(), Ok(()));
    assert_eq!(LoadOptions { gpu_layers: Some(0), ..Default::default() }.validate(), Ok(()));
    assert_eq!(LoadOptions { cache_limit: Some(0), ..Default::default() }.validate(), Ok(()));
}

#[test]
fn the_largest_counts_are_taken() {
    let options = GenerateOptions {
        max_tokens: Some(usize::MAX),
        top_k: Some(usize::MAX),
        penalty_window: Some(usize::MAX),
        seed: Some(u64::MAX),
        ..Default::default()
    };
    assert_eq!(options.validate(), Ok(()));
}

#[test]
fn counts_that_mean_nothing_at_zero_are_refused_by_name() {
    refused(with(|o, v| o.penalty_window = Some(v), 0), "penalty_window");
    assert_eq!(with(|o, v| o.penalty_window = Some(v), 1), Ok(()));

    let load: [(&str, SetLoad); 5] = [
        ("context_length", |o, v| o.context_length = Some(v)),
        ("parallel_slots", |o, v| o.parallel_slots = Some(v)),
        ("prefill_chunk", |o, v| o.prefill_chunk = Some(v)),
        ("threads", |o, v| o.threads = Some(v)),
        ("memory_limit", |o, v| o.memory_limit = Some(v as u64)),
    ];
    for (name, set) in load {
        let mut options = LoadOptions::default();
        set(&mut options, 0);
        refused(options.validate(), name);
        set(&mut options, 1);
        assert_eq!(options.validate(), Ok(()), "{name} = 1");
    }
}

#[test]
fn threads_have_a_maximum() {
    let with = |threads| LoadOptions { threads: Some(threads), ..Default::default() }.validate();
    assert_eq!(with(LoadOptions::MAX_THREADS), Ok(()));
    for threads in [LoadOptions::MAX_THREADS + 1, 20_000, usize::MAX] {
        refused(with(threads), "threads");
    }
}

#[test]
fn a_cache_is_quantised_to_4_or_8_bits() {
    for bits in [0, 1, 3, 5, 16, usize::MAX] {
        refused(LoadOptions { kv_bits: Some(bits), ..Default::default() }.validate(), "kv_bits");
    }
    for bits in [4, 8] {
        let options = LoadOptions { kv_bits: Some(bits), ..Default::default() };
        assert_eq!(options.validate(), Ok(()));
    }
}

#[test]
fn the_groups_of_a_quantised_cache_are_32_or_64_and_mean_nothing_without_bits() {
    let with =
        |kv_bits, size| LoadOptions { kv_bits, kv_group_size: Some(size), ..Default::default() };
    for size in [0, 16, 128] {
        refused(with(Some(8), size).validate(), "kv_group_size");
    }
    refused(with(None, 64).validate(), "kv_group_size");
    assert_eq!(with(Some(4), 32).validate(), Ok(()));
    assert_eq!(with(Some(4), 64).validate(), Ok(()));
}

#[test]
fn an_empty_label_is_refused() {
    let labels = |labels: &[&str]| {
        let labels = labels.iter().map(ToString::to_string).collect();
        ClassifyOptions { labels, ..Default::default() }.validate()
    };
    assert_eq!(labels(&["yes", "no"]), Ok(()));
    refused(labels(&["yes", ""]), "labels");
}

#[test]
fn breakers_of_repeats_are_few_and_none_is_empty() {
    let of = |breakers: Vec<String>| {
        let dry = Some(Dry { sequence_breakers: breakers, ..Dry::default() });
        GenerateOptions { dry, ..Default::default() }.validate()
    };
    refused(of(vec![String::new()]), "dry.sequence_breakers");
    refused(of(vec!["a".into(); 65]), "dry.sequence_breakers");
    assert_eq!(of(Vec::new()), Ok(()));
}

#[test]
fn the_fewest_tokens_are_no_more_than_the_most() {
    let of = |min_tokens, max_tokens| {
        GenerateOptions { min_tokens, max_tokens, ..Default::default() }.validate()
    };
    refused(of(5, Some(4)), "min_tokens");
    let told = of(5, Some(4)).unwrap_err().to_string();
    assert!(told.contains("5 is above `max_tokens`, 4"), "{told}");
    for (few, most) in [(4, Some(4)), (0, Some(0)), (5, None)] {
        assert_eq!(of(few, most), Ok(()));
    }
}

#[test]
fn a_classification_refuses_what_is_about_more_than_one_token() {
    type Set = fn(&mut GenerateOptions);
    let beyond: [(&str, Set); 9] = [
        ("max_tokens", |o| o.max_tokens = Some(2)),
        ("max_tokens", |o| o.max_tokens = Some(0)),
        ("stop", |o| o.stop.push("a".into())),
        ("stop_token_ids", |o| o.stop_token_ids.push(1)),
        ("ignore_eos", |o| o.ignore_eos = true),
        ("min_tokens", |o| o.min_tokens = 1),
        ("prompt_logprobs", |o| o.prompt_logprobs = true),
        ("constraint", |o| o.constraint = Some(Constraint::Regex("a".into()))),
        ("temperature", |o| o.temperature = Some(-1.0)),
    ];
    let classify = |set: Set| {
        let mut options = ClassifyOptions::default();
        set(&mut options.generate);
        options.validate()
    };
    for (name, set) in beyond {
        refused(classify(set), name);
    }
    assert_eq!(classify(|o| o.max_tokens = Some(1)), Ok(()));
    assert_eq!(
        classify(|o| (o.temperature, o.top_k, o.seed) = (Some(0.5), Some(3), Some(1))),
        Ok(())
    );
    assert_eq!(classify(|o| (o.top_logprobs, o.special_tokens) = (3, true)), Ok(()));
}

#[test]
fn a_window_or_a_scope_of_penalties_says_nothing_without_a_penalty() {
    let with = |penalty_window, penalty_scope, repetition_penalty| {
        let options = GenerateOptions {
            penalty_window,
            penalty_scope,
            repetition_penalty,
            ..Default::default()
        };
        assert_eq!(options.validate(), Ok(()), "the model may have a penalty of its own");
        options.check_penalties()
    };
    let (context, generated) = (PenaltyScope::Context, PenaltyScope::Generated);
    refused(with(Some(64), context, None), "penalty_window");
    refused(with(None, generated, None), "penalty_scope");
    assert_eq!(with(None, context, None), Ok(()));
    assert_eq!(with(Some(64), generated, Some(1.0)), Ok(()), "one that is off was given");
}

#[test]
fn penalties_look_at_20_ids_of_the_context_or_at_all_generated_ones() {
    let window = |penalty_window, penalty_scope| {
        let options = GenerateOptions { penalty_window, penalty_scope, ..Default::default() };
        options.penalty_window_or_default()
    };
    assert_eq!(window(None, PenaltyScope::Context), 20);
    assert_eq!(window(None, PenaltyScope::Generated), usize::MAX);
    assert_eq!(window(Some(5), PenaltyScope::Generated), 5);
    for scope in [PenaltyScope::Context, PenaltyScope::Generated] {
        assert_eq!(scope.as_str().parse(), Ok(scope));
    }
    refused("prompt".parse::<PenaltyScope>().map(drop), "penalty_scope");
}

#[test]
fn a_type_is_parsed_from_both_of_its_names_and_others_are_refused() {
    for (short, long, dtype) in [
        ("f32", "float32", Dtype::F32),
        ("f16", "float16", Dtype::F16),
        ("bf16", "bfloat16", Dtype::Bf16),
    ] {
        assert_eq!(short.parse(), Ok(dtype));
        assert_eq!(long.parse(), Ok(dtype));
        assert_eq!(dtype.as_str(), short);
    }
    refused("int8".parse::<Dtype>().map(drop), "dtype");
}

#[test]
fn what_a_constraint_contradicts_is_refused() {
    let marks = |open: &str, close: &str| {
        Some(ReasoningMarks { open: open.to_owned(), close: close.to_owned() })
    };
    let with = |reasoning, ignore_eos| GenerateOptions {
        constraint: Some(Constraint::Regex("a".into())),
        reasoning,
        ignore_eos,
        ..Default::default()
    };
    assert_eq!(with(None, false).validate(), Ok(()));
    assert_eq!(with(marks("<think>", "</think>"), false).validate(), Ok(()));
    refused(with(None, true).validate(), "ignore_eos");
    refused(with(marks("", "</think>"), false).validate(), "reasoning");
    refused(with(marks("<think>", ""), false).validate(), "reasoning");
    let free = GenerateOptions { constraint: None, ..with(marks("<a>", "<b>"), false) };
    refused(free.validate(), "reasoning");
}
