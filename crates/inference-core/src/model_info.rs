//! The facts of a loaded model.

use crate::{Error, PictureLimits, Result, SoundLimits};

/// The facts of a loaded model: its sizes, its files, its device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelInfo {
    /// The architecture's name, `model_type` in `config.json`.
    pub architecture: String,
    /// Entries of the vocabulary as the output layer has them.
    pub vocab_size: usize,
    /// Transformer layers.
    pub num_layers: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Bits of a quantised weight, 0 when unquantised; of most weights, where there are several.
    pub quant_bits: usize,
    /// Weights that share a scale, 0 when unquantised; of most weights, where there are several.
    pub quant_group: usize,
    /// How weights are quantised, the way of most weights first.
    pub packings: Vec<Packing>,
    /// The most positions a request may use.
    pub context_length: usize,
    /// Parameters, quantised ones counted as what they stand for.
    pub num_parameters: u64,
    /// Bytes of the loaded weights.
    pub weight_bytes: u64,
    /// The form that its files have them in.
    pub stored_as: StoredAs,
    /// Bytes that one more position adds to a request's cache, over all layers that grow.
    pub kv_bytes_per_token: u64,
    /// The type that activations are computed in: `f32`, `f16` or `bf16`.
    pub dtype: String,
    /// The checkpoint's type, where the device computes in [`dtype`](Self::dtype) because it has no
    /// units for that one.
    pub in_place_of: Option<String>,
    /// The device that computes.
    pub device: String,
    /// Ids that end a generation.
    pub eos_token_ids: Vec<u32>,
    /// Tokens with a part in the model's format, as far as the backend knows them.
    pub special_tokens: Vec<SpecialToken>,
    /// Parts of the checkpoint that are not used, such as `vision tower`.
    pub unused_parts: Vec<String>,
    /// The tokenizer's kind and its file, such as ``BPE (`tokenizer.json`)``; empty where it is
    /// unknown.
    pub tokenizer: String,
    /// The origin of the chat format: a file of the checkpoint, or a known family's format.
    pub chat_template: String,
    /// The limits of pictures; `None` where the model does not see.
    pub pictures: Option<PictureLimits>,
    /// The limits of sounds; `None` where the model does not hear.
    pub sounds: Option<SoundLimits>,
}

impl ModelInfo {
    /// Checks the ids of a prompt against the limits. A context or a vocabulary of 0 is not known.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`]; [`Error::PromptTooLong`] for one that exceeds the context, and
    /// [`Error::Prompt`] for an id that is not in the vocabulary.
    pub fn check_prompt(&self, ids: &[u32]) -> Result<()> {
        let (limit, vocab_size) = (self.context_length, self.vocab_size);
        if ids.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if limit > 0 && ids.len() > limit {
            return Err(Error::PromptTooLong { tokens: ids.len(), limit });
        }
        match ids.iter().find(|id| vocab_size > 0 && **id as usize >= vocab_size) {
            None => Ok(()),
            Some(id) => {
                Err(Error::Prompt(format!("token {id} is not in the vocabulary of {vocab_size}")))
            }
        }
    }
}

/// The form of the weights in a model's files, as these say themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredAs {
    /// The files' format, such as `safetensors` or `gguf`; empty where it is unknown.
    pub format: String,
    /// The files' own name for the way of quantisation, such as `Q4_K_M`; empty where they have
    /// none.
    pub quantization: String,
}

/// A way in which some of a model's weights are quantised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    /// `affine` (a scale and a bias for each group), `mxfp4`, `mxfp8` or `nvfp4`.
    pub mode: String,
    /// Bits of a weight.
    pub bits: usize,
    /// Weights that share a scale.
    pub group_size: usize,
    /// How many weights.
    pub parameters: u64,
}

/// A token with a part in a model's format, such as the one that begins every prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecialToken {
    /// Its part: `bos`, `eos`, `pad`, `unk`, `turn`, `reasoning` or `tool_call`.
    pub role: &'static str,
    /// Its id.
    pub id: u32,
    /// How the vocabulary spells it.
    pub text: String,
}
