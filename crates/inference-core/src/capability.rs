//! The features that a loaded model honours and those that it refuses, as data.

use std::fmt;

use crate::{
    ClassifyOptions, Dry, Error, GenerateOptions, LoadOptions, PenaltyScope, Result, Speculate,
};

/// Something that a caller may ask of a loaded model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Feature {
    /// [`TextModel::chat`](crate::TextModel::chat) with the checkpoint's own or a known format.
    Chat,
    /// [`TextModel::classify`](crate::TextModel::classify).
    Classify,
    /// [`TextModel::batch_generate`](crate::TextModel::batch_generate).
    BatchGenerate,
    /// [`AttentionInspector`](crate::AttentionInspector).
    InspectAttention,
    /// Log probabilities of the chosen and of the most likely tokens.
    Logprobs,
    /// Log probabilities of the prompt's own tokens.
    PromptLogprobs,
    /// Whole logits with each token.
    Logits,
    /// Output held to a JSON schema, regular expression or grammar, and reasoning to a budget.
    Constraint,
    /// Several requests decoded together.
    ParallelSlots,
    /// A limit to how many requests wait.
    QueueLimit,
    /// Results that do not depend on what runs beside a request.
    BatchInvariant,
    /// Keys and values of earlier requests are used again.
    PrefixCache,
    /// Earlier prompts that are kept on disk.
    PrefixStore,
    /// Scores of given labels in [`TextModel::classify`](crate::TextModel::classify).
    Labels,
    /// A quantised key and value cache.
    KvBits,
    /// LoRA adapters at load.
    Adapter,
    /// A shorter context than the model's own.
    ContextLength,
    /// A choice of how many layers run on the GPU.
    GpuLayers,
    /// Pictures in messages and prompts; [`ModelInfo::pictures`](crate::ModelInfo::pictures) has
    /// the limits.
    Images,
    /// Sounds in messages and prompts; [`ModelInfo::sounds`](crate::ModelInfo::sounds) has the
    /// limits.
    Audio,
    /// Draws at a temperature above 0, and the filters before them: `top_k`, `top_p`, `min_p`,
    /// `typical_p`, `top_n_sigma`, `xtc`.
    Sampling,
    /// A given `seed`, which makes draws repeatable.
    Seed,
    /// `repetition_penalty`, `presence_penalty`, `frequency_penalty` and `dry`.
    Penalties,
    /// A choice of how many ids the penalties look at.
    PenaltyWindow,
    /// Penalties over the generated ids alone.
    PenaltyScope,
    /// Values added to the logits of chosen ids.
    LogitBias,
    /// `stop` strings, `stop_token_ids` and `ignore_eos`.
    Stop,
    /// A number of tokens before which nothing ends the generation.
    MinTokens,
    /// Special tokens in the text.
    SpecialTokens,
    /// Speculative decoding: draft tokens that are verified in one pass.
    DraftTokens,
    /// A second model that drafts.
    DraftModel,
    /// A choice of the type to compute in.
    Dtype,
    /// `memory_limit`, `cache_limit` and `wired_limit`.
    MemoryLimit,
    /// A choice of how many prompt tokens are computed at once.
    PrefillChunk,
    /// A choice of how many threads compute.
    Threads,
    /// Activations rounded to 8 bits on a CPU.
    CpuActivations,
    /// Several processes that compute one model together.
    Ranks,
}

impl Feature {
    /// Every feature, so that a report can be complete.
    pub const ALL: [Feature; 37] = [
        Feature::Chat,
        Feature::Classify,
        Feature::BatchGenerate,
        Feature::InspectAttention,
        Feature::Logprobs,
        Feature::PromptLogprobs,
        Feature::Logits,
        Feature::Constraint,
        Feature::ParallelSlots,
        Feature::QueueLimit,
        Feature::BatchInvariant,
        Feature::PrefixCache,
        Feature::PrefixStore,
        Feature::Labels,
        Feature::KvBits,
        Feature::Adapter,
        Feature::ContextLength,
        Feature::GpuLayers,
        Feature::Images,
        Feature::Audio,
        Feature::Sampling,
        Feature::Seed,
        Feature::Penalties,
        Feature::PenaltyWindow,
        Feature::PenaltyScope,
        Feature::LogitBias,
        Feature::Stop,
        Feature::MinTokens,
        Feature::SpecialTokens,
        Feature::DraftTokens,
        Feature::DraftModel,
        Feature::Dtype,
        Feature::MemoryLimit,
        Feature::PrefillChunk,
        Feature::Threads,
        Feature::CpuActivations,
        Feature::Ranks,
    ];

