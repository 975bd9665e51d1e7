//! The source of a tokenizer: a `tokenizer.json`, or another file that was made into one.

use std::borrow::Cow;

use crate::around::Around;
use crate::special_tokens::{SpecialTokens, TokenSpec};

/// A tokenizer as `tokenizer.json`, and what a converted one has beside it.
pub(crate) struct Source {
    /// The name of the file that it was made of.
    pub file: &'static str,
    /// The format of the file.
    pub kind: &'static str,
    pub bytes: Cow<'static, [u8]>,
    /// Tokens to add, as if `added_tokens_decoder` named them.
    pub added: Vec<TokenSpec>,
    /// The ids around a text, where the file itself does not say.
    pub around: Option<Around>,
}

impl Source {
    /// A `tokenizer.json` as it is.
    pub fn json(bytes: Cow<'static, [u8]>) -> Source {
        Source { file: "tokenizer.json", kind: "", bytes, added: Vec::new(), around: None }
    }

    /// Puts the tokens to add behind those of the configs, which go before.
    pub fn complete(&mut self, specials: &mut SpecialTokens) {
        specials.added.append(&mut self.added);
    }
}
