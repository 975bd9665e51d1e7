//! Speculative decoding gives the references' tokens: alone, in batches, and past windows.

use inference_core::{GenerateMetrics, GenerateOptions, LoadOptions, Prompt, TextModel};

use crate::fixtures::{Checkpoint, Golden, greedy, ids, token_ids};

/// Greedy tokens with drafts.
fn drafting(count: usize) -> GenerateOptions {
    GenerateOptions { draft_tokens: Some(count), ..greedy(48) }
}

/// Each prompt's tokens, all prompts at once, and what all cost together.
fn tokens_in_a_batch(
    model: &dyn TextModel,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
) -> (Vec<Vec<u32>>, GenerateMetrics) {
    let start = |ids: &Vec<u32>| model.generate(&Prompt::Ids(ids.clone()), options).unwrap();
    let started: Vec<_> = prompts.iter().map(start).collect();
    let mut metrics = Vec::new();
    let tokens = started.into_iter().map(|mut generation| {
        let tokens: Vec<_> = generation.by_ref().map(|token| token.unwrap()).collect();
        metrics.push(generation.outcome().unwrap().metrics.clone());
        token_ids(&tokens)
    });
    let tokens = tokens.collect();
    (tokens, GenerateMetrics::sum(&metrics))
}

/// Checks the greedy tokens of `name` with drafts of several lengths. Returns how many drafts were
/// accepted.
fn drafts_change_no_token(name: &str) -> usize {
    let golden = Golden::new(name);
    let prompts: Vec<Vec<u32>> = golden.prompts().map(|(_, prompt)| ids(&prompt["ids"])).collect();
    let expected: Vec<Vec<u32>> =
        golden.prompts().map(|(_, prompt)| ids(&prompt["greedy"]["base"]["tokens"])).collect();
    let model = Checkpoint::new(name).load(LoadOptions::default());
    // Where rows are computed alone, each draft is verified, whether that pays or not.
    let verifying = LoadOptions { batch_invariant: true, ..Default::default() };
    let verifying = Checkpoint::new(name).load(verifying);
    let mut accepted = 0;
    for count in [1, 5] {
        let options = drafting(count);
        let (found, metrics) = tokens_in_a_batch(&*model, &prompts, &options);
        assert_eq!(found, expected, "{name} in a batch, {count} draft tokens");
        accepted += metrics.accepted_draft_tokens;
        for (prompt, expected) in prompts.iter().zip(&expected) {
            let (found, metrics) =
                tokens_in_a_batch(&*verifying, std::slice::from_ref(prompt), &options);
            assert_eq!(found[0], *expected, "{name} alone, {count} draft tokens");
            assert!(metrics.accepted_draft_tokens <= metrics.draft_tokens);
            accepted += metrics.accepted_draft_tokens;
        }
    }
    eprintln!("{name}: {accepted} draft tokens accepted");
    accepted
}

fn drafts_change_no_token_of(names: &[&str]) {
    let accepted: usize = names.iter().map(|name| drafts_change_no_token(name)).sum();
    assert!(accepted > 0, "no draft of {names:?} was accepted");
}

#[test]
fn dense_models_with_drafts_agree_with_the_references() {
    drafts_change_no_token_of(&["llama", "qwen3", "olmo2", "smollm3", "qwen3-4bit-g64", "granite"]);
    drafts_change_no_token_of(&["cohere", "gpt_neox", "olmo", "stablelm"]);
}

#[test]
fn models_with_windows_and_drafts_agree_with_the_references() {
    drafts_change_no_token_of(&["gemma3_text", "gemma2", "gpt_oss", "mistral", "cohere2"]);
}

#[test]
fn mixtures_of_experts_with_drafts_agree_with_the_references() {
    drafts_change_no_token_of(&["qwen3_moe", "qwen3_moe-mxfp4", "mixtral", "glm4_moe"]);
}

#[test]
fn latents_lent_keys_and_several_streams_with_drafts_agree_with_the_references() {
    drafts_change_no_token_of(&["deepseek_v3", "gemma3n", "gemma4_e", "laguna"]);
}

#[test]
fn rows_that_outgrow_the_original_context_draft_up_to_its_end() {
    drafts_change_no_token_of(&["phi3_longrope", "phi3"]);
}
