//! The dense architectures of `scripts/seeded/dense.py`: whole and chunked prompts, rows of a
//! batch, and prompts that go on from what an earlier one left.

use inference_core::{Dtype, LoadOptions, Prompt};

use serde_json::json;

use crate::configs::resaved_config_gives_the_same_tokens;
use crate::families::{agrees_in_all, speaks_as};
use crate::fixtures::{
    Checkpoint, Golden, Tensor, distance, first_logits, greedy, ids, run, token_ids,
};
use crate::ranks::compute_what_one_computes;

#[test]
fn apertus_agrees_in_all() {
    agrees_in_all("apertus");
}

#[test]
fn arcee_agrees_in_all() {
    agrees_in_all("arcee");
}

#[test]
fn cohere_agrees_in_all() {
    agrees_in_all("cohere");
}

#[test]
fn exaone_agrees_in_all() {
    agrees_in_all("exaone");
}

#[test]
fn gemma_agrees_in_all() {
    agrees_in_all("gemma");
}

#[test]
fn glm_agrees_in_all() {
    agrees_in_all("glm");
}

#[test]
fn glm4_agrees_in_all() {
    agrees_in_all("glm4");
}

#[test]
fn gpt_neox_agrees_in_all() {
    agrees_in_all("gpt_neox");
}

#[test]
fn gpt_neox_whose_halves_follow_each_other_agrees_in_all() {
    agrees_in_all("gpt_neox_sequential");
}

#[test]
fn helium_agrees_in_all() {
    agrees_in_all("helium");
}

#[test]
fn internlm2_agrees_in_all() {
    agrees_in_all("internlm2");
}

#[test]
fn internlm3_agrees_in_all() {
    agrees_in_all("internlm3");
}

#[test]
fn mimo_agrees_in_all() {
    agrees_in_all("mimo");
}

#[test]
fn minicpm_agrees_in_all() {
    agrees_in_all("minicpm");
}

#[test]
fn ministral_agrees_in_all() {
    agrees_in_all("ministral");
}

#[test]
fn nemotron_agrees_in_all() {
    agrees_in_all("nemotron");
}

#[test]
fn olmo_agrees_in_all() {
    agrees_in_all("olmo");
}

#[test]
fn phi_agrees_in_all() {
    agrees_in_all("phi");
}

#[test]
fn stablelm_agrees_in_all() {
    agrees_in_all("stablelm");
}

#[test]
fn stablelm_whose_halves_add_at_once_agrees_in_all() {
    agrees_in_all("stablelm_parallel");
}

#[test]
fn starcoder2_agrees_in_all() {
    agrees_in_all("starcoder2");
}

#[test]
fn qwen2_vl_agrees_in_all() {
    agrees_in_all("qwen2_vl");
}

#[test]
fn qwen2_5_vl_agrees_in_all() {
    agrees_in_all("qwen2_5_vl");
}

/// The checkpoints of this file.
const NAMES: [&str; 24] = [
    "apertus",
    "arcee",
    "cohere",
    "exaone",
    "gemma",
    "glm",
    "glm4",
    "gpt_neox",
    "gpt_neox_sequential",
    "helium",
    "internlm2",
    "internlm3",
    "mimo",
    "minicpm",
    "ministral",
    "nemotron",
    "olmo",
    "phi",
    "phi_norms",
    "qwen2_5_vl",
    "qwen2_vl",
    "stablelm",
    "stablelm_parallel",
    "starcoder2",
];

#[test]
fn types_of_sixteen_bits_stay_near_float32() {
    for name in NAMES {
        let checkpoint = Checkpoint::new(name);
        let golden = Golden::new(name);
        let prompt = ids(&golden.json["prompts"]["long"]["ids"]);
        let exact = first_logits(&*checkpoint.load(LoadOptions::default()), &prompt);
        let size = exact.iter().fold(0.0_f32, |size, logit| size.max(logit.abs()));
        for (dtype, most) in [(Dtype::F16, 0.01), (Dtype::Bf16, 0.06)] {
            let options = LoadOptions { dtype: Some(dtype), ..LoadOptions::default() };
            let found = first_logits(&*checkpoint.load_native(options), &prompt);
            let far = distance(&found, &exact) / size;
            eprintln!("{name}: {dtype:?} within {far:.1e} of the largest logit");
            assert!(far <= most, "{name} {dtype:?}: {far:e}");
        }
    }
}

#[test]
fn rows_with_packed_keys_are_what_they_are_alone() {
    for name in ["gemma", "glm"] {
        let options =
            LoadOptions { kv_bits: Some(8), kv_group_size: Some(32), ..Default::default() };
        let model = Checkpoint::new(name).load(options);
        let golden = Golden::new(name);
        let (prompts, expected): (Vec<Prompt>, Vec<_>) = golden
            .prompts()
            .map(|(_, prompt)| {
                let prompt = ids(&prompt["ids"]);
                let alone = token_ids(&run(&*model, &prompt, &greedy(24)));
                (Prompt::Ids(prompt), alone)
            })
            .unzip();
        let rows = model.batch_generate(&prompts, &greedy(24)).expect("the batch runs");
        for (row, expected) in rows.iter().zip(&expected) {
            assert_eq!(token_ids(&row.tokens), *expected, "{name}");
        }
    }
}

