//! A checkpoint of Kokoro: its config and headers, and what is built of its tensors.

use std::collections::HashMap;
use std::path::Path;

use inference_core::{Dtype, SpeechLoadOptions, SpeechModelInfo};
use mlx_ffi::Device;

use super::albert::{Albert, MAX_LAYERS};
use super::decoder::{self, Decoder};
use super::network::Network;
use super::prosody::{Prosody, Sizes, TextEncoder};
use super::source::RATE;
use super::voices::Voices;
use crate::config::Config;
use crate::error::{Error, Result, load};
use crate::files::ModelFiles;
use crate::kernels::Kernels;
use crate::load::speaks;
use crate::weights::{Checkpoint, Weights};

/// The most values of a state.
const MAX_WIDTH: i32 = 1 << 14;

/// Parts of names, and what they are called here: those of weights that torch parametrizes, and of
/// programs for MLX.
const NAMES: [(&str, &str); 10] = [
    (".parametrizations.weight.original0", ".weight_g"),
    (".parametrizations.weight.original1", ".weight_v"),
    (".Wx_forward", ".weight_ih_l0"),
    (".Wh_forward", ".weight_hh_l0"),
    (".bias_ih_forward", ".bias_ih_l0"),
    (".bias_hh_forward", ".bias_hh_l0"),
    (".Wx_backward", ".weight_ih_l0_reverse"),
    (".Wh_backward", ".weight_hh_l0_reverse"),
    (".bias_ih_backward", ".bias_ih_l0_reverse"),
    (".bias_hh_backward", ".bias_hh_l0_reverse"),
];

/// The opened files of a model: its config and headers, from which it can be built.
pub(super) struct Opened {
    files: ModelFiles,
    config: Config,
    checkpoint: Checkpoint,
    pub vocab: HashMap<char, u32>,
    pub voices: Voices,
}

/// Returns true for the folder of a model that speaks, by its `config.json`.
pub(crate) fn is_known(path: &Path) -> bool {
    let files = ModelFiles::Folder(path.to_owned());
    let text = files.text("config.json").ok().flatten().unwrap_or_default();
    Config::parse("config.json", &text).is_ok_and(|config| speaks(&config))
}

/// A name as the first release has it.
fn known_name(name: String) -> String {
    let plain = name.strip_prefix("module.").unwrap_or(&name).replace(".module.", ".");
    let found =
        NAMES.iter().find_map(|(end, ours)| Some(plain.strip_suffix(end)?.to_owned() + ours));
    found.unwrap_or(plain)
}

impl Opened {
    /// Reads the config and headers, and lists the voices.
    ///
    /// # Errors
    /// An option that is not honoured; a file that is missing or damaged.
    pub fn new(path: &Path, options: &SpeechLoadOptions) -> inference_core::Result<Opened> {
        if options.dtype.is_some_and(|dtype| dtype != Dtype::F32) {
            return Err(inference_core::Error::Unsupported {
                what: "dtype".into(),
                reason: "the model computes in f32; leave it unset".into(),
            });
        }
        Ok(Opened::read(path)?)
    }

    fn read(path: &Path) -> Result<Opened> {
        let files = ModelFiles::Folder(path.to_owned());
        let at_folder = |error: Error| error.at(&files.folder());
        let config = Config::parse("config.json", &files.required_text("config.json")?);
        let config = config.map_err(at_folder)?;
        if !speaks(&config) {
            return Err(load(
                path,
                "config.json has no `istftnet` and `plbert`: this is no model that speaks here; Kokoro is",
            ));
        }
        refuse_pickles(path)?;
        let checkpoint = Checkpoint::open(&files)?.renamed(known_name);
        if checkpoint.headers.keys().any(|name| name.ends_with(".scales")) {
            return Err(load(
                path,
                "its weights are quantised, which are not read: take those in bf16 or f32",
            ));
        }
        let vocab = vocab(&config).map_err(at_folder)?;
        let voices = Voices::list(path)?;
        Ok(Opened { config, checkpoint, vocab, voices, files })
    }

    /// Bytes of the weights in F32.
    pub fn bytes(&self) -> u64 {
        4 * self.checkpoint.headers.values().map(|header| header.elements()).sum::<u64>()
    }

    /// Builds the model on this thread.
    ///
    /// # Errors
    /// A key or a tensor that is missing or does not fit, with the folder.
    pub fn build(&self, kernels: Kernels) -> Result<Network> {
        let dtype = Some(mlx_ffi::Dtype::F32);
        let weights = Weights::of(&self.checkpoint, &self.config, dtype, kernels, false);
        let built = self.network(&weights).and_then(|network| {
            weights.finish()?;
            Ok(network)
        });
        built.map_err(|error| error.at(&self.files.folder()))
    }

