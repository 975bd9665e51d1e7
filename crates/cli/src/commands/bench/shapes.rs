//! The sizes of released models, from their own `config.json` files.

use serde_json::{Value, json};

use crate::args::{Bits, Shape};

/// The `config.json` of `shape` with weights of so many bits.
pub fn config(shape: Shape, bits: Bits) -> Value {
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
    };
    let bits = match bits {
        Bits::Four => 4,
        Bits::Eight => 8,
        Bits::Sixteen => return config,
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