#[test]
fn configs_of_transformers_5_give_the_same_tokens() {
    for name in ["exaone", "gpt_neox", "internlm3", "phi", "stablelm"] {
        resaved_config_gives_the_same_tokens(name);
    }
}

#[test]
fn layers_of_mimo_that_predict_further_tokens_are_named() {
    let (info, _) = Checkpoint::new("mimo").describe(LoadOptions::default());
    assert_eq!(info.unused_parts, ["MTP layers"]);
}

#[test]
fn configs_that_mean_something_else_are_refused_by_name() {
    for (name, key, value) in [
        ("apertus", "hidden_act", json!("tanh")),
        ("arcee", "hidden_act", json!("relu6")),
        ("cohere", "use_qk_norm", json!("yes")),
        ("gemma", "hidden_act", json!("relu6")),
        ("glm", "partial_rotary_factor", json!(0.01)),
        ("glm4", "head_dim", json!(31)),
        ("gpt_neox", "num_key_value_heads", json!(2)),
        ("helium", "rope_theta", json!(1.0)),
        ("internlm3", "rope_scaling", json!({"rope_type": "dynamic3", "factor": 2.0})),
        ("minicpm", "num_experts", json!(8)),
        ("minicpm", "sparse_config", json!({"kernel_size": 32})),
        ("ministral", "layer_types", json!(["full_attention"])),
        ("nemotron", "partial_rotary_factor", json!(1.5)),
        ("olmo", "clip_qkv", json!(-1.0)),
        ("phi", "layer_norm_eps", json!(0)),
        ("stablelm", "use_parallel_residual", json!(1)),
        ("starcoder2", "sliding_window", json!("wide")),
    ] {
        let checkpoint = Checkpoint::new(name);
        let mut config = checkpoint.config();
        config[key] = value;
        let refusal = checkpoint.with_config(&config).refusal();
        let named = if key == "rope_scaling" { "rope type `dynamic3`" } else { key };
        assert!(refusal.contains(named), "{name} {key}: {refusal}");
    }
}

#[test]
fn positions_by_rows_and_columns_need_a_place_for_each_pair() {
    for (sections, told) in [
        // Those that transformers takes where none are given.
        (json!(null), "`mrope_section` has 64 pairs, expected 8"),
        (json!([2, 3, 4]), "`mrope_section` has 9 pairs, expected 8"),
        (json!([2, 6]), "three counts"),
    ] {
        let checkpoint = Checkpoint::new("qwen2_vl");
        let mut config = checkpoint.config();
        config["rope_scaling"]["mrope_section"] = sections;
        let refusal = checkpoint.with_config(&config).refusal();
        assert!(refusal.contains(told), "{refusal}");
    }
}

#[test]
fn tensors_that_a_flag_asks_for_are_missed_by_name() {
    for (name, key, tensor) in [
        ("apertus", "attention_bias", "self_attn.q_proj.bias"),
        ("arcee", "mlp_bias", "mlp.up_proj.bias"),
        ("exaone", "attention_bias", "attn.attention.q_proj.bias"),
        ("gpt_neox_sequential", "attention_bias", "attention.query_key_value.bias"),
        ("phi", "qk_layernorm", "self_attn.q_layernorm"),
        ("stablelm", "qk_layernorm", "self_attn.q_layernorm"),
    ] {
        let checkpoint = Checkpoint::new(name);
        let mut config = checkpoint.config();
        config[key] = true.into();
        let refusal = checkpoint.with_config(&config).refusal();
        assert!(refusal.contains(tensor), "{name} {key}: {refusal}");
    }
}

#[test]
fn phi_with_norms_over_heads_and_one_head_of_keys_agrees_in_all() {
    agrees_in_all("phi_norms");
}

#[test]
fn ranks_have_parts_of_networks_without_a_gate() {
    for name in ["apertus", "nemotron", "phi", "starcoder2"] {
        compute_what_one_computes(name, &[2]);
    }
}

#[test]
fn ranks_have_all_of_layers_that_are_not_split() {
    for name in ["cohere", "internlm2"] {
        compute_what_one_computes(name, &[2]);
    }
}

#[test]
fn slopes_of_apertus_may_be_scalars_as_mlx_lm_saves_them() {
    let checkpoint = Checkpoint::new("apertus").with_tensors(|tensor| {
        let is_slope = [".alpha_p", ".alpha_n"].iter().any(|end| tensor.name.ends_with(end));
        let shape = if is_slope { Vec::new() } else { tensor.shape.clone() };
        vec![Tensor { shape, ..tensor }]
    });
    speaks_as("apertus", &checkpoint);
}
