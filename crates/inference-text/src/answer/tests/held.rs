//! The promise of a constraint: the content that the parser finds in any allowed text holds to it.

use std::sync::Arc;

use inference_core::{Constraint, Value};
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use proptest::prelude::*;
use serde_json::json;

use super::{Answer, FAMILIES, collect};
use crate::answer::format::{answer_marks, openings, reasoning_marks};
use crate::answer::{
    AnswerParser, Family, Tool, ToolChoice, answer_constraint_with, answer_or_calls,
    tool_constraint_with,
};
use crate::json::{from_value, to_value};

/// The special tokens of the families whose answers are messages.
const MESSAGES: [&str; 9] = [
    "<|channel|>",
    "<|message|>",
    "<|start|>",
    "<|end|>",
    "<|constrain|>",
    "<|call|>",
    "<|return|>",
    "<|eom|>",
    "<|eot|>",
];

/// The form of a family's marks: tokens of their own, or text.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Marks {
    Tokens,
    Text,
}

/// A vocabulary of bytes, of an end, of the special tokens that a family has, and of texts of
/// several bytes.
struct Words {
    special: Vec<&'static str>,
    texts: Vec<&'static str>,
}

impl Words {
    fn of(family: Family, marks: Marks) -> Words {
        let mut all: Vec<&str> = openings(family).iter().map(|o| o.mark).collect();
        all.extend(openings(family).iter().map(|o| o.close).filter(|mark| !mark.is_empty()));
        let pairs = reasoning_marks(family).iter().copied().chain(answer_marks(family));
        all.extend(pairs.flat_map(|(open, close)| [open, close]));
        all.dedup();
        let in_messages = matches!(family, Family::Harmony | Family::Muse);
        let mut special = vec!["<|end_of_text|>"];
        special.extend(MESSAGES);
        if marks == Marks::Tokens {
            special.extend(all.iter().filter(|mark| mark.ends_with(['>', ']'])));
        }
        let mut texts = vec!["\u{3000}", "\u{1680}", "\u{b}", "é", "\n", " ", "  ", "{\"", "\"}"];
        // Within JSON these end a message, whether they are tokens or text.
        if !in_messages {
            texts.extend(all);
        }
        Words { special, texts }
    }

    fn id(&self, mark: &str) -> Option<u32> {
        let special = self.special.iter().zip(256..);
        special.skip(1).find(|(name, _)| **name == mark).map(|(_, id)| id)
    }

    fn bytes(&self) -> Vec<Vec<u8>> {
        let bytes = (0..=255u8).map(|byte| vec![byte]);
        // A special token begins with the byte that no text has.
        let special = self.special.iter().map(|name| [b"\xff", name.as_bytes()].concat());
        bytes.chain(special).chain(self.texts.iter().map(|text| text.as_bytes().to_vec())).collect()
    }

    fn matcher(&self, grammar: TopLevelGrammar) -> Matcher {
        let vocabulary = self.bytes();
        let info = TokRxInfo::new(vocabulary.len() as u32, 256);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &vocabulary)));
        let factory = ParserFactory::new(&env, InferenceCapabilities::default(), &[]);
        let mut factory = factory.expect("the vocabulary is small");
        factory.quiet();
        Matcher::new(factory.create_parser(grammar))
    }

    fn text(&self, id: u32) -> String {
        let id = id as usize;
        match id.checked_sub(256) {
            None => String::from_utf8(vec![id as u8]).unwrap_or_default(),
            Some(at) => self.special.iter().chain(&self.texts).nth(at).unwrap_or(&"").to_string(),
        }
    }

    /// A text that the grammar allows; `None` where there was no end to it.
    fn draw(&self, constraint: &Constraint, mut seed: u64) -> Option<String> {
        let mut below = |count: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % count
        };
        let mut matcher = self.matcher(grammar(constraint));
        assert!(!matcher.is_error(), "{:?}\n{constraint:?}", matcher.get_error());
        let mut text = String::new();
        for _ in 0..120 {
            let accepts = matcher.is_accepting().unwrap_or(false);
            if accepts && (matcher.is_stopped() || below(4) == 0) {
                return Some(text);
            }
            let mask = matcher.compute_mask().expect("the grammar goes on");
            let last = (256 + self.special.len() + self.texts.len()) as u32;
            let allowed = (0..last).filter(|id| *id != 256 && mask.is_allowed(*id));
            let (bytes, long): (Vec<u32>, Vec<u32>) =
                allowed.filter(|id| !(128..256).contains(id)).partition(|id| *id < 128);
            let from = match (bytes.is_empty(), long.is_empty()) {
                (true, true) => return accepts.then_some(text),
                (true, false) => long,
                (false, true) => bytes,
                (false, false) if below(3) == 0 => long,
                (false, false) => bytes,
            };
            let id = from[below(from.len())];
            matcher.consume_token(id).expect("it is allowed");
            text += &self.text(id);
        }
        None
    }

    /// Returns true for a text that `constraint` asks for.
    fn holds(&self, constraint: &Constraint, text: &str) -> bool {
        let mut matcher = self.matcher(grammar(constraint));
        let ids: Vec<u32> = text.bytes().map(u32::from).collect();
        matcher.try_consume_tokens(&ids).unwrap_or(0) == ids.len()
            && matcher.is_accepting().unwrap_or(false)
    }
}

