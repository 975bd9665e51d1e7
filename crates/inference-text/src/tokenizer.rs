//! A checkpoint's tokenizer: text to ids and back, special tokens, the EOS set.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::TextError;
use crate::conversion::converted;
use crate::files::{self, Files, Folder};
use crate::inner::Inner;
use crate::load::{self, build};
use crate::normalizer::TooMuch;
use crate::panics::caught;
use crate::source::Source;
use crate::special_tokens;

/// Bytes of text that are tokenized in one call. At 0.4 µs a byte this is some three seconds.
pub const MAX_INPUT_BYTES: usize = 8 << 20;
/// Bytes that the normalizer may make of a text: all spaces as `▁` are three times as many.
const MAX_NORMALIZED_BYTES: usize = 4 * MAX_INPUT_BYTES;

/// The cases in which the post-processor puts BOS (and whatever else it adds) around the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddSpecial {
    /// A raw prompt, as mlx-lm feeds it: special tokens are added unless the text begins with BOS
    /// already.
    Prompt,
    /// Always.
    Always,
    /// The text has what it needs: a rendered chat, a continuation.
    Never,
}

/// The treatment of special tokens in decoded text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkipSpecial {
    /// Leave them out.
    Yes,
    /// Print them.
    No,
}

/// The tokenizer of a model folder; cheap to clone, shared between threads.
///
/// Padding and truncation in tokenizer.json are switched off: both would change prompts silently.
#[derive(Clone)]
pub struct Tokenizer {
    pub(crate) inner: Arc<Inner>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Loads tokenizer.json, tokenizer_config.json and special_tokens_map.json of a model folder,
    /// and the EOS ids from its generation_config.json and config.json. Only the first must be
    /// there, or in its place a model of SentencePiece, tiktoken's ranks or Mistral's tekken.json.
    ///
    /// ```no_run
    /// use inference_text::{AddSpecial, Tokenizer};
    /// let tokenizer = Tokenizer::from_dir("path/to/model".as_ref())?;
    /// let ids = tokenizer.encode("Hello", AddSpecial::Prompt)?;
    /// # Ok::<(), inference_text::TextError>(())
    /// ```
    ///
    /// # Errors
    /// Whatever is wrong with a file, with its name: absent, unreadable, too large, not JSON, not a
    /// tokenizer.
    pub fn from_dir(dir: &Path) -> Result<Tokenizer, TextError> {
        Tokenizer::from_files(&Folder(dir))
    }

    /// Loads what [`from_dir`](Self::from_dir) loads, from files that need not lie in a folder.
    ///
    /// # Errors
    /// Whatever is wrong with a file, with its name.
    pub fn from_files(dir: &dyn Files) -> Result<Tokenizer, TextError> {
        let mut config = files::read_object(dir, "tokenizer_config.json")?.unwrap_or_default();
        let mut source = match files::read_tokenizer(dir)? {
            Some(bytes) => Source::json(bytes),
            None => converted(dir, &mut config)?.ok_or_else(|| files::no_tokenizer(dir))?,
        };
        let path = dir.path(source.file);
        let mut specials = special_tokens::special_tokens(dir, &config)?;
        source.complete(&mut specials);
        let eos_ids = special_tokens::eos_ids(dir)?;
        // The crate is not written for hostile files: some make it panic.
        let built = caught(|| build(&source, &specials, eos_ids));
        let inner = built
            .unwrap_or_else(|| Err(load::why_it_failed(&source.bytes)))
            .map_err(|reason| files::invalid(&path, reason))?;
        Ok(Tokenizer { inner: Arc::new(inner) })
    }

    /// Ids of a raw text. Special tokens written in it are recognised: for text of users, see
    /// [`ChatFormat`](crate::ChatFormat).
    ///
    /// # Errors
    /// [`TextError::InputTooLarge`] beyond [`MAX_INPUT_BYTES`]; [`TextError::Normalizer`] where the
    /// checkpoint's normalizer multiplies the text; [`TextError::Encode`] if the tokenizer fails.
    pub fn encode(&self, text: &str, add_special: AddSpecial) -> Result<Vec<u32>, TextError> {
        let add = match add_special {
            AddSpecial::Always => true,
            AddSpecial::Never => false,
            AddSpecial::Prompt => self.bos_token().is_none_or(|bos| !text.starts_with(bos)),
        };
        self.check(text)?;
        guarded(|| {
            Ok(self
                .inner
                .tokenizer
                .encode_fast(text, add)
                .map_err(|err| err.to_string())?
                .get_ids()
                .to_vec())
        })
        .map_err(TextError::Encode)
    }

