//! Descriptions of models that transcribe speech, and of those that speak.

use std::path::Path;

use inference_core::{
    Result, SpeechLoadOptions, SpeechModelInfo, TranscriptionLoadOptions, TranscriptionModelInfo,
};

use super::model_type_of;
use crate::load;
#[cfg(feature = "speech")]
use crate::speech::{KokoroModel, MlxTranscriptionModel, ParakeetModel, is_kokoro, is_parakeet};

/// Returns true when the folder at `path` holds a model that transcribes speech, by the
/// architecture in its `config.json`.
pub fn is_transcription_model(path: &Path) -> bool {
    load::transcribes(&model_type_of(path))
}

/// Describes the model in a folder, which transcribes speech, without reading weights.
///
/// # Errors
/// As [`inference_core::Backend::load_transcription_model`].
#[cfg(feature = "speech")]
pub fn describe_transcription_model(
    path: &Path,
    options: &TranscriptionLoadOptions,
) -> Result<TranscriptionModelInfo> {
    options.validate()?;
    let device = super::device(options.backend.as_deref())?;
    if is_parakeet(&model_type_of(path)) {
        return ParakeetModel::describe(path, options, device, super::kernels(device)?);
    }
    MlxTranscriptionModel::describe(path, options, device, super::kernels(device)?)
}

/// Refuses to describe a model of a kind that this build leaves out.
///
/// # Errors
/// Always, by the name of the feature.
#[cfg(not(feature = "speech"))]
pub fn describe_transcription_model(
    _: &Path,
    _: &TranscriptionLoadOptions,
) -> Result<TranscriptionModelInfo> {
    Err(super::left_out("speech"))
}

/// Returns true when the folder at `path` holds a model that speaks, by its `config.json`.
#[cfg(feature = "speech")]
pub fn is_speech_model(path: &Path) -> bool {
    is_kokoro(path)
}

/// Returns false: this build knows no model that speaks.
#[cfg(not(feature = "speech"))]
pub fn is_speech_model(_: &Path) -> bool {
    false
}

/// Describes the model in a folder, which speaks, without reading weights.
///
/// # Errors
/// As [`inference_core::Backend::load_speech_model`].
#[cfg(feature = "speech")]
pub fn describe_speech_model(path: &Path, options: &SpeechLoadOptions) -> Result<SpeechModelInfo> {
    options.validate()?;
    KokoroModel::describe(path, options, super::device(options.backend.as_deref())?)
}

/// Refuses to describe a model of a kind that this build leaves out.
///
/// # Errors
/// Always, by the name of the feature.
#[cfg(not(feature = "speech"))]
pub fn describe_speech_model(_: &Path, _: &SpeechLoadOptions) -> Result<SpeechModelInfo> {
    Err(super::left_out("speech"))
}
