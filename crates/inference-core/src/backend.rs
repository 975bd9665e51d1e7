//! The contract of a backend, which loads models.

use std::fmt;
use std::path::Path;

use crate::{
    EmbeddingLoadOptions, EmbeddingModel, Error, ImageLoadOptions, ImageModel, LoadOptions, Result,
    SpeechLoadOptions, SpeechModel, TextModel, TranscriptionLoadOptions, TranscriptionModel,
};

/// The hardware that a backend computes on. Without a requested backend, the registry tries them in
/// this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preference {
    /// One kind of accelerator, for which it was made.
    Accelerator,
    /// Whatever the machine has, accelerators among it.
    Portable,
    /// The CPU alone.
    Cpu,
    /// None of these, such as a remote service or a model for tests.
    #[default]
    Other,
}

/// A way to run models: a library, a device, a remote service.
pub trait Backend: Send + Sync {
    /// The name under which it is registered, such as the device's.
    fn name(&self) -> &str;

    /// When the registry tries it, where no backend is asked for. Equals are tried by name. A
    /// backend that leaves this out comes after one of the CPU alone: one for an accelerator states
    /// so, whatever its name.
    fn preference(&self) -> Preference {
        Preference::default()
    }

    /// `Ok` when models can run here.
    ///
    /// # Errors
    /// Why they cannot, as text for a person.
    fn available(&self) -> Result<(), String>;

    /// Loads the model folder at `path`. Calls [`LoadOptions::validate`] first, and refuses by
    /// name what it does not honour.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) and
    /// [`Error::Unsupported`](crate::Error::Unsupported) name an option,
    /// [`Error::Load`](crate::Error::Load) a file, [`Error::Memory`](crate::Error::Memory) the
    /// bytes.
    fn load_model(&self, path: &Path, options: &LoadOptions) -> Result<Box<dyn TextModel>>;

    /// Loads the image model in the folder at `path`, one with a `model_index.json`. Calls
    /// [`ImageLoadOptions::validate`] first, and refuses by name what it does not honour.
    ///
    /// # Errors
    /// As [`load_model`](Self::load_model). A backend that makes no pictures refuses `image
    /// models`.
    fn load_image_model(
        &self,
        path: &Path,
        options: &ImageLoadOptions,
    ) -> Result<Box<dyn ImageModel>> {
        let _ = (path, options);
        Err(Error::Unsupported {
            what: "image models".into(),
            reason: format!("the backend `{}` makes text only", self.name()),
        })
    }

    /// Loads the embedding model in the folder at `path`. Calls [`EmbeddingLoadOptions::validate`]
    /// first, and refuses by name what it does not honour.
    ///
    /// # Errors
    /// As [`load_model`](Self::load_model). A backend that embeds no texts refuses `embedding
    /// models`.
    fn load_embedding_model(
        &self,
        path: &Path,
        options: &EmbeddingLoadOptions,
    ) -> Result<Box<dyn EmbeddingModel>> {
        let _ = (path, options);
        Err(Error::Unsupported {
            what: "embedding models".into(),
            reason: format!("the backend `{}` embeds no texts", self.name()),
        })
    }

    /// Loads the model in the folder at `path`, which transcribes speech. Calls
    /// [`TranscriptionLoadOptions::validate`] first, and refuses by name what it does not honour.
    ///
    /// # Errors
    /// As [`load_model`](Self::load_model). A backend that hears nothing refuses `transcription
    /// models`.
    fn load_transcription_model(
        &self,
        path: &Path,
        options: &TranscriptionLoadOptions,
    ) -> Result<Box<dyn TranscriptionModel>> {
        let _ = (path, options);
        Err(Error::Unsupported {
            what: "transcription models".into(),
            reason: format!("the backend `{}` transcribes no speech", self.name()),
        })
    }

    /// Loads the model in the folder at `path`, which speaks. Calls
    /// [`SpeechLoadOptions::validate`] first, and refuses by name what it does not honour.
    ///
    /// # Errors
    /// As [`load_model`](Self::load_model). A backend that says nothing refuses `speech models`.
    fn load_speech_model(
        &self,
        path: &Path,
        options: &SpeechLoadOptions,
    ) -> Result<Box<dyn SpeechModel>> {
        let _ = (path, options);
        Err(Error::Unsupported {
            what: "speech models".into(),
            reason: format!("the backend `{}` does not speak", self.name()),
        })
    }
}

/// The backend's name, so that results that hold one can be unwrapped and logged.
impl fmt::Debug for dyn Backend + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("name", &self.name()).finish_non_exhaustive()
    }
}
