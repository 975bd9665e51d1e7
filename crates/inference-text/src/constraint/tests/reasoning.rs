//! Reasoning before a constrained text, with the marks of several chat formats.

use inference_core::{Constraint, Error, GenerateOptions, Piece, ReasoningMarks};

use super::{VOCAB_SIZE, constraints, tokenizer};
use crate::answer::{AnswerParser, Family};
use crate::constraint::{Constraints, Matcher};
use crate::{AddSpecial, SkipSpecial, Tokenizer};

fn options(regex: &str, open: &str, close: &str) -> GenerateOptions {
    GenerateOptions {
        constraint: Some(Constraint::Regex(regex.into())),
        reasoning: Some(ReasoningMarks { open: open.into(), close: close.into() }),
        ..Default::default()
    }
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, AddSpecial::Never).unwrap()
}

fn begin(constraints: &Constraints, options: &GenerateOptions, prompt: &[u32]) -> Matcher {
    constraints.begin(options, prompt).unwrap().unwrap()
}

fn allowed(matcher: &mut Matcher) -> Vec<u32> {
    let mask = matcher.mask().unwrap();
    (0..VOCAB_SIZE as u32).filter(|id| mask.allows(*id)).collect()
}

/// Takes in all ids, each of which must be allowed.
fn accept(matcher: &mut Matcher, ids: &[u32]) {
    for &id in ids {
        assert!(allowed(matcher).contains(&id), "{id}");
        matcher.accept(id);
    }
}

#[test]
fn reasoning_is_free_and_the_text_after_it_is_not() {
    let tokenizer = tokenizer("qwen");
    let constraints = constraints(&tokenizer);
    let options = options("ab", "<think>", "</think>");
    let ids = |text: &str| encode(&tokenizer, text);
    let eos: Vec<u32> = tokenizer.eos_ids().iter().copied().collect();
    for between in ["", "\n", "\n\n"] {
        let mut matcher = begin(&constraints, &options, &ids("<|im_start|>assistant\n"));
        let start = allowed(&mut matcher);
        assert!(start.contains(&ids("<think>")[0]) && start.contains(&ids("a")[0]));
        assert!(!start.contains(&ids("b")[0]) && !start.contains(&ids("</think>")[0]));
        accept(&mut matcher, &ids("<think>"));
        let inside = allowed(&mut matcher);
        assert_eq!(inside.len(), VOCAB_SIZE - eos.len());
        assert!(eos.iter().all(|id| !inside.contains(id)));
        accept(&mut matcher, &ids("\nLet me see: ab, or <think>.\n</think>"));
        accept(&mut matcher, &ids(between));
        let a = ids("a")[0];
        let text = allowed(&mut matcher);
        assert!(text.contains(&a) && !text.contains(&ids("x")[0]) && !text.contains(&eos[0]));
        assert!(!text.contains(&ids("</think>")[0]));
        accept(&mut matcher, &[a, ids("b")[0]]);
        assert!(matcher.is_complete());
    }
}

#[test]
fn at_most_two_tokens_of_line_breaks_follow_the_reasoning() {
    let tokenizer = tokenizer("qwen");
    let constraints = constraints(&tokenizer);
    let line_break = encode(&tokenizer, "\n")[0];
    let prompt = encode(&tokenizer, "<think>\n");
    let mut matcher = begin(&constraints, &options("a", "<think>", "</think>"), &prompt);
    accept(&mut matcher, &encode(&tokenizer, "</think>"));
    accept(&mut matcher, &[line_break, line_break]);
    assert!(!allowed(&mut matcher).contains(&line_break));
    // What the text may begin with belongs to it.
    let mut matcher = begin(&constraints, &options("\na", "<think>", "</think>"), &prompt);
    accept(&mut matcher, &encode(&tokenizer, "</think>"));
    accept(&mut matcher, &[line_break]);
    assert!(!allowed(&mut matcher).contains(&line_break));
    accept(&mut matcher, &encode(&tokenizer, "a"));
    assert!(matcher.is_complete());
}

