//! From what espeak-ng writes to the symbols that Kokoro was trained on: those of the package
//! misaki, whose replacements its documentation lists
//! (<https://github.com/hexgrad/misaki/blob/main/EN_PHONES.md>).

use inference_core::{Error, Result};

/// A language that is turned into phonemes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    American,
    British,
    /// Another one, by the name that espeak-ng has for it.
    Other(&'static str),
}

/// Signs of espeak-ng in English, longer ones first: diphthongs and affricates are one symbol.
const ENGLISH: [(&str, &str); 19] = [
    ("ʔˌn\u{329}", "tn"),
    ("ʔn\u{329}", "tn"),
    ("a^ɪ", "I"),
    ("a^ʊ", "W"),
    ("d^ʒ", "ʤ"),
    ("e^ɪ", "A"),
    ("t^ʃ", "ʧ"),
    ("ɔ^ɪ", "Y"),
    ("ə^l", "ᵊl"),
    ("ʔn", "tn"),
    ("ʲo", "jo"),
    ("ʲə", "jə"),
    ("ʲ", ""),
    ("e", "A"),
    ("r", "ɹ"),
    ("x", "k"),
    ("ç", "k"),
    ("ɐ", "ə"),
    ("ɬ", "l"),
];

/// Those of Britain, and of America.
const BRITISH: [(&str, &str); 3] = [("e^ə", "ɛː"), ("iə", "ɪə"), ("ə^ʊ", "Q")];
const AMERICAN: [(&str, &str); 6] =
    [("o^ʊ", "O"), ("ɚ", "əɹ"), ("ɜːɹ", "ɜɹ"), ("ɜː", "ɜɹ"), ("ɪə", "iə"), ("ː", "")];

/// Those behind all others.
const LAST: [(&str, &str); 5] = [("o", "ɔ"), ("ɾ", "T"), ("ʔ", "t"), ("\u{303}", ""), ("^", "")];

/// Signs of espeak-ng in other languages.
const OTHERS: [(&str, &str); 13] = [
    ("a^ɪ", "I"),
    ("a^ʊ", "W"),
    ("d^z", "ʣ"),
    ("d^ʒ", "ʤ"),
    ("e^ɪ", "A"),
    ("o^ʊ", "O"),
    ("ə^ʊ", "Q"),
    ("s^s", "S"),
    ("t^s", "ʦ"),
    ("t^ʃ", "ʧ"),
    ("ɔ^ɪ", "Y"),
    ("^", ""),
    ("-", ""),
];

impl Language {
    /// The language of a voice, by the first letter of its name.
    ///
    /// # Errors
    /// One that espeak-ng does not speak as Kokoro learned it, with the reason.
    pub fn of_voice(voice: &str) -> Result<Language> {
        let unsupported = |language: &str, program: &str| Error::Unsupported {
            what: "text".into(),
            reason: format!(
                "phonemes of {language} come from {program}, not from espeak-ng; give phonemes instead"
            ),
        };
        match voice.chars().next().unwrap_or_default() {
            'a' => Ok(Language::American),
            'b' => Ok(Language::British),
            'e' => Ok(Language::Other("es")),
            'f' => Ok(Language::Other("fr-fr")),
            'h' => Ok(Language::Other("hi")),
            'i' => Ok(Language::Other("it")),
            'p' => Ok(Language::Other("pt-br")),
            'j' => Err(unsupported("Japanese", "pyopenjtalk")),
            'z' => Err(unsupported("Chinese", "jieba and pypinyin")),
            _ => Err(Error::InvalidOption {
                option: "voice",
                reason: format!(
                    "`{voice}` begins with none of a, b, e, f, h, i and p, which tell the language of text; give phonemes instead"
                ),
            }),
        }
    }

    /// The name that espeak-ng has for it.
    pub fn of_espeak(self) -> &'static str {
        match self {
            Language::American => "en-us",
            Language::British => "en-gb",
            Language::Other(name) => name,
        }
    }

    /// The text that espeak-ng wrote with `^` for ties, in Kokoro's symbols.
    pub fn symbols(self, written: &str) -> String {
        let replaced = |text: String, table: &[(&str, &str)]| {
            table.iter().fold(text, |text, (from, to)| text.replace(from, to))
        };
        let text = without_switches(written);
        match self {
            Language::Other(_) => replaced(text, &OTHERS),
            // Before the `e` of it is taken for another sound.
            Language::British => {
                let text = replaced(replaced(text, &BRITISH), &ENGLISH);
                replaced(syllabic(&replaced(text, &[("ɚ", "əɹ")])), &LAST)
            }
            Language::American => {
                let text = syllabic(&replaced(text, &ENGLISH));
                replaced(replaced(text, &AMERICAN), &LAST)
            }
        }
    }
}

/// `text` without the marks of another language's words, such as `(en)`.
fn without_switches(text: &str) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once('(') {
        kept += before;
        rest = behind.split_once(')').map_or("", |(_, behind)| behind);
    }
    kept + rest
}

