//! The architectures of `scripts/families`: whole and chunked prompts, rows of a batch, and prompts
//! that go on from what an earlier one left.

use inference_core::{GenerateMetrics, LoadOptions, Prompt, TextModel};

use crate::batches::rows_agree_with_the_references;
use crate::checkpoints::agrees_with_the_references;
use crate::fixtures::{Checkpoint, Golden, greedy, ids, token_ids};

/// Checks all that the golden of `name` has.
pub fn agrees_in_all(name: &str) {
    agrees_with_the_references(name);
    rows_agree_with_the_references(name, "base");
    goes_on_as_if_read_at_once(name);
}

/// Tokens after `prompt`, and how it went.
fn run(model: &dyn TextModel, prompt: &[u32]) -> (Vec<u32>, GenerateMetrics) {
    let prompt = Prompt::Ids(prompt.to_vec());
    let mut generation = model.generate(&prompt, &greedy(48)).expect("it starts");
    let tokens: Vec<_> = generation.by_ref().map(|token| token.expect("a token")).collect();
    let metrics = generation.outcome().expect("it ended").metrics.clone();
    (token_ids(&tokens), metrics)
}

/// A prompt that goes on where an earlier one ended, or after its answer, leads to the tokens of
/// the prompt that is read at once.
fn goes_on_as_if_read_at_once(name: &str) {
    let golden = Golden::new(name);
    let checkpoint = Checkpoint::new(name);
    let cases = golden.json["resumed"].as_object().expect("cases");
    assert_eq!(cases.len(), 3, "{name}");
    for (case, expected) in cases {
        let options = LoadOptions { prefix_cache: Some(1 << 26), ..LoadOptions::default() };
        let model = checkpoint.load(options);
        let first = ids(&expected["first"]);
        let (answer, _) = run(&*model, &first);
        let mut prompt = first.clone();
        if let Some(expected) = expected.get("answer") {
            let expected = ids(expected);
            assert_eq!(answer[..expected.len()], expected, "{name} {case}");
            prompt.extend(expected);
        }
        prompt.extend(ids(&expected["then"]));
        let (found, metrics) = run(&*model, &prompt);
        assert_eq!(found, ids(&expected["tokens"]), "{name} {case}");
        // Whole blocks of 64 are kept.
        let kept = first.len() / 64 * 64;
        let cached = metrics.cached_prompt_tokens;
        assert!(cached >= kept && cached > 0, "{name} {case}: {cached} of {kept}");
    }
}

#[test]
fn granite_agrees_in_all() {
    agrees_in_all("granite");
}

#[test]
fn ministral3_agrees_in_all() {
    agrees_in_all("ministral3");
}

#[test]
fn mistral3_agrees_in_all() {
    agrees_in_all("mistral3");
}

#[test]
fn olmo3_agrees_in_all() {
    agrees_in_all("olmo3");
}

#[test]
fn qwen2_moe_agrees_in_all() {
    agrees_in_all("qwen2_moe");
}

#[test]
fn mixtral_agrees_in_all() {
    agrees_in_all("mixtral");
}

#[test]
fn seed_oss_agrees_in_all() {
    agrees_in_all("seed_oss");
}

#[test]
fn exaone4_agrees_in_all() {
    agrees_in_all("exaone4");
}

#[test]
fn hunyuan_v1_dense_agrees_in_all() {
    agrees_in_all("hunyuan_v1_dense");
}

#[test]
fn qwen3_vl_agrees_in_all() {
    agrees_in_all("qwen3_vl");
}

#[test]
fn ernie4_5_moe_agrees_in_all() {
    agrees_in_all("ernie4_5_moe");
}

#[test]
fn glm4_moe_agrees_in_all() {
    agrees_in_all("glm4_moe");
}

#[test]
fn deepseek_v3_agrees_in_all() {
    agrees_in_all("deepseek_v3");
}

#[test]
fn glm4_moe_lite_agrees_in_all() {
    agrees_in_all("glm4_moe_lite");
}

#[test]
fn packed_glm4_moe_lite_agrees_in_all() {
    agrees_in_all("glm4_moe_lite-4bit-g32");
}

#[test]
fn the_layers_that_predict_further_tokens_are_named() {
    for name in ["deepseek_v3", "glm4_moe_lite", "glm4_moe"] {
        let (info, _) = Checkpoint::new(name).describe(LoadOptions::default());
        assert_eq!(info.unused_parts, ["MTP layers"], "{name}");
    }
}

#[test]
fn laguna_agrees_in_all() {
    agrees_in_all("laguna");
}

#[test]
fn muse_glimmer_agrees_in_all() {
    agrees_in_all("muse_glimmer");
}

