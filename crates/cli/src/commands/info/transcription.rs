//! Facts of models that transcribe speech for `ml info` and `ml list`.

use std::path::Path;

use inference_core::{LoadOptions, TranscriptionLoadOptions, TranscriptionModelInfo};
use serde::Serialize;

use crate::bytes;
use crate::failure::{Failure, Result};
use crate::output::{one_line, print, print_json, printable};

/// Languages that are shown by name; of more, their number.
const SHOWN: usize = 12;

/// Describes the model in `folder`.
///
/// # Errors
/// Options that say nothing of one; a folder that is no usable model.
pub fn describe(name: String, folder: &Path, options: &LoadOptions, as_json: bool) -> Result<()> {
    let info = metal_backend::describe_transcription_model(folder, &of(options)?)?;
    match as_json {
        true => print_json(&Description { model: name, facts: TranscriptionFacts::from(&info) }),
        false => print(&printable(&text(&name, &info))),
    }
}

/// The options of such a model's load.
fn of(options: &LoadOptions) -> Result<TranscriptionLoadOptions> {
    let LoadOptions { backend, dtype, .. } = options.clone();
    let told = LoadOptions { backend, dtype, ..LoadOptions::default() };
    if *options != told {
        let reason = "this model transcribes speech: of the model's options --backend and --dtype concern it";
        return Err(Failure::Usage(reason.into()));
    }
    let LoadOptions { backend, dtype, .. } = told;
    Ok(TranscriptionLoadOptions { backend, dtype, ..TranscriptionLoadOptions::default() })
}

#[derive(Serialize)]
struct Description {
    model: String,
    #[serde(flatten)]
    facts: TranscriptionFacts,
}

/// Facts of a model that transcribes, here and in a list.
#[derive(Serialize)]
pub struct TranscriptionFacts {
    architecture: String,
    parameters: u64,
    vocab_size: usize,
    encoder_layers: usize,
    decoder_layers: usize,
    hidden_size: usize,
    weight_bytes: u64,
    /// `null` when unquantised.
    quantization_bits: Option<usize>,
    dtype: String,
    device: String,
    max_tokens: usize,
    languages: Vec<String>,
    translates: bool,
    times_words: bool,
    sample_rate: u32,
    window_seconds: f64,
}

impl From<&TranscriptionModelInfo> for TranscriptionFacts {
    fn from(info: &TranscriptionModelInfo) -> Self {
        let [encoder_layers, decoder_layers] = info.num_layers;
        TranscriptionFacts {
            architecture: info.architecture.clone(),
            parameters: info.num_parameters,
            vocab_size: info.vocab_size,
            encoder_layers,
            decoder_layers,
            hidden_size: info.hidden_size,
            weight_bytes: info.weight_bytes,
            quantization_bits: (info.quant_bits > 0).then_some(info.quant_bits),
            dtype: info.dtype.clone(),
            device: info.device.clone(),
            max_tokens: info.max_tokens,
            languages: info.languages.clone(),
            translates: info.translates,
            times_words: info.times_words,
            sample_rate: info.sample_rate,
            window_seconds: info.window_seconds,
        }
    }
}

/// The type of unquantised weights, or bits.
pub fn quantization(info: &TranscriptionModelInfo) -> String {
    match info.quant_bits {
        0 => format!("none, {}", info.dtype),
        bits => format!("{bits} bits"),
    }
}

fn text(name: &str, info: &TranscriptionModelInfo) -> String {
    let languages = match info.languages.len() {
        0 => "not named".to_owned(),
        1..=SHOWN => info.languages.join(", "),
        count => format!("{count}, such as {}", info.languages[..SHOWN].join(", ")),
    };
    let yes = |is: bool| if is { "yes" } else { "no" };
    let [encoder, decoder] = info.num_layers;
    let lines = [
        ("model", name.to_owned()),
        ("architecture", info.architecture.clone()),
        ("parameters", bytes::parameters(info.num_parameters)),
        ("weights", format!("{}, {}", bytes::human(info.weight_bytes), quantization(info))),
        ("layers", format!("{encoder} of the encoder, {decoder} of the decoder")),
        (
            "hears",
            format!("{} s at once, {} samples a second", info.window_seconds, info.sample_rate),
        ),
        ("says", format!("at most {} tokens of a window", info.max_tokens)),
        ("languages", languages),
        ("translates", yes(info.translates).to_owned()),
        ("times words", yes(info.times_words).to_owned()),
        ("computes in", format!("{} on {}", info.dtype, info.device)),
    ];
    lines.iter().map(|(label, value)| format!("{label:<15}{}\n", one_line(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_named_or_counted() {
        let languages = |count: usize| (0..count).map(|at| format!("l{at}")).collect();
        let info = TranscriptionModelInfo { languages: languages(2), ..Default::default() };
        assert!(text("m", &info).contains("languages      l0, l1\n"));
        let info = TranscriptionModelInfo { languages: languages(99), ..Default::default() };
        assert!(text("m", &info).contains("languages      99, such as l0, l1,"));
        let facts = serde_json::to_value(TranscriptionFacts::from(&info)).unwrap();
        assert_eq!(facts["languages"].as_array().unwrap().len(), 99);
    }
}
