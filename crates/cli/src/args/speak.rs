//! `ml speak`.

use std::path::PathBuf;

use clap::Args;
use inference_core::{Dtype, SpeechLoadOptions};

use super::values;
use crate::bytes;

/// `ml speak`.
#[derive(Args, Debug)]
#[command(after_help = "\
The sound is a WAV file of one channel with 24,000 samples a second. A voice's first letter is its
language: a and b English, e Spanish, f French, h Hindi, i Italian, p Portuguese. The program
espeak-ng turns text into phonemes; with --phonemes, none is needed.

Examples:
  ml speak 'Good morning.' --model ~/models/Kokoro-82M --voice af_heart --output morning.wav
  ml speak -m ~/models/Kokoro-82M -o book.wav < chapter.txt
  ml speak -m ~/models/Kokoro-82M --output - 'Hello.' | aplay
  ml speak -m ~/models/Kokoro-82M --phonemes 'həlˈO wˈɜɹld'
  ml speak -m ~/models/Kokoro-82M --voices")]
pub struct SpeakArgs {
    /// Text to say [default: stdin]
    pub text: Option<String>,
    /// Say it with this voice, or the mean of several with commas between them [default: af_heart,
    /// else the model's first one]
    #[arg(long, value_name = "NAME", help_heading = "Speech")]
    pub voice: Option<String>,
    /// Say it faster or slower, from 0.25 to 4 [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "Speech")]
    pub speed: Option<f32>,
    /// The text is phonemes, in the model's symbols
    #[arg(long, help_heading = "Speech")]
    pub phonemes: bool,
    /// Noise in the voice follows this number [default: 0]
    #[arg(long, value_name = "N", help_heading = "Speech")]
    pub seed: Option<u64>,
    /// Print the names of the model's voices, and say nothing
    #[arg(long, conflicts_with_all = ["text", "voice", "phonemes"], help_heading = "Speech")]
    pub voices: bool,
    /// How it is loaded.
    #[command(flatten)]
    pub load: SpeechLoadArgs,
    /// File to write, `-` for stdout; one that is there is replaced
    #[arg(short, long, value_name = "FILE", default_value = "speech.wav", help_heading = "Output")]
    pub output: PathBuf,
    /// No statistics and no progress on stderr
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

/// How a model that speaks is loaded.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Model")]
pub struct SpeechLoadArgs {
    /// Model folder, or a name that `ml pull` fetched [env: ML_SPEECH_MODEL]
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// Device to run on: metal, cuda or cpu [default: the best one, see `ml doctor`]
    #[arg(long, visible_alias = "device", value_name = "NAME")]
    pub backend: Option<String>,
    /// Compute in this type; only f32 is
    #[arg(long, value_name = "TYPE", value_parser = values::dtype)]
    pub dtype: Option<Dtype>,
    /// Bytes for weights and activations together, such as 2GiB [default: the device's]
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse, allow_hyphen_values = true)]
    pub memory_limit: Option<u64>,
    /// Compute with N threads, at most 1024, where the backend runs on a CPU [default: all cores]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true,
          env = "ML_THREADS")]
    pub threads: Option<usize>,
}

impl SpeechLoadArgs {
    /// As the contract takes them.
    pub fn options(&self) -> SpeechLoadOptions {
        SpeechLoadOptions {
            backend: self.backend.clone(),
            dtype: self.dtype,
            memory_limit: self.memory_limit,
            queue_limit: None,
            threads: self.threads,
        }
    }
}
