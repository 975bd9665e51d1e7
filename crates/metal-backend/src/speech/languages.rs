//! The languages of Whisper: codes and English names.

/// Code and English name of each, as OpenAI published them.
#[rustfmt::skip]
const LANGUAGES: [(&str, &str); 100] = [
    ("en", "english"), ("zh", "chinese"), ("de", "german"), ("es", "spanish"), ("ru", "russian"),
    ("ko", "korean"), ("fr", "french"), ("ja", "japanese"), ("pt", "portuguese"), ("tr", "turkish"),
    ("pl", "polish"), ("ca", "catalan"), ("nl", "dutch"), ("ar", "arabic"), ("sv", "swedish"),
    ("it", "italian"), ("id", "indonesian"), ("hi", "hindi"), ("fi", "finnish"), ("vi", "vietnamese"),
    ("he", "hebrew"), ("uk", "ukrainian"), ("el", "greek"), ("ms", "malay"), ("cs", "czech"),
    ("ro", "romanian"), ("da", "danish"), ("hu", "hungarian"), ("ta", "tamil"), ("no", "norwegian"),
    ("th", "thai"), ("ur", "urdu"), ("hr", "croatian"), ("bg", "bulgarian"), ("lt", "lithuanian"),
    ("la", "latin"), ("mi", "maori"), ("ml", "malayalam"), ("cy", "welsh"), ("sk", "slovak"),
    ("te", "telugu"), ("fa", "persian"), ("lv", "latvian"), ("bn", "bengali"), ("sr", "serbian"),
    ("az", "azerbaijani"), ("sl", "slovenian"), ("kn", "kannada"), ("et", "estonian"),
    ("mk", "macedonian"), ("br", "breton"), ("eu", "basque"), ("is", "icelandic"), ("hy", "armenian"),
    ("ne", "nepali"), ("mn", "mongolian"), ("bs", "bosnian"), ("kk", "kazakh"), ("sq", "albanian"),
    ("sw", "swahili"), ("gl", "galician"), ("mr", "marathi"), ("pa", "punjabi"), ("si", "sinhala"),
    ("km", "khmer"), ("sn", "shona"), ("yo", "yoruba"), ("so", "somali"), ("af", "afrikaans"),
    ("oc", "occitan"), ("ka", "georgian"), ("be", "belarusian"), ("tg", "tajik"), ("sd", "sindhi"),
    ("gu", "gujarati"), ("am", "amharic"), ("yi", "yiddish"), ("lo", "lao"), ("uz", "uzbek"),
    ("fo", "faroese"), ("ht", "haitian creole"), ("ps", "pashto"), ("tk", "turkmen"),
    ("nn", "nynorsk"), ("mt", "maltese"), ("sa", "sanskrit"), ("lb", "luxembourgish"),
    ("my", "myanmar"), ("bo", "tibetan"), ("tl", "tagalog"), ("mg", "malagasy"), ("as", "assamese"),
    ("tt", "tatar"), ("haw", "hawaiian"), ("ln", "lingala"), ("ha", "hausa"), ("ba", "bashkir"),
    ("jw", "javanese"), ("su", "sundanese"), ("yue", "cantonese"),
];
/// Further names of some.
const ALIASES: [(&str, &str); 12] = [
    ("my", "burmese"),
    ("ca", "valencian"),
    ("nl", "flemish"),
    ("ht", "haitian"),
    ("lb", "letzeburgesch"),
    ("ps", "pushto"),
    ("pa", "panjabi"),
    ("ro", "moldavian"),
    ("ro", "moldovan"),
    ("si", "sinhalese"),
    ("es", "castilian"),
    ("zh", "mandarin"),
];
/// Languages that are written without blanks between words.
const WITHOUT_BLANKS: [&str; 6] = ["zh", "ja", "th", "lo", "my", "yue"];

/// The codes of all languages.
pub(super) fn codes() -> impl Iterator<Item = &'static str> {
    LANGUAGES.iter().map(|(code, _)| *code)
}

/// The code of the language that a person names by its code or its English name, in any case; a
/// code with a region, such as `pt-BR`, is that without.
pub(super) fn code(name: &str) -> Option<&'static str> {
    let name = name.trim().to_lowercase();
    let own = name.split_once(['-', '_']).map_or(name.as_str(), |(code, _)| code);
    let known = LANGUAGES.iter().chain(&ALIASES).find(|(_, known)| *known == name);
    let known = known.or_else(|| LANGUAGES.iter().find(|(code, _)| *code == own));
    known.map(|(code, _)| *code)
}

/// Returns true for a language whose words are not told apart by blanks.
pub(super) fn has_no_blanks(code: &str) -> bool {
    WITHOUT_BLANKS.contains(&code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_known_by_code_and_by_name() {
        for (name, expected) in [
            ("de", Some("de")),
            ("German", Some("de")),
            (" FRENCH ", Some("fr")),
            ("pt-BR", Some("pt")),
            ("zh_CN", Some("zh")),
            ("haitian creole", Some("ht")),
            ("Mandarin", Some("zh")),
            ("klingon", None),
            ("", None),
        ] {
            assert_eq!(code(name), expected, "{name}");
        }
        assert_eq!(codes().count(), 100);
    }
}
