//! A model that transcribes speech as the contract sees it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use inference_core::{
    CancelToken, EngineStatus, Error, Result, Samples, SpeechTask, Timestamps, TranscribeOptions,
    Transcription, TranscriptionLoadOptions, TranscriptionMetrics, TranscriptionModel,
    TranscriptionModelInfo,
};
use inference_text::{AddSpecial, Tokenizer};
use mlx_ffi::Device;
use sound::Mel;

use super::checkpoint::Opened;
use super::languages;
use super::marks::Marks;
use super::network::Network;
use super::session::{Session, Vocabulary};
use super::transcriber::{Counts, Features, Inbox, Present, Request, Transcriber};
use crate::config::Config;
use crate::engine::{Turn, Turns, device};
use crate::files::ModelFiles;
use crate::kernels::Kernels;
use crate::sampling::fresh_seed;
use crate::weights::Totals;

/// Requests that are heard at the same time where a load says nothing.
const PARALLEL_ON_CPU: usize = 4;
const PARALLEL_ON_GPU: usize = 16;

/// Frames of features that may be there at once, of a hundredth of a second each: six hours, whose
/// features of 128 values take 1.1 GB. A single request may have more.
const MOST_FRAMES: usize = 6 * 3600 * 100;

/// A model on its thread, with its tokenizer and its features.
pub(crate) struct MlxTranscriptionModel {
    info: TranscriptionModelInfo,
    vocabulary: Arc<Vocabulary>,
    mel: Mel,
    inbox: Inbox,
    turns: Turns<Hearing>,
    next: AtomicU64,
    counts: Arc<Counts>,
    queue_limit: Option<usize>,
    /// Requests that may be there: those that are heard, and those that may wait.
    most_present: usize,
}

/// A request's turn: the thread works until that request is done, and on those beside it.
struct Hearing {
    number: u64,
}

impl Turn for Hearing {
    type Worker = Transcriber;
    type Done = ();

    fn work(&self, transcriber: &mut Transcriber, closing: &CancelToken) -> Result<()> {
        transcriber.work_until(self.number, closing).map_err(Error::from)
    }

    fn clear(transcriber: &mut Transcriber) {
        // Where a panic left requests behind.
        transcriber.end_all(&Error::Engine("the request before this one failed".into()));
    }

    fn answer(self, _: Result<()>, _: &CancelToken) {
        // Each request has been told by itself.
    }
}

