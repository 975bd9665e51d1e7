//! The space before the first word of Gemma's answers.

/// State of a text in relation to its first word.
///
/// SentencePiece writes the space before a word as part of the word's token. Most tokenizers drop
/// it from the beginning of a text as they decode; Gemma's leaves it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstWord {
    /// The next text may begin with the space of the first word.
    ToCome,
    /// It was handed over, or the tokenizer takes care of it.
    Over,
}

impl FirstWord {
    /// The state at the beginning of an answer of that architecture.
    pub fn of(architecture: &str) -> FirstWord {
        if architecture.starts_with("gemma") { FirstWord::ToCome } else { FirstWord::Over }
    }

    /// `text` as it is handed over: one space is dropped from the first one that is not empty, and
    /// further ones stay, so that indentation survives.
    pub fn without_its_space<'a>(&mut self, text: &'a str) -> &'a str {
        if *self == FirstWord::Over || text.is_empty() {
            return text;
        }
        *self = FirstWord::Over;
        text.strip_prefix(' ').unwrap_or(text)
    }
}

#[cfg(test)]
mod tests {
    use super::FirstWord;

    fn read(architecture: &str, pieces: &[&str]) -> String {
        let mut first = FirstWord::of(architecture);
        pieces.iter().map(|piece| first.without_its_space(piece)).collect()
    }

    #[test]
    fn gemma_loses_one_space_before_its_first_word_and_no_other() {
        assert_eq!(read("gemma3", &["", " The", " fox"]), "The fox");
        assert_eq!(read("gemma2", &["     if", " x"]), "    if x");
        assert_eq!(read("gemma3_text", &["The", " fox"]), "The fox");
        assert_eq!(read("gemma3_text", &[" ", " x"]), " x");
    }

    #[test]
    fn other_models_keep_their_text() {
        assert_eq!(read("llama", &[" The", " fox"]), " The fox");
    }
}
