//! `ml transcribe`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use inference_core::{Dtype, Timestamps, TranscriptionLoadOptions};

use super::values;
use crate::bytes;

/// `ml transcribe`.
#[derive(Args, Debug)]
#[command(after_help = "\
WAV, AIFF, FLAC, MP3, M4A, MP4, AAC, Ogg and WebM are read. The text goes to stdout as it is heard;
with --format srt or vtt, subtitles. With --output, each file's text goes to a file of its name in
that folder.

Sound that is longer than the model hears at once (30 seconds for Whisper) is heard in windows.

Examples:
  ml pull openai/whisper-large-v3-turbo
  ml transcribe talk.mp3 --model openai/whisper-large-v3-turbo
  ml transcribe -m ~/models/whisper-small film.mp4 --format srt > film.srt
  ml transcribe -m ~/models/whisper-small *.m4a --language de --output texts
  ml transcribe -m ~/models/whisper-small talk.wav --json --timestamps words | jq .words")]
pub struct TranscribeArgs {
    /// Files with sound; `-` reads one from stdin
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Language that is spoken: a code such as de, or its English name [default: the model finds
    /// out]
    #[arg(long, short = 'l', value_name = "LANGUAGE", help_heading = "Speech")]
    pub language: Option<String>,
    /// Translate to English
    #[arg(long, help_heading = "Speech")]
    pub translate: bool,
    /// Words that occur in the sound, or the text before it: spelling and style follow it
    #[arg(long, value_name = "TEXT", help_heading = "Speech")]
    pub prompt: Option<String>,
    /// Let later windows follow the text of earlier ones
    #[arg(long, help_heading = "Speech")]
    pub condition_on_previous: bool,
    /// Hear a window again, with higher temperatures, where its text repeats itself or is guessed
    #[arg(long, conflicts_with = "temperature", help_heading = "Speech")]
    pub fallback: bool,
    /// Draw tokens with this temperature [default: 0, the most probable token]
    #[arg(
        long,
        short = 't',
        value_name = "T",
        allow_hyphen_values = true,
        help_heading = "Speech"
    )]
    pub temperature: Option<f32>,
    /// Make draws repeatable
    #[arg(long, value_name = "N", help_heading = "Speech")]
    pub seed: Option<u64>,
    /// The most tokens of a window [default: the model's]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true,
          help_heading = "Speech")]
    pub max_tokens: Option<usize>,
    /// How it is loaded.
    #[command(flatten)]
    pub load: TranscriptionLoadArgs,
    /// Form of the output
    #[arg(long, short = 'f', value_name = "FORM", default_value = "text", help_heading = "Output")]
    pub format: Form,
    /// Times that are found: none, segments or words [default: those that the form shows]
    #[arg(long, value_name = "TIMES", value_parser = timestamps, help_heading = "Output")]
    pub timestamps: Option<Timestamps>,
    /// Print one JSON object for each file; the same as `--format json`
    #[arg(long, conflicts_with = "format", help_heading = "Output")]
    pub json: bool,
    /// Write each file's text into this folder [default: stdout]
    #[arg(short, long, value_name = "FOLDER", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// No statistics and no progress on stderr
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

impl TranscribeArgs {
    /// The form of the output.
    pub fn form(&self) -> Form {
        if self.json { Form::Json } else { self.format }
    }
}

/// Forms of a transcription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// The text
    Text,
    /// One JSON object with language, segments and words
    Json,
    /// Subtitles of SubRip
    Srt,
    /// Subtitles of WebVTT
    Vtt,
}

impl Form {
    /// The ending of files in this form.
    pub fn ending(self) -> &'static str {
        match self {
            Form::Text => "txt",
            Form::Json => "json",
            Form::Srt => "srt",
            Form::Vtt => "vtt",
        }
    }
}

/// How a model that transcribes is loaded.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Model")]
pub struct TranscriptionLoadArgs {
    /// Model folder, or a name that `ml pull` fetched [env: ML_TRANSCRIPTION_MODEL]
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// Device to run on: metal, cuda or cpu [default: the best one, see `ml doctor`]
    #[arg(long, visible_alias = "device", value_name = "NAME")]
    pub backend: Option<String>,
    /// Compute in f32, f16 or bf16 [default: f32 on a CPU, else the checkpoint's own]
    #[arg(long, value_name = "TYPE", value_parser = values::dtype)]
    pub dtype: Option<Dtype>,
    /// Files that are heard at the same time [default: 4 on a CPU, else 16]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub parallel: Option<usize>,
    /// Bytes for weights and activations together, such as 16GiB [default: the device's]
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse, allow_hyphen_values = true)]
    pub memory_limit: Option<u64>,
    /// Compute with N threads, at most 1024, where the backend runs on a CPU [default: all cores]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true,
          env = "ML_THREADS")]
    pub threads: Option<usize>,
}

impl TranscriptionLoadArgs {
    /// As the contract takes them.
    pub fn options(&self) -> TranscriptionLoadOptions {
        TranscriptionLoadOptions {
            backend: self.backend.clone(),
            dtype: self.dtype,
            memory_limit: self.memory_limit,
            parallel: self.parallel,
            queue_limit: None,
            threads: self.threads,
        }
    }
}

fn timestamps(text: &str) -> Result<Timestamps, String> {
    text.parse().map_err(|_| "expected none, segments or words".to_owned())
}
