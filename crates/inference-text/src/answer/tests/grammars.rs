//! Grammars compile, take what the parser reads, and nothing else.

use std::sync::Arc;

use inference_core::{Constraint, Value};
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{
    ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId,
};
use llguidance::{Matcher, ParserFactory};
use serde_json::json;

use super::{answer, collect};
use crate::answer::{
    AnswerParser, Family, Tool, ToolChoice, answer_constraint, answer_constraint_with,
    tool_constraint, tool_constraint_with,
};

/// Tokens that are special here, after the 256 bytes.
const SPECIAL: [&str; 10] = [
    "<|end_of_text|>",
    "<|channel|>",
    "<|message|>",
    "<|start|>",
    "<|end|>",
    "<|constrain|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|channel>",
    "<channel|>",
];
/// Tokens of several bytes that are not special.
const LONG: [&str; 4] = ["<tool_call>", "</tool_call>", "<think>", "</think>"];

fn vocabulary() -> Vec<Vec<u8>> {
    let bytes = (0..=255u8).map(|byte| vec![byte]);
    // A special token begins with the byte that no text has.
    let special = SPECIAL.map(|name| [b"\xff", name.as_bytes()].concat());
    bytes.chain(special).chain(LONG.map(|name| name.as_bytes().to_vec())).collect()
}

fn id(mark: &str) -> Option<u32> {
    let marks = SPECIAL.iter().chain(&LONG);
    marks.zip(256..).find(|(name, _)| **name == mark).map(|(_, id)| id)
}

/// Token ids of `text`, the marks in it as one token each.
fn encode(mut text: &str) -> Vec<TokenId> {
    let mut ids = Vec::new();
    while let Some(byte) = text.bytes().next() {
        let marks = SPECIAL.iter().chain(&LONG);
        match marks.copied().find(|mark| text.starts_with(mark)).or(text.get(..1)) {
            Some(mark) => {
                ids.push(id(mark).unwrap_or(byte.into()));
                text = &text[mark.len()..];
            }
            None => {
                let c = text.chars().next().map_or(1, char::len_utf8);
                ids.extend(text.bytes().take(c).map(TokenId::from));
                text = &text[c..];
            }
        }
    }
    ids
}

fn matcher(constraint: &Constraint) -> Matcher {
    let Constraint::Lark(grammar) = constraint else { panic!("{constraint:?} is no grammar") };
    let vocabulary = vocabulary();
    let info = TokRxInfo::new(vocabulary.len() as u32, 256);
    let env: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &vocabulary)));
    let factory = ParserFactory::new(&env, InferenceCapabilities::default(), &[]);
    let mut factory = factory.expect("the vocabulary is small");
    factory.quiet();
    let matcher = Matcher::new(factory.create_parser(TopLevelGrammar::from_lark(grammar.clone())));
    assert!(!matcher.is_error(), "{:?}\n{grammar}", matcher.get_error());
    matcher
}

/// Whether the grammar takes the whole text, and may end there.
fn takes(constraint: &Constraint, text: &str) -> bool {
    let mut matcher = matcher(constraint);
    let ids = encode(text);
    let taken = matcher.try_consume_tokens(&ids).unwrap_or(0);
    assert!(!matcher.is_error(), "{:?}", matcher.get_error());
    taken == ids.len() && matcher.is_accepting().unwrap_or(false)
}

fn tools(strict: bool) -> Vec<Tool> {
    let weather = json!({
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": false,
        "$defs": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
    });
    let tool = |name: &str, parameters| Tool { name: name.into(), parameters, strict };
    vec![
        tool("weather", weather),
        tool("time", json!({"properties": {"zone": {"type": "string"}}})),
    ]
}

/// A call of each family, and the texts that go between two of them where there can be two.
fn calls(family: Family) -> (&'static str, Option<&'static str>) {
    match family {
        Family::Plain => ("", None),
        Family::Hermes => (
            "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
            Some("\n"),
        ),
        Family::Llama3 => {
            ("{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\"}}", Some("; "))
        }
        Family::Gemma => ("{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\"}}", None),
        Family::Mistral => ("[TOOL_CALLS]weather[ARGS]{\"city\": \"Oslo\"}", Some("")),
        Family::Harmony => (
            "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Oslo\"}",
            None,
        ),
    }
}

const FAMILIES: [Family; 5] =
    [Family::Hermes, Family::Llama3, Family::Gemma, Family::Mistral, Family::Harmony];

