//! The cutting of text into pieces that are said at once: sentences, short ones together.

/// Characters up to which sentences are joined: alone, a few words are said too fast.
const FEW: usize = 60;
/// Characters of a piece, at most.
const MOST: usize = 300;

/// Returns true for the end of a sentence.
fn ends_sentence(character: char) -> bool {
    matches!(character, '.' | '!' | '?' | '…' | '\n' | '।' | '॥' | '。' | '！' | '？')
}

/// Returns true for the end of a part of a sentence.
fn ends_part(character: char) -> bool {
    matches!(character, ',' | ';' | ':' | '—' | ')' | '”')
}

/// The pieces of `text`, without what cannot be said: each has a letter or a digit.
pub(super) fn of_text(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for sentence in sentences(text) {
        let count = |text: &str| text.chars().count();
        let fits = |last: &String| {
            count(last) < FEW && count(last) + count(&sentence) < MOST && !last.ends_with('\n')
        };
        match pieces.last_mut().filter(|last| fits(last)) {
            Some(last) => *last = format!("{last} {sentence}"),
            None => pieces.push(sentence),
        }
    }
    let said = |piece: &String| piece.chars().any(char::is_alphanumeric);
    pieces.into_iter().map(|piece| piece.trim().to_owned()).filter(said).collect()
}

/// Sentences, each [`MOST`] characters long at most; the last one of a paragraph ends with `\n`.
fn sentences(text: &str) -> Vec<String> {
    let cleaned: String = text.chars().filter_map(cleaned).collect();
    // The last character ends a sentence.
    let cleaned: Vec<char> = cleaned.trim_end().chars().collect();
    let (mut made, mut sentence) = (Vec::<String>::new(), String::new());
    for (at, character) in cleaned.iter().enumerate() {
        let next = cleaned.get(at + 1);
        if *character == '\n' && sentence.trim().is_empty() {
            // The sentence before is the paragraph's last one.
            made.last_mut().into_iter().for_each(|last| last.push('\n'));
            sentence.clear();
            continue;
        }
        match character {
            '\n' => {}
            character if character.is_whitespace() && sentence.ends_with(' ') => continue,
            character if character.is_whitespace() => sentence.push(' '),
            character => sentence.push(*character),
        }
        let is_last = next.is_none_or(|next| next.is_whitespace());
        let closes = |character: &char| matches!(character, '"' | '”' | ')' | '»' | '\'');
        // Looked at once for each run of closing marks: a text may be nothing else.
        let ends = *character == '\n'
            || is_last && {
                let before = sentence.trim_end_matches(|character| closes(&character));
                before.chars().next_back().is_some_and(ends_sentence)
            };
        if ends || at + 1 == cleaned.len() {
            let paragraph = if *character == '\n' { "\n" } else { "" };
            let parts = cut(sentence.trim(), MOST);
            let last = parts.len().saturating_sub(1);
            let ended = parts
                .into_iter()
                .enumerate()
                .map(|(part, text)| if part == last { text + paragraph } else { text });
            made.extend(ended.filter(|text| !text.trim().is_empty()));
            sentence.clear();
        }
    }
    made
}

/// A character as it is said: others than those of text are blanks or nothing.
fn cleaned(character: char) -> Option<char> {
    match character {
        '\n' | '\u{2028}' | '\u{2029}' | '\u{b}' | '\u{c}' => Some('\n'),
        '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{ad}' => None,
        other if other.is_control() => Some(' '),
        other => Some(other),
    }
}

/// The pieces of phonemes that have `most` of them at most.
pub(super) fn of_phonemes(phonemes: &str, most: usize) -> Vec<String> {
    cut(phonemes.trim(), most)
}

/// Parts of `text` with `most` characters at most: cut behind a sentence, else behind a part of
/// one, else at a blank, else anywhere.
fn cut(text: &str, most: usize) -> Vec<String> {
    let all: Vec<char> = text.chars().collect();
    let (mut made, mut first) = (Vec::new(), 0);
    while first < all.len() {
        let rest = &all[first..];
        let end = match rest.len() <= most {
            true => rest.len(),
            false => {
                let window = &rest[..most.max(1)];
                let behind = |is: &dyn Fn(char) -> bool| {
                    // A cut that leaves next to nothing is none.
                    window.iter().rposition(|c| is(*c)).map(|at| at + 1).filter(|at| *at > most / 4)
                };
                behind(&ends_sentence)
                    .or_else(|| behind(&ends_part))
                    .or_else(|| behind(&char::is_whitespace))
                    .unwrap_or(window.len())
            }
        };
        let part: String = rest[..end].iter().collect();
        if !part.trim().is_empty() {
            made.push(part.trim().to_owned());
        }
        first += end;
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_sentences_are_said_together_and_paragraphs_apart() {
        let text = "Hello. This is a test, of 12.5 things!\nA new paragraph (it is one) begins.";
        let pieces = of_text(text);
        assert_eq!(
            pieces,
            ["Hello. This is a test, of 12.5 things!", "A new paragraph (it is one) begins."]
        );
        let long = "This sentence has more than sixty characters, so that it stands alone. Next.";
        assert_eq!(of_text(long).len(), 2);
    }

    #[test]
    fn what_cannot_be_said_is_left_out() {
        assert!(of_text("...\n\u{7}\u{0} — !\n").is_empty());
        assert_eq!(of_text("Hi \u{1b} there \u{7} "), ["Hi there"]);
        assert_eq!(of_text("a\u{0}b\u{7}\u{feff}c\td"), ["a b c d"]);
    }

    #[test]
    fn long_text_is_cut_into_short_pieces_without_loss() {
        let words = "word ".repeat(20_000);
        let pieces = of_text(&words);
        assert!(pieces.iter().all(|piece| piece.chars().count() <= MOST), "{}", pieces.len());
        assert_eq!(pieces.join(" "), words.trim());
        let solid = "ä".repeat(100_000);
        assert_eq!(of_text(&solid).concat(), solid);
        assert!(of_text(&"'".repeat(1_000_000)).is_empty());
        let hindi = "यह एक वाक्य है जो काफ़ी लंबा है और अपने आप में पूरा है ताकि अकेला खड़ा रहे। दूसरा।";
        assert_eq!(of_text(hindi).len(), 2);
        assert_eq!(of_phonemes("ab cd, ef gh", 8), ["ab cd,", "ef gh"]);
        assert_eq!(of_phonemes("abcdefghij", 4), ["abcd", "efgh", "ij"]);
    }
}
