//! A short table of well-known models, with short names and what they take.

/// A model that its makers published, converted by mlx-community.
///
/// Its sizes are those of the makers' `config.json`. What follows from them leaves norms and biases
/// out, less than a hundredth, so that a download may differ by as much.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The short name.
    pub alias: &'static str,
    /// `ORG/NAME`.
    pub repository: &'static str,
    /// The `model_type`.
    pub architecture: &'static str,
    /// Bits that a weight takes, with its share of the group's scale and offset.
    pub bits: f64,
    sizes: Sizes,
}

/// A decoder's sizes, as `config.json` has them.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    layers: u64,
    hidden: u64,
    /// Of one expert, where there are several.
    intermediate: u64,
    /// 1 without a mixture.
    experts: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    vocabulary: u64,
    /// Tables of embeddings: 1 where the output shares the input's, else 2.
    tables: u64,
}

impl Known {
    /// The weights' count.
    pub fn parameters(&self) -> u64 {
        let Sizes {
            layers,
            hidden,
            intermediate,
            experts,
            heads,
            kv_heads,
            head_dim,
            vocabulary,
            tables,
        } = self.sizes;
        let attention = 2 * hidden * head_dim * (heads + kv_heads);
        let router = if experts > 1 { hidden * experts } else { 0 };
        let feed_forward = 3 * hidden * intermediate * experts + router;
        tables * vocabulary * hidden + layers * (attention + feed_forward)
    }

    /// Size of the weights in bytes.
    pub fn weight_bytes(&self) -> u64 {
        (self.parameters() as f64 * self.bits / 8.0) as u64
    }

    /// Bytes of the keys and values of one position in 16 bits.
    ///
    /// Layers with a window keep fewer positions.
    pub fn kv_bytes_per_token(&self) -> u64 {
        4 * self.sizes.layers * self.sizes.kv_heads * self.sizes.head_dim
    }

    /// About what it takes to answer within `context` tokens: weights, keys and values, and a tenth
    /// of both for what is computed.
    pub fn need_bytes(&self, context: u64) -> u64 {
        let held = self.weight_bytes() + context * self.kv_bytes_per_token();
        held + held / 10
    }
}

/// 4 bits in groups of 64, each with a scale and an offset in 16 bits.
const FOUR: f64 = 4.5;

/// Sizes in the order of [`Sizes`], without experts.
const fn dense(sizes: [u64; 8]) -> Sizes {
    let [layers, hidden, intermediate, heads, kv_heads, head_dim, vocabulary, tables] = sizes;
    Sizes {
        layers,
        hidden,
        intermediate,
        experts: 1,
        heads,
        kv_heads,
        head_dim,
        vocabulary,
        tables,
    }
}

const fn four(
    alias: &'static str,
    repository: &'static str,
    architecture: &'static str,
    sizes: Sizes,
) -> Known {
    Known { alias, repository, architecture, bits: FOUR, sizes }
}

