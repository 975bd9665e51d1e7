//! config.json of the architectures whose keys need more than a type.

use serde_json::{Value, json};

use crate::refused;
use crate::tiny::Checkpoint;

/// The small checkpoint under the name of another architecture, with its keys.
fn checkpoint(model_type: &str, keys: &[(&str, Value)]) -> Checkpoint {
    let mut checkpoint = Checkpoint::qwen3();
    checkpoint.config["model_type"] = json!(model_type);
    for (key, value) in keys {
        checkpoint.config[*key] = value.clone();
    }
    checkpoint
}

#[test]
fn factors_of_another_number_than_the_pairs_are_refused() {
    let scaling =
        |short: Value| json!({"type": "longrope", "short_factor": short, "long_factor": [1.0]});
    let cases = [
        (json!([1.0, 2.0, 3.0]), "`short_factor` has 3 entries"),
        (json!([1.0, -2.0]), "a list of numbers above 0"),
        (json!(null), "key `short_factor` is missing"),
    ];
    for (short, expected) in cases {
        refused(&checkpoint("phi3", &[("rope_scaling", scaling(short))]), &[expected]);
    }
}

#[test]
fn a_part_of_each_head_must_be_pairs_and_at_most_the_whole() {
    for (factor, expected) in [(1.5, "at most 1"), (1e-6, "rotary positions need pairs")] {
        let keys = [("partial_rotary_factor", json!(factor))];
        refused(&checkpoint("phi3", &keys), &["partial_rotary_factor", expected]);
    }
    refused(&checkpoint("llama", &[("partial_rotary_factor", json!(0.5))]), &["whole heads"]);
}

#[test]
fn lists_that_leave_layers_out_are_refused() {
    refused(&checkpoint("smollm3", &[("no_rope_layers", json!([]))]), &["`no_rope_layers` has 0"]);
    refused(&checkpoint("smollm3", &[("no_rope_layers", json!(["1"]))]), &["integers from 0 on"]);
}

#[test]
fn lists_of_laguna_and_muse_glimmer_have_an_entry_for_each_layer() {
    let experts = [
        ("num_experts", json!(4)),
        ("num_experts_per_tok", json!(2)),
        ("moe_intermediate_size", json!(8)),
        ("shared_expert_intermediate_size", json!(8)),
    ];
    for (key, value, expected) in [
        ("num_attention_heads_per_layer", json!([2, 2]), "has 2 entries for 1 layers"),
        ("num_attention_heads_per_layer", json!([0]), "names 0 heads"),
        ("gating", json!("per-value"), "`gating` is \"per-value\""),
        ("moe_apply_router_weight_on_input", json!(true), "experts' results are weighed"),
        ("moe_router_score_func", json!("sqrtsoftplus"), "`moe_router_score_func`"),
    ] {
        refused(&checkpoint("laguna", &experts).config(key, value), &[expected]);
    }
    for (thetas, expected) in [
        (json!([0, 0]), "`layer_rope_theta` has 2 entries for 1 layers"),
        (json!([-1]), "0 or a number above 1"),
        (json!(5), "0 or a number above 1"),
    ] {
        refused(&checkpoint("muse_glimmer", &[("layer_rope_theta", thetas)]), &[expected]);
    }
}

#[test]
fn latents_of_another_kind_are_refused() {
    let keys = [
        ("kv_lora_rank", json!(4)),
        ("qk_nope_head_dim", json!(4)),
        ("qk_rope_head_dim", json!(4)),
        ("v_head_dim", json!(4)),
        ("num_key_value_heads", json!(2)),
        ("n_routed_experts", json!(4)),
        ("num_experts_per_tok", json!(2)),
        ("moe_intermediate_size", json!(8)),
        ("n_group", json!(1)),
        ("topk_group", json!(1)),
    ];
    for (key, value, expected) in [
        ("num_key_value_heads", json!(1), "`num_key_value_heads` is 1 of 2 heads"),
        ("kv_lora_rank", json!(null), "key `kv_lora_rank` is missing"),
        ("qk_rope_head_dim", json!(3), "rotary positions need pairs"),
        ("v_head_dim", json!(2_147_483_647), "exceed 2³¹ - 1"),
        ("scoring_func", json!("softmax"), "`scoring_func` is \"softmax\", expected `sigmoid`"),
        ("topk_method", json!("greedy"), "expected `noaux_tc`"),
        ("mlp_layer_types", json!(["dense", "dense"]), "`mlp_layer_types` has 2 entries"),
        ("mlp_layer_types", json!(["thick"]), "`mlp_layer_types` names `thick`"),
        ("n_group", json!(3), "`n_group` 3"),
    ] {
        let config = checkpoint("deepseek_v3", &keys).config(key, value);
        refused(&config, &[expected]);
    }
}

