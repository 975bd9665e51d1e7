//! Reasoning before a constrained text, through chat templates.

use inference_core::{
    ChatOptions, FinishReason, GenerateOptions, Message, Prompt, ReasoningBudget, ReasoningMarks,
    Value,
};
use serde_json::Value as Json;

use super::{RANDOM, drawn, person, schema};

const OPEN: u32 = 992;
const CLOSE: u32 = 993;

fn reasoned(seed: u64) -> GenerateOptions {
    let marks = ReasoningMarks { open: "<think>".into(), close: "</think>".into() };
    GenerateOptions {
        reasoning: Some(marks),
        max_tokens: Some(400),
        logit_bias: [(CLOSE, 3.0)].into(),
        ..drawn(schema(&person()), 1.0, seed)
    }
}

fn chat(options: &GenerateOptions, kwargs: &[(String, Value)]) -> (Vec<u32>, String, FinishReason) {
    let chat = ChatOptions { template_kwargs: kwargs.to_vec(), ..Default::default() };
    let messages = [Message::user("Who is <think> Mara?")];
    let mut generation = RANDOM.chat(&messages, &chat, options).unwrap();
    let tokens: Vec<_> = generation.by_ref().map(|token| token.unwrap()).collect();
    let text = tokens.iter().map(|token| token.text.as_str()).collect();
    let ids = tokens.iter().map(|token| token.id).collect();
    (ids, text, generation.outcome().unwrap().finish_reason.clone())
}

fn check(answer: &str) {
    let validator = jsonschema::validator_for(&person()).unwrap();
    let json: Json = serde_json::from_str(answer).unwrap_or_else(|e| panic!("{e}: {answer}"));
    assert!(validator.is_valid(&json), "{answer}");
}

#[test]
fn an_answer_after_reasoning_is_valid() {
    let mut lengths = Vec::new();
    for seed in 0..6 {
        let mut options = reasoned(seed);
        options.logit_bias = [(OPEN, 50.0), (CLOSE, 47.0)].into();
        let (ids, text, reason) = chat(&options, &[]);
        assert!(matches!(reason, FinishReason::EndOfSequence(_)), "{reason:?}: {text}");
        assert_eq!(ids[0], OPEN);
        let (reasoning, answer) = text.split_once("</think>").unwrap();
        assert!(reasoning.starts_with("<think>"));
        check(answer);
        lengths.push(reasoning.len());
    }
    assert!(lengths.iter().any(|length| *length > "<think>".len()), "{lengths:?}");
}

#[test]
fn an_answer_without_reasoning_is_valid() {
    for seed in 0..4 {
        let mut options = reasoned(seed);
        options.logit_bias.insert(OPEN, f32::NEG_INFINITY);
        check(&chat(&options, &[]).1);
        // The template closes the reasoning itself.
        let closed = [("enable_thinking".to_owned(), Value::Bool(false))];
        let (ids, text, _) = chat(&reasoned(seed), &closed);
        assert_ne!(ids[0], OPEN);
        check(&text);
    }
}

#[test]
fn reasoning_that_is_open_in_the_prompt_goes_on() {
    let prompt = Prompt::from("<|im_start|>assistant\n<think>\n");
    for seed in 0..4 {
        let generation = RANDOM.generate(&prompt, &reasoned(seed)).unwrap();
        let text: String = generation.map(|token| token.unwrap().text).collect();
        check(text.split_once("</think>").unwrap().1);
    }
}

#[test]
fn reasoning_that_never_closes_ends_at_the_most_tokens() {
    let mut options = GenerateOptions { max_tokens: Some(50), ..reasoned(1) };
    options.logit_bias = [(CLOSE, f32::NEG_INFINITY), (982, 30.0)].into();
    let prompt = Prompt::from("<think>\n");
    let mut generation = RANDOM.generate(&prompt, &options).unwrap();
    let ids: Vec<u32> = generation.by_ref().map(|token| token.unwrap().id).collect();
    assert_eq!(ids.len(), 50);
    assert_eq!(generation.outcome().unwrap().finish_reason, FinishReason::Length);
}

/// Free reasoning that hardly ever closes by itself, with at most so many tokens.
fn bounded(tokens: Option<usize>, seed: u64, draft_tokens: usize) -> GenerateOptions {
    let marks = ReasoningMarks { open: "<think>".into(), close: "</think>".into() };
    GenerateOptions {
        max_tokens: Some(120),
        temperature: Some(if seed.is_multiple_of(2) { 0.0 } else { 1.0 }),
        seed: Some(seed),
        ignore_eos: true,
        draft_tokens: Some(draft_tokens),
        logit_bias: [(CLOSE, -30.0)].into(),
        reasoning_budget: tokens.map(|tokens| ReasoningBudget { marks, tokens }),
        ..GenerateOptions::default()
    }
}

#[test]
fn a_budget_changes_nothing_but_where_the_reasoning_ends() {
    let prompt = Prompt::from("<|im_start|>assistant\n<think>\n");
    let ids = |options: &GenerateOptions| -> Vec<u32> {
        let generation = RANDOM.generate(&prompt, options).unwrap();
        generation.map(|token| token.unwrap().id).collect()
    };
    for (seed, draft_tokens) in [(0, 0), (1, 0), (2, 6), (3, 6)] {
        let free = ids(&bounded(None, seed, draft_tokens));
        assert!(!free.contains(&CLOSE));
        // Far from its end, steps are queued before the ids of others are read.
        for tokens in [0, 1, 40, 100] {
            let held = ids(&bounded(Some(tokens), seed, draft_tokens));
            assert_eq!(held[..tokens], free[..tokens], "{seed}: {tokens}");
            assert_eq!((held[tokens], held.len()), (CLOSE, 120), "{seed}: {tokens}");
        }
        assert_eq!(ids(&bounded(Some(500), seed, draft_tokens)), free);
    }
    // Beside each other, each has its own.
    let all: Vec<_> = (0..6).map(|seed| bounded(Some(20 * seed as usize), seed, 0)).collect();
    let alone: Vec<_> = all.iter().map(&ids).collect();
    let together: Vec<_> =
        all.iter().map(|options| RANDOM.generate(&prompt, options).unwrap()).collect();
    for (generation, alone) in together.into_iter().zip(alone) {
        let ids: Vec<u32> = generation.map(|token| token.unwrap().id).collect();
        let ends = ids.iter().position(|id| *id == CLOSE);
        assert_eq!(ends, alone.iter().position(|id| *id == CLOSE));
        assert_eq!(ids, alone);
    }
}
