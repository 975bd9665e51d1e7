//! Values that hold what calls are written in, and calls with slips in their brackets and quotes:
//! whole, cut at each place in two, at many in more, and character by character.

use serde_json::{Value, json};

use super::{Answer, answer, collect};
use crate::answer::{AnswerParser, Family, Tool};

fn tools() -> Vec<Tool> {
    let write = json!({"type": "object", "properties": {
        "path": {"type": "string"}, "text": {"type": "string"}, "lines": {"type": "array"},
    }, "required": ["path"]});
    let tool = |name: &str, parameters: &Value| Tool {
        name: name.to_owned(),
        parameters: parameters.clone(),
        strict: false,
    };
    vec![tool("write", &write), tool("time", &json!({}))]
}

fn parse(family: Family, parts: &[&str]) -> Answer {
    let prompt = if family == Family::Harmony { "<|start|>assistant" } else { "" };
    let mut parser = AnswerParser::with_schemas(family, prompt, &tools());
    let mut pieces: Vec<_> = parts.iter().flat_map(|part| parser.push(part)).collect();
    pieces.extend(parser.finish());
    collect(pieces)
}

/// Parses a text, with the same result wherever it is cut.
fn read(family: Family, text: &str) -> Answer {
    let at_once = parse(family, &[text]);
    let cuts: Vec<usize> = (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect();
    for &cut in &cuts {
        let two = parse(family, &[&text[..cut], &text[cut..]]);
        assert_eq!(two, at_once, "{family:?}, cut at {cut}: {text}");
        for &next in cuts.iter().filter(|next| **next > cut).step_by(17) {
            let three = parse(family, &[&text[..cut], &text[cut..next], &text[next..]]);
            assert_eq!(three, at_once, "{family:?}, cut at {cut} and {next}: {text}");
        }
    }
    for size in [1, 2, 3, 5, 8] {
        let characters: Vec<char> = text.chars().collect();
        let parts: Vec<String> =
            characters.chunks(size).map(|part| part.iter().collect()).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        assert_eq!(parse(family, &parts), at_once, "{family:?}, by {size}: {text}");
    }
    at_once
}

/// The call of `write` with this text, as families with elements write it; `{}` stands for the
/// text.
const WRITERS: [(Family, &str, &str); 6] = [
    (
        Family::Coder,
        "<tool_call>\n<function=write>\n<parameter=path>\na.md\n</parameter>\n<parameter=text>\n{}\n</parameter>\n\
         </function>\n</tool_call>",
        "\n",
    ),
    (
        Family::Coder,
        "<function=write>\n<parameter=path>\na.md\n</parameter>\n<parameter=text>\n{}\n</parameter>\n</function>",
        "\n",
    ),
    (
        Family::Glm,
        "<tool_call>write\n<arg_key>path</arg_key>\n<arg_value>a.md</arg_value>\n<arg_key>text</arg_key>\n\
         <arg_value>{}</arg_value>\n</tool_call>",
        "",
    ),
    (
        Family::Seed,
        "<seed:tool_call>\n<function=write>\n<parameter=path>a.md</parameter>\n<parameter=text>{}</parameter>\n\
         </function>\n</seed:tool_call>",
        "",
    ),
    (
        Family::MiniMax,
        "<minimax:tool_call>\n<invoke name=\"write\">\n<parameter name=\"path\">a.md</parameter>\n\
         <parameter name=\"text\">{}</parameter>\n</invoke>\n</minimax:tool_call>",
        "",
    ),
    (
        Family::Gemma4,
        "<|tool_call>call:write{path:<|\"|>a.md<|\"|>,text:<|\"|>{}<|\"|>}<tool_call|>",
        "",
    ),
];

fn wrote(text: &str) -> Value {
    json!({"path": "a.md", "text": text})
}

fn arguments(answer: &Answer) -> Vec<Value> {
    answer.calls.iter().map(|(_, text)| serde_json::from_str(text).expect("JSON")).collect()
}

#[test]
fn a_value_holds_end_marks() {
    for (family, call, _) in WRITERS {
        let ends: &[&str] = match family {
            Family::Coder => &["</parameter>", "</function>", "</tool_call>"],
            Family::Glm => &["</arg_value>", "</arg_key>", "<arg_key>"],
            Family::Seed => &["</parameter>", "</function>", "</seed:tool_call>"],
            Family::MiniMax => &["</parameter>", "</invoke>", "</minimax:tool_call>"],
            _ => &["<tool_call|>", "<|tool_call>"],
        };
        let all = ends.concat();
        let lines = ends.join("\n");
        for value in ends.iter().copied().chain([all.as_str(), lines.as_str()]) {
            for value in [format!("The mark {value} ends it."), format!("`{value}`: so")] {
                let got = read(family, &call.replace("{}", &value));
                assert_eq!(got.content, "", "{family:?}: {value}");
                assert_eq!(arguments(&got), [wrote(&value)], "{family:?}");
            }
        }
    }
}

#[test]
fn a_value_holds_a_whole_call() {
    for (family, call, space) in WRITERS {
        let inner = call.replace("{}", "x");
        let cut = match inner.len() {
            len if family == Family::Gemma4 => inner[..len].replace("<|\"|>", "\""),
            _ => inner,
        };
        for value in [
            format!("An example:\n{cut}\nThat is all."),
            format!("{cut}{space}"),
            format!("{cut}\n{cut} and"),
            format!("a {cut}"),
        ] {
            let one = call.replace("{}", &value);
            let got = read(family, &one);
            assert_eq!(
                (got.content.as_str(), arguments(&got)),
                ("", vec![wrote(&value)]),
                "{family:?}"
            );
            let two = read(family, &format!("Well.\n{one}\n{one}"));
            assert_eq!(two.content, "Well.", "{family:?}");
            assert_eq!(arguments(&two), [wrote(&value), wrote(&value)], "{family:?}");
        }
    }
}

#[test]
fn a_mark_that_begins_nothing_takes_no_call_away() {
    for (family, call, _) in WRITERS {
        let begins = match family {
            Family::Coder | Family::Seed => "a <function=f> b",
            Family::Glm => "a <tool_call>f<arg_key> b",
            Family::MiniMax => "a <invoke name=\"f\"> b",
            _ => "a <|tool_call>call:f{ b",
        };
        let one = call.replace("{}", begins);
        let got = read(family, &one);
        assert_eq!(
            (got.content.as_str(), arguments(&got)),
            ("", vec![wrote(begins)]),
            "{family:?}"
        );
        let two = read(family, &format!("{one}\n{one}\nDone."));
        assert_eq!(arguments(&two), [wrote(begins), wrote(begins)], "{family:?}");
        assert_eq!(two.content.trim(), "Done.", "{family:?}");
    }
}

#[test]
fn text_behind_a_call_is_content() {
    for (family, call, _) in WRITERS {
        let got = read(family, &format!("{}\nAnd now?", call.replace("{}", "x")));
        assert_eq!(
            (got.content.trim(), arguments(&got)),
            ("And now?", vec![wrote("x")]),
            "{family:?}"
        );
    }
}

#[test]
fn python_strings_hold_the_end_of_calls() {
    for (family, open, close) in [
        (Family::Lfm, "<|tool_call_start|>[", "]<|tool_call_end|>"),
        (Family::Olmo, "<function_calls>\n", "\n</function_calls>"),
    ] {
        let mark = close.trim_start_matches([']', '\n']);
        for quote in ["\"", "'", "\"\"\""] {
            let value = format!("a {mark} b");
            let call = format!("{open}write(path='a.md', text={quote}{value}{quote}){close}");
            let got = read(family, &format!("{call}{call}"));
            assert_eq!(got.content, "", "{call}");
            assert_eq!(arguments(&got), [wrote(&value), wrote(&value)], "{call}");
        }
        // Quotes that do not pair hide no end.
        let call = format!("{open}write(path='a.md', text='it's so'){close}");
        let got = read(family, &format!("{call}\n{call}\nIt's done."));
        assert_eq!(arguments(&got), [wrote("it's so"), wrote("it's so")]);
        assert_eq!(got.content.trim(), "It's done.");
    }
}

#[test]
fn gemma_writes_strings_in_any_quotes() {
    for (written, meant) in [
        ("path:'a.txt'", json!({"path": "a.txt"})),
        ("path:'a, b',text:'c'", json!({"path": "a, b", "text": "c"})),
        (
            "path:'a', text: 'it's {so}, or: not'",
            json!({"path": "a", "text": "it's {so}, or: not"}),
        ),
        ("'path':'a','text':\"b\"", json!({"path": "a", "text": "b"})),
        ("\"path\":'a',<|\"|>text<|\"|>:'b'", json!({"path": "a", "text": "b"})),
        ("path:'',text:\"\"", json!({"path": "", "text": ""})),
        ("path:'a\\'b',text:'c\\nd'", json!({"path": "a'b", "text": "c\nd"})),
        ("path:a,lines:['b, c','d',\"e\"]", json!({"path": "a", "lines": ["b, c", "d", "e"]})),
        (
            "path:a,lines:[{'k':'v, w'},['x]']]",
            json!({"path": "a", "lines": [{"k": "v, w"}, ["x]"]]}),
        ),
        ("path:'s-Gravenhage,text:'t Hooft", json!({"path": "'s-Gravenhage", "text": "'t Hooft"})),
        ("path:a b, 'c',text:d", json!({"path": "a b, 'c'", "text": "d"})),
        ("path:\"a\\u00e9\\/b\"", json!({"path": "aé/b"})),
        ("path:\"C:\\d\"", json!({"path": "C:\\d"})),
    ] {
        for (family, open, quote, close) in [
            (Family::Gemma4, "<|tool_call>", "<|\"|>", "<tool_call|>"),
            (Family::FunctionGemma, "<start_function_call>", "<escape>", "<end_function_call>"),
        ] {
            let written = written.replace("<|\"|>", quote);
            let got = read(family, &format!("{open}call:write{{{written}}}{close}"));
            assert_eq!(
                (got.content.as_str(), arguments(&got)),
                ("", vec![meant.clone()]),
                "{written}"
            );
        }
    }
}

/// Families that write `{"name": …, "arguments": {…}}`, and the marks around it.
const JSON: [(Family, &str, &str); 6] = [
    (Family::Hermes, "<tool_call>\n", "\n</tool_call>"),
    (Family::Granite, "<|tool_call|>", "<|/tool_call|>"),
    (Family::Nemotron, "<TOOLCALL>", "</TOOLCALL>"),
    (Family::Hunyuan, "<tool_calls>", "</tool_calls>"),
    (Family::Llama3, "", ""),
    (Family::Mistral, "[TOOL_CALLS]", ""),
];

const TIME: &str = "{\"name\": \"time\", \"arguments\": {\"zone\": \"{}\"}}";

#[test]
fn a_mark_holds_several_calls() {
    let call = ("time", "{\"zone\": \"{}\"}");
    for (family, open, close) in JSON {
        for between in ["\n", "", " \n"] {
            let text = format!("{open}{TIME}{between}{TIME}{close}");
            assert_eq!(read(family, &text), answer("", &[call, call]), "{text}");
        }
        let text = format!("{open}{TIME}\n{{\"name\": \"other\", \"arguments\": {{}}}}{close}");
        let got = read(family, &text);
        assert_eq!(got.calls.len(), 1, "{text}");
        assert!(got.content.contains("\"other\""), "{got:?}");
    }
}

#[test]
fn brackets_too_many_or_too_few_are_no_text() {
    let call = ("time", "{\"zone\": \"{}\"}");
    for (family, open, close) in JSON {
        for extra in ["}", "}}", "]", "}\n", " }"] {
            let text = format!("{open}{TIME}{extra}{close}");
            assert_eq!(read(family, &text), answer("", &[call]), "{text}");
            let two = format!("{text}\n{text}");
            assert_eq!(read(family, &two), answer("", &[call, call]), "{two}");
        }
        if !close.is_empty() {
            let text = format!("{open}{}{close}", TIME.strip_suffix('}').unwrap_or(TIME));
            assert_eq!(read(family, &text), answer("", &[call]), "{text}");
        }
    }
    for (family, text) in [
        (Family::Gemma4, "<|tool_call>call:time{zone:<|\"|>{}<|\"|>}}<tool_call|>"),
        (Family::Mistral, "[TOOL_CALLS]time[ARGS]{\"zone\": \"{}\"}}"),
        (
            Family::Kimi,
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.time:0\
             <|tool_call_argument_begin|>{\"zone\": \"{}\"}}<|tool_call_end|><|tool_calls_section_end|>",
        ),
        (
            Family::DeepSeek31,
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>time<｜tool▁sep｜>{\"zone\": \"{}\"}}<｜tool▁call▁end｜>\
             <｜tool▁calls▁end｜>",
        ),
        (
            Family::Harmony,
            "<|channel|>commentary to=functions.time<|message|>{\"zone\": \"{}\"}}<|call|>",
        ),
    ] {
        let got = read(family, text);
        assert_eq!(
            (got.content.as_str(), arguments(&got)),
            ("", vec![json!({"zone": "{}"})]),
            "{text}"
        );
    }
}

#[test]
fn empty_arguments_are_none() {
    for (family, open, close) in JSON {
        for empty in ["\"\"", "\" \"", "null", "\"{}\"", "[]", "\"null\"", "{}"] {
            let text = format!("{open}{{\"name\": \"time\", \"arguments\": {empty}}}{close}");
            assert_eq!(read(family, &text), answer("", &[("time", "{}")]), "{text}");
        }
    }
}