#[test]
fn experts_that_cannot_be_chosen_are_refused() {
    let keys = |count: Value, chosen: Value| {
        [
            ("num_experts", count),
            ("num_experts_per_tok", chosen),
            ("moe_intermediate_size", json!(16)),
        ]
    };
    for (count, chosen, expected) in [
        (json!(4), json!(5), "`num_experts_per_tok` is 5 of 4 experts"),
        (json!(null), json!(2), "key `num_experts` is missing"),
        (json!(0), json!(2), "`num_experts` is 0"),
        (json!(4), json!(null), "key `num_experts_per_tok` is missing"),
        // None of which the checkpoint has.
        (json!(2_147_483_647), json!(2), "is missing"),
    ] {
        refused(&checkpoint("qwen3_moe", &keys(count, chosen)), &[expected]);
    }
}

#[test]
fn layers_of_other_kinds_or_numbers_are_refused() {
    for (model_type, other) in [("qwen3_next", "linear_attention"), ("lfm2", "conv")] {
        for (types, expected) in [
            (json!([]), "`layer_types` has 0 entries for 1 layers".to_owned()),
            (json!(["mamba"]), format!("names `mamba`, known are {other}, full_attention")),
        ] {
            refused(&checkpoint(model_type, &[("layer_types", types)]), &[&expected]);
        }
    }
}

#[test]
fn widths_and_parts_that_no_lfm2_has_are_refused() {
    for (key, value, expected) in [
        ("block_ff_dim", json!(1), "give no width"),
        ("block_ffn_dim_multiplier", json!(1e30), "give no width"),
        ("conv_L_cache", json!(65), "`conv_L_cache` or `hidden_size` is too large"),
        ("conv_L_cache", json!(0), "`conv_L_cache` is 0"),
        ("conv_dim", json!(9), "`conv_dim` is not `hidden_size`, 8"),
        ("use_pos_enc", json!(false), "`use_pos_enc` is false"),
    ] {
        refused(&checkpoint("lfm2", &[(key, value)]), &[expected]);
    }
}

#[test]
fn what_other_mixtures_of_qwen_leave_out_is_refused_where_it_is_never_left_out() {
    for (key, value) in [
        ("mlp_only_layers", json!([0])),
        ("decoder_sparse_step", json!(2)),
        ("norm_topk_prob", json!(false)),
    ] {
        let expected = format!("`{key}` is {value}, expected all layers to have experts");
        refused(&checkpoint("qwen3_5_moe_text", &[(key, value)]), &[&expected]);
    }
}

#[test]
fn mamba_layers_that_no_model_has_are_refused() {
    let granite = |key: &'static str, value: Value| {
        let mut keys = vec![
            ("layer_types", json!(["mamba"])),
            ("mamba_n_heads", json!(4)),
            ("mamba_n_groups", json!(2)),
        ];
        keys.push((key, value));
        checkpoint("granitemoehybrid", &keys)
    };
    for (key, value, expected) in [
        ("mamba_d_head", json!(3), "are not the 16 values of a mamba layer"),
        ("mamba_n_groups", json!(3), "no multiple of 3 groups"),
        ("mamba_d_conv", json!(65), "too large"),
        ("mamba_d_state", json!(2_147_483_647), "too large"),
        ("time_step_limit", json!([1.0, 0.5]), "two numbers from 0 on in ascending order"),
        ("time_step_limit", json!([0.0]), "two numbers from 0 on in ascending order"),
        ("hidden_act", json!("gelu_new"), "known as silu only"),
        ("position_embedding_type", json!("alibi"), "known are rope, nope"),
        ("layer_types", json!(["conv"]), "known are mamba, linear_attention, full_attention"),
    ] {
        refused(&granite(key, value), &[key.split('_').next().unwrap_or(key), expected]);
    }
}

#[test]
fn layers_and_activations_that_no_nemotron_has_are_refused() {
    let keys = [("hybrid_override_pattern", json!("M*")), ("mamba_num_heads", json!(2))];
    for (key, value, expected) in [
        ("hybrid_override_pattern", json!("M|*"), "has `|`, known are M, *, -, E"),
        ("hybrid_override_pattern", json!(null), "key `hybrid_override_pattern` is missing"),
        ("layers_block_type", json!(["conv"]), "names `conv`"),
        ("mlp_hidden_act", json!("silu"), "known is relu2"),
        ("mamba_hidden_act", json!("gelu"), "known is silu"),
        ("sliding_window", json!(64), "`sliding_window` is not supported"),
        ("mamba_head_dim", json!(null), "key `mamba_head_dim` is missing"),
    ] {
        let all: Vec<_> = keys.iter().cloned().chain([(key, value)]).collect();
        refused(&checkpoint("nemotron_h", &all), &[expected]);
    }
}