fn grammar(constraint: &Constraint) -> TopLevelGrammar {
    match constraint {
        Constraint::JsonSchema(schema) => TopLevelGrammar::from_json_schema(from_value(schema)),
        Constraint::Regex(pattern) => TopLevelGrammar::from_regex(pattern),
        Constraint::Lark(grammar) => TopLevelGrammar::from_lark(grammar.clone()),
    }
}

fn read<'a>(
    family: Family,
    prompt: &str,
    tools: &[Tool],
    parts: impl IntoIterator<Item = &'a str>,
) -> Answer {
    let mut parser = AnswerParser::with_schemas(family, prompt, tools);
    let mut pieces: Vec<_> = parts.into_iter().flat_map(|part| parser.push(part)).collect();
    pieces.extend(parser.finish());
    collect(pieces)
}

/// Both readings of a text are one.
fn read_both_ways(family: Family, prompt: &str, tools: &[Tool], text: &str) -> Answer {
    let whole = read(family, prompt, tools, [text]);
    let parts = read(family, prompt, tools, text.split_inclusive(|_| true));
    assert_eq!(whole, parts, "{family:?}: {text:?}");
    whole
}

fn object() -> Value {
    to_value(json!({
        "type": "object",
        "properties": {"a": {"enum": ["x", "</answer>"]}, "b": {"type": "string", "maxLength": 12}},
        "required": ["a"],
        "additionalProperties": false,
    }))
}

fn constraint() -> impl Strategy<Value = Constraint> {
    let regexes = [
        "(ab|a b|x){3,9}",
        "x{1,9}(<[a-z|A-Z_/]{1,16}>)?",
        "(?s:.{0,9})",
        "(?s:.){1,40}",
        "\\s{0,2}[^<]*\\s?",
        "[ -~]*",
        "[^x]{1,200}",
        "( |a)b?\\n",
    ];
    let regexes = proptest::sample::select(regexes.to_vec());
    prop_oneof![
        Just(Constraint::JsonSchema(object())),
        regexes.prop_map(|pattern| Constraint::Regex(pattern.to_owned())),
    ]
}

/// The ends of prompts: before, within and behind a thought.
fn prompts(family: Family) -> [String; 3] {
    if matches!(family, Family::Harmony | Family::Muse) {
        return ["", "<|channel|>analysis<|message|>", ""].map(|begun| {
            let begun = if family == Family::Muse { "" } else { begun };
            format!("<|start|>assistant{begun}")
        });
    }
    let (open, close) = reasoning_marks(family)[0];
    ["assistant\n".to_owned(), format!("assistant\n{open}\n"), format!("{open}\n{close}\n\n")]
}

fn tools() -> Vec<Tool> {
    let parameters = json!({
        "type": "object",
        "properties": {
            "city": {"enum": ["Oslo", "</parameter>", "</tool_call>", "a\nb"]},
            "days": {"type": "number"},
            "count": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "number"}},
        },
        "required": ["city"],
        "additionalProperties": false,
    });
    vec![Tool { name: "weather".into(), parameters, strict: false }]
}