/// The table, from small to large in each family.
#[rustfmt::skip]
pub const KNOWN: &[Known] = &[
    four("qwen3-0.6b", "mlx-community/Qwen3-0.6B-4bit", "qwen3", dense([28, 1024, 3072, 16, 8, 128, 151_936, 1])),
    four("qwen3-1.7b", "mlx-community/Qwen3-1.7B-4bit", "qwen3", dense([28, 2048, 6144, 16, 8, 128, 151_936, 1])),
    four("qwen3-4b", "mlx-community/Qwen3-4B-4bit", "qwen3", dense([36, 2560, 9728, 32, 8, 128, 151_936, 1])),
    four("qwen3-8b", "mlx-community/Qwen3-8B-4bit", "qwen3", dense([36, 4096, 12_288, 32, 8, 128, 151_936, 2])),
    four("qwen3-14b", "mlx-community/Qwen3-14B-4bit", "qwen3", dense([40, 5120, 17_408, 40, 8, 128, 151_936, 2])),
    four("qwen3-30b-a3b", "mlx-community/Qwen3-30B-A3B-4bit", "qwen3_moe", Sizes {
        experts: 128, ..dense([48, 2048, 768, 32, 4, 128, 151_936, 2])
    }),
    four("qwen3-32b", "mlx-community/Qwen3-32B-4bit", "qwen3", dense([64, 5120, 25_600, 64, 8, 128, 151_936, 2])),
    four("llama3.2-1b", "mlx-community/Llama-3.2-1B-Instruct-4bit", "llama",
        dense([16, 2048, 8192, 32, 8, 64, 128_256, 1])),
    four("llama3.2-3b", "mlx-community/Llama-3.2-3B-Instruct-4bit", "llama",
        dense([28, 3072, 8192, 24, 8, 128, 128_256, 1])),
    four("llama3.1-8b", "mlx-community/Meta-Llama-3.1-8B-Instruct-4bit", "llama",
        dense([32, 4096, 14_336, 32, 8, 128, 128_256, 2])),
    four("mistral-7b", "mlx-community/Mistral-7B-Instruct-v0.3-4bit", "mistral",
        dense([32, 4096, 14_336, 32, 8, 128, 32_768, 2])),
    four("gemma3-1b", "mlx-community/gemma-3-1b-it-4bit", "gemma3_text",
        dense([26, 1152, 6912, 4, 1, 256, 262_144, 1])),
    four("phi4-mini", "mlx-community/Phi-4-mini-instruct-4bit", "phi3",
        dense([32, 3072, 8192, 24, 8, 128, 200_064, 1])),
    four("smollm3-3b", "mlx-community/SmolLM3-3B-4bit", "smollm3",
        dense([36, 2048, 11_008, 16, 4, 128, 128_256, 1])),
    // Its experts have 4.25 bits and the rest has 8.5: this is their mean.
    Known {
        alias: "gpt-oss-20b", repository: "mlx-community/gpt-oss-20b-MXFP4-Q8", architecture: "gpt_oss", bits: 4.616,
        sizes: Sizes { experts: 32, ..dense([24, 2880, 2880, 64, 8, 64, 201_088, 2]) },
    },
];

#[cfg(test)]
mod tests {
    use super::KNOWN;
    use crate::Name;

    #[test]
    fn short_names_differ_and_stand_for_names() {
        for (index, known) in KNOWN.iter().enumerate() {
            assert!(known.repository.parse::<Name>().is_ok(), "{}", known.repository);
            assert!(known.alias.parse::<Name>().is_err(), "{} is no short name", known.alias);
            assert!(KNOWN[..index].iter().all(|other| other.alias != known.alias));
        }
    }

    #[test]
    fn sizes_give_the_counts_that_the_makers_tell() {
        // In billions, from the makers' model cards.
        for (alias, billions) in [
            ("qwen3-0.6b", 0.6),
            ("qwen3-1.7b", 1.7),
            ("qwen3-4b", 4.0),
            ("qwen3-8b", 8.2),
            ("qwen3-14b", 14.8),
            ("qwen3-30b-a3b", 30.5),
            ("qwen3-32b", 32.8),
            ("llama3.2-1b", 1.23),
            ("llama3.2-3b", 3.21),
            ("llama3.1-8b", 8.0),
            ("mistral-7b", 7.25),
            ("gemma3-1b", 1.0),
            ("phi4-mini", 3.8),
            ("smollm3-3b", 3.08),
            ("gpt-oss-20b", 20.9),
        ] {
            let known = KNOWN.iter().find(|known| known.alias == alias).unwrap();
            let ours = known.parameters() as f64 / 1e9;
            assert!((ours / billions - 1.0).abs() < 0.02, "{alias}: {ours}");
        }
    }

    #[test]
    fn what_a_model_needs_is_more_than_its_weights() {
        let known = KNOWN.iter().find(|known| known.alias == "qwen3-0.6b").unwrap();
        assert_eq!(known.kv_bytes_per_token(), 114_688);
        // 319.7 MiB; `ml bench --shape qwen3-0.6b --bits 4` counts 319.8 MiB, with the norms.
        assert_eq!(known.weight_bytes(), 335_241_216);
        assert_eq!(known.need_bytes(0), 368_765_337);
        assert_eq!(known.need_bytes(1000), 494_922_137);
    }
}
