//! Calls with the slips that models make: marks left out, other words, values as they should not be
//! written.

use serde_json::{Value, json};

use super::{Answer, answer, collect};
use crate::answer::{AnswerParser, Family, Tool};

fn tools() -> Vec<Tool> {
    let weather = json!({"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "share": {"type": "number"},
        "flag": {"type": "boolean"}, "place": {"$ref": "#/$defs/place"},
        "codes": {"type": "array", "items": {"type": "string"}},
    }, "$defs": {"place": {"type": "object", "properties": {"code": {"type": "string"}}}}});
    let write = json!({"type": "object", "properties": {
        "path": {"type": "string"}, "text": {"type": "string"},
    }, "required": ["path"]});
    let tool = |name: &str, parameters: &Value| Tool {
        name: name.to_owned(),
        parameters: parameters.clone(),
        strict: false,
    };
    vec![tool("weather", &weather), tool("write", &write), tool("time", &json!({}))]
}

/// A text means the same whole and by character.
fn read(family: Family, text: &str) -> Answer {
    read_with(family, text, &tools())
}

fn read_with(family: Family, text: &str, tools: &[Tool]) -> Answer {
    let prompt = if family == Family::Harmony { "<|start|>assistant" } else { "" };
    let parse = |parts: Vec<&str>| {
        let mut parser = AnswerParser::with_schemas(family, prompt, tools);
        let mut pieces: Vec<_> = parts.into_iter().flat_map(|part| parser.push(part)).collect();
        pieces.extend(parser.finish());
        collect(pieces)
    };
    let at_once = parse(vec![text]);
    assert_eq!(parse(text.split_inclusive(|_| true).collect()), at_once, "{text}");
    at_once
}

fn weather(arguments: &str) -> Answer {
    answer("", &[("weather", arguments)])
}

#[test]
fn a_value_without_its_end_ends_where_the_next_one_begins() {
    let expected = weather("{\"city\": \"Paris\", \"days\": 3}");
    for text in [
        "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n<parameter=days>\n3\n</function>\n</tool_call>",
        "<function=weather>\n<parameter=city>\nParis\n<parameter=days>\n3\n</function>",
        "<function=weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</function>\n</tool_call>",
    ] {
        assert_eq!(read(Family::Coder, text), expected, "{text}");
    }
    let seed = "<seed:tool_call><function=weather><parameter=city>Paris<parameter=days>3</function></seed:tool_call>";
    assert_eq!(read(Family::Seed, seed), expected);
    let glm = "<tool_call>weather<arg_key>city</arg_key><arg_value>Paris<arg_key>days</arg_key><arg_value>3</tool_call>";
    assert_eq!(read(Family::Glm, glm), expected);
    assert_eq!(
        read(Family::Glm, &format!("{glm}\n{glm}")).calls,
        [expected.calls[0].clone(), expected.calls[0].clone()]
    );
}

#[test]
fn a_value_may_hold_the_marks_of_others() {
    let call = |text: &str| {
        format!(
            "<tool_call>\n<function=write>\n<parameter=path>\na\n</parameter>\n<parameter=text>\n{text}\n</parameter>\n</function>\n</tool_call>"
        )
    };
    for value in [
        "a <parameter=size> b",
        "a <parameter=path> b",
        "a <parameter=text\n> b",
        "a </function> b",
        "<tool_call>\n<function=time>\n</function>\n</tool_call>",
        "</tool_call> <function=",
    ] {
        let expected = json!({"path": "a", "text": value});
        let got = read(Family::Coder, &call(value));
        assert_eq!(got.content, "", "{value}");
        let arguments: Value = serde_json::from_str(&got.calls[0].1).expect("arguments are JSON");
        assert_eq!((got.calls[0].0.as_str(), arguments), ("write", expected), "{value}");
        // An end that is missing makes the call end at the first one.
        let bare = call(value).replace("<tool_call>\n<function=write>", "<function=write>");
        assert_eq!(read(Family::Coder, &bare).calls.len(), got.calls.len(), "{value}");
    }
}

