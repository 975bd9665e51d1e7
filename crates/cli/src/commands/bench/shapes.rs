//! The sizes of released models, from their own `config.json` files.

mod layered;

use serde_json::{Value, json};

use crate::args::{Bits, Shape};

/// The `config.json` of `shape` with weights of so many bits, or as released, and so many layers.
pub fn config(shape: Shape, bits: Option<Bits>, layers: Option<usize>) -> Value {
    let mut config = match shape {
        Shape::Qwen3Small => qwen3(1024, 3072, 28, 16),
        Shape::Qwen3 => qwen3(2560, 9728, 36, 32),
        Shape::Gemma3Small => gemma3([1152, 6912, 26, 4, 1], 512, 262_144, 32_768, Value::Null),
        Shape::Gemma3 => {
            let scaling = json!({"factor": 8.0, "rope_type": "linear"});
            gemma3([2560, 10_240, 34, 8, 4], 1024, 262_208, 131_072, scaling)
        }
        Shape::Llama32 => llama3([2048, 8192, 16, 32, 8], true, 32.0),
        Shape::Llama31 => llama3([4096, 14_336, 32, 32, 8], false, 8.0),
        Shape::Llama31Large => llama3([8192, 28_672, 80, 64, 8], false, 8.0),
        Shape::Qwen3Moe => qwen3_moe(),
        Shape::GptOss => gpt_oss(),
        Shape::Qwen35Small => layered::qwen3_5([1024, 3584, 24, 8, 2, 16], true),
        Shape::Qwen35Medium => layered::qwen3_5([2560, 9216, 32, 16, 4, 32], true),
        Shape::Qwen35 => layered::qwen3_5([4096, 12_288, 32, 16, 4, 32], false),
        Shape::Qwen35Moe => layered::qwen3_5_moe(),
        Shape::Gemma4Small => layered::gemma4_e2b(layers),
        Shape::Gemma4Moe => layered::gemma4_26b_a4b(),
        Shape::Glm47Flash => layered::glm4_moe_lite(),
        Shape::Lfm2 => layered::lfm2(),
        Shape::Nemotron3 => layered::nemotron_h(layers),
        Shape::FalconMamba => layered::falcon_mamba(),
        Shape::MambaCodestral => layered::mamba_codestral(),
        Shape::RecurrentGemma => layered::recurrent_gemma(),
        Shape::DeepseekV32 => layered::deepseek_v32(),
    };
    if let Some(layers) = layers {
        config["num_hidden_layers"] = layers.into();
    }
    let bits = match bits {
        Some(Bits::Four) => 4,
        Some(Bits::Eight) => 8,
        None if shape == Shape::GptOss => {
            config["quantization"] = experts_in_mxfp4(&config["num_hidden_layers"]);
            return config;
        }
        None | Some(Bits::Sixteen) => return config,
    };
    config["quantization"] = json!({"group_size": 64, "bits": bits});
    config
}

