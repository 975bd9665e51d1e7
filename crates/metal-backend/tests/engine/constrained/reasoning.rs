//! Reasoning before a constrained text, through chat templates.

use inference_core::{
    ChatOptions, FinishReason, GenerateOptions, Message, Prompt, ReasoningMarks, Value,
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
