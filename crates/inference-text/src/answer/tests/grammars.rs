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
    answer_or_calls, tool_constraint, tool_constraint_with,
};

/// Tokens that are special here, after the 256 bytes.
const SPECIAL: [&str; 11] = [
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
    "<|eom|>",
];
/// Tokens of several bytes that are not special.
const LONG: [&str; 4] = ["<tool_call>", "</tool_call>", "<think>", "</think>"];

fn vocabulary() -> Vec<Vec<u8>> {
    let bytes = (0..=255u8).map(|byte| vec![byte]);
    // A special token begins with the byte that no text has.
    let special = SPECIAL.map(|name| [b"\xff", name.as_bytes()].concat());
    bytes.chain(special).chain(LONG.map(|name| name.as_bytes().to_vec())).collect()
}

pub fn id(mark: &str) -> Option<u32> {
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

/// Returns true when the grammar takes the whole text, and may end there.
pub fn takes(constraint: &Constraint, text: &str) -> bool {
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

/// A call of each family, between the marks of all its calls, and what goes between two of them
/// where there can be two.
pub fn parts(family: Family) -> ([&'static str; 3], Option<&'static str>) {
    const JSON: &str = "{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}";
    const TAGS: &str = "<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>";
    match family {
        Family::Hermes | Family::Ernie => (
            [
                "",
                "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
                "",
            ],
            Some("\n"),
        ),
        Family::Coder => {
            (["<tool_call>\n", TAGS, "\n</tool_call>"], Some("\n</tool_call>\n<tool_call>\n"))
        }
        Family::Seed => (
            [
                "<seed:tool_call>\n",
                "<function=weather>\n<parameter=city>Oslo</parameter>\n</function>",
                "\n</seed:tool_call>",
            ],
            Some("\n</seed:tool_call>\n<seed:tool_call>\n"),
        ),
        Family::Glm => (
            [
                "",
                "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>",
                "",
            ],
            Some("\n"),
        ),
        Family::MiniMax => (
            [
                "<minimax:tool_call>\n",
                "<invoke name=\"weather\">\n<parameter name=\"city\">Oslo</parameter>\n</invoke>",
                "\n</minimax:tool_call>",
            ],
            Some("\n"),
        ),
        Family::Kimi => (
            [
                "<|tool_calls_section_begin|>",
                "<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": \"Oslo\"}<|tool_call_end|>",
                "<|tool_calls_section_end|>",
            ],
            Some(""),
        ),
        Family::DeepSeek => (
            [
                "<｜tool▁calls▁begin｜>",
                "<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Oslo\"}\n```<｜tool▁call▁end｜>",
                "<｜tool▁calls▁end｜>",
            ],
            Some(""),
        ),
        Family::DeepSeek31 => (
            [
                "<｜tool▁calls▁begin｜>",
                "<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Oslo\"}<｜tool▁call▁end｜>",
                "<｜tool▁calls▁end｜>",
            ],
            Some(""),
        ),
        Family::Granite => (["<|tool_call|>[", JSON, "]"], Some(", ")),
        Family::Nemotron => (["<TOOLCALL>[", JSON, "]</TOOLCALL>"], Some(", ")),
        Family::Hunyuan | Family::Apriel => (["<tool_calls>[", JSON, "]</tool_calls>"], Some(", ")),
        Family::Cohere => (
            [
                "<|START_ACTION|>[",
                "{\"tool_name\": \"weather\", \"parameters\": {\"city\": \"Oslo\"}}",
                "]<|END_ACTION|>",
            ],
            Some(", "),
        ),
        Family::Lfm => {
            (["<|tool_call_start|>[", "weather(city=\"Oslo\")", "]<|tool_call_end|>"], Some(", "))
        }
        Family::Olmo => {
            (["<function_calls>", "weather(city=\"Oslo\")", "</function_calls>"], Some("\n"))
        }
        Family::Llama3 => {
            (["", "{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\"}}", ""], Some("; "))
        }
        Family::Gemma => {
            (["", "{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\"}}", ""], None)
        }
        Family::FunctionGemma => (
            [
                "",
                "<start_function_call>call:weather{city:<escape>Oslo<escape>}<end_function_call>",
                "",
            ],
            Some(""),
        ),
        Family::Gemma4 => {
            (["", "<|tool_call>call:weather{city:<|\"|>Oslo<|\"|>}<tool_call|>", ""], Some(""))
        }
        Family::Mistral => (["", "[TOOL_CALLS]weather[ARGS]{\"city\": \"Oslo\"}", ""], Some("")),
        Family::Harmony => (
            [
                "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>",
                "{\"city\": \"Oslo\"}",
                "",
            ],
            None,
        ),
        Family::Muse => (
            [
                " to=weather<|message|><atem:function_calls>\n",
                "<atem:invoke name=\"weather\">\n<atem:parameter name=\"city\">Oslo</atem:parameter>\n</atem:invoke>",
                "\n</atem:function_calls>",
            ],
            None,
        ),
        Family::Plain => (["", "", ""], None),
    }
}

fn one(family: Family) -> String {
    parts(family).0.concat()
}

fn two(family: Family) -> Option<String> {
    let ([open, call, close], between) = parts(family);
    between.map(|between| [open, call, between, call, close].concat())
}

const FAMILIES: &[Family] = super::FAMILIES.split_at(1).1;

fn required(family: Family, parallel: bool) -> Constraint {
    tool_constraint_with(family, &tools(false), &ToolChoice::Required, parallel, &id)
        .expect("the family has calls")
        .expect("a call is required")
}

#[test]
fn a_required_call_is_one_that_the_parser_reads() {
    for &family in FAMILIES {
        let call = &one(family);
        let constraint = required(family, false);
        assert!(takes(&constraint, call), "{family:?}: {constraint:?}");
        let names = ["weather".to_owned(), "time".to_owned()];
        let prompt = if family == Family::Muse { "<|start|>assistant" } else { "" };
        let mut parser = AnswerParser::new(family, prompt, &names);
        let mut pieces = parser.push(call);
        pieces.extend(parser.finish());
        let expected = answer("", &[("weather", "{\"city\": \"Oslo\"}")]);
        assert_eq!(collect(pieces), expected, "{family:?}");
        for wrong in
            ["", "Hello", "{}", &call.replace("Oslo", "Bonn"), &call.replace("weather", "other")]
        {
            assert!(!takes(&constraint, wrong), "{family:?} takes {wrong}");
        }
        let several = required(family, true);
        if let Some(two) = two(family) {
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
    // The tests' tokenizer has Mistral's marks as special tokens, which are no text.
    for &family in FAMILIES.iter().filter(|family| **family != Family::Mistral) {
        let constraint = tool_constraint(family, &tools(false), &ToolChoice::Required, false);
        assert!(takes(&constraint.unwrap().unwrap(), &one(family)), "{family:?}");
    }
}

#[test]
fn a_named_choice_is_that_tool() {
    for &family in FAMILIES {
        let named = ToolChoice::Named("time".into());
        let constraint =
            tool_constraint_with(family, &tools(false), &named, false, &id).unwrap().unwrap();
        let call = one(family);
        assert!(!takes(&constraint, &call));
        let other = call.replace("weather", "time").replace("city", "zone");
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
    for &family in FAMILIES.iter().filter(|family| **family != Family::Gemma) {
        let constraint = tool_constraint_with(family, &tools(true), &ToolChoice::Auto, true, &id)
            .unwrap()
            .unwrap();
        let call = one(family);
        assert!(takes(&constraint, &call), "{family:?}");
        assert!(!takes(&constraint, &call.replace("Oslo", "Bonn")), "{family:?}");
        let text = match family {
            Family::Harmony => "<|channel|>final<|message|>Hello {<b>}",
            Family::Muse => " to=user<|message|>Hello {<b>}",
            _ => "Hello {<b>}",
        };
        assert!(takes(&constraint, text), "{family:?}");
        if !matches!(family, Family::Llama3 | Family::Harmony | Family::Muse) {
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
            for (family, prompt) in [(Family::Hermes, over.as_str()), (Family::Plain, fresh)] {
                let alone = answer_constraint(family, prompt, constraint.clone());
                match constraint {
                    Constraint::Regex(_) => {
                        assert!(takes(&alone, "{\"a\": true}") && !takes(&alone, "No."));
                    }
                    _ => assert_eq!(alone, constraint),
                }
            }
        }
    }
}

#[test]
fn an_answer_of_a_format_may_be_a_call_in_its_place() {
    for &family in FAMILIES {
        let prompt = match family {
            Family::Harmony | Family::Muse => "<|start|>assistant",
            _ => "<|im_start|>assistant\n",
        };
        let either = answer_or_calls(family, &tools(false), false, &schema(), &id).unwrap();
        if matches!(family, Family::Llama3 | Family::Gemma) {
            assert_eq!(either, None, "nothing marks its calls");
            continue;
        }
        let either = answer_constraint_with(family, prompt, either.unwrap(), &id);
        let call = one(family);
        let (formatted, text) = match family {
            Family::Harmony => {
                ("<|channel|>final<|message|>{\"a\": true}", "<|channel|>final<|message|>Hello")
            }
            Family::Muse => (" to=user<|message|>{\"a\": true}", " to=user<|message|>Hello"),
            _ => ("{\"a\": true}", "Hello"),
        };
        assert!(takes(&either, &call), "{family:?}: {either:?}");
        assert!(takes(&either, formatted), "{family:?}: {either:?}");
        for wrong in [text, &call.replace("Oslo", "Bonn"), &format!("{formatted}{call}")] {
            assert!(!takes(&either, wrong), "{family:?} takes {wrong}");
        }
    }
    let thought = "<|channel|>analysis<|message|>So.<|end|><|start|>assistant";
    let either =
        answer_or_calls(Family::Harmony, &tools(false), false, &schema(), &id).unwrap().unwrap();
    assert!(takes(&either, &format!("{thought}<|channel|>final<|message|>{{\"a\": true}}")));
    assert!(takes(&either, &format!("{thought}{}", one(Family::Harmony))));
    let open = "<|im_start|>assistant\n<think>\n";
    let either =
        answer_or_calls(Family::Hermes, &tools(false), false, &schema(), &id).unwrap().unwrap();
    let either = answer_constraint_with(Family::Hermes, open, either, &id);
    assert!(takes(&either, &format!("Hm.\n</think>\n\n{}", one(Family::Hermes))));
    assert!(takes(&either, "Hm.\n</think>\n\n{\"a\": true}"));
}

#[test]
fn reasoning_comes_before_a_required_call() {
    let open = "<|im_start|>assistant\n<think>\n";
    let call = one(Family::Hermes);
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
    assert!(takes(&call, &format!("{thought}{}", one(Family::Harmony))));
}

#[test]
fn gemma_4_reasons_between_tokens_before_what_is_constrained() {
    let constrained = |prompt: &str| {
        let constraint = Constraint::Regex("yes|no".into());
        answer_constraint_with(Family::Gemma4, prompt, constraint, &id)
    };
    let free = constrained("<|turn>model\n");
    assert!(takes(&free, "yes") && takes(&free, "<|channel>thought\nSo.\n<channel|>no"));
    assert!(!takes(&free, "maybe") && !takes(&free, "<|channel>thought\nSo.\n<channel|>maybe"));
    let opened = constrained("<|turn>model\n<|channel>thought\n");
    assert!(takes(&opened, "So.\n<channel|>yes") && !takes(&opened, "yes"));
    let over = constrained("<|turn>model\n<|channel>thought\n<channel|>");
    assert!(takes(&over, "yes") && !takes(&over, "<|channel>thought\nSo.\n<channel|>no"));
}
