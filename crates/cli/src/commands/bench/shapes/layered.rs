//! The sizes of released models whose layers are of several kinds.

use serde_json::{Value, json};

/// The text part of Qwen 3.5: three gated delta nets to one attention layer. `sizes` are those of
/// hidden values, of networks, and the counts of layers, heads, heads of keys, and value heads of
/// delta nets.
pub fn qwen3_5(sizes: [u32; 6], tied: bool) -> Value {
    let mut config = hybrid("qwen3_5_text", sizes, tied);
    config["intermediate_size"] = sizes[1].into();
    config
}

/// The text part of Qwen 3.5 35B A3B.
pub fn qwen3_5_moe() -> Value {
    let mut config = hybrid("qwen3_5_moe_text", [2048, 512, 40, 16, 2, 32], false);
    config["moe_intermediate_size"] = 512.into();
    config["shared_expert_intermediate_size"] = 512.into();
    config["num_experts"] = 256.into();
    config["num_experts_per_tok"] = 8.into();
    config
}

fn hybrid(model_type: &str, sizes: [u32; 6], tied: bool) -> Value {
    let [hidden, _, layers, heads, kv_heads, value_heads] = sizes;
    json!({
        "model_type": model_type, "hidden_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": 256,
        "full_attention_interval": 4, "attn_output_gate": true, "attention_bias": false,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": value_heads,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000_000,
                            "partial_rotary_factor": 0.25, "mrope_interleaved": true,
                            "mrope_section": [11, 11, 10]},
        "vocab_size": 248_320, "rms_norm_eps": 1e-6, "max_position_embeddings": 262_144,
        "hidden_act": "silu", "tie_word_embeddings": tied, "dtype": "bfloat16",
    })
}

/// The text part of Gemma 4 E2B, whose layers have inputs of their own; the last 20 of 35 borrow
/// keys. Of `layers`, the first ones are those of the whole model.
pub fn gemma4_e2b(layers: Option<usize>) -> Value {
    const WITH_KEYS: usize = 15;
    let borrowing = layers.unwrap_or(35).saturating_sub(WITH_KEYS);
    let mut config = gemma4([1536, 6144, 35, 8, 1], [512, 5, 131_072]);
    config["hidden_size_per_layer_input"] = 256.into();
    config["vocab_size_per_layer_input"] = 262_144.into();
    config["num_kv_shared_layers"] = borrowing.into();
    config["use_double_wide_mlp"] = true.into();
    config
}

/// The text part of Gemma 4 26B A4B.
pub fn gemma4_26b_a4b() -> Value {
    let mut config = gemma4([2816, 2112, 30, 16, 8], [1024, 6, 262_144]);
    config["hidden_size_per_layer_input"] = 0.into();
    config["attention_k_eq_v"] = true.into();
    config["num_global_key_value_heads"] = 2.into();
    config["enable_moe_block"] = true.into();
    config["num_experts"] = 128.into();
    config["top_k_experts"] = 8.into();
    config["moe_intermediate_size"] = 704.into();
    config
}

/// Gemma 4, of whose layers every `pattern`-th has no window.
fn gemma4(sizes: [u32; 5], [window, pattern, positions]: [u32; 3]) -> Value {
    let [hidden, intermediate, layers, heads, kv_heads] = sizes;
    json!({
        "model_type": "gemma4_text", "hidden_size": hidden, "intermediate_size": intermediate,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "head_dim": 256, "global_head_dim": 512, "sliding_window": window,
        "sliding_window_pattern": pattern, "final_logit_softcapping": 30.0,
        "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "rope_theta": 1_000_000.0,
                               "partial_rotary_factor": 0.25},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0}},
        "vocab_size": 262_144, "rms_norm_eps": 1e-6, "max_position_embeddings": positions,
        "hidden_activation": "gelu_pytorch_tanh", "attention_bias": false,
        "tie_word_embeddings": true, "dtype": "bfloat16",
    })
}

/// GLM 4.7 Flash: latent attention, and experts in all layers but the first.
pub fn glm4_moe_lite() -> Value {
    json!({
        "model_type": "glm4_moe_lite", "hidden_size": 2048, "intermediate_size": 10_240,
        "num_hidden_layers": 47, "num_attention_heads": 20, "num_key_value_heads": 20,
        "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
        "v_head_dim": 256, "moe_intermediate_size": 1536, "n_routed_experts": 64,
        "n_shared_experts": 1, "num_experts_per_tok": 4, "first_k_dense_replace": 1, "n_group": 1,
        "topk_group": 1, "topk_method": "noaux_tc", "norm_topk_prob": true,
        "routed_scaling_factor": 1.8, "rope_theta": 1_000_000, "partial_rotary_factor": 1.0,
        "vocab_size": 154_880, "rms_norm_eps": 1e-5, "max_position_embeddings": 202_752,
        "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": false,
        "dtype": "bfloat16",
    })
}