fn required(family: Family, parallel: bool) -> Constraint {
    tool_constraint_with(family, &tools(false), &ToolChoice::Required, parallel, &id)
        .expect("the family has calls")
        .expect("a call is required")
}

#[test]
fn a_required_call_is_one_that_the_parser_reads() {
    for family in FAMILIES {
        let (call, between) = calls(family);
        let constraint = required(family, false);
        assert!(takes(&constraint, call), "{family:?}");
        let names = ["weather".to_owned(), "time".to_owned()];
        let mut parser = AnswerParser::new(family, "", &names);
        let mut pieces = parser.push(call);
        pieces.extend(parser.finish());
        assert_eq!(collect(pieces), answer("", &[("weather", "{\"city\": \"Oslo\"}")]));
        for wrong in
            ["", "Hello", "{}", &call.replace("Oslo", "Bonn"), &call.replace("weather", "other")]
        {
            assert!(!takes(&constraint, wrong), "{family:?} takes {wrong}");
        }
        let several = required(family, true);
        if let Some(between) = between {
            let two = format!("{call}{between}{call}");
            assert!(takes(&several, &two), "{family:?}");
            assert!(!takes(&constraint, &two), "{family:?}");
        }
    }
}

#[test]
fn mistral_may_write_a_list() {
    let list = "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}, {\"name\": \"time\", \"arguments\": {}}]";
    assert!(takes(&required(Family::Mistral, true), list));
    assert!(!takes(&required(Family::Mistral, false), list));
}

#[test]
fn marks_are_text_where_no_token_is_known() {
    for family in [Family::Hermes, Family::Llama3, Family::Gemma, Family::Harmony] {
        let constraint = tool_constraint(family, &tools(false), &ToolChoice::Required, false);
        assert!(takes(&constraint.unwrap().unwrap(), calls(family).0), "{family:?}");
    }
}

#[test]
fn a_named_choice_is_that_tool() {
    for family in FAMILIES {
        let named = ToolChoice::Named("time".into());
        let constraint =
            tool_constraint_with(family, &tools(false), &named, false, &id).unwrap().unwrap();
        let call = calls(family).0;
        assert!(!takes(&constraint, call));
        let other = call.replace("weather", "time").replace("\"city\"", "\"zone\"");
        assert!(takes(&constraint, &other), "{family:?}");
    }
}

#[test]
fn choices_that_cannot_be_met_are_named() {
    let choose = |family, tools: &[Tool], choice| tool_constraint(family, tools, &choice, false);
    let unknown = choose(Family::Hermes, &tools(false), ToolChoice::Named("nap".into()));
    assert!(unknown.unwrap_err().contains("`nap`"));
    assert!(choose(Family::Hermes, &[], ToolChoice::Required).is_err());
    assert!(choose(Family::Plain, &tools(false), ToolChoice::Required).is_err());
    assert!(choose(Family::Gemma, &tools(true), ToolChoice::Auto).is_err());
    for choice in [ToolChoice::Auto, ToolChoice::None] {
        assert_eq!(choose(Family::Plain, &tools(false), choice), Ok(None));
    }
}

#[test]
fn strict_tools_leave_the_model_its_choice() {
    for family in [Family::Hermes, Family::Llama3, Family::Mistral, Family::Harmony] {
        let constraint = tool_constraint_with(family, &tools(true), &ToolChoice::Auto, true, &id)
            .unwrap()
            .unwrap();
        let call = calls(family).0;
        assert!(takes(&constraint, call), "{family:?}");
        assert!(!takes(&constraint, &call.replace("Oslo", "Bonn")), "{family:?}");
        let text = match family {
            Family::Harmony => "<|channel|>final<|message|>Hello {<b>}",
            _ => "Hello {<b>}",
        };
        assert!(takes(&constraint, text), "{family:?}");
        if matches!(family, Family::Hermes | Family::Mistral) {
            assert!(takes(&constraint, &format!("Hello\n{call}")), "{family:?}");
            let wrong = call.replace("Oslo", "Bonn");
            assert!(!takes(&constraint, &format!("Hello\n{wrong}")), "{family:?}");
        }
    }
}

/// `{"a": true}`
fn schema() -> Constraint {
    let object = |fields: &[(&str, Value)]| {
        Value::Object(fields.iter().map(|(key, value)| (key.to_string(), value.clone())).collect())
    };
    let property = object(&[("type", "boolean".into())]);
    Constraint::JsonSchema(object(&[
        ("type", "object".into()),
        ("properties", object(&[("a", property)])),
        ("required", Value::Array(vec!["a".into()])),
        ("additionalProperties", false.into()),
    ]))
}