#[test]
fn elements_lack_their_ends() {
    let expected = weather("{\"city\": \"Paris\"}");
    let city = "<parameter=city>\nParis\n</parameter>\n";
    for text in [
        format!("<tool_call>\n<function=weather>\n{city}</tool_call>"),
        format!("<function=weather>\n{city}</function>\n</tool_call>"),
        format!("<function=weather>\n{city}</tool_call>"),
        "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</function>\n".to_owned(),
    ] {
        assert_eq!(read(Family::Coder, &text), expected, "{text}");
    }
    let two = answer("", &[("weather", "{\"city\": \"Paris\"}"), ("time", "{}")]);
    for between in ["</function>\n", ""] {
        let text = format!(
            "<tool_call>\n<function=weather>\n{city}{between}<function=time>\n</function>\n</tool_call>"
        );
        assert_eq!(read(Family::Coder, &text), two, "{text}");
    }
    let invoke = "<minimax:tool_call><invoke name=\"weather\"><parameter name=\"city\">Paris</parameter></minimax:tool_call>";
    assert_eq!(read(Family::MiniMax, invoke), expected);
    // A call that is cut off is none.
    for cut in [
        "<tool_call>\n<function=weather>\n<parameter=city>\nPar".to_owned(),
        format!("<tool_call>\n<function=weather>\n{city}"),
        format!("<function=weather>\n{city}"),
        "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n<parameter=days>".to_owned(),
    ] {
        assert_eq!(read(Family::Coder, &cut), answer(&cut, &[]));
    }
}

#[test]
fn harmony_headers_in_other_words() {
    let expected = weather("{\"city\":\"P\"}");
    for header in [
        "commentary to=functions.weather <|constrain|>JSON",
        "commentary to=functions.weather JSON",
        "commentary to=functions.weather <|constrain|>application/json",
        "commentary to=weather <|constrain|>json",
        "commentary to=weather",
    ] {
        let text = format!("<|channel|>{header}<|message|>{{\"city\":\"P\"}}");
        assert_eq!(read(Family::Harmony, &text), expected, "{header}");
    }
    let early = " to=weather<|channel|>commentary <|constrain|>json<|message|>{\"city\":\"P\"}";
    assert_eq!(read(Family::Harmony, early), expected);
    for end in ["", "<|call|>", "\n<|call|>"] {
        let text = format!("<|channel|>commentary to=functions.time<|message|>{end}");
        assert_eq!(read(Family::Harmony, &text), answer("", &[("time", "{}")]), "{end:?}");
    }
    for format in ["<|constrain|>answer", "<|constrain|> answer", "JSON", "<|constrain|>"] {
        let text = format!("<|channel|>final {format}<|message|>{{\"a\":1}}");
        assert_eq!(read(Family::Harmony, &text), answer("{\"a\":1}", &[]), "{format}");
    }
    let other = "<|channel|>analysis to=browser.search code<|message|>{\"city\":\"P\"}";
    assert_eq!(read(Family::Harmony, other), answer(other, &[]));
}

#[test]
fn kimi_headers_in_other_words() {
    let section = |header: &str, arguments: &str| {
        format!(
            "<|tool_calls_section_begin|><|tool_call_begin|>{header}<|tool_call_argument_begin|>\
             {arguments}<|tool_call_end|><|tool_calls_section_end|>"
        )
    };
    let expected = weather("{\"city\": \"P\"}");
    for header in [
        "functions.weather:0",
        " functions.weather:0 ",
        "\nweather:12\n",
        "weather",
        "functions.weather",
        "tools.weather:0",
        "call_0123",
        "call_0123:0",
        "chatcmpl-tool-0a1b2c",
        "7",
    ] {
        assert_eq!(read(Family::Kimi, &section(header, "{\"city\": \"P\"}")), expected, "{header}");
    }
    let spaced = " <|tool_call_begin|> functions.weather:0 <|tool_call_argument_begin|> {\"city\": \"P\"} <|tool_call_end|> ";
    for name in ["calls", "call"] {
        let text = format!("<|tool_{name}_section_begin|>{spaced}<|tool_{name}_section_end|>");
        assert_eq!(read(Family::Kimi, &text), expected);
    }
    // A tool that is not there, an id whose arguments fit two tools or none.
    for (header, arguments) in [
        ("functions.other:0", "{\"city\": \"P\"}"),
        ("other", "{\"city\": \"P\"}"),
        ("call_0", "{}"),
        ("call_0", "{\"city\": \"P\", \"path\": \"a\"}"),
        ("call_0", "{\"text\": \"a\"}"),
    ] {
        let text = section(header, arguments);
        assert_eq!(read(Family::Kimi, &text), answer(&text, &[]));
    }
    let one = read_with(Family::Kimi, &section("call_0", "{\"zip\": 1}"), &tools()[..1]);
    assert_eq!(one, weather("{\"zip\": 1}"));
}

