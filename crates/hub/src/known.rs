//! Well-known models: short names, what they take, and what they do.

use std::sync::LazyLock;

use serde::Deserialize;

/// The table, a model a line: families together, those of now first.
const TABLE: &str = include_str!("known.json");

/// Bytes of a number in 16 bits, as keys and values are held.
const NUMBER: u64 = 2;

/// A model of the table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The short name.
    pub name: &'static str,
    /// Further short names, such as the tags that Ollama has for it.
    #[serde(default)]
    pub also: Vec<&'static str>,
    /// `ORG/NAME`.
    pub repository: &'static str,
    /// The `model_type`.
    pub architecture: &'static str,
    /// Weights, by their count, those of towers that see included.
    pub parameters: u64,
    /// Weights that a token is computed with, by their count; `None`: all of them.
    active: Option<u64>,
    /// Size of the weights in bytes: as the repository lists them, or by their count and bits.
    #[serde(rename = "weights")]
    pub weight_bytes: u64,
    /// `[layers, key and value heads, their size]` of attention that sees everything. Of latent
    /// attention, the size is half of the latent.
    kv: Option<[u64; 3]>,
    /// `[layers, heads, their size, positions]` of attention with a window.
    window: Option<[u64; 4]>,
    /// Its abilities, the main one first.
    pub does: Vec<Ability>,
    /// True for a model to begin with, of those of its size.
    #[serde(default, rename = "pick")]
    is_pick: bool,
}

/// An ability of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ability {
    /// It answers.
    Chat,
    /// It sees pictures.
    Vision,
    /// It calls tools.
    Tools,
    /// It thinks before it answers.
    Thinking,
    /// It makes vectors of texts.
    Embedding,
    /// It scores pairs of texts.
    Reranking,
    /// It writes down speech.
    Transcription,
}

impl Ability {
    /// Its name, as in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Ability::Chat => "chat",
            Ability::Vision => "vision",
            Ability::Tools => "tools",
            Ability::Thinking => "thinking",
            Ability::Embedding => "embedding",
            Ability::Reranking => "reranking",
            Ability::Transcription => "transcription",
        }
    }
}

impl Known {
    /// The weights' count with which each token is computed: of a mixture of experts, a part.
    pub fn active_parameters(&self) -> u64 {
        self.active.unwrap_or(self.parameters)
    }

    /// Bytes that keys and values take for each further position.
    pub fn kv_bytes_per_token(&self) -> u64 {
        self.kv.map_or(0, |[layers, heads, size]| 2 * NUMBER * layers * heads * size)
    }

    /// About what it takes to answer within `context` tokens: weights, keys and values, and a tenth
    /// of both for what is computed.
    pub fn need_bytes(&self, context: u64) -> u64 {
        let windows = self.window.map_or(0, |[layers, heads, size, positions]| {
            2 * NUMBER * layers * heads * size * positions.min(context)
        });
        let held = self.weight_bytes + context * self.kv_bytes_per_token() + windows;
        held + held / 10
    }

    /// Returns true when `name` is one of its short names: `qwen3-0.6b`, also written as the tag
    /// `qwen3:0.6b`, in any case.
    fn is_called(&self, name: &str) -> bool {
        let name = short(name);
        self.short_names().any(|own| own == name)
    }

    /// All of its short names.
    pub fn short_names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.also.iter().copied())
    }
}

/// All of the table.
pub fn known() -> &'static [Known] {
    static KNOWN: LazyLock<Vec<Known>> = LazyLock::new(|| {
        serde_json::from_str(TABLE)
            .expect("the table is part of the program, and its tests read it")
    });
    &KNOWN
}

/// The model with this short name, or tag.
pub fn known_as(name: &str) -> Option<&'static Known> {
    known().iter().find(|known| known.is_called(name))
}

/// The best of the models to begin with that answers within `context` tokens and `memory` bytes,
/// and computes each token with `most_active` weights at most.
///
/// A mixture of experts counts as a dense model of the geometric mean of all of its weights and of
/// those that a token is computed with.
pub fn recommended(memory: u64, context: u64, most_active: u64) -> Option<&'static Known> {
    let fits = |known: &&Known| {
        known.need_bytes(context) <= memory && known.active_parameters() <= most_active
    };
    let size =
        |known: &&Known| u128::from(known.parameters) * u128::from(known.active_parameters());
    known().iter().filter(|known| known.is_pick).filter(fits).max_by_key(size)
}

