//! Grammars of arguments that are written property by property.

use inference_core::Constraint;
use serde_json::json;

use super::grammars::{id, parts, takes};
use super::{answer, collect};
use crate::answer::{AnswerParser, Family, Tool, ToolChoice, tool_constraint_with};

/// A tool with an argument of each kind.
fn of_all_kinds() -> Tool {
    let parameters = json!({
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 1, "maxLength": 5},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "flag": {"type": "boolean"},
            "deep": {"$ref": "#/$defs/deep"},
        },
        "required": ["flag"],
        "additionalProperties": false,
        "$defs": {"deep": {"type": "array", "items": {"type": "integer"}}},
    });
    Tool { name: "weather".into(), parameters, strict: false }
}

fn held(family: Family, tool: &Tool) -> Constraint {
    let tools = std::slice::from_ref(tool);
    tool_constraint_with(family, tools, &ToolChoice::Required, false, &id)
        .expect("the family has calls")
        .expect("a call is required")
}

#[test]
fn properties_are_held_to_their_schemas() {
    let coder = |arguments: &str| {
        format!("<tool_call>\n<function=weather>\n{arguments}</function>\n</tool_call>")
    };
    let parameter = |key: &str, value: &str| format!("<parameter={key}>\n{value}\n</parameter>\n");
    let constraint = held(Family::Coder, &of_all_kinds());
    let flag = parameter("flag", "true");
    assert!(takes(&constraint, &coder(&flag)));
    let all =
        parameter("text", "a\n<b") + &parameter("note", "x") + &flag + &parameter("deep", "[1, 2]");
    assert!(takes(&constraint, &coder(&all)));
    for wrong in [
        String::new(),
        parameter("flag", "maybe"),
        parameter("text", "too long for it") + &flag,
        flag.clone() + &parameter("deep", "[1.5]"),
        flag.clone() + &parameter("other", "1"),
        flag.clone() + &flag,
    ] {
        assert!(!takes(&constraint, &coder(&wrong)), "{wrong}");
    }
    let lfm =
        |arguments: &str| format!("<|tool_call_start|>[weather({arguments})]<|tool_call_end|>");
    let constraint = held(Family::Lfm, &of_all_kinds());
    assert!(takes(&constraint, &lfm("flag=True")));
    assert!(takes(&constraint, &lfm("text=\"a\", flag=False, deep=[1, 2]")));
    for wrong in ["", "flag=1", "flag=true", "flag=True, deep=[1.5]", "text=\"a\"", "flag=True,"] {
        assert!(!takes(&constraint, &lfm(wrong)), "{wrong}");
    }
}

#[test]
fn what_is_no_list_of_properties_is_json_between_the_marks() {
    let parameters = json!({"anyOf": [
        {"properties": {"city": {"const": "Oslo"}}, "required": ["city"], "additionalProperties": false},
    ]});
    let tool = Tool { name: "weather".into(), parameters, strict: false };
    for family in
        [Family::Coder, Family::Glm, Family::Seed, Family::MiniMax, Family::Lfm, Family::Gemma4]
    {
        let [open, _, close] = parts(family).0;
        let (open, close) = match family {
            Family::Glm => ("<tool_call>", "</tool_call>"),
            Family::Gemma4 => ("<|tool_call>", "<tool_call|>"),
            _ => (open, close),
        };
        let call = "{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}";
        let text = format!("{open}{call}{close}");
        let constraint = held(family, &tool);
        assert!(takes(&constraint, &text), "{family:?}: {constraint:?}");
        assert!(!takes(&constraint, &text.replace("Oslo", "Bonn")), "{family:?}");
        let names = ["weather".to_owned()];
        let mut parser = AnswerParser::new(family, "", &names);
        let mut pieces = parser.push(&text);
        pieces.extend(parser.finish());
        let expected = answer("", &[("weather", "{\"city\": \"Oslo\"}")]);
        assert_eq!(collect(pieces), expected, "{family:?}");
    }
}