#[test]
fn factors_of_another_number_than_the_parts_are_refused() {
    for (key, expected) in [("ssm_multipliers", "5 numbers"), ("mlp_multipliers", "2 numbers")] {
        refused(&checkpoint("falcon_h1", &[(key, json!([1.0]))]), &[key, expected]);
    }
}

#[test]
fn lists_of_delta_nets_that_fit_no_kimi_are_refused() {
    let lists = |kda: Value, full: Value| {
        json!({"num_heads": 2, "head_dim": 4, "short_conv_kernel_size": 4, "kda_layers": kda,
            "full_attn_layers": full})
    };
    let mut wide = lists(json!([1]), json!([]));
    wide["head_dim"] = json!(6);
    for (config, expected) in [
        (json!(null), "key `linear_attn_config` is missing"),
        (lists(json!(null), json!([])), "`linear_attn_config` has no `kda_layers`"),
        (lists(json!([]), json!([])), "has layer 1 in both"),
        (lists(json!([1]), json!([1])), "has layer 1 in both"),
        (wide, "2 heads of 6 values"),
    ] {
        let keys = [("linear_attn_config", config), ("qk_rope_head_dim", json!(4))];
        refused(&checkpoint("kimi_linear", &keys), &[expected]);
    }
    refused(&checkpoint("kimi_linear", &[("mla_use_nope", json!(false))]), &["`mla_use_nope`"]);
}

#[test]
fn layers_that_have_nobody_to_borrow_from_are_refused() {
    let keys = |borrowing: i32| {
        [
            ("num_hidden_layers", json!(3)),
            ("layer_types", json!(["sliding_attention", "sliding_attention", "full_attention"])),
            ("num_kv_shared_layers", json!(borrowing)),
        ]
    };
    for model_type in ["gemma4_text", "gemma3n_text"] {
        refused(
            &checkpoint(model_type, &keys(1)),
            &["`num_kv_shared_layers`", "of the kind of layer 2"],
        );
        refused(&checkpoint(model_type, &keys(4)), &["`num_kv_shared_layers` is 4 of 3 layers"]);
    }
}

#[test]
fn what_gemma_4_does_not_do_here_is_refused() {
    for (key, value, expected) in [
        ("use_bidirectional_attention", json!("all"), "expected vision or null"),
        ("per_layer_config", json!({"0": {"head_dim": 8}}), "`per_layer_config` of layer 0"),
        ("sliding_window", json!(null), "key `sliding_window` is missing"),
        ("global_head_dim", json!(7), "`head_dim` 7 is odd"),
        ("enable_moe_block", json!(true), "key `num_experts` is missing"),
        ("layer_types", json!(["linear_attention"]), "`layer_types` names `linear_attention`"),
    ] {
        refused(&checkpoint("gemma4_text", &[(key, value)]), &[expected]);
    }
}

#[test]
fn lists_and_streams_of_gemma_3n_that_do_not_fit_are_refused() {
    for (key, value, expected) in [
        ("intermediate_size", json!([16, 16]), "no list of 1 sizes"),
        ("intermediate_size", json!([0]), "no list of 1 sizes"),
        ("intermediate_size", json!([16.5]), "integers from 0 on"),
        ("activation_sparsity_pattern", json!([0.5, 0.5]), "no list of 1 numbers"),
        ("activation_sparsity_pattern", json!([1.0]), "below 1"),
        ("activation_sparsity_pattern", json!("0.5"), "a list of numbers"),
        ("altup_num_inputs", json!(1), "expected 2 to 64 streams"),
        ("altup_active_idx", json!(4), "`altup_num_inputs` is 4 and `altup_active_idx` 4"),
    ] {
        let keys = [("num_kv_shared_layers", json!(0)), (key, value)];
        refused(&checkpoint("gemma3n_text", &keys), &[key, expected]);
    }
}