#[test]
fn the_marks_of_an_answer_come_in_pairs_around_a_schema_and_not_at_all_around_an_expression() {
    for (family, open, close) in [
        (Family::Hunyuan, "<answer>", "</answer>"),
        (Family::Ernie, "<response>", "</response>"),
        (Family::Cohere, "<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ] {
        let words = Words::of(family, Marks::Text);
        let held = |constraint| answer_constraint_with(family, "", constraint, &|_| None);
        let schema = held(Constraint::JsonSchema(object()));
        let json = "{\"a\": \"x\"}";
        for text in [json, &format!("{open}\n{json}\n{close}"), &format!("{open}{json}")] {
            assert!(words.holds(&schema, text), "{text}");
        }
        for text in [format!("{json}{close}"), format!("{open}\u{3000}{json}"), close.to_owned()] {
            assert!(!words.holds(&schema, &text), "{text}");
        }
        let expression = held(Constraint::Regex("(?s:.*)".to_owned()));
        assert!(words.holds(&expression, "a\n") && !words.holds(&expression, &format!("{open}a")));
        // An expression that names a mark means it.
        let named = held(Constraint::Regex("<think>a</think>b".to_owned()));
        assert!(words.holds(&named, "<think>a</think>b"));
    }
}

#[test]
fn marks_within_an_answer_of_json_are_text() {
    let tools = tools();
    let call = "<tool_call>{\\\"name\\\": 1}</tool_call>";
    let json = format!("{{\"a\": \"{call}</answer>\", \"b\": [\"<|python_tag|>\"]}}");
    for family in [Family::Hermes, Family::Coder, Family::Llama3, Family::Gemma, Family::Hunyuan] {
        let answer = read_both_ways(family, "", &tools, &json);
        assert_eq!((answer.content.as_str(), answer.calls.len()), (json.as_str(), 0), "{family:?}");
    }
    let marked = format!("<answer>\n{json}\n</answer>\n");
    assert_eq!(read_both_ways(Family::Hunyuan, "", &tools, &marked).content, json);
    let cut = "{\"a\": \"b\n<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>";
    assert_eq!(read_both_ways(Family::Hermes, "", &tools, cut).calls.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_content_of_a_constrained_answer_holds_to_the_constraint(
        family in proptest::sample::select(FAMILIES.to_vec()), constraint in constraint(),
        marks in proptest::sample::select(vec![Marks::Tokens, Marks::Text]), prompt in 0..3usize,
        with_tools in any::<bool>(), seed in any::<u64>(),
    ) {
        let words = Words::of(family, marks);
        let id = |mark: &str| words.id(mark);
        let prompt = &prompts(family)[prompt];
        let tools = if with_tools && family != Family::Plain { tools() } else { Vec::new() };
        let either = match tools.is_empty() {
            true => Some(constraint.clone()),
            false => answer_or_calls(family, &tools, false, &constraint, &id).expect("it can be held"),
        };
        // Nothing tells an answer of these from a call.
        let Some(either) = either else { return Ok(()) };
        let held = answer_constraint_with(family, prompt, either, &id);
        let Some(text) = words.draw(&held, seed) else { return Ok(()) };
        let answer = read_both_ways(family, prompt, &tools, &text);
        let says = words.holds(&constraint, &answer.content);
        let calls = answer.content.is_empty() && !answer.calls.is_empty();
        prop_assert!(says || calls, "{family:?}, {marks:?}, {prompt:?}: {text:?} is {answer:?}\n{held:?}");
    }

    #[test]
    fn a_required_call_is_read_as_one(
        family in proptest::sample::select(FAMILIES[1..].to_vec()),
        marks in proptest::sample::select(vec![Marks::Tokens, Marks::Text]), seed in any::<u64>(),
    ) {
        let words = Words::of(family, marks);
        let id = |mark: &str| words.id(mark);
        let tools = tools();
        let held = tool_constraint_with(family, &tools, &ToolChoice::Required, false, &id)
            .expect("the family has calls").expect("a call is required");
        let Some(text) = words.draw(&held, seed) else { return Ok(()) };
        let answer = read_both_ways(family, "<|start|>assistant", &tools, &text);
        prop_assert_eq!(answer.content.trim(), "", "{:?}: {:?}", family, text);
        prop_assert_eq!(answer.calls.len(), 1, "{:?}: {:?}", family, text);
        let schema = Constraint::JsonSchema(to_value(tools[0].parameters.clone()));
        prop_assert!(words.holds(&schema, &answer.calls[0].1), "{family:?}: {text:?} is {answer:?}");
    }
}
