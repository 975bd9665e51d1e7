//! Parakeet as the contract sees it: sound is heard as a whole, one after the other.

mod checkpoint;
mod decoding;
mod network;
mod words;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use inference_core::{
    CancelToken, EngineStatus, Error, Result, Samples, SpeechTask, Timestamps, TranscribeOptions,
    Transcript, Transcription, TranscriptionEvent, TranscriptionLoadOptions, TranscriptionMetrics,
    TranscriptionModel, TranscriptionModelInfo, TranscriptionSender,
};
use inference_text::{SkipSpecial, Tokenizer};
use mlx_ffi::{Device, memory};
use sound::{Frames, NormalizedMel};

use self::checkpoint::Opened;
use self::decoding::Ending;
use self::network::Encoder;
use crate::engine::{Turn, Turns, device};
use crate::files::ModelFiles;
use crate::kernels::Kernels;

/// Frames of features of a place.
const FRAMES: usize = 8;

/// A model on its thread, with its features.
pub(crate) struct ParakeetModel {
    info: TranscriptionModelInfo,
    mel: NormalizedMel,
    turns: Turns<Hearing>,
}

/// The state that the thread owns.
struct Listener {
    encoder: Encoder,
    ending: Ending,
    tokenizer: Arc<Tokenizer>,
    /// Bytes that arrays may take.
    limit: u64,
}

/// A sound to hear.
struct Hearing {
    frames: Frames,
    seconds: f64,
    /// Seconds of a place.
    step: f64,
    timestamps: Timestamps,
    sender: TranscriptionSender,
    queued: Instant,
}

impl Turn for Hearing {
    type Worker = Listener;
    type Done = Transcript;

    fn work(&self, listener: &mut Listener, closing: &CancelToken) -> Result<Transcript> {
        let Hearing { frames, seconds, step, timestamps, sender, queued } = self;
        let began = Instant::now();
        let goes_on = || !closing.is_cancelled() && !sender.is_cancelled();
        let stopped = || if closing.is_cancelled() { Error::Closed } else { Error::Cancelled };
        listener.check_memory(frames)?;
        let fault = |error: mlx_ffi::Error| Error::from(crate::error::Error::from(error));
        let Listener { encoder, ending, tokenizer, .. } = listener;
        let states = encoder.forward(frames, &goes_on).map_err(fault)?.ok_or_else(stopped)?;
        states.eval().map_err(fault)?;
        let encoded = Instant::now();
        let tokens = ending.tokens(&states, &goes_on).map_err(fault)?.ok_or_else(stopped)?;
        let segments = match *timestamps {
            Timestamps::None => words::whole(tokenizer, &tokens, *seconds)?,
            wanted => words::segments(tokenizer, &tokens, *step, wanted == Timestamps::Words)?,
        };
        let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
        let text = tokenizer.decode(&ids, SkipSpecial::Yes).map_err(Error::from)?;
        for segment in &segments {
            sender.send(TranscriptionEvent::Segment(Box::new(segment.clone())));
        }
        sender.send(TranscriptionEvent::Heard(*seconds));
        let metrics = TranscriptionMetrics {
            windows: 1,
            tokens: ids.len(),
            queue_duration: began - *queued,
            encode_duration: encoded - began,
            decode_duration: encoded.elapsed(),
            total_duration: queued.elapsed(),
        };
        let language = String::new();
        Ok(Transcript { text, language, seconds: *seconds, segments, metrics })
    }

    fn answer(self, result: Result<Transcript>, _: &CancelToken) {
        self.sender.finish(result);
    }
}

impl Listener {
    /// Refuses a sound whose work does not fit the memory.
    fn check_memory(&self, frames: &Frames) -> Result<()> {
        let size = (self.encoder.dtype.size() as u64).max(4);
        let values = self.encoder.values(frames.count as u64, frames.bands as u64);
        let needed = size * values + 4 * frames.values.len() as u64;
        let held = memory::active().map_err(crate::error::Error::from)? as u64;
        let available = self.limit.saturating_sub(held);
        if needed <= available {
            return Ok(());
        }
        Err(Error::Memory {
            what: format!("a sound of {} frames of features", frames.count),
            needed,
            available,
            remedy: "cut it into parts, or allow more memory".into(),
        })
    }
}

/// Returns true for the architectures that are loaded here.
pub(crate) fn is_known(model_type: &str) -> bool {
    matches!(model_type, "parakeet_ctc" | "parakeet_tdt")
}

impl ParakeetModel {
    /// Loads the model in `path`.
    ///
    /// # Errors
    /// An option that is not honoured; what is wrong with the files.
    pub fn load(
        path: &Path,
        options: &TranscriptionLoadOptions,
        device: Device,
        kernels: Kernels,
    ) -> Result<ParakeetModel> {
        if options.parallel.is_some_and(|parallel| parallel > 1) {
            return Err(Error::Unsupported {
                what: "parallel".into(),
                reason: "the model hears one sound after the other; leave it unset".into(),
            });
        }
        let Described { opened, tokenizer, mel, info } = described(path, options, device, kernels)?;
        let (threads, memory_limit) = (options.threads, options.memory_limit);
        let build = move || {
            let limit = device::begin(device, threads, memory_limit)?;
            let needed = opened.build(true)?.2.bytes;
            let remedy = "take a smaller model, or allow more memory";
            device::check_weights(needed, limit, remedy)?;
            let (encoder, ending, _) = opened.build(false)?;
            Ok(Listener { encoder, ending, tokenizer: Arc::new(tokenizer), limit })
        };
        let turns = Turns::start("ml-speech", device, options.queue_limit, build)?;
        Ok(ParakeetModel { info, mel, turns })
    }

