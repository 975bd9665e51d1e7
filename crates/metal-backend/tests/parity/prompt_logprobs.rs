//! How likely a prompt's own tokens are is what transformers computes.

use inference_core::{GenerateOptions, LoadOptions, Prompt, TextModel, Token};

use crate::checkpoints::F32_TOLERANCE;
use crate::fixtures::{Checkpoint, Golden, distance, ids, json, numbers};

/// Most likely tokens at each place of the golden.
const TOP: usize = 3;

#[track_caller]
fn prompt_logprobs(model: &dyn TextModel, prompt: &[u32], max_tokens: usize) -> Vec<Token> {
    let options = GenerateOptions {
        max_tokens: Some(max_tokens),
        prompt_logprobs: true,
        top_logprobs: TOP,
        ..GenerateOptions::default()
    };
    let mut generation =
        model.generate(&Prompt::Ids(prompt.to_vec()), &options).expect("it starts");
    for token in generation.by_ref() {
        token.expect("it ends well");
    }
    generation.take_prompt_logprobs().expect("they were asked for")
}

/// Checks all prompts of `name`.
fn agrees_with_the_references(name: &str, options: LoadOptions) {
    let (golden, expected) = (Golden::new(name), json("golden/prompt_logprobs.json"));
    let model = Checkpoint::new(name).load(options);
    let mut worst: f32 = 0.0;
    for (prompt, golden) in golden.prompts() {
        let (ids, expected) = (ids(&golden["ids"]), &expected["models"][name][prompt]);
        for max_tokens in [0, 1] {
            let tokens = prompt_logprobs(&*model, &ids, max_tokens);
            let found: Vec<u32> = tokens.iter().map(|token| token.id).collect();
            assert_eq!(found, ids, "{name} {prompt}");
            let text: String = tokens.iter().map(|token| token.text.as_str()).collect();
            assert_eq!(text, model.decode(&ids).unwrap(), "{name} {prompt}");
            assert!(tokens[0].logprob.is_none() && tokens[0].top_logprobs.is_empty());
            let own = |token: &Token| token.logprob.expect("all but the first have one");
            let found: Vec<f32> = tokens[1..].iter().map(own).collect();
            let far = distance(&found, &numbers(&expected["own"]));
            assert!(far <= F32_TOLERANCE, "{name} {prompt}: {far:e}");
            worst = worst.max(far);
            for (token, expected) in tokens[1..].iter().zip(expected["top"].as_array().unwrap()) {
                let top = &token.top_logprobs;
                let values: Vec<f32> = top.iter().map(|top| top.logprob).collect();
                let far = distance(&values, &numbers(expected));
                assert!(far <= F32_TOLERANCE, "{name} {prompt}: {far:e}");
                // The same token has the same number, to the bit.
                let same = top.iter().find(|top| top.id == token.id);
                assert!(same.is_none_or(|same| Some(same.logprob) == token.logprob), "{token:?}");
            }
        }
    }
    eprintln!("{name}: log probabilities of prompts within {worst:.1e} of transformers'");
}

#[test]
fn log_probabilities_of_prompts_agree_with_the_references() {
    for name in ["llama", "qwen3", "gemma2", "gemma3_text", "phi3_longrope", "gpt_oss"] {
        agrees_with_the_references(name, LoadOptions::default());
    }
}

#[test]
fn texts_of_prompts_show_special_tokens_where_asked() {
    let model = Checkpoint::new("llama").load(LoadOptions::default());
    let golden = Golden::new("llama");
    let chat = &golden.json["prompts"]["chat"];
    let options = GenerateOptions {
        max_tokens: Some(0),
        prompt_logprobs: true,
        special_tokens: true,
        ..GenerateOptions::default()
    };
    let mut generation = model.generate(&Prompt::Ids(ids(&chat["ids"])), &options).unwrap();
    assert_eq!(generation.next(), None);
    let tokens = generation.take_prompt_logprobs().expect("they were asked for");
    let text: String = tokens.iter().map(|token| token.text.as_str()).collect();
    assert_eq!(text, chat["text"].as_str().unwrap());
}

#[test]
fn log_probabilities_of_prompts_in_small_chunks_agree_with_the_references() {
    for name in ["llama", "gemma3_text", "phi3_longrope"] {
        let options = LoadOptions { prefill_chunk: Some(7), ..LoadOptions::default() };
        agrees_with_the_references(name, options);
    }
}

#[test]
fn log_probabilities_of_prompts_by_themselves_agree_with_the_references() {
    let options = LoadOptions { batch_invariant: true, ..LoadOptions::default() };
    agrees_with_the_references("qwen3", options);
}
