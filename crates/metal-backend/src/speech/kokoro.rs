//! Kokoro (<https://arxiv.org/abs/2306.07691>) as the contract sees it: text is said piece by
//! piece, one request after the other.

mod albert;
mod blocks;
mod checkpoint;
mod decoder;
mod espeak;
mod layers;
mod network;
mod phonemes;
mod pieces;
mod prosody;
mod source;
mod voices;

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use inference_core::{
    CancelToken, EngineStatus, Error, Result, Samples, SpeakOptions, Speech, SpeechLoadOptions,
    SpeechMetrics, SpeechModel, SpeechModelInfo, SpeechSender, SpeechText, SpokenPiece,
};
use mlx_ffi::{Device, memory};

use self::checkpoint::Opened;
use self::espeak::Espeak;
use self::network::{Network, Said};
use self::phonemes::Language;
use self::source::{Noise, RATE};
use self::voices::{Voice, Voices};
use crate::engine::{Turn, Turns, device};
use crate::kernels::Kernels;

pub(crate) use checkpoint::is_known;
pub use espeak::espeak_ng;

/// The most characters of a request.
const MOST_TEXT: usize = 1 << 17;

/// A model on its thread.
pub(crate) struct KokoroModel {
    info: SpeechModelInfo,
    voices: Voices,
    turns: Turns<Saying>,
}

/// The state that the thread owns.
struct Speaker {
    network: Network,
    /// The id of each symbol.
    vocab: HashMap<char, u32>,
    voices: Voices,
    /// Bytes that arrays may take.
    limit: u64,
}

/// Text to say.
struct Saying {
    source: Pieces,
    voice: String,
    speed: f32,
    seed: u64,
    sender: SpeechSender,
    queued: Instant,
}

/// The source of a request's phonemes.
enum Pieces {
    /// Pieces of text, and who turns them into phonemes.
    Plain(Vec<String>, Espeak),
    Phonemes(String),
}

impl Turn for Saying {
    type Worker = Speaker;
    type Done = SpeechMetrics;

    fn work(&self, speaker: &mut Speaker, closing: &CancelToken) -> Result<SpeechMetrics> {
        let began = Instant::now();
        let voice = speaker.voices.read(&self.voice, 2 * speaker.network.style)?;
        let mut metrics =
            SpeechMetrics { queue_duration: began - self.queued, ..SpeechMetrics::default() };
        let goes_on = || !closing.is_cancelled() && !self.sender.is_cancelled();
        let stopped = || if closing.is_cancelled() { Error::Closed } else { Error::Cancelled };
        let count = match &self.source {
            Pieces::Plain(pieces, _) => pieces.len(),
            Pieces::Phonemes(_) => 1,
        };
        for at in 0..count {
            if !goes_on() {
                return Err(stopped());
            }
            let (text, phonemes) = match &self.source {
                Pieces::Plain(pieces, espeak) => {
                    let phonemes = espeak.phonemes(&pieces[at], &goes_on);
                    let phonemes =
                        phonemes.map_err(|error| if goes_on() { error } else { stopped() });
                    (pieces[at].as_str(), phonemes?)
                }
                Pieces::Phonemes(phonemes) => ("", phonemes.clone()),
            };
            let most = speaker.network.most_phonemes().min(voice.rows());
            let known: String =
                phonemes.chars().filter(|symbol| speaker.vocab.contains_key(symbol)).collect();
            for (part, phonemes) in pieces::of_phonemes(&known, most).into_iter().enumerate() {
                let said = speaker.say(self, &voice, (&phonemes, metrics.pieces), &goes_on);
                let said = said.map_err(|error| if goes_on() { error } else { stopped() })?;
                let text = if part == 0 { text.to_owned() } else { String::new() };
                metrics.count(&phonemes, said.samples.len(), self.queued);
                self.sender.send(piece(text, phonemes, said, speaker.network.frame_seconds()));
            }
        }
        if metrics.pieces == 0 {
            let reason = "it has no phoneme that the model knows".into();
            return Err(Error::InvalidOption { option: "text", reason });
        }
        metrics.total_duration = self.queued.elapsed();
        Ok(metrics)
    }

    fn answer(self, result: Result<SpeechMetrics>, _: &CancelToken) {
        self.sender.finish(result);
    }
}

/// Counting what was said.
trait Count {
    fn count(&mut self, phonemes: &str, samples: usize, queued: Instant);
}

impl Count for SpeechMetrics {
    fn count(&mut self, phonemes: &str, samples: usize, queued: Instant) {
        self.pieces += 1;
        self.phonemes += phonemes.chars().count();
        self.seconds += samples as f64 / f64::from(RATE);
        if self.first_duration == Duration::ZERO {
            self.first_duration = queued.elapsed();
        }
    }
}

fn piece(text: String, phonemes: String, said: Said, frame: f64) -> SpokenPiece {
    let seconds = said.frames.iter().map(|frames| f64::from(*frames) * frame).collect();
    let sound = Samples { values: said.samples, rate: RATE as u32 };
    SpokenPiece { text, phonemes, seconds, sound }
}

