//! The texts over which no repeat goes, as ids of a vocabulary.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use inference_core::GenerateOptions;
use inference_text::{AddSpecial, SkipSpecial, Tokenizer};

use crate::sampling::{Breakers, Repeats};

/// Those of earlier requests. Each request with DRY has the same, as a rule.
#[derive(Default)]
pub(super) struct KnownBreakers {
    /// The text of each id.
    tokens: OnceLock<Vec<Vec<u8>>>,
    /// Those of the last request.
    last: Mutex<Option<(Vec<String>, Arc<Breakers>)>>,
}

impl KnownBreakers {
    /// The penalty on repeats behind the prompt `ids`, where `options` ask for it.
    pub fn repeats(
        &self,
        options: &GenerateOptions,
        vocabulary: (&Tokenizer, usize),
        ids: &[u32],
    ) -> Option<Repeats> {
        let breakers = self.of(options, vocabulary)?;
        options.dry.clone().map(|dry| Repeats::new(dry, breakers, ids))
    }

    /// The texts over which no repeat goes, where `options` penalise repeats, as ids of a
    /// vocabulary of this size.
    pub fn of(
        &self,
        options: &GenerateOptions,
        (tokenizer, size): (&Tokenizer, usize),
    ) -> Option<Arc<Breakers>> {
        let texts = &options.dry.as_ref().filter(|dry| dry.is_on())?.sequence_breakers;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = last.as_ref().filter(|(known, _)| known == texts) {
            return Some(Arc::clone(known));
        }
        let text = |id| text_of(tokenizer, id);
        let tokens = self.tokens.get_or_init(|| (0..size as u32).map(text).collect());
        let encode = |text: &str| tokenizer.encode(text, AddSpecial::Never).unwrap_or_default();
        let made = Arc::new(Breakers::new(texts, tokens, encode));
        *last = Some((texts.clone(), Arc::clone(&made)));
        Some(made)
    }
}

/// The text of a token by itself; of a special one, its name.
fn text_of(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    if let Some(name) = tokenizer.special_token(id) {
        return name.into_bytes();
    }
    let decoded = || tokenizer.decode(&[id], SkipSpecial::No).unwrap_or_default().into_bytes();
    tokenizer.token_bytes(id).unwrap_or_else(|_| decoded())
}
