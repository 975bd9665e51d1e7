//! Configs: other spellings of the same model, and features that the checkpoints do not use.

use inference_core::LoadOptions;

use crate::checkpoints::{F32_TOLERANCE, logprob_tolerance};
use crate::fixtures::{
    Checkpoint, Golden, distance, first_logits, greedy, ids, json, logprobs, numbers, run,
    token_ids,
};

/// Checks that the config as transformers 5 saves it makes the same model.
fn resaved_config_gives_the_same_tokens(name: &str) {
    let resaved = json(&format!("configs/{name}-v5.json"));
    let model = Checkpoint::new(name).with_config(&resaved).load(LoadOptions::default());
    for (prompt, expected) in Golden::new(name).prompts() {
        let tokens = run(&*model, &ids(&expected["ids"]), &greedy(48));
        let base = &expected["greedy"]["base"];
        assert_eq!(token_ids(&tokens), ids(&base["tokens"]), "{name} {prompt}");
        let distance = distance(&logprobs(&tokens), &numbers(&base["logprobs"]));
        assert!(distance <= logprob_tolerance(name), "{name} {prompt}: {distance:e}");
    }
}

#[test]
fn llama_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("llama");
}

#[test]
fn mistral_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("mistral");
}

#[test]
fn qwen2_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("qwen2");
}

#[test]
fn qwen3_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("qwen3");
}

#[test]
fn gemma2_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("gemma2");
}

#[test]
fn gemma3_text_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("gemma3_text");
}

#[test]
fn multimodal_gemma3_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("gemma3");
}

#[test]
fn phi3_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("phi3");
}

#[test]
fn stretched_phi3_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("phi3_longrope");
}

#[test]
fn olmo2_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("olmo2");
}

#[test]
fn smollm3_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("smollm3");
}

#[test]
fn qwen3_moe_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("qwen3_moe");
}

#[test]
fn gpt_oss_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("gpt_oss");
}

/// Checks a checkpoint under the changed config of `golden/variants.json`, in one piece and in
/// chunks that end inside a window.
fn variant_agrees_with_transformers(variant: &str) {
    let golden = Golden::new("variants");
    let expected = &golden.json[variant];
    let base = expected["base"].as_str().unwrap();
    let mut config = json(&format!("models/{base}/config.json"));
    for (key, value) in expected["overrides"].as_object().unwrap() {
        config[key] = value.clone();
    }
    let checkpoint = Checkpoint::new(base).with_config(&config);
    for prefill_chunk in [None, Some(7)] {
        let model = checkpoint.load(LoadOptions { prefill_chunk, ..LoadOptions::default() });
        for (prompt, expected) in expected["prompts"].as_object().unwrap() {
            let label = format!("{variant} {prompt} in chunks of {prefill_chunk:?}");
            let prompt_ids = ids(&expected["ids"]);
            let logits = first_logits(&*model, &prompt_ids);
            let reference = golden.logits(&format!("{variant}/{prompt}")).unwrap();
            let from_logits = distance(&logits, &reference);
            let tokens = run(&*model, &prompt_ids, &greedy(48));
            let from_logprobs = distance(&logprobs(&tokens), &numbers(&expected["logprobs"]));
            eprintln!("{label}: logits {from_logits:.1e}, log probabilities {from_logprobs:.1e}");
            assert!(from_logits <= F32_TOLERANCE, "{label}: {from_logits:e}");
            assert_eq!(token_ids(&tokens), ids(&expected["tokens"]), "{label}");
            assert!(from_logprobs <= F32_TOLERANCE, "{label}: {from_logprobs:e}");
        }
    }
}

#[test]
fn linear_rope_scaling_agrees_with_transformers() {
    variant_agrees_with_transformers("llama_linear");
}

#[test]
fn yarn_agrees_with_transformers() {
    variant_agrees_with_transformers("llama_yarn");
}

#[test]
fn yarn_with_mscale_agrees_with_transformers() {
    variant_agrees_with_transformers("llama_yarn_mscale");
}

#[test]
fn yarn_with_an_attention_factor_agrees_with_transformers() {
    variant_agrees_with_transformers("llama_yarn_attention_factor");
}

#[test]
fn untruncated_yarn_agrees_with_transformers() {
    variant_agrees_with_transformers("llama_yarn_untruncated");
}

#[test]
fn a_mistral_with_a_window_agrees_with_transformers() {
    variant_agrees_with_transformers("mistral_window");
}

#[test]
fn a_qwen2_with_a_window_in_its_later_layers_agrees_with_transformers() {
    variant_agrees_with_transformers("qwen2_window");
}

#[test]
fn a_qwen3_with_a_window_in_its_later_layers_agrees_with_transformers() {
    variant_agrees_with_transformers("qwen3_window");
}

#[test]
fn a_gemma2_past_its_window_agrees_with_transformers() {
    variant_agrees_with_transformers("gemma2_window");
}

#[test]
fn a_gemma3_with_a_softcap_agrees_with_transformers() {
    variant_agrees_with_transformers("gemma3_text_softcap");
}

#[test]
fn a_phi3_past_its_window_agrees_with_transformers() {
    variant_agrees_with_transformers("phi3_window");
}

#[test]
fn a_phi3_that_rotates_half_of_each_head_agrees_with_transformers() {
    variant_agrees_with_transformers("phi3_partial");
}

#[test]
fn longrope_with_an_attention_factor_agrees_with_transformers() {
    variant_agrees_with_transformers("phi3_longrope_attention_factor");
}

#[test]
fn longrope_under_its_first_name_agrees_with_transformers() {
    variant_agrees_with_transformers("phi3_longrope_su");
}

#[test]
fn a_smollm3_with_a_window_and_another_interval_agrees_with_transformers() {
    variant_agrees_with_transformers("smollm3_window");
}

#[test]
fn a_qwen3_moe_with_a_window_agrees_with_transformers() {
    variant_agrees_with_transformers("qwen3_moe_window");
}

#[test]
fn a_qwen3_moe_whose_weights_are_not_normalised_agrees_with_transformers() {
    variant_agrees_with_transformers("qwen3_moe_probabilities");
}

#[test]
fn a_gpt_oss_that_clips_more_and_slides_elsewhere_agrees_with_transformers() {
    variant_agrees_with_transformers("gpt_oss_clipped");
}