impl MlxTranscriptionModel {
    /// Loads the model in `path`.
    ///
    /// # Errors
    /// An option that is not honoured; what is wrong with the files.
    pub fn load(
        path: &Path,
        options: &TranscriptionLoadOptions,
        device: Device,
        kernels: Kernels,
    ) -> Result<MlxTranscriptionModel> {
        let Described { opened, vocabulary, mel, info } =
            described(path, options, device, kernels)?;
        let (vocabulary, inbox) = (Arc::new(vocabulary), Inbox::default());
        let (for_thread, requests) = (Arc::clone(&vocabulary), Arc::clone(&inbox));
        let parallel = options.parallel.unwrap_or(match device {
            Device::Cpu => PARALLEL_ON_CPU,
            Device::Gpu => PARALLEL_ON_GPU,
        });
        let (threads, memory_limit) = (options.threads, options.memory_limit);
        let build = move || {
            let limit = device::begin(device, threads, memory_limit)?;
            let needed = opened.build(true)?.1.bytes;
            let remedy = "take a smaller model, or allow more memory";
            device::check_weights(needed, limit, remedy)?;
            let network = opened.build(false)?.0;
            if network.kernels.is_on_cuda() {
                network.warm_up(1)?;
            }
            Ok(Transcriber::new(network, for_thread, requests, [parallel as u64, limit]))
        };
        let turns = Turns::start("ml-speech", device, None, build)?;
        Ok(MlxTranscriptionModel {
            info,
            vocabulary,
            mel,
            inbox,
            turns,
            next: AtomicU64::new(0),
            counts: Arc::default(),
            queue_limit: options.queue_limit,
            most_present: options
                .queue_limit
                .map_or(usize::MAX, |limit| limit.saturating_add(parallel)),
        })
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
}

/// A model before its weights are read.
struct Described {
    opened: Opened,
    vocabulary: Vocabulary,
    mel: Mel,
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
    let marks = Marks::read(&files, &opened.config, &tokenizer)?;
    let (network, totals) = opened.build(true)?;
    let mel = features(&opened)?;
    let most_ids = opened.sizes.ids as usize;
    let most_ids = marks.max_length.map_or(most_ids, |length| length.min(most_ids));
    let window = 2 * opened.sizes.places as usize;
    let vocabulary = Vocabulary { tokenizer, marks, window, most_ids };
    check_heads(&vocabulary.marks, &network).map_err(|error| error.at(&files.folder()))?;
    let info = info(&opened, &network, &totals, &vocabulary, &mel)?;
    Ok(Described { opened, vocabulary, mel, info })
}

/// Checks that the heads that follow the words exist.
fn check_heads(marks: &Marks, network: &Network) -> crate::error::Result<()> {
    let [layers, heads] = [network.sizes.layers[1], network.sizes.heads[1]];
    let fits = |[layer, head]: &[usize; 2]| *layer < layers as usize && *head < heads as usize;
    match marks.alignment_heads.iter().find(|pair| !fits(pair)) {
        None => Ok(()),
        Some([layer, head]) => Err(crate::error::Error::model(format!(
            "`alignment_heads` of generation_config.json names head {head} of layer {layer}, and the decoder has {layers} layers of {heads} heads"
        ))),
    }
}

/// The features that a model hears, as `preprocessor_config.json` states them.
fn features(opened: &Opened) -> Result<Mel> {
    const NAMES: [&str; 2] = ["preprocessor_config.json", "processor_config.json"];
    let name = NAMES.into_iter().find(|name| opened.files.exists(name)).unwrap_or(NAMES[0]);
    let text = opened.files.text(name)?.unwrap_or_else(|| "{}".into());
    let read = || -> crate::error::Result<Mel> {
        let config = Config::parse(name, &text)?;
        // Newer files have those of all inputs in one.
        let config = config.object("feature_extractor")?.unwrap_or(config);
        let default = Mel { features: opened.sizes.features as usize, ..Mel::default() };
        let size = |key: &str, or: usize| -> crate::error::Result<usize> {
            Ok(config.opt_size(key)?.map_or(or, |size| size as usize))
        };
        Ok(Mel {
            features: size("feature_size", default.features)?,
            fft: size("n_fft", default.fft)?,
            hop: size("hop_length", default.hop)?,
            rate: size("sampling_rate", default.rate as usize)? as u32,
        })
    };
    let at_file = |error: crate::error::Error| Error::from(error.at(&opened.files.path(name)));
    let config = read().map_err(at_file)?;
    if config.features != opened.sizes.features as usize {
        let (stated, own) = (config.features, opened.sizes.features);
        return Err(at_file(crate::error::Error::model(format!(
            "`feature_size` is {stated}, and config.json has `num_mel_bins` {own}"
        ))));
    }
    let fault = |error: sound::MelError| at_file(crate::error::Error::model(error.to_string()));
    config.validate().map_err(fault)?;
    Ok(config)
}

/// The description of the model.
fn info(
    opened: &Opened,
    network: &Network,
    totals: &Totals,
    vocabulary: &Vocabulary,
    mel: &Mel,
) -> Result<TranscriptionModelInfo> {
    let Vocabulary { marks, window, most_ids, .. } = vocabulary;
    let sizes = &opened.sizes;
    let languages: Vec<String> = marks.languages.iter().map(|(code, _)| code.clone()).collect();
    let languages = if languages.is_empty() { vec!["en".to_owned()] } else { languages };
    Ok(TranscriptionModelInfo {
        architecture: "whisper".into(),
        languages,
        translates: marks.translate.is_some(),
        times_words: !marks.alignment_heads.is_empty() && marks.no_times.is_some(),
        sample_rate: mel.rate,
        window_seconds: (*window * mel.hop) as f64 / f64::from(mel.rate),
        max_tokens: *most_ids,
        vocab_size: sizes.vocab as usize,
        num_layers: sizes.layers.map(|layers| layers as usize),
        hidden_size: sizes.hidden as usize,
        num_parameters: totals.parameters,
        weight_bytes: totals.bytes,
        stored_as: opened.files.stored_as(),
        quant_bits: totals.packings().first().map_or(0, |packing| packing.bits),
        dtype: format!("{:?}", network.dtype).to_lowercase(),
        device: opened.device.info().map_err(crate::error::Error::from)?.backend.to_owned(),
    })
}

impl MlxTranscriptionModel {
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
        if sound.values.is_empty() {
            let reason = "the sound has no samples".into();
            return Err(Error::InvalidOption { option: "sound", reason });
        }
        let unsupported = |what: &str, reason: &str| {
            Err(Error::Unsupported { what: what.into(), reason: reason.into() })
        };
        if options.task == SpeechTask::Translate && !self.info.translates {
            return unsupported("translation", "the model knows English alone");
        }
        if options.timestamps == Timestamps::Words && !self.info.times_words {
            return unsupported(
                "times of words",
                "generation_config.json has no `alignment_heads`: take a checkpoint that has them, or ask for those of segments",
            );
        }
        if options.timestamps != Timestamps::None && self.vocabulary.marks.no_times.is_none() {
            return unsupported("times", "the vocabulary has no token `<|notimestamps|>`");
        }
        Ok(())
    }

