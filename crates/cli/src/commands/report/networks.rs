//! Small models of several kinds, with random weights that are the same on each device.

use inference_core::{LoadOptions, TextModel};
use serde_json::{Value, json};

use crate::args::Network;
use crate::demo;
use crate::failure::Result;

/// Ids of the random models.
const VOCAB: u32 = 512;

/// Loads a model.
///
/// # Errors
/// The backend's.
pub fn load(network: Network, options: &LoadOptions) -> Result<Box<dyn TextModel>> {
    Ok(match config(network) {
        None => metal_backend::load_embedded(demo::FILES, options)?,
        Some(config) => metal_backend::load_random(&config.to_string(), options)?,
    })
}

/// The types in which it is compared. Rounding to 16 bits lets a router choose other experts, which
/// is no fault.
pub fn dtypes(network: Network, quick: bool) -> &'static [&'static str] {
    match (network, quick) {
        (Network::Routed, _) => &["f32"],
        (_, true) => &["f32", "bf16"],
        (_, false) => &["f32", "f16", "bf16"],
    }
}

/// Its `config.json`; `None` for the one with weights of its own.
fn config(network: Network) -> Option<Value> {
    Some(match network {
        Network::Demo => return None,
        Network::Dense => dense(),
        Network::Packed => packed(dense()),
        Network::Window => window(),
        Network::Mixture => packed(mixture(8)),
        Network::Routed => packed(mixture(2)),
        Network::Delta => delta(),
        Network::Mamba => mamba(),
    })
}

fn packed(mut config: Value) -> Value {
    config["quantization"] = json!({"group_size": 64, "bits": 4});
    config
}

/// A config of what most of them share: 128 values, and two of four heads with keys.
fn with(own: Value) -> Value {
    let mut config = json!({
        "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": VOCAB,
        "rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "max_position_embeddings": 1 << 20,
        "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": false,
        "torch_dtype": "bfloat16",
    });
    if let (Some(all), Value::Object(own)) = (config.as_object_mut(), own) {
        all.extend(own);
    }
    config
}

fn dense() -> Value {
    with(json!({"model_type": "qwen3"}))
}

fn window() -> Value {
    with(json!({
        "model_type": "gemma3_text", "sliding_window": 32, "sliding_window_pattern": 3,
        "rope_local_base_freq": 10_000, "query_pre_attn_scalar": 64,
        "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true,
    }))
}

fn mixture(of_token: u32) -> Value {
    with(json!({
        "model_type": "qwen3_moe", "moe_intermediate_size": 64, "num_experts": 8,
        "num_experts_per_tok": of_token, "norm_topk_prob": true, "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }))
}

fn delta() -> Value {
    with(json!({
        "model_type": "qwen3_5_text", "num_hidden_layers": 4, "full_attention_interval": 4,
        "attn_output_gate": true, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0,
                            "partial_rotary_factor": 0.5, "mrope_interleaved": true,
                            "mrope_section": [6, 5, 5]},
    }))
}

fn mamba() -> Value {
    with(json!({
        "model_type": "nemotron_h", "hybrid_override_pattern": "MEM*ME", "num_hidden_layers": 6,
        "mamba_num_heads": 4, "mamba_head_dim": 64, "n_groups": 2, "ssm_state_size": 128,
        "conv_kernel": 4, "use_conv_bias": true, "use_bias": false, "mamba_hidden_act": "silu",
        "moe_intermediate_size": 64, "moe_shared_expert_intermediate_size": 128,
        "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 1,
        "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
        "mlp_hidden_act": "relu2", "mlp_bias": false, "layer_norm_epsilon": 1e-5,
    }))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use inference_core::LoadOptions;

    use super::{Network, config};

    #[test]
    fn each_network_is_one_that_can_be_loaded() {
        let options = LoadOptions { backend: Some("cpu".into()), ..LoadOptions::default() };
        for network in Network::value_variants() {
            let Some(config) = config(*network) else { continue };
            let info = metal_backend::describe_random(&config.to_string(), &options);
            let (info, _) = info.unwrap_or_else(|error| panic!("{network:?}: {error}"));
            assert!(info.num_parameters < 3_000_000, "{network:?}: {}", info.num_parameters);
        }
    }
}
