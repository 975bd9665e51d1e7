//! Calls in reasoning that the model does not close, and drafts in reasoning that it does.

use super::{Answer, FAMILIES, answer, by_character, parse, tools};
use crate::answer::{AnswerParser, Family, Piece};

const OPEN: &str = "<|im_start|>assistant\n<think>\n";
const CALL: &str = "<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>";

fn read(family: Family, prompt: &str, text: &str) -> Answer {
    let at_once = parse(family, prompt, [text]);
    assert_eq!(by_character(family, prompt, text), at_once, "{family:?}: {text}");
    at_once
}

fn thought(reasoning: &str, content: &str, calls: &[(&str, &str)]) -> Answer {
    Answer { reasoning: reasoning.to_owned(), ..answer(content, calls) }
}

/// A call as each family that reasons writes it, with the marks around its reasoning.
fn written() -> Vec<(Family, [&'static str; 2], &'static str)> {
    let think = ["<think>", "</think>"];
    vec![
        (Family::Hermes, think, CALL),
        (Family::Coder, think, "<tool_call>\n<function=time>\n</function>\n</tool_call>"),
        (Family::Coder, think, "<function=time>\n</function>"),
        (Family::Glm, think, "<tool_call>time</tool_call>"),
        (
            Family::Seed,
            ["<seed:think>", "</seed:think>"],
            "<seed:tool_call><function=time></function></seed:tool_call>",
        ),
        (
            Family::MiniMax,
            think,
            "<minimax:tool_call>\n<invoke name=\"time\">\n</invoke>\n</minimax:tool_call>",
        ),
        (
            Family::Kimi,
            think,
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.time:0\
             <|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        ),
        (
            Family::DeepSeek31,
            think,
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>time<｜tool▁sep｜>{}<｜tool▁call▁end｜>\
             <｜tool▁calls▁end｜>",
        ),
        (
            Family::Cohere,
            ["<|START_THINKING|>", "<|END_THINKING|>"],
            "<|START_ACTION|>[{\"tool_name\": \"time\", \"parameters\": {}}]<|END_ACTION|>",
        ),
        (Family::Lfm, think, "<|tool_call_start|>[time()]<|tool_call_end|>"),
        (Family::Mistral, ["[THINK]", "[/THINK]"], "[TOOL_CALLS]time[ARGS]{}"),
        (
            Family::Gemma4,
            ["<|channel>thought", "<channel|>"],
            "<|tool_call>call:time{}<tool_call|>",
        ),
    ]
}

#[test]
fn reasoning_that_ends_with_calls_ends_before_them() {
    for (family, [open, _], call) in written() {
        let one = thought("I look.", "", &[("time", "{}")]);
        assert_eq!(read(family, "", &format!("{open}I look.\n\n{call}")), one);
        assert_eq!(read(family, open, &format!("\nI look.\n{call}\n")), one);
        let two = thought("I look.", "", &[("time", "{}"); 2]);
        assert_eq!(read(family, open, &format!("I look.{call}\n{call} \n")), two);
        assert_eq!(read(family, open, call), answer("", &[("time", "{}")]));
    }
}

#[test]
fn drafts_in_reasoning_stay_thoughts() {
    for (family, [open, close], call) in written() {
        let closed = read(family, open, &format!("So: {call}\n{close}\n\nDone."));
        assert_eq!(closed, thought(&format!("So: {call}"), "Done.", &[]), "{family:?}");
        let on = format!("So: {call} or not.");
        assert_eq!(read(family, open, &on), thought(&on, "", &[]), "{family:?}");
        let later = read(family, open, &format!("{on}\n{call}\n"));
        assert_eq!(later, thought(&on, "", &[("time", "{}")]), "{family:?}");
        let after = read(family, open, &format!("{on}{close}{call}"));
        assert_eq!(after, thought(&on, "", &[("time", "{}")]), "{family:?}");
        let cut = call[..call.floor_char_boundary(call.len() / 2)].trim_end().to_owned();
        assert_eq!(read(family, open, &cut), thought(&cut, "", &[]), "{family:?}");
        let closed = read(family, open, &format!("{cut}{close}Done."));
        assert_eq!(closed, thought(&cut, "Done.", &[]), "{family:?}");
    }
}

#[test]
fn a_mark_within_a_call_closes_reasoning() {
    let text =
        "A <tool_call>{\"name\": \"time\", \"arguments\": {\"a\": \"</think>\"}}</tool_call>";
    let reasoning = "A <tool_call>{\"name\": \"time\", \"arguments\": {\"a\": \"";
    assert_eq!(read(Family::Hermes, OPEN, text), thought(reasoning, "\"}}</tool_call>", &[]));
    let text = format!("{CALL}\n</thi");
    assert_eq!(read(Family::Hermes, OPEN, &text), thought(&text, "", &[]));
}

#[test]
fn reasoning_comes_as_soon_as_it_can_be_no_call() {
    let mut parser = AnswerParser::new(Family::Hermes, OPEN, &tools());
    let mut push = |text: &str| parser.push(text);
    let reasoning = |text: &str| vec![Piece::Reasoning(text.to_owned())];
    assert_eq!(push("Hm <too"), reasoning("Hm"));
    assert_eq!(push("thbrush>"), reasoning(" <toothbrush>"));
    assert_eq!(push(" <tool_call>{\"name\":"), []);
    assert_eq!(push(" 1}"), []);
    assert_eq!(push("</tool_call> no"), reasoning(" <tool_call>{\"name\": 1}</tool_call> no"));
    assert_eq!(push(CALL), []);
    assert_eq!(push("\n"), []);
    assert_eq!(push("So"), reasoning(&format!("{CALL}\nSo")));
    assert_eq!(push(CALL), []);
    let calls = [
        Piece::ToolCall { index: 0, name: "time".into() },
        Piece::Arguments { index: 0, text: "{}".into() },
    ];
    assert_eq!(parser.finish(), calls);
}

#[test]
fn without_tools_reasoning_has_no_calls() {
    for family in FAMILIES {
        let mut parser = AnswerParser::new(family, OPEN, &[]);
        let mut pieces = parser.push(&format!("A {CALL}"));
        pieces.extend(parser.finish());
        let calls = pieces.iter().any(|piece| matches!(piece, Piece::ToolCall { .. }));
        assert!(!calls, "{family:?}");
    }
}