#[test]
fn reasoning_comes_before_what_is_constrained() {
    let (open, fresh) = ("<|im_start|>assistant\n<think>\n", "<|im_start|>assistant\n");
    let lark = Constraint::Lark("start: \"{\\\"a\\\": \" (\"true\" | \"false\") \"}\"".into());
    let pattern = Constraint::Regex("\\{\"a\": (true|false)\\}(/\n)?".into());
    let ids: [crate::answer::MarkIds; 2] = [&id, &|_| None];
    for constraint in [schema(), lark, pattern] {
        for ids in ids {
            let with =
                |prompt| answer_constraint_with(Family::Hermes, prompt, constraint.clone(), ids);
            let opened = with(open);
            assert!(takes(&opened, "So {<b>} it is.\n</think>\n\n{\"a\": true}"));
            assert!(takes(&opened, "</think>{\"a\": true}"));
            assert!(!takes(&opened, "{\"a\": true}"));
            assert!(!takes(&opened, "So.</think>No."));
            let free = with(fresh);
            assert!(takes(&free, "<think>\nSo.\n</think>\n\n{\"a\": true}"));
            assert!(takes(&free, "{\"a\": false}"));
            assert!(!takes(&free, "Well, {\"a\": false}"));
            let over = format!("{open}\n</think>\n\n");
            assert_eq!(answer_constraint(Family::Hermes, &over, constraint.clone()), constraint);
        }
        assert_eq!(answer_constraint(Family::Plain, fresh, constraint.clone()), constraint);
    }
}

#[test]
fn reasoning_comes_before_a_required_call() {
    let open = "<|im_start|>assistant\n<think>\n";
    let call = calls(Family::Hermes).0;
    let constraint =
        answer_constraint_with(Family::Hermes, open, required(Family::Hermes, false), &id);
    assert!(takes(&constraint, &format!("Hm.\n</think>\n\n{call}")));
    assert!(!takes(&constraint, "Hm.\n</think>\n\nHello"));
    let text = answer_constraint(
        Family::Hermes,
        open,
        tool_constraint(Family::Hermes, &tools(true), &ToolChoice::Auto, false).unwrap().unwrap(),
    );
    assert!(takes(&text, "Hm.\n</think>\n\nHello"));
}

#[test]
fn in_harmony_the_final_channel_is_constrained() {
    let prompt = "<|start|>assistant";
    let constraint = answer_constraint(Family::Harmony, prompt, schema());
    let thought = "<|channel|>analysis<|message|>So.<|end|><|start|>assistant";
    assert!(takes(&constraint, &format!("{thought}<|channel|>final<|message|>{{\"a\": true}}")));
    assert!(takes(&constraint, "<|channel|>final <|constrain|>json<|message|>{\"a\": true}"));
    assert!(!takes(&constraint, "<|channel|>final<|message|>Hello"));
    let open = format!("{prompt}<|channel|>analysis<|message|>");
    let constraint = answer_constraint(Family::Harmony, &open, schema());
    let rest = "So.<|end|><|start|>assistant<|channel|>final<|message|>{\"a\": true}";
    assert!(takes(&constraint, rest));
    let call = required(Family::Harmony, false);
    assert_eq!(answer_constraint(Family::Harmony, prompt, call.clone()), call);
    assert!(takes(&call, &format!("{thought}{}", calls(Family::Harmony).0)));
}

#[test]
fn gemma_4_reasons_between_tokens_before_what_is_constrained() {
    let constrained = |prompt: &str| {
        let constraint = Constraint::Regex("yes|no".into());
        answer_constraint_with(Family::Gemma, prompt, constraint, &id)
    };
    let free = constrained("<|turn>model\n");
    assert!(takes(&free, "yes") && takes(&free, "<|channel>thought\nSo.\n<channel|>no"));
    assert!(!takes(&free, "maybe") && !takes(&free, "<|channel>thought\nSo.\n<channel|>maybe"));
    let opened = constrained("<|turn>model\n<|channel>thought\n");
    assert!(takes(&opened, "So.\n<channel|>yes") && !takes(&opened, "yes"));
    let over = constrained("<|turn>model\n<|channel>thought\n<channel|>");
    assert!(matches!(over, Constraint::Regex(pattern) if pattern == "yes|no"));
}