    /// Checks what a text takes, as it is and once it is normalized.
    ///
    /// # Errors
    /// [`TextError::InputTooLarge`], [`TextError::Normalizer`].
    pub(crate) fn check(&self, text: &str) -> Result<(), TextError> {
        let size = text.len();
        if size > MAX_INPUT_BYTES {
            return Err(TextError::InputTooLarge { size, limit: MAX_INPUT_BYTES });
        }
        let grown = guarded(|| Ok(self.inner.growth.check(text, MAX_NORMALIZED_BYTES)));
        match grown.map_err(TextError::Encode)? {
            Ok(_) => Ok(()),
            Err(TooMuch { step, limit }) => Err(TextError::Normalizer { step, size, limit }),
        }
    }

    /// Ids of a rendered chat: nothing is added, as the template has written BOS if the model wants
    /// one.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    pub fn encode_chat(&self, rendered: &str) -> Result<Vec<u32>, TextError> {
        self.encode(rendered, AddSpecial::Never)
    }

    /// Text of `ids`. An id beyond the vocabulary gives no text.
    ///
    /// # Errors
    /// [`TextError::Decode`] if the tokenizer's decoder fails.
    pub fn decode(&self, ids: &[u32], skip_special: SkipSpecial) -> Result<String, TextError> {
        if ids.is_empty() {
            return Ok(String::new());
        }
        let skip = skip_special == SkipSpecial::Yes;
        guarded(|| self.inner.tokenizer.decode(ids, skip).map_err(|err| err.to_string()))
            .map_err(TextError::Decode)
    }

    /// The tokenizer's kind and the file that it was read from: ``BPE (`tokenizer.json`)``.
    pub fn kind(&self) -> &str {
        &self.inner.kind
    }

    /// The token of an id as the vocabulary spells it (`Ġthe`, `▁the`, `<|im_end|>`).
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.inner.tokenizer.id_to_token(id)
    }

    /// The special token of an id, as the vocabulary spells it; `None` for a token that adds text.
    pub fn special_token(&self, id: u32) -> Option<String> {
        self.special_ids().contains(&id).then(|| self.id_to_token(id)).flatten()
    }

    /// The id of a token as the vocabulary spells it.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.tokenizer.token_to_id(token)
    }

    /// Number of tokens, added ones included. A model's logits may be wider.
    pub fn vocab_size(&self) -> usize {
        self.inner.tokenizer.get_vocab_size(true)
    }

    /// Ids of all added tokens that are special.
    pub fn special_ids(&self) -> &BTreeSet<u32> {
        &self.inner.special_ids
    }

    /// Returns true for the id of an added token, special or not.
    pub fn is_added(&self, id: u32) -> bool {
        let vocabulary = self.inner.tokenizer.get_added_vocabulary();
        vocabulary.simple_id_to_token(id).is_some()
    }

    /// Returns the ids at which generation stops: `eos_token_id` of generation_config.json and of
    /// config.json, and the tokenizer's `eos_token`.
    pub fn eos_ids(&self) -> &BTreeSet<u32> {
        &self.inner.eos_ids
    }

    /// The beginning-of-sequence token, if the tokenizer names one.
    pub fn bos_token(&self) -> Option<&str> {
        self.named_token("bos_token")
    }

    /// A special token by its name in tokenizer_config.json: `eos_token`, `pad_token`, …
    pub fn named_token(&self, name: &str) -> Option<&str> {
        self.inner.named.iter().find(|(n, _)| *n == name).map(|(_, token)| token.as_str())
    }

    /// Returns true when the vocabulary has a pair of tokens around the model's thinking, as mlx-lm
    /// decides it. Templates get it as `enable_thinking`.
    pub fn has_thinking(&self) -> bool {
        let has = |tokens: &[&str]| tokens.iter().all(|token| self.token_to_id(token).is_some());
        has(&["<think>", "</think>"])
            || has(&["<longcat_think>", "</longcat_think>"])
            || has(&["<|think:start|>", "<|think:end|>"])
            || has(&["<|channel>", "<channel|>"])
            || has(&["<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"])
    }
}

/// A panic of the tokenizer library is an error of the call that met it.
pub(crate) fn guarded<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    caught(call).unwrap_or_else(|| Err("the tokenizer library failed".into()))
}
