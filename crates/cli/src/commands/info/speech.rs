//! Facts of models that speak for `ml info` and `ml list`.

use std::path::Path;

use inference_core::{LoadOptions, SpeechLoadOptions, SpeechModelInfo};
use serde::Serialize;

use crate::bytes;
use crate::failure::{Failure, Result};
use crate::output::{one_line, print, print_json, printable};

/// Describes the model in `folder`.
///
/// # Errors
/// Options that say nothing of one; a folder that is no usable model.
pub fn describe(name: String, folder: &Path, options: &LoadOptions, as_json: bool) -> Result<()> {
    let LoadOptions { backend, dtype, .. } = options.clone();
    let told = LoadOptions { backend, dtype, ..LoadOptions::default() };
    if *options != told {
        let reason = "this model speaks: of the model's options --backend and --dtype concern it";
        return Err(Failure::Usage(reason.into()));
    }
    let LoadOptions { backend, dtype, .. } = told;
    let load = SpeechLoadOptions { backend, dtype, ..SpeechLoadOptions::default() };
    let info = metal_backend::describe_speech_model(folder, &load)?;
    match as_json {
        true => print_json(&Description { model: name, facts: SpeechFacts::from(&info) }),
        false => print(&printable(&text(&name, &info))),
    }
}

#[derive(Serialize)]
struct Description {
    model: String,
    #[serde(flatten)]
    facts: SpeechFacts,
}

/// Facts of a model that speaks, here and in a list.
#[derive(Serialize)]
pub struct SpeechFacts {
    architecture: String,
    parameters: u64,
    vocab_size: usize,
    hidden_size: usize,
    weight_bytes: u64,
    dtype: String,
    device: String,
    max_phonemes: usize,
    sample_rate: u32,
    voices: Vec<String>,
    default_voice: Option<String>,
}

impl From<&SpeechModelInfo> for SpeechFacts {
    fn from(info: &SpeechModelInfo) -> Self {
        SpeechFacts {
            architecture: info.architecture.clone(),
            parameters: info.num_parameters,
            vocab_size: info.vocab_size,
            hidden_size: info.hidden_size,
            weight_bytes: info.weight_bytes,
            dtype: info.dtype.clone(),
            device: info.device.clone(),
            max_phonemes: info.max_phonemes,
            sample_rate: info.sample_rate,
            voices: info.voices.clone(),
            default_voice: info.default_voice.clone(),
        }
    }
}

fn text(name: &str, info: &SpeechModelInfo) -> String {
    let lines = [
        ("model", name.to_owned()),
        ("architecture", info.architecture.clone()),
        ("parameters", bytes::parameters(info.num_parameters)),
        ("weights", bytes::human(info.weight_bytes)),
        (
            "says",
            format!(
                "at most {} phonemes at once, {} samples a second",
                info.max_phonemes, info.sample_rate
            ),
        ),
        ("voices", info.voices.join(", ")),
        ("computes in", format!("{} on {}", info.dtype, info.device)),
    ];
    lines.iter().map(|(label, value)| format!("{label:<15}{}\n", one_line(value))).collect()
}
