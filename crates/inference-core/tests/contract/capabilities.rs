//! Capabilities: what a report says, and that an option is refused by its own name.

use std::collections::HashSet;

use inference_core::{
    Capabilities, ClassifyOptions, Constraint, CpuActivations, Dry, Dtype, Error, Feature,
    GenerateOptions, LoadOptions, PenaltyScope, RankSplit, Ranks, Speculate, Support, Xtc,
};

fn everything() -> Capabilities {
    Capabilities::new(Feature::ALL.map(|feature| (feature, Support::Yes)).to_vec())
}

/// Supports everything but `feature`.
fn without(feature: Feature) -> Capabilities {
    let entries = Feature::ALL.map(|each| match each == feature {
        true => (each, Support::No("made for the test".into())),
        false => (each, Support::Yes),
    });
    Capabilities::new(entries.to_vec())
}

fn refusal(option: &str) -> inference_core::Result<()> {
    Err(Error::Unsupported { what: option.to_owned(), reason: "made for the test".into() })
}

#[test]
fn every_feature_has_a_name_of_its_own() {
    let names: HashSet<_> = Feature::ALL.iter().map(|feature| feature.as_str()).collect();
    assert_eq!(names.len(), Feature::ALL.len());
    assert_eq!(Feature::KvBits.to_string(), "kv_bits");
}

#[test]
fn a_report_keeps_its_order() {
    let report = Capabilities::new(vec![
        (Feature::Stop, Support::Yes),
        (Feature::Chat, Support::No("no template".into())),
    ]);
    let features: Vec<_> = report.iter().map(|(feature, _)| feature).collect();
    assert_eq!(features, [Feature::Stop, Feature::Chat]);
}

#[test]
fn a_feature_that_the_report_leaves_out_is_not_supported() {
    let report = Capabilities::default();
    assert!(matches!(report.support(Feature::Chat), Support::No(_)));
    assert!(report.require(Feature::Chat).is_err());
}

#[test]
fn requiring_a_feature_gives_its_name_and_the_reason() {
    assert_eq!(everything().require(Feature::Images), Ok(()));
    assert_eq!(without(Feature::Images).require(Feature::Images), refusal("images"));
}

#[test]
fn each_option_of_a_request_is_refused_by_its_own_name() {
    type Set = fn(&mut GenerateOptions);
    let options: [(&str, Feature, Set); 26] = [
        ("temperature", Feature::Sampling, |o| o.temperature = Some(0.5)),
        ("top_k", Feature::Sampling, |o| o.top_k = Some(1)),
        ("top_p", Feature::Sampling, |o| o.top_p = Some(0.9)),
        ("min_p", Feature::Sampling, |o| o.min_p = Some(0.1)),
        ("typical_p", Feature::Sampling, |o| o.typical_p = Some(0.5)),
        ("top_n_sigma", Feature::Sampling, |o| o.top_n_sigma = Some(1.0)),
        ("dry", Feature::Penalties, |o| {
            o.dry = Some(Dry { multiplier: 1.0, ..Dry::default() });
        }),
        ("xtc", Feature::Sampling, |o| o.xtc = Some(Xtc { probability: 1.0, threshold: 0.1 })),
        ("seed", Feature::Seed, |o| o.seed = Some(1)),
        ("repetition_penalty", Feature::Penalties, |o| o.repetition_penalty = Some(1.1)),
        ("presence_penalty", Feature::Penalties, |o| o.presence_penalty = Some(-0.1)),
        ("frequency_penalty", Feature::Penalties, |o| o.frequency_penalty = Some(0.1)),
        ("penalty_window", Feature::PenaltyWindow, |o| o.penalty_window = Some(64)),
        ("penalty_scope", Feature::PenaltyScope, |o| o.penalty_scope = PenaltyScope::Generated),
        ("logit_bias", Feature::LogitBias, |o| o.logit_bias = [(1, 0.0)].into()),
        ("stop", Feature::Stop, |o| o.stop.push("\n".into())),
        ("stop_token_ids", Feature::Stop, |o| o.stop_token_ids.push(1)),
        ("ignore_eos", Feature::Stop, |o| o.ignore_eos = true),
        ("min_tokens", Feature::MinTokens, |o| o.min_tokens = 3),
        ("special_tokens", Feature::SpecialTokens, |o| o.special_tokens = true),
        ("logprobs", Feature::Logprobs, |o| o.logprobs = true),
        ("top_logprobs", Feature::Logprobs, |o| o.top_logprobs = 1),
        ("prompt_logprobs", Feature::PromptLogprobs, |o| o.prompt_logprobs = true),
        ("logits", Feature::Logits, |o| o.logits = true),
        ("draft_tokens", Feature::DraftTokens, |o| o.draft_tokens = Some(4)),
        ("constraint", Feature::Constraint, |o| o.constraint = Some(Constraint::Regex("a".into()))),
    ];
    for (name, feature, set) in options {
        let mut options = GenerateOptions::default();
        set(&mut options);
        assert_eq!(without(feature).check_generate(&options), refusal(name));
        assert_eq!(everything().check_generate(&options), Ok(()), "{name}");
    }
}