#[test]
fn minimax_m2_agrees_in_all() {
    agrees_in_all("minimax_m2");
}

#[test]
fn cohere2_agrees_in_all() {
    agrees_in_all("cohere2");
}

#[test]
fn qwen3_5_agrees_in_all() {
    agrees_in_all("qwen3_5");
}

#[test]
fn qwen3_5_moe_agrees_in_all() {
    agrees_in_all("qwen3_5_moe");
}

#[test]
fn qwen3_5_moe_of_4_bits_agrees_in_all() {
    agrees_in_all("qwen3_5_moe-4bit-g32");
}

#[test]
fn qwen3_5_moe_in_mxfp4_agrees_in_all() {
    agrees_in_all("qwen3_5_moe-mxfp4");
}

#[test]
fn kimi_linear_agrees_in_all() {
    agrees_in_all("kimi_linear");
}

#[test]
fn qwen3_next_agrees_in_all() {
    agrees_in_all("qwen3_next");
}

#[test]
fn granitemoehybrid_agrees_in_all() {
    agrees_in_all("granitemoehybrid");
}

#[test]
fn nemotron_h_agrees_in_all() {
    agrees_in_all("nemotron_h");
}

#[test]
fn nemotron_h_of_4_bits_agrees_in_all() {
    agrees_in_all("nemotron_h-4bit-g32");
}

#[test]
fn falcon_h1_agrees_in_all() {
    agrees_in_all("falcon_h1");
}

#[test]
fn lfm2_agrees_in_all() {
    agrees_in_all("lfm2");
}

#[test]
fn lfm2_moe_agrees_in_all() {
    agrees_in_all("lfm2_moe");
}

#[test]
fn lfm2_moe_of_6_bits_agrees_in_all() {
    agrees_in_all("lfm2_moe-6bit-g32");
}

#[test]
fn lfm2_moe_in_mxfp4_agrees_in_all() {
    agrees_in_all("lfm2_moe-mxfp4");
}

#[test]
fn gemma4_agrees_in_all() {
    agrees_in_all("gemma4");
}

#[test]
fn gemma4_with_borrowed_keys_agrees_in_all() {
    agrees_in_all("gemma4_e");
}

#[test]
fn gemma4_with_experts_agrees_in_all() {
    agrees_in_all("gemma4_moe");
}

#[test]
fn gemma4_with_experts_in_mxfp8_agrees_in_all() {
    agrees_in_all("gemma4_moe-mxfp8");
}

#[test]
fn gemma3n_agrees_in_all() {
    agrees_in_all("gemma3n");
}

#[test]
fn afmoe_agrees_in_all() {
    agrees_in_all("afmoe");
}

#[test]
fn bailing_moe_agrees_in_all() {
    agrees_in_all("bailing_moe");
}

#[test]
fn bailing_moe_of_the_first_generation_agrees_in_all() {
    agrees_in_all("bailing_moe_v1");
}

#[test]
fn cohere2_moe_agrees_in_all() {
    agrees_in_all("cohere2_moe");
}

#[test]
fn cohere2_moe_with_summed_experts_agrees_in_all() {
    agrees_in_all("cohere2_moe_summed");
}

#[test]
fn deepseek_v2_agrees_in_all() {
    agrees_in_all("deepseek_v2");
}

#[test]
fn deepseek_v2_without_groups_agrees_in_all() {
    agrees_in_all("deepseek_v2_lite");
}

#[test]
fn deepseek_v32_agrees_in_all() {
    agrees_in_all("deepseek_v32");
}

#[test]
fn glm_moe_dsa_agrees_in_all() {
    agrees_in_all("glm_moe_dsa");
}

#[test]
fn dots1_agrees_in_all() {
    agrees_in_all("dots1");
}

#[test]
fn exaone_moe_agrees_in_all() {
    agrees_in_all("exaone_moe");
}

#[test]
fn gemma4_unified_agrees_in_all() {
    agrees_in_all("gemma4_unified");
}

#[test]
fn granite_swa_agrees_in_all() {
    agrees_in_all("granite_swa");
}

#[test]
fn granitemoe_agrees_in_all() {
    agrees_in_all("granitemoe");
}

#[test]
fn granitemoe_swa_agrees_in_all() {
    agrees_in_all("granitemoe_swa");
}

#[test]
fn granitemoeshared_agrees_in_all() {
    agrees_in_all("granitemoeshared");
}

#[test]
fn hunyuan_v1_moe_agrees_in_all() {
    agrees_in_all("hunyuan_v1_moe");
}

#[test]
fn kimi_k25_agrees_in_all() {
    agrees_in_all("kimi_k25");
}