fn qwen3(hidden: u32, intermediate: u32, layers: u32, heads: u32) -> Value {
    json!({
        "model_type": "qwen3", "hidden_size": hidden, "intermediate_size": intermediate,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": 8,
        "head_dim": 128, "vocab_size": 151_936, "rms_norm_eps": 1e-6, "rope_theta": 1_000_000,
        "max_position_embeddings": 40_960, "hidden_act": "silu", "attention_bias": false,
        "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    })
}

fn gemma3(sizes: [u32; 5], window: u32, vocab: u32, positions: u32, scaling: Value) -> Value {
    let [hidden, intermediate, layers, heads, kv_heads] = sizes;
    json!({
        "model_type": "gemma3_text", "hidden_size": hidden, "intermediate_size": intermediate,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "head_dim": 256, "vocab_size": vocab, "rms_norm_eps": 1e-6, "rope_theta": 1_000_000,
        "rope_local_base_freq": 10_000, "rope_scaling": scaling, "sliding_window": window,
        "sliding_window_pattern": 6, "query_pre_attn_scalar": 256,
        "max_position_embeddings": positions, "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": false, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    })
}

fn llama3(sizes: [u32; 5], tied: bool, factor: f64) -> Value {
    let [hidden, intermediate, layers, heads, kv_heads] = sizes;
    json!({
        "model_type": "llama", "hidden_size": hidden, "intermediate_size": intermediate,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "head_dim": hidden / heads, "vocab_size": 128_256, "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0, "max_position_embeddings": 131_072, "hidden_act": "silu",
        "rope_scaling": {"factor": factor, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                         "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "attention_bias": false, "mlp_bias": false, "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
    })
}

fn qwen3_moe() -> Value {
    json!({
        "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
        "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
        "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "vocab_size": 151_936, "rms_norm_eps": 1e-6, "rope_theta": 1_000_000,
        "max_position_embeddings": 40_960, "hidden_act": "silu", "attention_bias": false,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    })
}

fn gpt_oss() -> Value {
    json!({
        "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
        "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8,
        "head_dim": 64, "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128,
        "swiglu_limit": 7.0, "vocab_size": 201_088, "rms_norm_eps": 1e-5, "rope_theta": 150_000,
        "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                         "original_max_position_embeddings": 4096, "truncate": false},
        "max_position_embeddings": 131_072, "hidden_act": "silu", "attention_bias": true,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    })
}

/// A quantisation of nothing but the experts of so many layers.
fn experts_in_mxfp4(layers: &Value) -> Value {
    let mut all = json!({
        "mode": "mxfp4", "group_size": 32, "bits": 4, "model.embed_tokens": false, "lm_head": false,
    });
    for layer in 0..layers.as_u64().unwrap_or(0) {
        for name in ["q_proj", "k_proj", "v_proj", "o_proj"] {
            all[format!("model.layers.{layer}.self_attn.{name}")] = false.into();
        }
        all[format!("model.layers.{layer}.mlp.router")] = false.into();
    }
    all
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use inference_core::LoadOptions;

    use super::*;

    /// Parameters and layers of `shape` with so many bits and layers.
    fn sizes(shape: Shape, bits: Option<Bits>, layers: Option<usize>) -> (u64, usize) {
        let options = LoadOptions { backend: Some("cpu".into()), ..LoadOptions::default() };
        let config = config(shape, bits, layers).to_string();
        let info = metal_backend::describe_random(&config, &options);
        let info = info.unwrap_or_else(|error| panic!("{shape:?} {bits:?} {layers:?}: {error}")).0;
        (info.num_parameters, info.num_layers)
    }

    #[test]
    fn shapes_have_the_parameters_of_their_releases() {
        for (shape, millions, layers) in [
            (Shape::Qwen3Moe, 30_532, 48),
            (Shape::GptOss, 20_914, 24),
            (Shape::Qwen35Small, 752, 24),
            (Shape::Qwen35Medium, 4205, 32),
            (Shape::Qwen35, 8953, 32),
            (Shape::Qwen35Moe, 34_660, 40),
            (Shape::Gemma4Small, 4628, 35),
            (Shape::Gemma4Moe, 25_233, 30),
            (Shape::Glm47Flash, 29_943, 47),
            (Shape::Lfm2, 1170, 16),
            (Shape::Nemotron3, 31_577, 52),
            (Shape::FalconMamba, 7272, 64),
            (Shape::MambaCodestral, 7285, 64),
            (Shape::RecurrentGemma, 2682, 26),
            (Shape::DeepseekV32, 671_877, 61),
        ] {
            let (found, count) = sizes(shape, Some(Bits::Sixteen), None);
            assert_eq!((found / 1_000_000, count), (millions, layers), "{shape:?}");
        }
    }

    #[test]
    fn each_shape_has_parts_in_all_bits() {
        for shape in Shape::value_variants() {
            for bits in [None, Some(Bits::Four), Some(Bits::Eight), Some(Bits::Sixteen)] {
                for layers in [1, 2, 7, 17] {
                    assert_eq!(sizes(*shape, bits, Some(layers)).1, layers, "{shape:?}");
                }
            }
        }
    }
}
