//! What a loaded model honours and what it refuses, as data.

use std::fmt;

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
    /// Whole logits with each token.
    Logits,
    /// Output held to a JSON schema, regular expression or grammar.
    Constraint,
    /// Several requests decoded together.
    ParallelSlots,
    /// A quantised key and value cache.
    KvBits,
    /// LoRA adapters at load.
    Adapter,
    /// A shorter context than the model's own.
    ContextLength,
    /// A choice of how many layers run on the GPU.
    GpuLayers,
    /// Images in messages.
    Images,
}

impl Feature {
    /// The name that reports and error messages use.
    pub fn as_str(self) -> &'static str {
        match self {
            Feature::Chat => "chat",
            Feature::Classify => "classify",
            Feature::BatchGenerate => "batch_generate",
            Feature::InspectAttention => "inspect_attention",
            Feature::Logprobs => "logprobs",
            Feature::Logits => "logits",
            Feature::Constraint => "constraint",
            Feature::ParallelSlots => "parallel_slots",
            Feature::KvBits => "kv_bits",
            Feature::Adapter => "adapter_path",
            Feature::ContextLength => "context_length",
            Feature::GpuLayers => "gpu_layers",
            Feature::Images => "images",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a [`Feature`] is honoured.
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
    /// [`Error::Unsupported`](crate::Error::Unsupported) with the feature's name and the reason.
    pub fn require(&self, feature: Feature) -> crate::Result<()> {
        match self.support(feature) {
            Support::Yes => Ok(()),
            Support::No(reason) => {
                Err(crate::Error::Unsupported { what: feature.to_string(), reason })
            }
        }
    }
}
