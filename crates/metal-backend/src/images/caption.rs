//! Z-Image's text encoder: Qwen 3, whose states before the last layer describe the prompt.

use inference_core::Error as Refusal;
use inference_text::{ChatFormat, ChatInput, Tokenizer};
use mlx_ffi::{Array, Indices};
use serde_json::{Map, Value as Json, json};

use crate::cache::{Caches, StateSpec, Storage};
use crate::config::Config;
use crate::error::Result;
use crate::files::ModelFiles;
use crate::layers::Decoder;
use crate::models;
use crate::weights::Weights;

/// The most ids of a prompt, its template's included.
const MAX_TOKENS: usize = 512;

/// The text encoder.
#[derive(Debug)]
pub(super) struct CaptionEncoder {
    model: Decoder,
}

impl CaptionEncoder {
    /// Takes the encoder's tensors.
    ///
    /// # Errors
    /// A config that is not known; tensors that do not fit.
    pub fn load(config: &Config, w: &Weights) -> Result<CaptionEncoder> {
        Ok(CaptionEncoder { model: models::load(config, w)? })
    }

    /// The states of `ids` that go into the last layer, `[1, ids, hidden]`.
    ///
    /// # Errors
    /// An id that the model does not have; those of MLX.
    pub fn encode(&self, ids: &[u32]) -> Result<Array> {
        let model = &self.model;
        let bound = |spec: &crate::layers::Block, bound| spec.mixer.state(bound);
        let specs = StateSpec::of_layers(&model.layers, None, bound);
        let mut caches = Caches::new(&specs, Storage::Plain, 1, ids.len());
        let ids = Indices::from_u32(ids, &[1, ids.len() as i32])?;
        let mut pass = model.begin(&ids, &caches)?;
        model.advance(&mut pass, &mut caches, model.layers.len() - 1)?;
        pass.h().eval()?;
        Ok(pass.h().share()?)
    }
}

/// The tokenizer with the chat template of its prompts.
pub(super) struct CaptionText {
    tokenizer: Tokenizer,
    chat: ChatFormat,
}

impl CaptionText {
    /// Reads the files of the component `tokenizer`.
    ///
    /// # Errors
    /// A file that is missing or wrong.
    pub fn read(files: &ModelFiles) -> Result<CaptionText, Refusal> {
        let tokenizer = super::tokenizer::read(files)?;
        let chat = ChatFormat::from_files(files, &tokenizer, "qwen3").map_err(Refusal::from)?;
        Ok(CaptionText { tokenizer, chat })
    }

    /// The ids of a prompt: a user's turn that is to be answered with thinking.
    ///
    /// # Errors
    /// A prompt that is too long.
    pub fn ids(&self, prompt: &str) -> Result<Vec<u32>, Refusal> {
        let _ = &self.tokenizer;
        let messages = [json!({"role": "user", "content": prompt})];
        let kwargs: Map<String, Json> =
            [("enable_thinking".to_owned(), Json::Bool(true))].into_iter().collect();
        let input = ChatInput { kwargs: Some(&kwargs), ..ChatInput::new(&messages) };
        let ids = self.chat.render_and_encode(&input).map_err(Refusal::from)?.ids;
        match ids.len() {
            0 => Err(Refusal::EmptyPrompt),
            tokens if tokens > MAX_TOKENS => {
                Err(Refusal::PromptTooLong { tokens, limit: MAX_TOKENS })
            }
            _ => Ok(ids),
        }
    }
}