    fn network(&self, w: &Weights) -> Result<Network> {
        let sizes = self.sizes()?;
        let Sizes { hidden, style, .. } = sizes;
        let taps = size(&self.config, "text_encoder_kernel_size", MAX_LAYERS)?;
        if taps % 2 == 0 || hidden % 2 != 0 {
            return Err(Error::model(
                "config.json: `text_encoder_kernel_size` has no middle, or `hidden_dim` no half",
            ));
        }
        let generator = decoder::Sizes::read(&self.part("istftnet")?)?;
        let albert = Albert::load(&self.part("plbert")?, &w.at("bert"), sizes.vocab)?;
        Ok(Network {
            bridge: w.linear("bert_encoder", albert.hidden, hidden, true)?,
            albert,
            prosody: Prosody::load(&w.at("predictor"), sizes)?,
            text: TextEncoder::load(&w.at("text_encoder"), sizes, taps)?,
            decoder: Decoder::load(&w.at("decoder"), &generator, [hidden, style])?,
            style: style as usize,
            frame: 2 * generator.scale(),
            values: generator.values(),
        })
    }

    /// The object `key` of the config.
    fn part(&self, key: &str) -> Result<Config> {
        let missing = || Error::model(format!("config.json: `{key}` is missing"));
        self.config.object(key)?.ok_or_else(missing)
    }

    fn sizes(&self) -> Result<Sizes> {
        Ok(Sizes {
            hidden: size(&self.config, "hidden_dim", MAX_WIDTH)?,
            style: size(&self.config, "style_dim", MAX_WIDTH)?,
            layers: size(&self.config, "n_layer", MAX_LAYERS)?,
            most_frames: size(&self.config, "max_dur", MAX_WIDTH)?,
            vocab: size(&self.config, "n_token", MAX_WIDTH)?,
        })
    }

    /// Describes the model.
    ///
    /// # Errors
    /// A key that is missing or does not fit.
    pub fn info(&self, device: Device) -> Result<SpeechModelInfo> {
        let sizes = self.sizes().map_err(|error| error.at(&self.files.folder()))?;
        let places = self.part("plbert")?.opt_size("max_position_embeddings")?;
        Ok(SpeechModelInfo {
            architecture: "kokoro".into(),
            voices: self.voices.names().to_vec(),
            default_voice: self.voices.usual().map(str::to_owned),
            sample_rate: RATE as u32,
            max_phonemes: places.unwrap_or(512).max(3) as usize - 2,
            vocab_size: self.vocab.len(),
            hidden_size: sizes.hidden as usize,
            num_parameters: self.bytes() / 4,
            weight_bytes: self.bytes(),
            stored_as: self.files.stored_as(),
            dtype: "f32".into(),
            device: device.info()?.backend.to_owned(),
        })
    }
}

/// The size `key`, `most` at most.
fn size(config: &Config, key: &str, most: i32) -> Result<i32> {
    let size = config.size(key)?;
    match (1..=most).contains(&size) {
        true => Ok(size),
        false => Err(Error::model(format!(
            "config.json: `{key}` is {size}, from 1 to {most} are supported"
        ))),
    }
}

/// The id of each symbol.
fn vocab(config: &Config) -> Result<HashMap<char, u32>> {
    let most = config.size("n_token")?;
    let Some(symbols) = config.object("vocab")? else {
        return Err(Error::model("config.json: `vocab` is missing"));
    };
    let mut vocab = HashMap::new();
    for symbol in symbols.keys() {
        let id = symbols.opt_index(symbol)?.unwrap_or(0);
        let mut characters = symbol.chars();
        let (Some(character), None) = (characters.next(), characters.next()) else {
            return Err(Error::model(format!("config.json: `vocab` has `{symbol}`, not a symbol")));
        };
        if id >= most {
            return Err(Error::model(format!(
                "config.json: `vocab` gives `{symbol}` the id {id}, and `n_token` is {most}"
            )));
        }
        vocab.insert(character, id as u32);
    }
    Ok(vocab)
}

/// Refuses a folder whose weights are the release's nested pickle, with the way to save it anew.
fn refuse_pickles(path: &Path) -> Result<()> {
    let names = std::fs::read_dir(path).map_err(|error| load(path, error))?;
    let names: Vec<String> =
        names.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let pickle = names.iter().find(|name| name.ends_with(".pth") || name.ends_with(".pt"));
    match pickle {
        Some(name) if !names.iter().any(|name| name.ends_with(".safetensors")) => Err(load(
            &path.join(name),
            format!(
                "weights are read from safetensors here; save them anew with Python: \
                 `import torch, safetensors.torch as s; s.save_file({{f'{{part}}.{{name}}': \
                 t.contiguous() for part, ts in torch.load('{name}', weights_only=True).items() for \
                 name, t in ts.items()}}, 'model.safetensors')`"
            ),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::known_name;

    #[test]
    fn names_of_all_programs_are_those_of_the_release() {
        for (given, expected) in [
            ("decoder.module.encode.conv1.weight_g", "decoder.encode.conv1.weight_g"),
            ("module.bert.pooler.bias", "bert.pooler.bias"),
            ("predictor.lstm.Wh_backward", "predictor.lstm.weight_hh_l0_reverse"),
            (
                "decoder.generator.ups.0.parametrizations.weight.original1",
                "decoder.generator.ups.0.weight_v",
            ),
            ("text_encoder.cnn.0.1.gamma", "text_encoder.cnn.0.1.gamma"),
        ] {
            assert_eq!(known_name(given.to_owned()), expected);
        }
    }
}