/// LFM 2 1.2B: short convolutions, and attention in 6 of 16 layers.
pub fn lfm2() -> Value {
    json!({
        "model_type": "lfm2", "hidden_size": 2048, "block_dim": 2048, "block_ff_dim": 12_288,
        "block_auto_adjust_ff_dim": true, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256,
        "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14], "conv_L_cache": 3, "conv_bias": false,
        "rope_theta": 1_000_000.0, "vocab_size": 65_536, "norm_eps": 1e-5,
        "max_position_embeddings": 128_000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    })
}

/// Nemotron 3 Nano 30B A3B: of its layers, 23 are Mamba 2, 6 attention and 23 experts.
pub fn nemotron_h(layers: Option<usize>) -> Value {
    const KINDS: &str = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME";
    let kinds: String = KINDS.chars().cycle().take(layers.unwrap_or(KINDS.len())).collect();
    json!({
        "model_type": "nemotron_h", "hidden_size": 2688, "intermediate_size": 1856,
        "num_hidden_layers": kinds.len(), "hybrid_override_pattern": kinds,
        "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
        "mamba_num_heads": 64, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128,
        "conv_kernel": 4, "use_conv_bias": true, "use_bias": false, "mamba_hidden_act": "silu",
        "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712,
        "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 6, "n_group": 1,
        "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
        "mlp_hidden_act": "relu2", "mlp_bias": false, "attention_bias": false,
        "vocab_size": 131_072, "layer_norm_epsilon": 1e-5, "max_position_embeddings": 262_144,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    })
}

/// Falcon Mamba 7B: Mamba layers alone, with norms of their selection.
pub fn falcon_mamba() -> Value {
    json!({
        "model_type": "falcon_mamba", "hidden_size": 4096, "intermediate_size": 8192, "expand": 2,
        "num_hidden_layers": 64, "state_size": 16, "time_step_rank": 256, "conv_kernel": 4,
        "use_bias": false, "use_conv_bias": true, "hidden_act": "silu", "mixer_rms_eps": 1e-6,
        "vocab_size": 65_024, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": false,
        "torch_dtype": "bfloat16",
    })
}

/// Mamba Codestral 7B: Mamba 2 layers alone.
pub fn mamba_codestral() -> Value {
    json!({
        "model_type": "mamba2", "hidden_size": 4096, "expand": 2, "num_hidden_layers": 64,
        "num_heads": 128, "head_dim": 64, "n_groups": 8, "state_size": 128, "conv_kernel": 4,
        "use_bias": false, "use_conv_bias": true, "hidden_act": "silu", "vocab_size": 32_768,
        "layer_norm_epsilon": 1e-5, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    })
}

/// Recurrent Gemma 2B: recurrent blocks, and attention with a window in each third one.
pub fn recurrent_gemma() -> Value {
    json!({
        "model_type": "recurrent_gemma", "hidden_size": 2560, "intermediate_size": 15_360,
        "num_hidden_layers": 26, "num_attention_heads": 10, "num_key_value_heads": 1,
        "block_types": ["recurrent", "recurrent", "attention"], "lru_width": 2560,
        "conv1d_width": 4, "attention_window_size": 2048, "attention_bias": false,
        "partial_rotary_factor": 0.5, "hidden_activation": "gelu_pytorch_tanh",
        "logits_soft_cap": 30.0, "vocab_size": 256_000, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    })
}

/// DeepSeek V3.2: latent attention to the keys that an index chooses, and experts.
pub fn deepseek_v32() -> Value {
    json!({
        "model_type": "deepseek_v32", "hidden_size": 7168, "intermediate_size": 18_432,
        "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
        "num_key_value_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048,
        "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8,
        "topk_group": 4, "first_k_dense_replace": 3, "norm_topk_prob": true,
        "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
        "rope_theta": 10_000.0, "rope_scaling": {"type": "yarn", "factor": 40.0, "beta_fast": 32.0,
            "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 4096},
        "hidden_act": "silu", "attention_bias": false, "vocab_size": 129_280,
        "rms_norm_eps": 1e-6, "max_position_embeddings": 163_840, "tie_word_embeddings": false,
        "torch_dtype": "bfloat16",
    })
}
