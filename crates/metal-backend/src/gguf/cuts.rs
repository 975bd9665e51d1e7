//! How text is cut before pairs are merged, by llama.cpp's names.

use serde_json::{Value as Json, json};

use super::reader::shown;
use crate::error::{Error, Result};

/// A way to cut text.
#[derive(Debug)]
pub(super) struct Cut {
    names: &'static [&'static str],
    /// The patterns by which text is cut, one after the other; none: as GPT-2 does.
    patterns: &'static [&'static str],
    /// Each digit is cut out first.
    digits: bool,
    /// Whole pieces that are tokens need no merges.
    pub ignores_merges: bool,
    /// Text begins with a token where the file does not say.
    pub adds_bos: bool,
    /// Characters are composed first.
    pub composes: bool,
}

const PLAIN: Cut = Cut {
    names: &[],
    patterns: &[],
    digits: false,
    ignores_merges: false,
    adds_bos: false,
    composes: false,
};

/// That of Llama 3, with up to three digits at once.
const THREES: &[&str] = &[
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];
/// That of Qwen 2, with one digit.
const ONES: &[&str] = &[
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

/// That of DeepSeek V3, whose words may begin with a mark.
const PUNCTUATED: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;

/// That of Ling, with one line end behind spaces.
const BAILING: &[&str] = &[
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
];

/// That of Qwen 3.5, whose words have their marks.
const MARKED: &[&str] = &[
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];
/// That of Kimi K2, which keeps Chinese apart.
const KIMI: &[&str] = &[
    r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];
/// That of Seed, whose signs stand before line breaks.
const SEED: &[&str] = &[
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
];

/// That of Laguna, line by line.
const LINES: &[&str] = &[r"[^\n]+|[\n]+", ONES[0]];

const CUTS: [Cut; 16] = [
    Cut {
        names: &["gpt-2", "gpt2", "phi-2", "olmo", "mpt", "exaone4", "trillion", "granite-docling"],
        ..PLAIN
    },
    Cut {
        names: &["smollm", "refact", "starcoder", "command-r", "codeshell", "exaone", "minerva-7b"],
        digits: true,
        ..PLAIN
    },
    Cut {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
        ],
        patterns: THREES,
        ignores_merges: true,
        adds_bos: true,
        ..PLAIN
    },
    Cut { names: &["dbrx", "smaug-bpe", "chatglm-bpe"], patterns: THREES, ..PLAIN },
    Cut { names: &["glm4"], patterns: THREES, ignores_merges: true, ..PLAIN },
    Cut { names: &["qwen2"], patterns: ONES, composes: true, ..PLAIN },
    Cut { names: &["qwen35"], patterns: MARKED, composes: true, ..PLAIN },
    Cut { names: &["kimi-k2"], patterns: KIMI, ..PLAIN },
    Cut { names: &["laguna"], patterns: LINES, ..PLAIN },
    Cut { names: &["seed-coder"], patterns: SEED, ..PLAIN },
    Cut { names: &["bailingmoe", "bailingmoe2"], patterns: BAILING, ..PLAIN },
    Cut { names: &["deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"], patterns: ONES, ..PLAIN },
    Cut {
        names: &["gpt-4o", "llama4", "minimax-m2"],
        patterns: &[
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ..PLAIN
    },
    Cut {
        names: &["tekken"],
        patterns: &[
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ignores_merges: true,
        ..PLAIN
    },
    Cut {
        names: &["afmoe"],
        patterns: &[
            // Threes from the end of a number.
            r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
            r"[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+",
            PUNCTUATED,
        ],
        ..PLAIN
    },
    Cut {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        patterns: &[r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", PUNCTUATED],
        ..PLAIN
    },
];

impl Cut {
    /// The way that files call so.
    ///
    /// # Errors
    /// One that is not known, by name.
    pub fn named(name: Option<&str>) -> Result<&'static Cut> {
        let name = name.unwrap_or("default");
        let known = CUTS.iter().find(|cut| cut.names.contains(&name));
        known.ok_or_else(|| {
            let names: Vec<&str> = CUTS.iter().flat_map(|cut| cut.names).copied().collect();
            let name = shown(name);
            Error::model(format!("`tokenizer.ggml.pre` is `{name}`; {} work", names.join(", ")))
        })
    }

    /// The pre-tokenizer of `tokenizer.json` that cuts so.
    pub fn pre_tokenizer(&self) -> Json {
        let as_gpt2 = self.patterns.is_empty();
        let split = |pattern: &&str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        let digits = self.digits.then(|| json!({"type": "Digits", "individual_digits": true}));
        let bytes = json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": as_gpt2,
        });
        let all: Vec<Json> =
            digits.into_iter().chain(self.patterns.iter().map(split)).chain([bytes]).collect();
        json!({"type": "Sequence", "pretokenizers": all})
    }
}
