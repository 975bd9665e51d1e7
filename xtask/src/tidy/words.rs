//! Words in a text.

/// Returns true when `word` is in `text` with no letter, digit or underscore on either side.
pub fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_borders() {
        assert!(has_word("an unsafe block", "unsafe"));
        assert!(has_word("unsafe{", "unsafe"));
        assert!(!has_word("#![forbid(unsafe_code)]", "unsafe"));
        assert!(!has_word("notunsafe", "unsafe"));
    }
}
