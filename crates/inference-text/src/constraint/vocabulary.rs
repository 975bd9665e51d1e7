//! A tokenizer as llguidance sees it: a trie of the bytes of its tokens.

use std::sync::Arc;

use llguidance::ParserFactory;
use llguidance::api::ParserLimits;
use llguidance::earley::SlicedBiasComputer;
use toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};

use crate::panics::caught;
use crate::token_bytes::TokenBytes;
use crate::{TextError, Tokenizer};

/// The trie takes 1024 bytes; a longer token is never allowed.
const MAX_TOKEN_BYTES: usize = 1000;

/// Comes before the names of special tokens.
const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// Nothing would tell where a text may end.
const NO_END: &str = "the model has no end-of-sequence id";

/// The vocabulary of a model, shared by all of its constrained requests.
#[derive(Clone)]
pub(super) struct Vocabulary {
    /// At the beginning of a text.
    pub first: Arc<ParserFactory>,
    /// After the first token.
    pub inner: Arc<ParserFactory>,
    /// Rows of the output layer.
    pub size: usize,
    /// Ids that end a text.
    pub eos_ids: Arc<[u32]>,
    /// Ids of tokens that are nothing but line breaks.
    pub line_breaks: Arc<[u32]>,
}

impl Vocabulary {
    /// The vocabulary of a model with `size` rows in its output layer, whose text ends with
    /// `eos_ids`. Ids that the tokenizer does not know are never allowed.
    ///
    /// # Errors
    /// A decoder for which a token's text depends on the tokens around it; what llguidance does
    /// not take.
    pub fn new(
        tokenizer: &Tokenizer,
        eos_ids: &[u32],
        size: usize,
    ) -> Result<Vocabulary, TextError> {
        let TokenBytes { inner, first } = TokenBytes::new(tokenizer, size)?;
        let is_line_break =
            |word: &[u8]| !word.is_empty() && word.iter().all(|b| b"\r\n".contains(b));
        let line_breaks = (0..).zip(&inner).filter(|(_, word)| is_line_break(word));
        let line_breaks = line_breaks.map(|(id, _)| id).collect();
        let factory = |words: Vec<Vec<u8>>| {
            // The trie is built with assertions on what it can hold.
            caught(|| factory(tokenizer, eos_ids, words))
                .unwrap_or_else(|| Err("its tokens do not fit into a trie".to_owned()))
                .map(Arc::new)
                .map_err(TextError::Decode)
        };
        let inner = factory(inner)?;
        let first = match first {
            Some(words) => factory(words)?,
            None => Arc::clone(&inner),
        };
        Ok(Vocabulary { first, inner, size, eos_ids: eos_ids.into(), line_breaks })
    }
}

/// Why no text of a model with this tokenizer can be constrained, where that shows before a
/// vocabulary is built.
pub fn refusal(tokenizer: &Tokenizer, eos_ids: &[u32], size: usize) -> Option<String> {
    if !eos_ids.iter().any(|id| (*id as usize) < size) {
        return Some(NO_END.to_owned());
    }
    TokenBytes::check(tokenizer).err().map(|error| error.to_string())
}

fn factory(
    tokenizer: &Tokenizer,
    eos_ids: &[u32],
    mut words: Vec<Vec<u8>>,
) -> Result<ParserFactory, String> {
    for word in &mut words {
        // No text has the byte that marks special tokens; alone it stands for all of them.
        if word.len() > MAX_TOKEN_BYTES || word.starts_with(&[MARKER]) && word.len() > 1 {
            word.clear();
        }
    }
    for &id in tokenizer.special_ids().iter().chain(eos_ids) {
        if let (Some(word), Some(name)) = (words.get_mut(id as usize), tokenizer.id_to_token(id)) {
            *word = [&[MARKER], name.as_bytes()].concat();
        }
    }
    let size = words.len() as u32;
    let eos_ids: Vec<u32> = eos_ids.iter().copied().filter(|id| *id < size).collect();
    let Some(&eos) = eos_ids.first() else {
        return Err(NO_END.to_owned());
    };
    let trie = TokTrie::from(&TokRxInfo::new(size, eos), &words).with_eos_tokens(&eos_ids);
    // Which tokens spell a text is left to the model: nothing is tokenized here.
    let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let slices = SlicedBiasComputer::json_slices();
    let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
        .map_err(|error| error.to_string())?;
    *factory.limits_mut() = LIMITS;
    factory.quiet();
    Ok(factory)
}

/// The limits of one request: some 20 ms to compile its expressions, some 15 ms a mask, 100 MB for
/// the states of its lexer.
const LIMITS: ParserLimits = ParserLimits {
    max_items_in_row: 2000,
    initial_lexer_fuel: 1_000_000,
    step_lexer_fuel: 200_000,
    step_max_items: 50_000,
    max_lexer_states: 50_000,
    max_grammar_size: 500_000,
    precompute_large_lexemes: false,
    verbose_errors: false,
};