#[test]
fn what_mixtures_of_other_vendors_do_otherwise_is_refused() {
    let experts = [
        ("num_experts", json!(4)),
        ("num_local_experts", json!(4)),
        ("num_experts_per_tok", json!(2)),
        ("moe_topk", json!(2)),
        ("moe_intermediate_size", json!(8)),
        ("n_routed_experts", json!(4)),
    ];
    for (model_type, key, value, expected) in [
        ("olmoe", "clip_qkv", json!(8.0), "`clip_qkv` is 8.0, expected null"),
        ("dots1", "scoring_func", json!("softmax"), "expected noaux_tc or sigmoid"),
        ("afmoe", "score_func", json!("softmax"), "`score_func` is \"softmax\", expected sigmoid"),
        ("afmoe", "n_group", json!(2), "experts have no groups"),
        ("hunyuan_v1_moe", "moe_topk", json!([1, 2]), "one number for all layers"),
        ("hunyuan_v1_moe", "use_cla", json!(true), "`use_cla` is true"),
        ("bailing_moe", "score_function", json!("tanh"), "softmax or sigmoid"),
        ("bailing_moe", "rotary_dim", json!(400), "`rotary_dim` is 400, a head has"),
        ("cohere2_moe", "expert_selection_fn", json!("top"), "softmax or sigmoid"),
        ("cohere2_moe", "shared_expert_combination_strategy", json!("max"), "sum or average"),
        ("granitemoe_swa", "layer_rope_theta", json!([0, 0]), "has 2 entries for 1 layers"),
        ("lfm3", "layer_types", json!(["mamba"]), "names `mamba`, known are conv"),
        ("llama4_text", "num_experts_per_tok", json!(2), "`num_experts_per_tok` is 2, expected 1"),
        ("llama4_text", "layer_types", json!(["sliding_attention"]), "chunked_attention"),
        ("llama4_text", "no_rope_layers", json!([1, 1]), "has 2 entries for 1 layers"),
        ("solar_open", "use_qk_norm", json!(true), "`use_qk_norm` is true, expected false"),
    ] {
        refused(&checkpoint(model_type, &experts).config(key, value), &[expected]);
    }
}

#[test]
fn scores_that_deepseek_v2_does_not_have_are_refused() {
    let keys = [
        ("kv_lora_rank", json!(4)),
        ("qk_nope_head_dim", json!(4)),
        ("qk_rope_head_dim", json!(4)),
        ("v_head_dim", json!(4)),
        ("num_key_value_heads", json!(2)),
        ("n_routed_experts", json!(4)),
        ("num_experts_per_tok", json!(2)),
        ("moe_intermediate_size", json!(8)),
        ("topk_method", json!("group_limited_greedy")),
        ("n_group", json!(2)),
        ("topk_group", json!(1)),
    ];
    for (key, value, expected) in [
        ("scoring_func", json!("sigmoid"), "`scoring_func` is \"sigmoid\", expected `softmax`"),
        ("topk_method", json!("noaux_tc"), "expected greedy or group_limited_greedy"),
        ("norm_topk_prob", json!(true), "`norm_topk_prob` is true, expected false"),
        ("n_group", json!(3), "`n_group` 3"),
    ] {
        refused(&checkpoint("deepseek_v2", &keys).config(key, value), &[expected]);
    }
}

#[test]
fn state_spaces_and_indexes_that_cannot_be_are_refused() {
    let latent = [
        ("kv_lora_rank", json!(4)),
        ("q_lora_rank", json!(4)),
        ("qk_nope_head_dim", json!(4)),
        ("qk_rope_head_dim", json!(4)),
        ("v_head_dim", json!(4)),
        ("num_key_value_heads", json!(2)),
        ("n_routed_experts", json!(8)),
        ("num_experts_per_tok", json!(2)),
        ("moe_intermediate_size", json!(8)),
    ];
    for (model_type, key, value, expected) in [
        ("mamba", "intermediate_size", json!(8.5), "`intermediate_size`"),
        ("mamba2", "expand", json!(3), "are not the"),
        ("mamba2", "expand", json!(1e9), "too large"),
        ("falcon_mamba", "time_step_rank", json!("half"), "`time_step_rank`"),
        ("mamba", "hidden_act", json!("gelu"), "known as silu only"),
        ("recurrent_gemma", "block_types", json!(["mamba"]), "names `mamba`, known are recurrent"),
        ("recurrent_gemma", "block_types", json!([]), "`block_types` is empty"),
        ("recurrent_gemma", "lru_width", json!(7), "`lru_width` 7 is no multiple"),
        ("deepseek_v32", "index_head_dim", json!(4), "`index_head_dim` is 4, expected more"),
        ("glm_moe_dsa", "indexer_types", json!(["shared"]), "of which the first has an index"),
        ("glm_moe_dsa", "index_topk_pattern", json!("X"), "names `X`, known are full, shared"),
    ] {
        let is_latent = ["deepseek_v32", "glm_moe_dsa"].contains(&model_type);
        let keys = if is_latent { &latent[..] } else { &[] };
        refused(&checkpoint(model_type, keys).config(key, value), &[expected]);
    }
}
