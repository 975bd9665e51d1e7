//! The configs that Z-Image and Qwen-Image are released with, for folders that have none.

pub(super) const Z_IMAGE: &str = r#"{"all_patch_size": [2], "all_f_patch_size": [1], "in_channels": 16,
"dim": 3840, "n_layers": 30, "n_refiner_layers": 2, "n_heads": 30, "n_kv_heads": 30, "norm_eps": 1e-05,
"qk_norm": true, "cap_feat_dim": 2560, "rope_theta": 256.0, "t_scale": 1000.0, "axes_dims": [32, 48, 48],
"axes_lens": [1536, 512, 512]}"#;

pub(super) const Z_IMAGE_TEXT: &str = r#"{"model_type": "qwen3", "hidden_size": 2560,
"intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
"head_dim": 128, "vocab_size": 151936, "rms_norm_eps": 1e-06, "rope_theta": 1000000,
"max_position_embeddings": 40960, "tie_word_embeddings": true, "attention_bias": false,
"hidden_act": "silu"}"#;

pub(super) const Z_IMAGE_VAE: &str = r#"{"block_out_channels": [128, 256, 512, 512],
"layers_per_block": 2, "latent_channels": 16, "norm_num_groups": 32, "in_channels": 3, "out_channels": 3,
"act_fn": "silu", "sample_size": 1024, "scaling_factor": 0.3611, "shift_factor": 0.1159,
"use_quant_conv": false, "use_post_quant_conv": false, "mid_block_add_attention": true}"#;

pub(super) const Z_IMAGE_TURBO_SCHEDULE: &str =
    r#"{"num_train_timesteps": 1000, "use_dynamic_shifting": false, "shift": 3.0}"#;

pub(super) const Z_IMAGE_SCHEDULE: &str =
    r#"{"num_train_timesteps": 1000, "use_dynamic_shifting": false, "shift": 6.0}"#;

pub(super) const QWEN_IMAGE: &str = r#"{"patch_size": 2, "in_channels": 64, "out_channels": 16,
"num_layers": 60, "attention_head_dim": 128, "num_attention_heads": 24, "joint_attention_dim": 3584,
"guidance_embeds": false, "axes_dims_rope": [16, 56, 56]}"#;

pub(super) const QWEN_IMAGE_EDIT_2511: &str = r#"{"patch_size": 2, "in_channels": 64, "out_channels": 16,
"num_layers": 60, "attention_head_dim": 128, "num_attention_heads": 24, "joint_attention_dim": 3584,
"guidance_embeds": false, "axes_dims_rope": [16, 56, 56], "zero_cond_t": true}"#;

pub(super) const QWEN_SEEING_TEXT: &str = r#"{"model_type": "qwen2_5_vl", "hidden_size": 3584,
"intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
"vocab_size": 152064, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "hidden_act": "silu",
"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "use_sliding_window": false,
"image_token_id": 151655, "tie_word_embeddings": false, "vision_config": {"depth": 32,
"hidden_size": 1280, "num_heads": 16, "intermediate_size": 3420, "patch_size": 14, "window_size": 112,
"spatial_merge_size": 2, "temporal_patch_size": 2, "fullatt_block_indexes": [7, 15, 23, 31],
"hidden_act": "silu", "out_hidden_size": 3584}}"#;

pub(super) const QWEN_PROCESSOR: &str = r#"{"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14,
"temporal_patch_size": 2, "merge_size": 2}"#;

pub(super) const QWEN_TEXT: &str = r#"{"model_type": "qwen2_5_vl", "hidden_size": 3584,
"intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
"vocab_size": 152064, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "hidden_act": "silu",
"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "use_sliding_window": false,
"image_token_id": 151655, "tie_word_embeddings": false}"#;

pub(super) const QWEN_VAE: &str = r#"{"base_dim": 96, "z_dim": 16, "dim_mult": [1, 2, 4, 4],
"num_res_blocks": 2, "attn_scales": [], "input_channels": 3,
"latents_mean": [-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508, 0.4134, -0.0715,
0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921],
"latents_std": [2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687, 2.1526, 2.8652,
1.5579, 1.6382, 1.1253, 2.8251, 1.916]}"#;

pub(super) const QWEN_SCHEDULE: &str = r#"{"base_image_seq_len": 256, "base_shift": 0.5,
"max_image_seq_len": 8192, "max_shift": 0.9, "num_train_timesteps": 1000, "shift": 1.0,
"shift_terminal": 0.02, "time_shift_type": "exponential", "use_dynamic_shifting": true}"#;