    /// Describes the model in a folder without reading weights.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn describe(
        path: &Path,
        options: &TranscriptionLoadOptions,
        device: Device,
        kernels: Kernels,
    ) -> Result<TranscriptionModelInfo> {
        described(path, options, device, kernels).map(|described| described.info)
    }

    /// Refuses what the model does not do.
    fn check(&self, sound: &Samples, options: &TranscribeOptions) -> Result<()> {
        options.validate()?;
        if sound.rate != self.info.sample_rate {
            let reason = format!(
                "the sound has {} samples a second, and the model hears {}: resample it",
                sound.rate, self.info.sample_rate
            );
            return Err(Error::InvalidOption { option: "rate", reason });
        }
        let refused = [
            (
                options.language.is_some(),
                "language",
                "the model writes down whatever language it hears; leave it out",
            ),
            (options.task == SpeechTask::Translate, "translation", "the model does not translate"),
            (
                options.prompt.as_deref().is_some_and(|prompt| !prompt.trim().is_empty()),
                "prompt",
                "the model takes no text; leave it out",
            ),
            (
                options.temperature.is_some_and(|temperature| temperature != 0.0),
                "temperature",
                "the model takes the most likely tokens; leave it out",
            ),
            (options.fallback.is_some(), "fallback", "the model hears sound once; leave it out"),
            (
                options.max_tokens.is_some(),
                "max_tokens",
                "the sound bounds the tokens; leave it out",
            ),
            (
                options.condition_on_previous == Some(true),
                "condition_on_previous",
                "the model hears sound as a whole; leave it out",
            ),
        ];
        match refused.into_iter().find(|(is_asked, ..)| *is_asked) {
            None => Ok(()),
            Some((_, what, reason)) => {
                Err(Error::Unsupported { what: what.into(), reason: reason.into() })
            }
        }
    }
}

/// A model before its weights are read.
struct Described {
    opened: Opened,
    tokenizer: Tokenizer,
    mel: NormalizedMel,
    info: TranscriptionModelInfo,
}

fn described(
    path: &Path,
    options: &TranscriptionLoadOptions,
    device: Device,
    kernels: Kernels,
) -> Result<Described> {
    let files = ModelFiles::Folder(path.to_owned());
    let opened = Opened::new(files.clone(), options, device, kernels)?;
    let tokenizer = Tokenizer::from_files(&files).map_err(Error::from)?;
    let (encoder, ending, totals) = opened.build(true)?;
    let mel = opened.mel()?;
    let at_folder = |error: crate::error::Error| error.at(&files.folder());
    let size = |key| opened.encoder.opt_size(key).map_err(at_folder);
    let places = size("max_position_embeddings")?.unwrap_or(5000) as usize;
    let vocab = opened.config.size("vocab_size").map_err(at_folder)?;
    let (architecture, decoder) = match &ending {
        Ending::Ctc { .. } => ("parakeet_ctc", 0),
        Ending::Tdt(tdt) => ("parakeet_tdt", tdt.lstm.len()),
    };
    let device = opened.device.info().map_err(crate::error::Error::from)?;
    let info = TranscriptionModelInfo {
        architecture: architecture.into(),
        languages: Vec::new(),
        translates: false,
        times_words: true,
        sample_rate: mel.rate,
        // As long as the model was made for; what is longer is heard as a whole, too.
        window_seconds: (places * FRAMES * mel.hop) as f64 / f64::from(mel.rate),
        max_tokens: places,
        vocab_size: vocab as usize,
        num_layers: [encoder.blocks.len(), decoder],
        hidden_size: size("hidden_size")?.unwrap_or(1024) as usize,
        num_parameters: totals.parameters,
        weight_bytes: totals.bytes,
        stored_as: opened.files.stored_as(),
        quant_bits: totals.packings().first().map_or(0, |packing| packing.bits),
        dtype: format!("{:?}", encoder.dtype).to_lowercase(),
        device: device.backend.to_owned(),
    };
    Ok(Described { opened, tokenizer, mel, info })
}

impl TranscriptionModel for ParakeetModel {
    fn info(&self) -> &TranscriptionModelInfo {
        &self.info
    }

    fn transcribe(&self, sound: Samples, options: &TranscribeOptions) -> Result<Transcription> {
        self.turns.check_open()?;
        self.check(&sound, options)?;
        let queued = Instant::now();
        let frames = self.mel.frames(&sound.values);
        let frames = frames
            .map_err(|error| Error::InvalidOption { option: "sound", reason: error.to_string() })?;
        let (sender, transcription) = Transcription::new(&options.cancel);
        let step = (FRAMES * self.mel.hop) as f64 / f64::from(self.mel.rate);
        let (seconds, timestamps) = (sound.seconds(), options.timestamps);
        let hearing = Hearing { frames, seconds, step, timestamps, sender, queued };
        self.turns.submit(hearing).map(|()| transcription)
    }

    fn status(&self) -> EngineStatus {
        self.turns.status()
    }

    fn close(&self) {
        self.turns.close();
    }
}

impl Drop for ParakeetModel {
    fn drop(&mut self) {
        self.turns.close();
    }
}