    /// The language that `options` name, with its id.
    fn language(&self, options: &TranscribeOptions) -> Result<Option<(String, u32)>> {
        let Some(name) = &options.language else { return Ok(None) };
        let known = &self.vocabulary.marks.languages;
        let code = languages::code(name);
        if known.is_empty() && code == Some("en") {
            return Ok(None);
        }
        let found = code.and_then(|code| known.iter().find(|(known, _)| known == code));
        found.cloned().map(Some).ok_or_else(|| {
            let reason = match known.is_empty() {
                true => format!("`{name}`: the model knows English (`en`) alone"),
                false => {
                    let codes: Vec<&str> = self.info.languages.iter().map(String::as_str).collect();
                    format!("`{name}` is none of the model's languages: {}", codes.join(", "))
                }
            };
            Error::InvalidOption { option: "language", reason }
        })
    }

    /// The ids of the prompt.
    fn prompt(&self, options: &TranscribeOptions) -> Result<Vec<u32>> {
        let text = options.prompt.as_deref().map_or("", str::trim);
        if text.is_empty() {
            return Ok(Vec::new());
        }
        if self.vocabulary.marks.previous.is_none() {
            let reason = "the vocabulary has no token `<|startofprev|>`".into();
            return Err(Error::Unsupported { what: "prompt".into(), reason });
        }
        let tokenizer = &self.vocabulary.tokenizer;
        let ids = tokenizer.encode(&format!(" {text}"), AddSpecial::Never).map_err(Error::from)?;
        if let Some(mark) = ids.iter().find(|id| **id >= self.vocabulary.marks.end) {
            let name = tokenizer.id_to_token(*mark).unwrap_or_default();
            let reason = format!("it holds `{name}`, a mark of the model: leave it out");
            return Err(Error::InvalidOption { option: "prompt", reason });
        }
        Ok(ids)
    }

    /// The features of `sound`. One that fits a window is filled up with silence.
    fn hear(&self, sound: &Samples) -> Result<Features> {
        let hop = self.mel.hop;
        let window = self.vocabulary.window * hop;
        let count = sound.values.len();
        let features = match count <= window {
            true => self.mel.padded(&sound.values, window),
            false => self.mel.features(&sound.values),
        };
        let features = features
            .map_err(|error| Error::InvalidOption { option: "sound", reason: error.to_string() })?;
        Ok(Features {
            frames: features.frames,
            values: features.values,
            real_frames: count.div_ceil(hop),
            seconds: sound.seconds(),
        })
    }

    /// Counts a request in, until what is returned is dropped.
    fn enter(&self, sound: &Samples) -> Result<Present> {
        let Counts { requests, frames } = &*self.counts;
        let full = |limit: usize| Error::QueueFull { limit };
        let most = self.most_present;
        let one_more = |present: usize| (present < most).then_some(present + 1);
        let own = sound.values.len() / self.mel.hop;
        let more = |held: usize| (held == 0 || held + own <= MOST_FRAMES).then_some(held + own);
        let before = requests.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        let before = before.map_err(|_| full(self.queue_limit.unwrap_or(usize::MAX)))?;
        if frames.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_err() {
            requests.fetch_sub(1, Ordering::AcqRel);
            // Long ones are there already, whose features take memory.
            return Err(full(before));
        }
        Ok(Present { counts: Arc::clone(&self.counts), frames: own })
    }
}

impl TranscriptionModel for MlxTranscriptionModel {
    fn info(&self) -> &TranscriptionModelInfo {
        &self.info
    }

    fn transcribe(&self, sound: Samples, options: &TranscribeOptions) -> Result<Transcription> {
        self.turns.check_open()?;
        self.check(&sound, options)?;
        let language = self.language(options)?;
        let prompt = self.prompt(options)?;
        let present = self.enter(&sound)?;
        let queued = Instant::now();
        let features = self.hear(&sound)?;
        drop(sound);
        let (sender, transcription) = Transcription::new(&options.cancel);
        let frames = features.frames;
        let mut options = options.clone();
        options.seed = options.seed.or_else(|| Some(fresh_seed()));
        let session = Session::new(&self.vocabulary, options, frames, prompt, language);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let metrics = TranscriptionMetrics::default();
        let request =
            Request { number, session, features, sender, queued, metrics, _present: present };
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).push_back(request);
        let submitted = self.turns.submit(Hearing { number });
        if submitted.is_err() {
            let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
            inbox.retain(|request| request.number != number);
        }
        submitted.map(|()| transcription)
    }

    fn status(&self) -> EngineStatus {
        let present = self.counts.requests.load(Ordering::Acquire);
        let waiting = self.inbox.lock().unwrap_or_else(PoisonError::into_inner).len();
        EngineStatus {
            running: present.saturating_sub(waiting),
            waiting,
            ..EngineStatus::default()
        }
    }

    fn close(&self) {
        self.turns.close();
    }
}

impl Drop for MlxTranscriptionModel {
    fn drop(&mut self) {
        self.turns.close();
    }
}