#[test]
fn each_option_of_a_load_is_refused_by_its_own_name() {
    type Set = fn(&mut LoadOptions);
    let options: [(&str, Feature, Set); 21] = [
        ("context_length", Feature::ContextLength, |o| o.context_length = Some(1)),
        ("parallel_slots", Feature::ParallelSlots, |o| o.parallel_slots = Some(2)),
        ("queue_limit", Feature::QueueLimit, |o| o.queue_limit = Some(0)),
        ("batch_invariant", Feature::BatchInvariant, |o| o.batch_invariant = true),
        ("prefix_cache", Feature::PrefixCache, |o| o.prefix_cache = Some(1)),
        ("prefix_cache_dir", Feature::PrefixStore, |o| o.prefix_cache_dir = Some("kept".into())),
        ("prefix_cache_disk", Feature::PrefixStore, |o| o.prefix_cache_disk = Some(1)),
        ("kv_bits", Feature::KvBits, |o| o.kv_bits = Some(8)),
        ("kv_group_size", Feature::KvBits, |o| o.kv_group_size = Some(32)),
        ("gpu_layers", Feature::GpuLayers, |o| o.gpu_layers = Some(0)),
        ("adapter_path", Feature::Adapter, |o| o.adapter_path = Some("lora".into())),
        ("draft_model", Feature::DraftModel, |o| o.draft_model = Some("small".into())),
        ("speculate", Feature::DraftTokens, |o| o.speculate = Speculate::Mtp),
        ("dtype", Feature::Dtype, |o| o.dtype = Some(Dtype::F32)),
        ("memory_limit", Feature::MemoryLimit, |o| o.memory_limit = Some(1)),
        ("cache_limit", Feature::MemoryLimit, |o| o.cache_limit = Some(0)),
        ("wired_limit", Feature::MemoryLimit, |o| o.wired_limit = Some(0)),
        ("prefill_chunk", Feature::PrefillChunk, |o| o.prefill_chunk = Some(1)),
        ("threads", Feature::Threads, |o| o.threads = Some(1)),
        ("cpu_activations", Feature::CpuActivations, |o| {
            o.cpu_activations = Some(CpuActivations::Int8);
        }),
        ("ranks", Feature::Ranks, |o| {
            let addresses = vec![([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into()];
            o.ranks = Some(Ranks { rank: 0, addresses, group: 0, split: RankSplit::default() });
        }),
    ];
    for (name, feature, set) in options {
        let mut options = LoadOptions::default();
        set(&mut options);
        assert_eq!(without(feature).check_load(&options), refusal(name));
        assert_eq!(everything().check_load(&options), Ok(()), "{name}");
    }
}

#[test]
fn each_option_of_a_classification_is_refused_by_its_own_name() {
    let generate = GenerateOptions { logits: true, ..Default::default() };
    let logits = ClassifyOptions { generate, ..Default::default() };
    assert_eq!(without(Feature::Logits).check_classify(&logits), refusal("logits"));
    assert_eq!(everything().check_classify(&logits), Ok(()));
    let labels = ClassifyOptions { labels: vec!["yes".into()], ..Default::default() };
    assert_eq!(without(Feature::Labels).check_classify(&labels), refusal("labels"));
    assert_eq!(everything().check_classify(&labels), Ok(()));
    assert_eq!(Capabilities::default().check_classify(&ClassifyOptions::default()), Ok(()));
}

#[test]
fn values_that_ask_for_nothing_pass_even_where_nothing_is_supported() {
    let nothing = Capabilities::default();
    let neutral = GenerateOptions {
        max_tokens: Some(5),
        temperature: Some(0.0),
        top_k: Some(0),
        top_p: Some(1.0),
        min_p: Some(0.0),
        xtc: Some(Xtc { probability: 0.0, threshold: 0.1 }),
        repetition_penalty: Some(1.0),
        presence_penalty: Some(0.0),
        frequency_penalty: Some(0.0),
        seed: Some(1),
        ..Default::default()
    };
    assert_eq!(nothing.check_generate(&neutral), Ok(()));
    assert_eq!(nothing.check_generate(&GenerateOptions::default()), Ok(()));
    assert_eq!(nothing.check_load(&LoadOptions::default()), Ok(()));
}