impl Speaker {
    /// Says a piece, which is the `number`-th of its request.
    fn say(
        &self,
        of: &Saying,
        voice: &Voice,
        (phonemes, number): (&str, usize),
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Said> {
        let ids: Vec<u32> =
            phonemes.chars().filter_map(|symbol| self.vocab.get(&symbol).copied()).collect();
        let style = voice.style(ids.len());
        let fault = |error: mlx_ffi::Error| Error::from(crate::error::Error::from(error));
        let lengths = self.network.lengths(&ids, style, of.speed).map_err(fault)?;
        self.check_memory(&lengths.frames)?;
        let noise = Noise { seed: of.seed.wrapping_add(number as u64) };
        let said = self.network.sound(lengths, noise, goes_on).map_err(fault)?;
        if said.samples.iter().any(|value| !value.is_finite()) {
            let reason =
                "the model's sound has values that are no numbers: its weights are damaged";
            return Err(Error::Engine(reason.into()));
        }
        Ok(said)
    }

    /// Refuses a sound whose work does not fit the memory.
    fn check_memory(&self, frames: &[u32]) -> Result<()> {
        let frames: u64 = frames.iter().map(|frames| u64::from(*frames)).sum();
        let needed = 4 * frames * self.network.values_of_frame();
        let held = memory::active().map_err(crate::error::Error::from)? as u64;
        let available = self.limit.saturating_sub(held);
        if needed <= available {
            return Ok(());
        }
        Err(Error::Memory {
            what: format!("a piece of {:.0} s", frames as f64 * self.network.frame_seconds()),
            needed,
            available,
            remedy: "say it faster or in shorter sentences, or allow more memory".into(),
        })
    }
}

impl KokoroModel {
    /// Loads the model in `path`.
    ///
    /// # Errors
    /// An option that is not honoured; what is wrong with the files.
    pub fn load(
        path: &Path,
        options: &SpeechLoadOptions,
        device: Device,
        kernels: Kernels,
    ) -> Result<KokoroModel> {
        let opened = Opened::new(path, options)?;
        let info = opened.info(device)?;
        let (voices, threads, memory_limit) =
            (opened.voices.clone(), options.threads, options.memory_limit);
        let build = move || {
            let limit = device::begin(device, threads, memory_limit)?;
            let remedy = "allow more memory";
            device::check_weights(opened.bytes(), limit, remedy)?;
            let network = opened.build(kernels)?;
            Ok(Speaker { network, vocab: opened.vocab, voices: opened.voices, limit })
        };
        let turns = Turns::start("ml-speech", device, options.queue_limit, build)?;
        Ok(KokoroModel { info, voices, turns })
    }

    /// Describes the model in a folder without reading weights.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn describe(
        path: &Path,
        options: &SpeechLoadOptions,
        device: Device,
    ) -> Result<SpeechModelInfo> {
        Ok(Opened::new(path, options)?.info(device)?)
    }

    /// The pieces of `text` in the language of `voice`.
    fn pieces(&self, text: &SpeechText, voice: &str) -> Result<Pieces> {
        let refused = |reason: String| Error::InvalidOption { option: "text", reason };
        let count = text.as_str().chars().count();
        if count > MOST_TEXT {
            return Err(refused(format!("it has {count} characters, {MOST_TEXT} at most")));
        }
        if text.as_str().trim().is_empty() {
            return Err(refused("there is none".into()));
        }
        let SpeechText::Plain(text) = text else {
            return Ok(Pieces::Phonemes(text.as_str().trim().to_owned()));
        };
        let pieces = pieces::of_text(text);
        if pieces.is_empty() {
            return Err(refused("there is nothing to say in it".into()));
        }
        Ok(Pieces::Plain(pieces, Espeak::find(Language::of_voice(voice)?)?))
    }
}

impl SpeechModel for KokoroModel {
    fn info(&self) -> &SpeechModelInfo {
        &self.info
    }

    fn speak(&self, text: &SpeechText, options: &SpeakOptions) -> Result<Speech> {
        self.turns.check_open()?;
        options.validate()?;
        let voice = options.voice.as_deref().or(self.info.default_voice.as_deref());
        let voice = voice.unwrap_or_default().trim().to_owned();
        self.voices.check(&voice)?;
        let source = self.pieces(text, &voice)?;
        let (sender, speech) = Speech::new(&options.cancel);
        let (speed, seed) = (options.speed.unwrap_or(1.0), options.seed.unwrap_or(0));
        let saying = Saying { source, voice, speed, seed, sender, queued: Instant::now() };
        self.turns.submit(saying).map(|()| speech)
    }

    fn status(&self) -> EngineStatus {
        self.turns.status()
    }

    fn close(&self) {
        self.turns.close();
    }
}

impl Drop for KokoroModel {
    fn drop(&mut self) {
        self.turns.close();
    }
}