/// A consonant that is a syllable has a short vowel before it in place of the mark below it.
fn syllabic(text: &str) -> String {
    const MARK: char = '\u{329}';
    let mut made = String::new();
    let mut symbols = text.chars().peekable();
    while let Some(symbol) = symbols.next() {
        let is_marked = symbols.next_if_eq(&MARK).is_some();
        if is_marked && !symbol.is_whitespace() {
            made.push('ᵊ');
        }
        if symbol != MARK {
            made.push(symbol);
        }
    }
    made
}

/// A part of a piece: words for espeak-ng, or marks that Kokoro reads as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Words(String),
    Marks(String),
}

/// Returns true for a mark that is kept among phonemes.
fn is_mark(character: char) -> bool {
    matches!(
        character,
        ';' | ':'
            | ','
            | '.'
            | '!'
            | '?'
            | '¡'
            | '¿'
            | '—'
            | '…'
            | '"'
            | '«'
            | '»'
            | '“'
            | '”'
            | '('
            | ')'
            | '{'
            | '}'
            | '['
            | ']'
            | '<'
            | '>'
            | '–'
            | '„'
            | '।'
            | '॥'
            | '。'
            | '！'
            | '？'
    )
}

/// The mark as Kokoro knows it; some are not said.
fn known_mark(mark: char) -> Option<char> {
    match mark {
        '«' | '„' => Some('“'),
        '»' => Some('”'),
        '{' | '[' => Some('('),
        '}' | ']' => Some(')'),
        '–' => Some('—'),
        '।' | '॥' | '。' => Some('.'),
        '！' => Some('!'),
        '？' => Some('?'),
        '¡' | '¿' | '<' | '>' => None,
        other => Some(other),
    }
}

/// The parts of a piece of text. A point, a comma or a colon inside a number or a word is none.
pub(super) fn parts(text: &str) -> Vec<Part> {
    let characters: Vec<char> = text.chars().collect();
    let is_inside = |at: usize| {
        let is_part = |at: Option<usize>| {
            at.and_then(|at| characters.get(at)).is_some_and(|c| c.is_alphanumeric())
        };
        matches!(characters[at], '.' | ',' | ':')
            && is_part(at.checked_sub(1))
            && is_part(Some(at + 1))
    };
    let (mut made, mut words, mut marks) = (Vec::new(), String::new(), String::new());
    for (at, character) in characters.iter().enumerate() {
        let is_blank = character.is_whitespace();
        if is_mark(*character) && !is_inside(at) || is_blank && words.trim().is_empty() {
            if !words.is_empty() {
                let blank = if words.ends_with(char::is_whitespace) { " " } else { "" };
                made.push(Part::Words(words.trim().to_owned()));
                marks += blank;
                words.clear();
            }
            // Words on both sides of a mark that is not said stay two.
            let unsaid = if marks.is_empty() && !made.is_empty() { Some(' ') } else { None };
            marks.extend(if is_blank { Some(' ') } else { known_mark(*character).or(unsaid) });
            continue;
        }
        if !marks.is_empty() {
            made.push(Part::Marks(std::mem::take(&mut marks)));
        }
        words.push(*character);
    }
    if !words.trim().is_empty() {
        made.push(Part::Words(words.trim().to_owned()));
    }
    if !marks.is_empty() {
        made.push(Part::Marks(marks));
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_espeak_become_symbols_of_kokoro() {
        for (language, written, expected) in [
            (Language::American, "həlˈo^ʊ wˈɜːld", "həlˈO wˈɜɹld"),
            (Language::American, "d^ʒˈʌd^ʒ t^ʃˈɔ^ɪs", "ʤˈʌʤ ʧˈYs"),
            (Language::American, "bˈʌʔn\u{329} wˈɔːɾɚ", "bˈʌtn wˈɔTəɹ"),
            (Language::American, "lˈɪɾl\u{329}", "lˈɪTᵊl"),
            (Language::British, "həlˈə^ʊ hˈe^ə", "həlˈQ hˈɛː"),
            (Language::Other("es"), "(en)t^ʃˈat(es) ˈola-", "ʧˈat ˈola"),
        ] {
            assert_eq!(language.symbols(written), expected, "{language:?}");
        }
    }

    #[test]
    fn a_voices_letter_is_its_language() {
        assert_eq!(Language::of_voice("bm_george"), Ok(Language::British));
        assert_eq!(Language::of_voice("pf_dora").map(Language::of_espeak), Ok("pt-br"));
        for (voice, reason) in [("jf_alpha", "pyopenjtalk"), ("zf_a", "jieba"), ("x", "begins")] {
            let error = Language::of_voice(voice).expect_err("it is refused").to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn marks_are_kept_and_numbers_are_whole() {
        let words = |text: &str| Part::Words(text.into());
        let marks = |text: &str| Part::Marks(text.into());
        assert_eq!(
            parts("Well, it is 12.5 [or so]…"),
            [
                words("Well"),
                marks(", "),
                words("it is 12.5"),
                marks(" ("),
                words("or so"),
                marks(")…")
            ]
        );
        assert_eq!(parts("«Hi»!"), [marks("“"), words("Hi"), marks("”!")]);
        assert_eq!(parts("a<b"), [words("a"), marks(" "), words("b")]);
        assert_eq!(parts("एक। दो"), [words("एक"), marks(". "), words("दो")]);
    }
}
