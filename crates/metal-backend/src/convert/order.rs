//! The order of tensors in mlx-lm's files: that in which its modules name their parts.

use std::cmp::Ordering;

/// A kind of module, the families that the row is for (none: all others), and the order of its
/// parts.
type Row = (&'static str, &'static str, &'static str);

/// The orders of parts. A module is known by its own name.
const ROWS: &[Row] = &[
    (
        "model",
        "",
        "embed_tokens tok_embeddings word_embeddings layers norm final_norm final_layernorm embedding_norm embed_tokens_per_layer per_layer_model_projection per_layer_projection_norm",
    ),
    ("model", "gpt_oss", "embed_tokens norm layers"),
    ("transformer", "", "wte h ln_f"),
    ("h", "", "ln_1 attn ln_2 mlp"),
    (
        "layers",
        "",
        "attention feed_forward mamba self_attn mlp block_sparse_moe input_layernorm post_attention_layernorm post_self_attn_layernorm pre_mlp_layernorm post_mlp_layernorm attention_layernorm feedforward_layernorm attention_norm ffn_norm pre_feedforward_layernorm post_feedforward_layernorm router experts post_feedforward_layernorm_1 post_feedforward_layernorm_2 pre_feedforward_layernorm_2 altup laurel per_layer_input_gate per_layer_projection post_per_layer_input_norm layer_scalar pre_ff_layernorm norm mixer",
    ),
    (
        "layers",
        "bailing_moe llama4 llama4_text",
        "attention self_attn mlp feed_forward input_layernorm post_attention_layernorm",
    ),
    (
        "layers",
        "qwen3_5 qwen3_5_moe qwen3_moe qwen3_next",
        "self_attn linear_attn input_layernorm post_attention_layernorm mlp",
    ),
    (
        "layers",
        "gemma2 lfm2 lfm2_moe",
        "conv self_attn feed_forward operator_norm ffn_norm mlp input_layernorm pre_feedforward_layernorm post_feedforward_layernorm post_attention_layernorm",
    ),
    ("layers", "phi", "self_attn input_layernorm mlp"),
    (
        "layers",
        "granitemoehybrid",
        "input_layernorm self_attn mamba shared_mlp block_sparse_moe post_attention_layernorm",
    ),
    (
        "self_attn",
        "",
        "q_a_proj q_a_layernorm q_b_proj q_layernorm k_layernorm sinks q_proj kv_a_proj_with_mqa kv_a_layernorm kv_b_proj embed_q unembed_out k_proj v_proj out_proj dense q_conv k_conv v_conv f_a_proj f_b_proj b_proj g_a_proj g_b_proj A_log dt_bias o_norm qkv_proj o_proj q_norm k_norm g_proj query_layernorm key_layernorm gate_proj indexer",
    ),
    ("self_attn", "stablelm", "q_proj k_proj v_proj o_proj q_layernorm k_layernorm"),
    (
        "attention",
        "",
        "q_proj k_proj v_proj out_proj wqkv wo query_key_value dense key_layernorm query_layernorm",
    ),
    (
        "mlp",
        "",
        "gate switch_mlp shared_expert shared_experts shared_expert_gate gate_proj down_proj up_proj c_fc c_fc_0 c_fc_1 c_proj fc1 fc2",
    ),
    (
        "mlp",
        "apertus cohere cohere2 deepseek_v2 deepseek_v3 deepseek_v32 dots1 exaone_moe gemma3n glm glm4 glm4_moe glm4_moe_lite glm_moe_dsa gpt_oss helium kimi_k25 minicpm mistral4 muse_glimmer phi3 solar_open",
        "gate_proj up_proj experts router gate_up_proj down_proj act_fn switch_mlp gate shared_experts",
    ),
    (
        "mlp",
        "kimi_linear",
        "gate_proj up_proj down_proj gate switch_mlp e_score_correction_bias shared_experts",
    ),
    ("mlp", "afmoe", "gate_proj down_proj up_proj router expert_bias experts shared_experts"),
    ("mlp", "bailing_moe", "gate_proj down_proj up_proj switch_mlp gate shared_experts"),
    ("act_fn", "", "alpha_p alpha_n beta eps"),
    ("", "", "backbone model transformer lm_head output"),
    ("switch_mlp", "", "gate_proj up_proj down_proj fc1 fc2"),
    ("gate", "", "proj gate_proj weight e_score_correction_bias expert_bias"),
    ("shared_experts", "", "gate_proj up_proj down_proj"),
    ("shared_experts", "afmoe bailing_moe ernie4_5_moe", "gate_proj down_proj up_proj"),
    ("feed_forward", "llama4", "gate_proj down_proj up_proj experts router shared_expert"),
    ("feed_forward", "internlm2", "w1 w2 w3"),
    ("feed_forward", "", "w1 w3 w2 gate_proj up_proj down_proj gate switch_mlp expert_bias"),
    ("mamba", "", "conv1d in_proj dt_bias A_log norm D out_proj"),
    ("mamba", "granitemoehybrid", "conv1d in_proj dt_bias A_log D norm out_proj"),
    (
        "language_model",
        "",
        "model lm_head embed_tokens layers embed_tokens_per_layer per_layer_model_projection per_layer_projection_norm altup_projections altup_unembed_projections norm",
    ),
    (
        "altup",
        "",
        "correct_output_scale correction_coefs prediction_coefs modality_router router_norm",
    ),
    ("laurel", "", "linear_left linear_right post_laurel_norm"),
    ("router", "", "proj scale per_expert_scale"),
    ("switch_glu", "", "gate_proj up_proj down_proj"),
    ("experts", "", "gate_proj up_proj down_proj"),
    ("shared_mlp", "", "input_linear output_linear"),
    ("block_sparse_moe", "", "gate switch_mlp e_score_correction_bias router"),
    ("shared_expert", "", "gate_proj down_proj up_proj"),
    ("conv", "", "conv in_proj out_proj"),
    ("backbone", "", "embeddings layers norm_f"),
    (
        "mixer",
        "",
        "conv1d in_proj dt_bias A_log D norm out_proj up_proj down_proj switch_mlp gate shared_experts q_proj k_proj v_proj o_proj",
    ),
    ("mixer", "mamba falcon_mamba", "in_proj conv1d x_proj dt_proj A_log D out_proj"),
    ("layers", "mamba mamba2 falcon_mamba", "mixer norm"),
    ("layers", "recurrent_gemma", "temporal_pre_norm temporal_block channel_pre_norm mlp_block"),
    (
        "temporal_block",
        "",
        "linear_y linear_x linear_out conv_1d rg_lru q_proj k_proj v_proj o_proj",
    ),
    (
        "rg_lru",
        "",
        "recurrent_param input_gate_weight input_gate_bias recurrent_gate_weight recurrent_gate_bias",
    ),
    ("mlp_block", "", "up_proj gate_proj down_proj"),
    ("indexer", "", "wq_b wk k_norm weights_proj"),
    (
        "linear_attn",
        "",
        "conv1d in_proj_qkv in_proj_z in_proj_b in_proj_a in_proj_qkvz in_proj_ba dt_bias A_log norm out_proj",
    ),
];

/// The order of the tensors of a module without parts.
const LEAF: &str = "weight scales biases bias";

/// Compares two tensors' names, or modules', as mlx-lm orders those of a `family`.
pub(super) fn compare(family: &str, a: &str, b: &str) -> Ordering {
    let mut parent = "";
    let (mut left, mut right) = (a.split('.'), b.split('.'));
    loop {
        let (a, b) = match (left.next(), right.next()) {
            (Some(a), Some(b)) => (a, b),
            (a, b) => return a.is_some().cmp(&b.is_some()),
        };
        if a != b {
            // Numbers by their values before what is unknown and none: else there would be circles.
            let rank = |part: &str| {
                let number = part.parse::<u32>().ok();
                (place(family, parent, part), number.is_none(), number)
            };
            return rank(a).cmp(&rank(b)).then(a.cmp(b));
        }
        if a.parse::<u32>().is_err() {
            parent = a;
        }
    }
}

/// The rank of `part` among the parts of `parent`; the last one where it is not known.
fn place(family: &str, parent: &str, part: &str) -> usize {
    let of_parent = || ROWS.iter().filter(|(known, ..)| *known == parent);
    let own = of_parent().find(|(_, families, _)| families.split(' ').any(|name| name == family));
    let row = own.or_else(|| of_parent().find(|(_, families, _)| families.is_empty()));
    let known = |order: &str| order.split(' ').position(|name| name == part);
    let among = || row.and_then(|(.., order)| known(order)).map(|place| 4 + place);
    known(LEAF).or_else(among).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_in_the_order_of_their_numbers_and_parts_in_that_of_their_module() {
        let sorted = [
            "model.embed_tokens.weight",
            "model.embed_tokens.scales",
            "model.layers.2.self_attn.q_proj.weight",
            "model.layers.2.self_attn.q_proj.bias",
            "model.layers.2.mlp.gate_proj.weight",
            "model.layers.2.input_layernorm.weight",
            "model.layers.10.self_attn.q_proj.weight",
            "model.norm.weight",
            "lm_head.weight",
        ];
        let mut names = sorted;
        names.reverse();
        names.sort_by(|a, b| compare("llama", a, b));
        assert_eq!(names, sorted);
    }

    #[test]
    fn names_of_any_form_have_one_order() {
        let parts = ["2", "10", "1a", "01", "1", "", "x", "weight", "4294967296", "9", "9a"];
        for a in parts {
            for b in parts {
                let [ab, ba] = [(a, b), (b, a)].map(|(a, b)| compare("llama", a, b));
                assert_eq!(ab, ba.reverse(), "{a} {b}");
                assert_eq!(ab.is_eq(), a == b, "{a} {b}");
                for c in parts {
                    let is_before = |a, b| compare("llama", a, b).is_lt();
                    assert!(
                        !(is_before(a, b) && is_before(b, c) && !is_before(a, c)),
                        "{a} {b} {c}"
                    );
                }
            }
        }
    }

    #[test]
    fn families_have_orders_of_their_own() {
        let names = ["model.norm.weight", "model.layers.0.mlp.router.weight"];
        assert_eq!(compare("gpt_oss", names[0], names[1]), Ordering::Less);
        assert_eq!(compare("llama", names[0], names[1]), Ordering::Greater);
    }
}