/// `name` as the table writes short names: `qwen3:0.6b` is `qwen3-0.6b`, and `qwen3:latest` is
/// `qwen3`.
pub fn short(name: &str) -> String {
    let name = name.to_lowercase();
    name.strip_suffix(":latest").unwrap_or(&name).replace(':', "-")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Name;

    #[test]
    fn short_names_differ_and_stand_for_names() {
        let mut all = BTreeSet::new();
        for known in known() {
            assert!(known.repository.parse::<Name>().is_ok(), "{}", known.repository);
            for name in known.short_names() {
                assert!(name.parse::<Name>().is_err(), "{name} is no short name");
                assert_eq!(short(name), name);
                assert!(all.insert(name), "{name} is there twice");
            }
        }
        assert!(all.len() > 80, "{}", all.len());
    }

    #[test]
    fn the_tags_that_people_know_are_there() {
        for (tag, repository) in [
            ("qwen3.5:4b", "mlx-community/Qwen3.5-4B-MLX-4bit"),
            ("Qwen3:0.6B", "mlx-community/Qwen3-0.6B-4bit"),
            ("qwen3:30b", "mlx-community/Qwen3-30B-A3B-4bit"),
            ("llama3.2:1b", "mlx-community/Llama-3.2-1B-Instruct-4bit"),
            ("llama3.2", "mlx-community/Llama-3.2-3B-Instruct-4bit"),
            ("llama3.2:latest", "mlx-community/Llama-3.2-3B-Instruct-4bit"),
            ("gemma3:270m", "mlx-community/gemma-3-270m-it-4bit"),
            ("smollm2:135m", "mlx-community/SmolLM2-135M-Instruct"),
            ("gpt-oss:20b", "mlx-community/gpt-oss-20b-MXFP4-Q8"),
        ] {
            assert_eq!(known_as(tag).map(|known| known.repository), Some(repository), "{tag}");
        }
        assert!(known_as("qwen3:0.6b-q8_0").is_none(), "other bits are another model");
    }

    /// A count that is mistyped by a digit does not pass: a weight has 4 to 32 bits.
    #[test]
    fn sizes_and_counts_agree() {
        for known in known() {
            let bits = known.weight_bytes as f64 * 8.0 / known.parameters as f64;
            assert!((4.2..=32.1).contains(&bits), "{}: {bits} bits a weight", known.name);
            assert!(known.active_parameters() <= known.parameters, "{}", known.name);
            // `-0.6b`, `-270m`, `-30b-a3b`: what the name says, as makers round it.
            let told = known.name.split('-').find_map(|part| {
                let (number, unit) = part.split_at_checked(part.len() - 1)?;
                let scale = [("b", 1e9), ("m", 1e6)].iter().find(|(name, _)| *name == unit)?.1;
                Some(number.parse::<f64>().ok()? * scale)
            });
            let Some(told) = told else { continue };
            let ratio = known.parameters as f64 / told;
            assert!((0.85..=1.3).contains(&ratio), "{}: {ratio}", known.name);
        }
    }

    #[test]
    fn what_a_model_needs_is_more_than_its_weights() {
        let qwen = known_as("qwen3-0.6b").unwrap();
        assert_eq!(qwen.kv_bytes_per_token(), 114_688);
        // `ml bench --shape qwen3-0.6b --bits 4` counts 319.8 MiB.
        assert_eq!(qwen.weight_bytes, 335_450_584);
        assert_eq!(qwen.need_bytes(0), 368_995_642);
        assert_eq!(qwen.need_bytes(1000), 495_152_442);
        // Behind the window of 512 positions, 4 of 26 layers grow.
        let gemma = known_as("gemma3-1b").unwrap();
        let grown = gemma.need_bytes(8192) - gemma.need_bytes(512);
        assert_eq!(grown, 1024 * 4 * (8192 - 512) * 11 / 10);
        assert!(known().iter().all(|known| known.need_bytes(0) > known.weight_bytes));
    }

    #[test]
    fn the_largest_that_fits_is_recommended() {
        let of = |gib: u64, most| recommended(gib << 30, 8192, most).map(|known| known.name);
        let any = u64::MAX;
        assert_eq!(of(0, any), None);
        assert_eq!(of(1, any), Some("qwen3.5-0.8b"));
        assert_eq!(of(8, any), Some("qwen3.5-9b"));
        assert_eq!(of(24, any), Some("qwen3.8-27b"));
        assert_eq!(of(900, any), Some("qwen3.5-122b-a10b"));
        // Where computing is slow, a mixture goes before what fits as well.
        assert_eq!(of(8, 5_000_000_000), Some("qwen3.5-4b"));
        assert_eq!(of(32, 5_000_000_000), Some("qwen3.6-35b-a3b"));
    }
}