#[test]
fn lfm3_agrees_in_all() {
    agrees_in_all("lfm3");
}

#[test]
fn llama4_agrees_in_all() {
    agrees_in_all("llama4");
}

#[test]
fn llama4_text_agrees_in_all() {
    agrees_in_all("llama4_text");
}

#[test]
fn mamba_agrees_in_all() {
    agrees_in_all("mamba");
}

#[test]
fn mamba_with_biases_agrees_in_all() {
    agrees_in_all("mamba_biased");
}

#[test]
fn falcon_mamba_agrees_in_all() {
    agrees_in_all("falcon_mamba");
}

#[test]
fn mamba2_agrees_in_all() {
    agrees_in_all("mamba2");
}

#[test]
fn mellum_agrees_in_all() {
    agrees_in_all("mellum");
}

#[test]
fn mistral4_agrees_in_all() {
    agrees_in_all("mistral4");
}

#[test]
fn olmoe_agrees_in_all() {
    agrees_in_all("olmoe");
}

#[test]
fn phimoe_agrees_in_all() {
    agrees_in_all("phimoe");
}

#[test]
fn recurrent_gemma_agrees_in_all() {
    agrees_in_all("recurrent_gemma");
}

#[test]
fn solar_open_agrees_in_all() {
    agrees_in_all("solar_open");
}

/// The checkpoint leads to the tokens of `golden`.
pub fn speaks_as(golden: &str, checkpoint: &Checkpoint) {
    let model = checkpoint.load(LoadOptions::default());
    for (name, prompt) in Golden::new(golden).prompts() {
        let (tokens, _) = run(&*model, &ids(&prompt["ids"]));
        assert_eq!(tokens, ids(&prompt["greedy"]["base"]["tokens"]), "{golden} {name}");
    }
}

#[test]
fn a_language_model_by_itself_is_the_language_part_of_the_whole() {
    for name in ["qwen3_5", "qwen3_5_moe", "gemma4", "gemma4_e", "gemma4_unified", "gemma3n"] {
        speaks_as(name, &Checkpoint::new(&format!("{name}_text")));
    }
}

#[test]
fn other_names_of_an_architecture_are_the_same_model() {
    for (alias, name) in [
        ("iquestcoder", "llama"),
        ("joyai_llm_flash", "deepseek_v3"),
        ("kimi_k2", "deepseek_v3"),
        ("xverse", "llama"),
    ] {
        speaks_as(name, &Checkpoint::new(alias));
    }
}

#[test]
fn the_names_of_converters_are_those_of_the_whole() {
    for name in ["gemma4", "gemma4_e", "gemma3n"] {
        let converted = Checkpoint::new(name).renamed(|tensor| {
            let part = tensor.strip_prefix("model.language_model.")?;
            Some(format!("language_model.model.{part}"))
        });
        speaks_as(name, &converted);
    }
}

#[test]
fn keys_that_no_layer_uses_need_not_be_there() {
    let unused = |layer: &str, part: &str| {
        let layer: usize = layer.parse().unwrap();
        let keys = ["k_proj.", "v_proj.", "k_norm."].map(|name| format!("self_attn.{name}"));
        layer >= 6 && keys.iter().any(|name| part.starts_with(name))
    };
    let checkpoint = Checkpoint::new("gemma4_e").renamed(|tensor| {
        let place = tensor.strip_prefix("model.language_model.layers.");
        let is_unused =
            place.and_then(|place| place.split_once('.')).is_some_and(|(l, p)| unused(l, p));
        (!is_unused).then(|| tensor.to_owned())
    });
    speaks_as("gemma4_e", &checkpoint);
}

#[test]
fn what_sees_and_hears_is_named_as_left_aside() {
    for (name, parts) in [
        ("gemma4", vec![]),
        ("qwen2_5_vl", vec![]),
        ("qwen2_vl", vec![]),
        ("qwen3_vl", vec![]),
        ("gemma3n", vec!["audio tower", "vision tower"]),
        ("gemma4_unified", vec!["audio tower", "vision tower"]),
        ("kimi_k25", vec!["vision tower"]),
        ("llama4", vec!["vision tower"]),
        ("gemma4_text", vec![]),
    ] {
        let (info, _) = Checkpoint::new(name).describe(LoadOptions::default());
        assert_eq!(info.unused_parts, parts, "{name}");
    }
}

#[test]
fn layers_that_borrow_keys_hold_none() {
    // Of nine layers six hold keys of their own, two of them all positions: 2 heads of 48 values.
    let (info, _) = Checkpoint::new("gemma4_e").describe(LoadOptions::default());
    assert_eq!(info.kv_bytes_per_token, 2 * 2 * 2 * 48 * 2);
}