    /// The name that reports and error messages use.
    pub fn as_str(self) -> &'static str {
        match self {
            Feature::Chat => "chat",
            Feature::Classify => "classify",
            Feature::BatchGenerate => "batch_generate",
            Feature::InspectAttention => "inspect_attention",
            Feature::Logprobs => "logprobs",
            Feature::PromptLogprobs => "prompt_logprobs",
            Feature::Logits => "logits",
            Feature::Constraint => "constraint",
            Feature::ParallelSlots => "parallel_slots",
            Feature::QueueLimit => "queue_limit",
            Feature::BatchInvariant => "batch_invariant",
            Feature::PrefixCache => "prefix_cache",
            Feature::PrefixStore => "prefix_cache_dir",
            Feature::Labels => "labels",
            Feature::KvBits => "kv_bits",
            Feature::Adapter => "adapter_path",
            Feature::ContextLength => "context_length",
            Feature::GpuLayers => "gpu_layers",
            Feature::Images => "images",
            Feature::Audio => "audio",
            Feature::Sampling => "sampling",
            Feature::Seed => "seed",
            Feature::Penalties => "penalties",
            Feature::PenaltyWindow => "penalty_window",
            Feature::PenaltyScope => "penalty_scope",
            Feature::LogitBias => "logit_bias",
            Feature::Stop => "stop",
            Feature::MinTokens => "min_tokens",
            Feature::SpecialTokens => "special_tokens",
            Feature::DraftTokens => "draft_tokens",
            Feature::DraftModel => "draft_model",
            Feature::Dtype => "dtype",
            Feature::MemoryLimit => "memory_limit",
            Feature::PrefillChunk => "prefill_chunk",
            Feature::Threads => "threads",
            Feature::CpuActivations => "cpu_activations",
            Feature::Ranks => "ranks",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The support of a [`Feature`]: honoured, or refused with a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// Honoured.
    Yes,
    /// Refused, with the reason.
    No(String),
}

/// The report of a loaded model: each feature it was asked about, with its support.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    entries: Vec<(Feature, Support)>,
}

impl Capabilities {
    /// A report of the given entries, in their order.
    pub fn new(entries: Vec<(Feature, Support)>) -> Self {
        Capabilities { entries }
    }

    /// Every feature with its support.
    pub fn iter(&self) -> impl Iterator<Item = (Feature, &Support)> {
        self.entries.iter().map(|(feature, support)| (*feature, support))
    }

    /// The support for `feature`; one that the report leaves out is not supported.
    pub fn support(&self, feature: Feature) -> Support {
        self.entries
            .iter()
            .find(|(entry, _)| *entry == feature)
            .map_or_else(|| Support::No("not reported by this model".into()), |(_, s)| s.clone())
    }

    /// `Ok` where `feature` is honoured.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the feature's name and the reason.
    pub fn require(&self, feature: Feature) -> Result<()> {
        self.require_for(feature.as_str(), feature)
    }

    /// `Ok` where every option that asks for something is honoured. Values that ask for nothing,
    /// such as a temperature of 0, a seed beside it or a penalty of 1, always pass.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the first refused option's name and the feature's reason.
    pub fn check_generate(&self, options: &GenerateOptions) -> Result<()> {
        let set = |value: Option<f32>, neutral: f32| value.is_some_and(|value| value != neutral);
        let asked = [
            ("temperature", set(options.temperature, 0.0), Feature::Sampling),
            ("top_k", options.top_k.is_some_and(|k| k != 0), Feature::Sampling),
            ("top_p", set(options.top_p, 1.0), Feature::Sampling),
            ("min_p", set(options.min_p, 0.0), Feature::Sampling),
            ("typical_p", set(options.typical_p, 1.0), Feature::Sampling),
            ("top_n_sigma", options.top_n_sigma.is_some_and(|n| n > 0.0), Feature::Sampling),
            ("xtc", options.xtc.is_some_and(|xtc| xtc.probability != 0.0), Feature::Sampling),
            ("seed", options.seed.is_some() && options.temperature != Some(0.0), Feature::Seed),
            ("repetition_penalty", set(options.repetition_penalty, 1.0), Feature::Penalties),
            ("presence_penalty", set(options.presence_penalty, 0.0), Feature::Penalties),
            ("frequency_penalty", set(options.frequency_penalty, 0.0), Feature::Penalties),
            ("dry", options.dry.as_ref().is_some_and(Dry::is_on), Feature::Penalties),
            ("penalty_window", options.penalty_window.is_some(), Feature::PenaltyWindow),
            (
                "penalty_scope",
                options.penalty_scope != PenaltyScope::default(),
                Feature::PenaltyScope,
            ),
            ("logit_bias", !options.logit_bias.is_empty(), Feature::LogitBias),
            ("stop", !options.stop.is_empty(), Feature::Stop),
            ("stop_token_ids", !options.stop_token_ids.is_empty(), Feature::Stop),
            ("ignore_eos", options.ignore_eos, Feature::Stop),
            ("min_tokens", options.min_tokens > 0, Feature::MinTokens),
            ("special_tokens", options.special_tokens, Feature::SpecialTokens),
            ("logprobs", options.logprobs, Feature::Logprobs),
            ("top_logprobs", options.top_logprobs > 0, Feature::Logprobs),
            ("prompt_logprobs", options.prompt_logprobs, Feature::PromptLogprobs),
            ("logits", options.logits, Feature::Logits),
            (
                "draft_tokens",
                options.draft_tokens.is_some_and(|count| count > 0),
                Feature::DraftTokens,
            ),
            ("constraint", options.constraint.is_some(), Feature::Constraint),
            ("reasoning_budget", options.reasoning_budget.is_some(), Feature::Constraint),
        ];
        self.require_all(&asked)
    }

