//! Loads the models of `ml serve`, and notices those that come and go.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use inference_core::{
    EmbeddingLoadOptions, ImageLoadOptions, LoadOptions, LoadProgress, SpeechLoadOptions,
    TranscriptionLoadOptions, WeightsRead,
};
use inference_server::{Change, Loader, Model};

use super::entries::{Naming, describe};
use super::folder::Folder;
use super::sources::{Place, with_adapter};
use crate::failure::Failure;
use crate::source::Source;

/// Loads models from their places.
pub struct Places {
    /// The place of each model, by its number. One that is gone keeps its place.
    pub places: RwLock<Vec<Arc<Place>>>,
    /// The folder whose models come and go.
    pub folder: Option<Folder>,
    /// Aliases and pins, for models that come.
    pub naming: Naming,
    /// How models for text are loaded.
    pub load: LoadOptions,
    /// How models that make pictures are loaded.
    pub images: ImageLoadOptions,
    /// How models that embed or score are loaded.
    pub embeddings: EmbeddingLoadOptions,
    /// How models that transcribe are loaded.
    pub transcriptions: TranscriptionLoadOptions,
    /// How models that speak are loaded.
    pub speech: SpeechLoadOptions,
    /// The number of the model whose load began last, and how far that is.
    pub current: Mutex<Option<(usize, LoadProgress)>>,
}

impl Places {
    fn place(&self, index: usize) -> Arc<Place> {
        Arc::clone(&self.places.read().unwrap_or_else(PoisonError::into_inner)[index])
    }

    fn load_text(
        &self,
        index: usize,
        source: &Source,
        load: &LoadOptions,
    ) -> inference_core::Result<Model> {
        let progress = LoadProgress::new();
        let load = LoadOptions { progress: Some(progress.clone()), ..load.clone() };
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some((index, progress));
        let loaded = source.load(&load, true).map_err(Failure::into_contract)?;
        Ok(Model::Text(loaded))
    }
}

/// Bytes of the weights of a model that is loaded so.
fn bytes_of(source: &Source, load: &LoadOptions) -> inference_core::Result<u64> {
    let described = source.describe(load).map_err(Failure::into_contract)?;
    Ok(described.0.weight_bytes)
}

impl Loader for Places {
    fn needs(&self, index: usize) -> inference_core::Result<u64> {
        // What an earlier load of it told holds no more.
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = None;
        match &*self.place(index) {
            Place::Text(source) => bytes_of(source, &self.load),
            Place::Adapted(source, adapter) => bytes_of(source, &with_adapter(&self.load, adapter)),
            Place::Image(folder) => {
                let info = metal_backend::describe_image_model(folder, &self.images)?;
                let bytes = info.components.iter().map(|component| component.weight_bytes);
                // Components that are not kept are read one after the other.
                Ok(if self.images.keep_components { bytes.sum() } else { bytes.max().unwrap_or(0) })
            }
            Place::Embedding(folder, _) => {
                let info = metal_backend::describe_embedding_model(folder, &self.embeddings)?;
                Ok(info.weight_bytes)
            }
            Place::Transcription(folder) => {
                let options = &self.transcriptions;
                let info = metal_backend::describe_transcription_model(folder, options)?;
                Ok(info.weight_bytes)
            }
            Place::Speech(folder) => {
                Ok(metal_backend::describe_speech_model(folder, &self.speech)?.weight_bytes)
            }
        }
    }

    fn load(&self, index: usize) -> inference_core::Result<Model> {
        match &*self.place(index) {
            Place::Text(source) => self.load_text(index, source, &self.load),
            Place::Adapted(source, adapter) => {
                self.load_text(index, source, &with_adapter(&self.load, adapter))
            }
            Place::Image(folder) => {
                metal_backend::register()?;
                let loaded = inference_core::load_image_model(folder, &self.images)?;
                Ok(Model::Image(Arc::from(loaded)))
            }
            Place::Embedding(folder, _) => {
                metal_backend::register()?;
                let loaded = inference_core::load_embedding_model(folder, &self.embeddings)?;
                Ok(Model::Embedding(Arc::from(loaded)))
            }
            Place::Transcription(folder) => {
                metal_backend::register()?;
                let options = &self.transcriptions;
                let loaded = inference_core::load_transcription_model(folder, options)?;
                Ok(Model::Transcription(Arc::from(loaded)))
            }
            Place::Speech(folder) => {
                metal_backend::register()?;
                let loaded = inference_core::load_speech_model(folder, &self.speech)?;
                Ok(Model::Speech(Arc::from(loaded)))
            }
        }
    }

    fn progress(&self, index: usize) -> Option<WeightsRead> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, progress) = current.as_ref().filter(|(current, _)| *current == index)?;
        progress.weights()
    }

    fn changes(&self) -> Change {
        let Some(folder) = &self.folder else { return Change::default() };
        let (came, removed) = folder.changes();
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let added = came.into_iter().map(|one| {
            let described = describe(&one, &self.load).unwrap_or_else(|failure| {
                tracing::warn!(target: "models", model = one.name, "{failure}");
                None
            });
            let entry = self.naming.entry(&one, described);
            places.push(Arc::new(one.place));
            entry
        });
        Change { added: added.collect(), removed }
    }

    fn dropped(&self) {
        metal_backend::give_back();
    }
}
