//! The backend: its name, whether it can run, and loading a folder.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use inference_core::{
    Backend, Capabilities, Error, Feature, LoadOptions, Preference, Result, Support, TextModel,
};

use crate::EchoModel;
use crate::corpus::Corpus;

/// Loads folders that hold a `corpus.txt`: UTF-8 text, documents apart by blank lines.
pub struct EchoBackend;

/// Adds the backend to the process's registry, under the name `echo`.
///
/// # Errors
/// [`Error::BackendAlreadyRegistered`] when called twice.
pub fn register() -> Result<()> {
    inference_core::register(Arc::new(EchoBackend))
}

impl Backend for EchoBackend {
    fn name(&self) -> &str {
        "echo"
    }

    /// It computes on the CPU alone. Where this is left out, a backend comes after those that do.
    fn preference(&self) -> Preference {
        Preference::Cpu
    }

    /// A backend that needs a device says here which one is missing.
    fn available(&self) -> Result<(), String> {
        Ok(())
    }

    fn load_model(&self, path: &Path, options: &LoadOptions) -> Result<Box<dyn TextModel>> {
        options.validate()?;
        let capabilities = capabilities();
        capabilities.check_load(options)?;

        let file = path.join("corpus.txt");
        let failed = |reason: String| Error::Load { path: file.display().to_string(), reason };
        let text = fs::read_to_string(&file).map_err(|error| failed(error.to_string()))?;
        let corpus = Corpus::new(&text).ok_or_else(|| failed("holds no text".into()))?;
        Ok(Box::new(EchoModel::start(corpus, capabilities)?))
    }
}

/// Every feature of the contract, so that a reader of the report misses none. A reason says what
/// is in the way; the option's name is added by whoever refuses.
fn capabilities() -> Capabilities {
    let support = |feature| {
        let reason = match feature {
            Feature::Chat
            | Feature::Classify
            | Feature::BatchGenerate
            | Feature::Logprobs
            | Feature::Seed
            | Feature::Stop => return Support::Yes,
            Feature::MinTokens => "the continuation of the corpus ends where it ends",
            Feature::Sampling => "the most frequent continuation is always taken",
            Feature::Penalties
            | Feature::PenaltyWindow
            | Feature::PenaltyScope
            | Feature::LogitBias
            | Feature::Logits => "the model has counts, no logits",
            Feature::PromptLogprobs => "the prompt is looked up, and no token of it predicted",
            Feature::Constraint => "the continuation follows the corpus alone",
            Feature::InspectAttention => "the model has no attention",
            Feature::Images | Feature::Audio => "the model reads text alone",
            Feature::ParallelSlots => "requests run one after the other",
            Feature::BatchInvariant => "requests never meet; leave it unset",
            Feature::QueueLimit => "the queue has a fixed length",
            Feature::SpecialTokens => "the model has none",
            Feature::DraftTokens => "each token is looked up by itself",
            Feature::Labels => "the model knows one next token at a time",
            Feature::KvBits | Feature::PrefixCache | Feature::PrefillChunk => {
                "the model keeps no cache of the prompt"
            }
            Feature::ContextLength => "the context is fixed",
            Feature::MemoryLimit => "the corpus is held as it is",
            _ => "the model has no weights",
        };
        Support::No(reason.to_owned())
    };
    Capabilities::new(Feature::ALL.map(|feature| (feature, support(feature))).to_vec())
}
