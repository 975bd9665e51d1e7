//! Stop strings count in what an answer says, however its text comes.

use super::{FAMILIES, collect, tools};
use crate::answer::{AnswerParser, AnswerStops, Family};
use crate::{Held, StopMatcher};

/// The text up to the stop string, and which one it was.
fn stopped(
    family: Family,
    prompt: &str,
    stops: &[&str],
    parts: &[&str],
) -> (String, Option<usize>) {
    let matcher = StopMatcher::new(stops).expect("no stop string is empty");
    let mut stops = AnswerStops::new(matcher, AnswerParser::new(family, prompt, &tools()));
    let (mut text, mut matched) = (String::new(), None);
    let mut add = |held: Held| {
        text += &held.text;
        matched = matched.or(held.matched);
    };
    parts.iter().for_each(|part| add(stops.push(part)));
    add(stops.finish());
    assert!(!stops.is_holding());
    (text, matched)
}

/// Reasoning, content and number of calls of what is left of a text; however it comes, it is the
/// same.
fn said(family: Family, prompt: &str, stops: &[&str], text: &str) -> (String, String, usize) {
    let at_once = stopped(family, prompt, stops, &[text]);
    let cuts: Vec<usize> = (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect();
    for &cut in &cuts {
        let two = stopped(family, prompt, stops, &[&text[..cut], &text[cut..]]);
        assert_eq!(two, at_once, "{family:?}, {stops:?}, cut at {cut}: {text}");
    }
    let parts: Vec<&str> = text.split_inclusive(|_| true).collect();
    assert_eq!(stopped(family, prompt, stops, &parts), at_once, "{family:?}, {stops:?}: {text}");
    assert!(text.starts_with(&at_once.0));
    assert!(at_once.1.is_some() || at_once.0 == text, "{family:?}: {at_once:?}");
    let mut parser = AnswerParser::new(family, prompt, &tools());
    let mut pieces = parser.push(&at_once.0);
    pieces.extend(parser.finish());
    let answer = collect(pieces);
    (answer.reasoning, answer.content, answer.calls.len())
}

#[test]
fn text_to_pass_completes_no_stop_string_of_what_is_said() {
    let stops = || {
        let matcher = StopMatcher::new(&["No."]).expect("a stop string");
        AnswerStops::new(matcher, AnswerParser::new(Family::Hermes, "", &tools()))
    };
    let mut answer = stops();
    let mut text = answer.pass("<think>\nHm.\n</think>\n\nYes. No. N").text;
    let held = answer.push("o. No.");
    text += &held.text;
    assert_eq!(held.matched, Some(0));
    assert_eq!(text, "<think>\nHm.\n</think>\n\nYes. No. ");
    let mut answer = stops();
    let passed = answer.pass("Yes. No.");
    assert_eq!(passed.matched.or(answer.finish().matched), None);
}

/// Answers that think and then say two lines, in all ways in which prompts begin.
fn thinking() -> Vec<(Family, &'static str, String)> {
    let marks = |open: &str, close: &str| format!("{open}Hm.\nNo, so.{close}\n\nYes.\nNo.");
    let channels = "<|channel|>analysis<|message|>Hm.\nNo, so.<|end|><|start|>assistant<|channel|>final<|message|>Yes.\nNo.";
    vec![
        (Family::Hermes, "", marks("<think>\n", "\n</think>")),
        (Family::Hermes, "<|im_start|>assistant\n<think>\n", marks("", "\n</think>")),
        (Family::Plain, "<think>", marks("", "</think>")),
        (Family::Mistral, "", marks("[THINK]", "[/THINK]")),
        (Family::Seed, "", marks("<seed:think>", "</seed:think>")),
        (Family::Cohere, "", marks("<|START_THINKING|>", "<|END_THINKING|><|START_RESPONSE|>")),
        (Family::Gemma4, "<|turn>model\n", marks("<|channel>thought\n", "<channel|>")),
        (Family::Gemma4, "<|turn>model\n<|channel>thought\n", marks("", "\n<channel|>")),
        (Family::Apriel, "Here are my reasoning steps:", marks("", "[BEGIN FINAL RESPONSE]")),
        (Family::Hunyuan, "", marks("<think>", "</think><answer>")),
        (Family::Harmony, "<|start|>assistant", channels.to_owned()),
        (
            Family::Muse,
            "<|start|>assistant",
            " to=self<|message|>Hm.\nNo, so.<|eom|><|start|>assistant to=user<|message|>Yes.\nNo."
                .to_owned(),
        ),
    ]
}

#[test]
fn stop_strings_count_behind_the_reasoning() {
    for (family, prompt, text) in thinking() {
        let (reasoning, content, _) = said(family, prompt, &["\n"], &text);
        assert_eq!((reasoning.trim(), content.as_str()), ("Hm.\nNo, so.", "Yes."), "{family:?}");
        for stop in ["Hm", "think", "message", "|>", ">\n", "]", "so.<", "THINK", "channel"] {
            let (reasoning, content, _) = said(family, prompt, &[stop], &text);
            assert_eq!(
                (reasoning.trim(), content.as_str()),
                ("Hm.\nNo, so.", "Yes.\nNo."),
                "{stop}"
            );
        }
        let (_, content, _) = said(family, prompt, &["Yes"], &text);
        assert_eq!(content, "", "{family:?}");
        let (_, content, _) = said(family, prompt, &["nowhere", "o.", "s.\nNo"], &text);
        assert_eq!(content, "Ye", "{family:?}");
    }
}

#[test]
fn reasoning_without_an_end_is_met_by_no_stop_string() {
    for prompt in ["<think>\n", ""] {
        let text = format!("{}Hm.\nNo.\n\n", if prompt.is_empty() { "<think>" } else { "" });
        assert_eq!(stopped(Family::Hermes, prompt, &["\n", "No"], &[&text]), (text.clone(), None));
        said(Family::Hermes, prompt, &["\n", "No"], &text);
    }
}

#[test]
fn a_stop_string_cuts_no_call() {
    let call =
        "<tool_call>\n{\"name\": \"time\", \"arguments\": {\"zone\": \"Oslo\"}}\n</tool_call>";
    let text = format!("I look.\n{call}\n{call}");
    for stop in ["tool", "Oslo", "\n{", "}\n", "</tool_call>", "look.\n<", "name"] {
        let (_, content, calls) = said(Family::Hermes, "", &[stop], &text);
        assert_eq!((content.as_str(), calls), ("I look.", 2), "{stop}");
    }
    let (_, content, calls) = said(Family::Hermes, "", &["look"], &text);
    assert_eq!((content.as_str(), calls), ("I ", 0));
    // What is no call is text, and so are marks of a model that has no tools.
    let other = "So <tool_call>{\"name\": \"other\"}</tool_call> it is.";
    assert_eq!(said(Family::Hermes, "", &["other"], other).1, "So <tool_call>{\"name\": \"");
    let (cut, index) = {
        let matcher = StopMatcher::new(&["</tool_call>"]).expect("a stop string");
        let parser = AnswerParser::new(Family::Hermes, "", &[]);
        let mut stops = AnswerStops::new(matcher, parser);
        let held = stops.push(call);
        (held.text, held.matched)
    };
    assert_eq!((cut.as_str(), index), (call.strip_suffix("</tool_call>").unwrap_or(""), Some(0)));
    let harmony = "<|channel|>commentary to=functions.time<|message|>{\"zone\": \"Oslo\"}<|call|>";
    for stop in ["Oslo", "time", "{", "<|"] {
        let (_, content, calls) = said(Family::Harmony, "<|start|>assistant", &[stop], harmony);
        assert_eq!((content.as_str(), calls), ("", 1), "{stop}");
    }
}

#[test]
fn content_on_both_sides_of_a_call_is_not_one_text() {
    let call = "<tool_call>{\"name\": \"time\", \"arguments\": {}}</tool_call>";
    let (_, content, calls) = said(Family::Hermes, "", &["ab"], &format!("a{call}b{call}ab"));
    assert_eq!((content.as_str(), calls), ("ab", 2));
    // Of two that begin alike, the shorter one is met where the run ends.
    let (_, content, calls) = said(Family::Hermes, "", &["abc", "a"], &format!("xab{call}"));
    assert_eq!((content.as_str(), calls), ("x", 0));
}

#[test]
fn what_an_answer_says_comes_at_once() {
    let matcher = StopMatcher::new(&["END"]).expect("a stop string");
    let mut stops = AnswerStops::new(matcher, AnswerParser::new(Family::Hermes, "", &tools()));
    assert_eq!(stops.push("<think>Hm E").text, "<think>Hm E");
    assert_eq!(stops.push("ND</thi").text, "ND");
    assert_eq!(stops.push("nk>\nYes E").text, "</think>\nYes ");
    assert_eq!(stops.push("NOUGH").text, "ENOUGH");
    assert_eq!(stops.push(" END").matched, Some(0));
    assert_eq!(stops.push("more"), Held::default());
}

#[test]
fn without_marks_stop_strings_count_everywhere() {
    for family in FAMILIES {
        let (_, content, _) = said(family, "", &["b"], "a\nb c");
        assert_eq!(content, "a\n", "{family:?}");
    }
}