#[test]
fn the_prompt_says_whether_reasoning_is_open_or_over() {
    let tokenizer = tokenizer("qwen");
    let constraints = constraints(&tokenizer);
    let options = options("a", "<think>", "</think>");
    let ids = |text: &str| encode(&tokenizer, text);
    let begins_with = |prompt| {
        let mut matcher = begin(&constraints, &options, &ids(prompt));
        let mask = matcher.mask().unwrap();
        ["a", "z", "<think>"].map(|text| mask.allows(ids(text)[0]))
    };
    assert_eq!(begins_with("<|im_start|>assistant\n"), [true, false, true]);
    assert_eq!(begins_with("<|im_start|>assistant\n<think>\n"), [true, true, true]);
    assert_eq!(begins_with("<|im_start|>assistant\n<think>\n\n</think>\n\n"), [true, false, false]);
    // What a message says opens nothing.
    assert_eq!(begins_with("<think>Hello<|im_end|>\n"), [true, false, true]);
    // As for the reader of the answer, the text counts: other ids may spell the mark.
    let spelt = [ids("assistant\n<thin"), ids("k>\n")].concat();
    let mut matcher = begin(&constraints, &options, &spelt);
    assert!(matcher.mask().unwrap().allows(ids("z")[0]));
    let text = tokenizer.decode(&spelt, SkipSpecial::No).unwrap();
    let mut reader = AnswerParser::new(Family::Hermes, &text, &[]);
    assert_eq!(reader.push("z"), [Piece::Reasoning("z".into())]);
}

#[test]
fn marks_of_several_tokens_are_followed() {
    let tokenizer = tokenizer("harmony");
    let constraints = constraints(&tokenizer);
    let options = options("ab", "<|channel|>", "<|channel|>final<|message|>");
    let ids = |text: &str| encode(&tokenizer, text);
    let prompt = ids("<|start|>assistant");
    let reasoned = "<|channel|>analysis<|message|>So.<|end|><|start|>assistant";
    for before in ["", reasoned] {
        let mut matcher = begin(&constraints, &options, &prompt);
        accept(&mut matcher, &ids(&format!("{before}<|channel|>final<|message|>")));
        let text = allowed(&mut matcher);
        assert!(text.contains(&ids("a")[0]) && !text.contains(&ids("x")[0]), "{before}");
        accept(&mut matcher, &ids("a"));
        accept(&mut matcher, &ids("b"));
        assert!(matcher.is_complete());
    }
    // Once begun, an opening mark is written to its end.
    let options = super::reasoning::options("a", "<|channel|>analysis<|message|>", "<|end|>");
    let mut matcher = begin(&constraints, &options, &prompt);
    let open = ids("<|channel|>analysis<|message|>");
    matcher.accept(open[0]);
    for &id in &open[1..] {
        assert_eq!(allowed(&mut matcher), [id]);
        matcher.accept(id);
    }
    assert_eq!(allowed(&mut matcher).len(), VOCAB_SIZE - tokenizer.eos_ids().len());
}

#[test]
fn a_text_after_reasoning_is_not_at_the_beginning() {
    // This decoder drops the first space of a text, so that ` a` spells `a` there and only there.
    let tokenizer = tokenizer("mistral");
    let constraints = constraints(&tokenizer);
    let space_a = tokenizer.token_to_id("▁a").unwrap();
    let regex = Constraint::Regex("a".into());
    assert!(constraints.matcher(&regex).unwrap().mask().unwrap().allows(space_a));
    let mark = tokenizer.id_to_token(*tokenizer.special_ids().last().unwrap()).unwrap();
    let options = options("a", &mark, &mark);
    let mut matcher = begin(&constraints, &options, &encode(&tokenizer, "x"));
    assert!(allowed(&mut matcher).contains(&space_a));
    let mark = encode(&tokenizer, &mark);
    accept(&mut matcher, &mark);
    accept(&mut matcher, &mark);
    assert!(!allowed(&mut matcher).contains(&space_a));
}

#[test]
fn a_mark_that_the_model_does_not_have_is_refused() {
    let constraints = constraints(&tokenizer("gemma"));
    let error = constraints.begin(&options("a", "<think>", "</think>"), &[2]).err().unwrap();
    assert!(matches!(&error, Error::InvalidOption { option: "reasoning", .. }), "{error}");
    assert!(error.to_string().contains("`<think>`"), "{error}");
}
