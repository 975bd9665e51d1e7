//! Reasoning before a constrained text, with the marks of several chat formats.

use inference_core::{Constraint, Error, GenerateOptions, Piece, ReasoningBudget, ReasoningMarks};

use super::{VOCAB_SIZE, constraints, tokenizer};
use crate::answer::{AnswerParser, Family};
use crate::constraint::{Constraints, Guide, Mask};
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

fn begin(constraints: &Constraints, options: &GenerateOptions, prompt: &[u32]) -> Guide {
    constraints.begin(options, prompt).unwrap().unwrap()
}

fn mask(guide: &mut Guide) -> Mask {
    guide.mask().unwrap().unwrap()
}

fn allowed(guide: &mut Guide) -> Vec<u32> {
    let mask = mask(guide);
    (0..VOCAB_SIZE as u32).filter(|id| mask.allows(*id)).collect()
}

/// Takes in all ids, each of which must be allowed.
fn accept(matcher: &mut Guide, ids: &[u32]) {
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
        let mask = mask(&mut matcher);
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
    assert!(mask(&mut matcher).allows(ids("z")[0]));
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

/// Takes in what a model would say that reasons without an end; what was said in the end.
fn said(guide: &mut Guide, filler: u32, most: usize) -> Vec<u32> {
    let one = |guide: &mut Guide| {
        let id = match guide.mask().unwrap() {
            Some(mask) if !mask.allows(filler) => {
                (0..VOCAB_SIZE as u32).find(|id| mask.allows(*id)).unwrap()
            }
            _ => filler,
        };
        guide.accept(id);
        id
    };
    (0..most).map(|_| one(guide)).collect()
}

#[test]
fn reasoning_ends_at_its_budget() {
    let tokenizer = tokenizer("qwen");
    let constraints = constraints(&tokenizer);
    let ids = |text: &str| encode(&tokenizer, text);
    let (filler, close) = (ids("a")[0], ids("</think>")[0]);
    let marks = || ReasoningMarks { open: "<think>".into(), close: "</think>".into() };
    let bound = |tokens| GenerateOptions {
        reasoning_budget: Some(ReasoningBudget { marks: marks(), tokens }),
        ..Default::default()
    };
    for tokens in [0, 1, 3] {
        let mut guide = begin(&constraints, &bound(tokens), &ids("assistant\n<think>\n"));
        let expected = [vec![filler; tokens], vec![close], vec![filler; 2]].concat();
        assert_eq!(said(&mut guide, filler, tokens + 3), expected);
        assert!(!guide.must_know(), "the rest is drawn as always");
    }
    // The answer opens it, or does not.
    let mut guide = begin(&constraints, &bound(2), &ids("assistant\n"));
    guide.accept(ids("<think>")[0]);
    assert_eq!(said(&mut guide, filler, 4), [filler, filler, close, filler]);
    let mut guide = begin(&constraints, &bound(0), &ids("assistant\n"));
    assert_eq!(said(&mut guide, filler, 3), [filler; 3]);
    let closed = ids("assistant\n<think>\n\n</think>\n\n");
    assert!(constraints.begin(&bound(2), &closed).unwrap().is_none());
    // It closes it in time.
    let mut guide = begin(&constraints, &bound(2), &ids("<think>"));
    guide.accept(close);
    assert_eq!(said(&mut guide, filler, 4), [filler; 4]);
    // Far from its end, draws need not wait for each other.
    assert!(!begin(&constraints, &bound(1000), &ids("<think>")).must_know());
    // What a constraint leaves free is bounded too.
    let held = GenerateOptions {
        reasoning_budget: bound(2).reasoning_budget,
        ..options("b", "<think>", "</think>")
    };
    let mut guide = begin(&constraints, &held, &ids("<think>"));
    assert_eq!(said(&mut guide, filler, 4), [filler, filler, close, ids("b")[0]]);
    assert!(guide.is_complete());
}

#[test]
fn a_budgets_mark_of_several_tokens_is_written_to_its_end() {
    let tokenizer = tokenizer("harmony");
    let constraints = constraints(&tokenizer);
    let ids = |text: &str| encode(&tokenizer, text);
    let close = "<|end|><|start|>assistant<|channel|>final<|message|>";
    let marks =
        ReasoningMarks { open: "<|channel|>analysis<|message|>".into(), close: close.into() };
    let bound = GenerateOptions {
        reasoning_budget: Some(ReasoningBudget { marks, tokens: 2 }),
        ..Default::default()
    };
    let mut guide = begin(&constraints, &bound, &ids("<|start|>assistant"));
    for id in ids("<|channel|>analysis<|message|>") {
        guide.accept(id);
    }
    let filler = ids("a")[0];
    let expected = [vec![filler; 2], ids(close), vec![filler]].concat();
    assert_eq!(said(&mut guide, filler, expected.len()), expected);
    // A call, or an answer with a form, follows by itself and is not cut.
    for other in ["commentary to=functions.f<|message|>", "final <|constrain|>json<|message|>"] {
        let mut guide = begin(&constraints, &bound, &ids("<|start|>assistant"));
        let text =
            format!("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>{other}");
        ids(&text).into_iter().for_each(|id| guide.accept(id));
        assert_eq!(said(&mut guide, filler, 8), [filler; 8], "{other}");
    }
    // Another channel is no reasoning.
    let mut guide = begin(&constraints, &bound, &ids("<|start|>assistant"));
    ids("<|channel|>final<|message|>").into_iter().for_each(|id| guide.accept(id));
    assert_eq!(said(&mut guide, filler, 5), [filler; 5]);
}

#[test]
fn a_mark_that_the_model_does_not_have_is_refused() {
    let constraints = constraints(&tokenizer("gemma"));
    let error = constraints.begin(&options("a", "<think>", "</think>"), &[2]).err().unwrap();
    assert!(matches!(&error, Error::InvalidOption { option: "reasoning", .. }), "{error}");
    assert!(error.to_string().contains("`<think>`"), "{error}");
}