    /// Refuses the options of a load that this backend cannot honour; a backend calls it before it
    /// loads anything.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the first refused option's name and the feature's reason.
    pub fn check_load(&self, options: &LoadOptions) -> Result<()> {
        let asked = [
            ("context_length", options.context_length.is_some(), Feature::ContextLength),
            (
                "parallel_slots",
                options.parallel_slots.is_some_and(|slots| slots != 1),
                Feature::ParallelSlots,
            ),
            ("queue_limit", options.queue_limit.is_some(), Feature::QueueLimit),
            ("batch_invariant", options.batch_invariant, Feature::BatchInvariant),
            (
                "prefix_cache",
                options.prefix_cache.is_some_and(|bytes| bytes > 0),
                Feature::PrefixCache,
            ),
            ("prefix_cache_dir", options.prefix_cache_dir.is_some(), Feature::PrefixStore),
            ("prefix_cache_disk", options.prefix_cache_disk.is_some(), Feature::PrefixStore),
            ("kv_bits", options.kv_bits.is_some(), Feature::KvBits),
            ("kv_group_size", options.kv_group_size.is_some(), Feature::KvBits),
            ("gpu_layers", options.gpu_layers.is_some(), Feature::GpuLayers),
            ("adapter_path", options.adapter_path.is_some(), Feature::Adapter),
            ("draft_model", options.draft_model.is_some(), Feature::DraftModel),
            (
                "speculate",
                matches!(options.speculate, Speculate::Mtp | Speculate::Ngram),
                Feature::DraftTokens,
            ),
            ("dtype", options.dtype.is_some(), Feature::Dtype),
            ("memory_limit", options.memory_limit.is_some(), Feature::MemoryLimit),
            ("cache_limit", options.cache_limit.is_some(), Feature::MemoryLimit),
            ("wired_limit", options.wired_limit.is_some(), Feature::MemoryLimit),
            ("prefill_chunk", options.prefill_chunk.is_some(), Feature::PrefillChunk),
            ("threads", options.threads.is_some(), Feature::Threads),
            ("cpu_activations", options.cpu_activations.is_some(), Feature::CpuActivations),
            ("ranks", options.ranks.is_some(), Feature::Ranks),
        ];
        self.require_all(&asked)
    }

    /// Refuses the options of a classification that this model cannot honour.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the first refused option's name and the feature's reason.
    pub fn check_classify(&self, options: &ClassifyOptions) -> Result<()> {
        self.require_all(&[("labels", !options.labels.is_empty(), Feature::Labels)])?;
        self.check_generate(&options.generate)
    }

    fn require_all(&self, asked: &[(&str, bool, Feature)]) -> Result<()> {
        for (option, asks, feature) in asked {
            if *asks {
                self.require_for(option, *feature)?;
            }
        }
        Ok(())
    }

    fn require_for(&self, what: &str, feature: Feature) -> Result<()> {
        match self.support(feature) {
            Support::Yes => Ok(()),
            Support::No(reason) => Err(Error::Unsupported { what: what.to_owned(), reason }),
        }
    }
}
