//! Regular expressions, grammars, where a text may end, and the bytes of tokens.

use inference_core::Constraint;

use super::{Draws, End, FAMILIES, VOCAB_SIZE, constraints, refusal, tokenizer, write};
use crate::token_bytes::TokenBytes;
use crate::{AddSpecial, SkipSpecial};

const ALL_FAMILIES: [&str; 8] =
    ["gemma", "harmony", "llama3", "mistral", "olmo", "phi", "qwen", "smol"];

const TEXTS: [&str; 8] = [
    "Hello, world!",
    " leading and  double  spaces ",
    "line\n\tbreaks\r\n",
    "Grüße, naïve façade, Ελληνικά, кириллица",
    "日本語のテキスト 한국어 中文",
    "emoji 😀👩‍👩‍👧🏽 and \u{0301}combining",
    "{\"key\": [1, 2.5e-3, null, \"\\u00e9\"]}",
    "\u{0}\u{1f}\u{7f} control <0x41> ▁ Ġ",
];

#[test]
fn the_bytes_of_tokens_make_the_text_that_is_decoded() {
    for family in ALL_FAMILIES {
        let tokenizer = tokenizer(family);
        let bytes = TokenBytes::new(&tokenizer, tokenizer.vocab_size()).unwrap();
        let first = bytes.first.as_ref().unwrap_or(&bytes.inner);
        let concatenated = |ids: &[u32]| -> Vec<u8> {
            let rest = ids[1..].iter().flat_map(|id| bytes.inner[*id as usize].clone());
            first[ids[0] as usize].iter().copied().chain(rest).collect()
        };
        for text in TEXTS {
            let ids = tokenizer.encode(text, AddSpecial::Never).unwrap();
            let decoded = tokenizer.decode(&ids, SkipSpecial::Yes).unwrap();
            assert_eq!(String::from_utf8(concatenated(&ids)).unwrap(), decoded, "{family}");
        }
        // Also what no text is encoded as.
        let mut draws = Draws(7);
        for _ in 0..300 {
            let count = 1 + draws.below(6);
            let ids: Vec<u32> =
                (0..count).map(|_| draws.below(tokenizer.vocab_size()) as u32).collect();
            // Special tokens would be the first ones of nothing.
            if ids.iter().any(|id| tokenizer.special_ids().contains(id)) {
                continue;
            }
            if let Ok(text) = String::from_utf8(concatenated(&ids)) {
                assert_eq!(text, tokenizer.decode(&ids, SkipSpecial::Yes).unwrap(), "{family}");
            }
        }
    }
}

#[test]
fn a_token_alone_has_the_bytes_that_it_is_decoded_to() {
    for family in ALL_FAMILIES {
        let tokenizer = tokenizer(family);
        let bytes = TokenBytes::new(&tokenizer, tokenizer.vocab_size()).unwrap();
        let first = bytes.first.as_ref().unwrap_or(&bytes.inner);
        for id in 0..tokenizer.vocab_size() as u32 {
            let text = tokenizer.decode(&[id], SkipSpecial::Yes).unwrap();
            match String::from_utf8(first[id as usize].clone()) {
                Ok(spelled) => assert_eq!(spelled, text, "{family}: {id}"),
                Err(_) => assert!(text.contains(char::REPLACEMENT_CHARACTER), "{family}: {id}"),
            }
            assert_eq!(tokenizer.token_bytes(id).unwrap(), bytes.inner[id as usize], "{family}");
        }
    }
}

#[test]
fn what_is_written_under_a_regular_expression_matches_it() {
    for family in FAMILIES {
        let tokenizer = tokenizer(family);
        let constraints = constraints(&tokenizer);
        for regex in [
            "[a-z]+",
            "(yes|no|maybe)",
            " ?[A-Z][a-z]{2,8}( [A-Z][a-z]{2,8}){0,2}",
            r"\d{3}-\d{4}",
            r"(\+\d{1,3} )?\(\d{3}\) \d{3}",
            "[äöü€😀]{2,5}",
            r"[^\x00-\x7f]{1,3}",
            "a/b\\\\c\"d'",
            " leading",
            "(?i)select [a-z]{1,9} from [a-z]{1,9}",
            "(a|aa){3}",
            "^[a-z]{2,4}$",
            "",
        ] {
            let whole = pattern(&format!("^(?:{regex})$"));
            for seed in 0..8 {
                let mut matcher = constraints.matcher(&Constraint::Regex(regex.into())).unwrap();
                let (text, end) = write(&mut matcher, &tokenizer, seed, 200);
                if end != End::Length {
                    assert!(whole.is_match(&text), "{family}: {regex}: {text:?}");
                }
            }
        }
    }
}

/// The tokenizers' own regular expressions are those of another library.
fn pattern(regex: &str) -> regex::Regex {
    regex::Regex::new(regex).unwrap()
}

#[test]
fn a_regular_expression_that_is_wrong_is_refused_with_the_place() {
    let constraints = constraints(&tokenizer("qwen"));
    for (regex, words) in [
        ("[a-z", "unclosed"),
        ("(?=a)", "look-around"),
        (r"(a)\1", "backreferences"),
        ("*a", "repetition"),
        ("(a", "unclosed"),
        (r"\bword\b", ""),
    ] {
        let reason = refusal(&constraints, &Constraint::Regex(regex.into()));
        assert!(reason.contains(words), "{regex}: {reason}");
    }
}

#[test]
fn the_end_is_allowed_exactly_where_the_text_may_end() {
    let tokenizer = tokenizer("qwen");
    let constraints = constraints(&tokenizer);
    let eos: Vec<u32> = tokenizer.eos_ids().iter().copied().collect();
    let id = |token| tokenizer.token_to_id(token).unwrap();
    let mut matcher = constraints.matcher(&Constraint::Regex("ab?".into())).unwrap();
    matcher.stop_at(&[id("z")]);
    let ends = |mask: &super::super::matcher::Mask| {
        eos.iter().chain(&[id("z")]).map(|id| mask.allows(*id)).collect::<Vec<_>>()
    };
    let mask = matcher.mask().unwrap();
    assert!(ends(&mask).iter().all(|allowed| !allowed));
    assert!(mask.allows(id("a")) && !mask.allows(id("b")));
    matcher.accept(id("a"));
    assert!(!matcher.is_complete());
    let mask = matcher.mask().unwrap();
    assert!(ends(&mask).iter().all(|allowed| *allowed));
    assert!(mask.allows(id("b")) && !mask.allows(id("a")));
    assert_eq!(mask.to_bytes().len(), VOCAB_SIZE);
    // No token stands behind the last rows of the output layer.
    assert!((tokenizer.vocab_size() as u32..VOCAB_SIZE as u32).all(|id| !mask.allows(id)));
    matcher.accept(id("b"));
    assert!(matcher.is_complete());
}

#[test]
fn a_token_that_was_not_allowed_is_that_requests_error() {
    let tokenizer = tokenizer("qwen");
    let mut matcher = constraints(&tokenizer).matcher(&Constraint::Regex("abc".into())).unwrap();
    for id in [tokenizer.token_to_id("z").unwrap(), 1_000_000] {
        matcher.accept(id);
        let error = matcher.mask().unwrap_err().to_string();
        assert!(error.starts_with("option `constraint`: "), "{error}");
        assert!(!matcher.is_complete());
    }
}