#[test]
fn python_in_all_its_spellings() {
    for (written, meant) in [
        ("share=5.", "{\"share\": 5.0}"),
        ("share=.5", "{\"share\": 0.5}"),
        ("share=-.5e3", "{\"share\": -0.5e3}"),
        ("share=1.e-2", "{\"share\": 1.0e-2}"),
        ("days=1_000", "{\"days\": 1000}"),
        ("days=+3", "{\"days\": 3}"),
        ("days=0x1F", "{\"days\": 31}"),
        ("days=-0b11", "{\"days\": -3}"),
        ("days=123456789012345678901234567890", "{\"days\": 123456789012345678901234567890}"),
        ("city=\"\"\"x\n\"y\"\nz\"\"\"", "{\"city\": \"x\\n\\\"y\\\"\\nz\"}"),
        ("city='''it's'''", "{\"city\": \"it's\"}"),
        ("city=\"\"\"\"\"\"", "{\"city\": \"\"}"),
        ("city=\"\"", "{\"city\": \"\"}"),
        ("city=\"x\" \"y\"", "{\"city\": \"xy\"}"),
        ("city=\"x\"\n 'y' r'\\d'", "{\"city\": \"xy\\\\d\"}"),
        ("city=r\"a\\n\\\"b\"", "{\"city\": \"a\\\\n\\\\\\\"b\"}"),
        ("city=u'é'", "{\"city\": \"é\"}"),
        ("city=\"\", days=1", "{\"city\": \"\", \"days\": 1}"),
    ] {
        let call = format!("[weather({written})]");
        let marked = format!("<|tool_call_start|>{call}<|tool_call_end|>");
        assert_eq!(read(Family::Lfm, &marked), weather(meant), "{written}");
        if !written.contains("\"x\"\n") {
            assert_eq!(read(Family::Llama3, &call), weather(meant), "{written}");
        }
    }
    for written in ["share=.", "days=1__0", "days=_1", "days=1_", "days=0x", "days=0x+1", "days=1e"]
    {
        let text = format!("<|tool_call_start|>[weather({written})]<|tool_call_end|>");
        assert_eq!(read(Family::Lfm, &text), answer(&text, &[]), "{written}");
    }
}

#[test]
fn gemma_values_without_their_quotes() {
    for (written, meant) in [
        ("city:Paris, France,days:3", "{\"city\": \"Paris, France\", \"days\": 3}"),
        ("city:Paris, France", "{\"city\": \"Paris, France\"}"),
        ("city:Paris,days:3", "{\"city\": \"Paris\", \"days\": 3}"),
        ("city:10:30, 11:30, days:3", "{\"city\": \"10:30, 11:30\", \"days\": 3}"),
        ("city:a [b], c,<|\"|>days<|\"|>:3", "{\"city\": \"a [b], c\", \"days\": 3}"),
        ("city:75001,days:3", "{\"city\": \"75001\", \"days\": 3}"),
        ("city:true,flag:True", "{\"city\": \"true\", \"flag\": true}"),
        ("days:3.0,share:2,zip:75001", "{\"days\": 3, \"share\": 2, \"zip\": 75001}"),
        ("place:{code:01,size:1}", "{\"place\": {\"code\": \"01\", \"size\": 1}}"),
        ("codes:[75001,Paris, x]", "{\"codes\": [\"75001\", \"Paris\", \"x\"]}"),
        ("city:Paris, ", "{\"city\": \"Paris\"}"),
    ] {
        let text = format!("<|tool_call>call:weather{{{written}}}<tool_call|>");
        assert_eq!(read(Family::Gemma4, &text), weather(meant), "{written}");
    }
}
