//! Calls as each family's chat template writes them, read back however they come.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{Answer, FAMILIES, collect};
use crate::answer::{AnswerParser, Family, Tool};

/// The tools of these tests: each property of its own type.
fn tools() -> Vec<Tool> {
    let parameters = json!({"type": "object", "properties": {
        "text": {"type": "string"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "flag": {"type": "boolean"},
        "items": {"type": "array"},
        "deep": {"type": "object"},
    }});
    let tool =
        |name: &str| Tool { name: name.into(), parameters: parameters.clone(), strict: false };
    vec![tool("weather"), tool("get_time")]
}

type Arguments = Map<String, Value>;

/// A value as it is where it is text, as JSON otherwise.
fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn fields(arguments: &Arguments, write: impl Fn(&str, &Value) -> String, between: &str) -> String {
    let written: Vec<String> = arguments.iter().map(|(key, value)| write(key, value)).collect();
    written.join(between)
}

fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(python).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            format!("{{{}}}", fields(map, |key, value| format!("'{key}': {}", python(value)), ", "))
        }
        Value::String(text) => {
            let text = text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n");
            format!("'{text}'")
        }
        number => number.to_string(),
    }
}

fn gemma(value: &Value, quote: &str) -> String {
    match value {
        Value::String(text) => format!("{quote}{text}{quote}"),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| gemma(item, quote)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(map) => {
            let field = |key: &str, value: &Value| format!("{key}:{}", gemma(value, quote));
            format!("{{{}}}", fields(map, field, ","))
        }
        other => other.to_string(),
    }
}

/// The text that a template of the family writes for these calls.
fn written(family: Family, calls: &[(&str, Arguments)]) -> String {
    let json = |name_key: &str, key: &str| {
        calls
            .iter()
            .map(|(name, arguments)| {
                let arguments = Value::Object(arguments.clone());
                format!("{{\"{name_key}\": \"{name}\", \"{key}\": {arguments}}}")
            })
            .collect::<Vec<_>>()
    };
    let each = |write: &dyn Fn(usize, &str, &Arguments) -> String, between: &str| {
        let written = calls.iter().enumerate();
        written
            .map(|(index, (name, arguments))| write(index, name, arguments))
            .collect::<Vec<_>>()
            .join(between)
    };
    let text = |arguments: &Arguments| Value::Object(arguments.clone()).to_string();
    let element = |tags: [&'static str; 6]| {
        move |_: usize, name: &str, arguments: &Arguments| {
            let [open, named, key_open, key_close, value_end, end] = tags;
            let field = |key: &str, value: &Value| {
                format!("{key_open}{key}{key_close}{}{value_end}\n", bare(value))
            };
            format!("{open}{name}{named}\n{}{end}", fields(arguments, field, ""))
        }
    };
    match family {
        Family::Plain => String::new(),
        Family::Hermes | Family::Ernie => json("name", "arguments")
            .iter()
            .map(|call| format!("<tool_call>\n{call}\n</tool_call>"))
            .collect::<Vec<_>>()
            .join("\n"),
        Family::Coder => each(
            &|index, name, arguments| {
                let tags =
                    ["<function=", ">", "<parameter=", ">\n", "\n</parameter>", "</function>"];
                format!("<tool_call>\n{}\n</tool_call>", element(tags)(index, name, arguments))
            },
            "\n",
        ),
        Family::Seed => each(
            &|index, name, arguments| {
                let tags = ["<function=", ">", "<parameter=", ">", "</parameter>", "</function>"];
                let call = element(tags)(index, name, arguments);
                format!("<seed:tool_call>\n{call}\n</seed:tool_call>")
            },
            "\n",
        ),
        Family::Glm => each(
            &|index, name, arguments| {
                let tags = [
                    "<tool_call>",
                    "",
                    "<arg_key>",
                    "</arg_key>\n<arg_value>",
                    "</arg_value>",
                    "</tool_call>",
                ];
                element(tags)(index, name, arguments)
            },
            "\n",
        ),
        Family::MiniMax => {
            let tags = [
                "<invoke name=\"",
                "\">",
                "<parameter name=\"",
                "\">",
                "</parameter>",
                "</invoke>",
            ];
            format!("<minimax:tool_call>\n{}\n</minimax:tool_call>", each(&element(tags), "\n"))
        }
        Family::Muse => each(
            &|index, name, arguments| {
                let tags = [
                    "<atem:invoke name=\"",
                    "\">",
                    "<atem:parameter name=\"",
                    "\">",
                    "</atem:parameter>",
                    "</atem:invoke>",
                ];
                let call = element(tags)(index, name, arguments);
                format!(
                    "<|start|>assistant to={name}<|message|><atem:function_calls>\n{call}\n\
                     </atem:function_calls><|eom|>"
                )
            },
            "",
        ),
        Family::Kimi => format!(
            "<|tool_calls_section_begin|>{}<|tool_calls_section_end|>",
            each(
                &|index, name, arguments| format!(
                    "<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{}\
                     <|tool_call_end|>",
                    text(arguments)
                ),
                ""
            )
        ),
        Family::DeepSeek => format!(
            "<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>",
            each(
                &|_, name, arguments| format!(
                    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{}\n```\
                     <｜tool▁call▁end｜>",
                    text(arguments)
                ),
                "\n"
            )
        ),
        Family::DeepSeek31 => format!(
            "<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>",
            each(
                &|_, name, arguments| format!(
                    "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
                    text(arguments)
                ),
                ""
            )
        ),
        Family::Granite => format!("<|tool_call|>[{}]", json("name", "arguments").join(", ")),
        Family::Nemotron => {
            format!("<TOOLCALL>[{}]</TOOLCALL>", json("name", "arguments").join(", "))
        }
        Family::Hunyuan | Family::Apriel => {
            format!("<tool_calls>[{}]</tool_calls>", json("name", "arguments").join(", "))
        }
        Family::Cohere => format!(
            "<|START_ACTION|>[\n    {}\n]<|END_ACTION|>",
            json("tool_name", "parameters").join(",\n    ")
        ),
        Family::Lfm | Family::Olmo => {
            let call = |_: usize, name: &str, arguments: &Arguments| {
                let field = |key: &str, value: &Value| format!("{key}={}", python(value));
                format!("{name}({})", fields(arguments, field, ", "))
            };
            match family {
                Family::Lfm => {
                    format!("<|tool_call_start|>[{}]<|tool_call_end|>", each(&call, ", "))
                }
                _ => format!("<function_calls>{}</function_calls>", each(&call, "\n")),
            }
        }
        Family::Llama3 => json("name", "parameters").join("; "),
        Family::Gemma => format!("```json\n[{}]\n```", json("name", "parameters").join(", ")),
        Family::Mistral => {
            each(&|_, name, arguments| format!("[TOOL_CALLS]{name}[ARGS]{}", text(arguments)), "")
        }
        Family::FunctionGemma => each(
            &|_, name, arguments| {
                let arguments = gemma(&Value::Object(arguments.clone()), "<escape>");
                format!("<start_function_call>call:{name}{arguments}<end_function_call>")
            },
            "",
        ),
        Family::Gemma4 => each(
            &|_, name, arguments| {
                let arguments = gemma(&Value::Object(arguments.clone()), "<|\"|>");
                format!("<|tool_call>call:{name}{arguments}<tool_call|>")
            },
            "",
        ),
        Family::Harmony => each(
            &|_, name, arguments| {
                format!(
                    "<|start|>assistant<|channel|>commentary to=functions.{name} \
                     <|constrain|>json<|message|>{}<|call|>",
                    text(arguments)
                )
            },
            "",
        ),
    }
}

/// The marks around a family's reasoning.
fn thinking(family: Family) -> [&'static str; 2] {
    match family {
        Family::Seed => ["<seed:think>", "</seed:think>"],
        Family::Cohere => ["<|START_THINKING|>", "<|END_THINKING|>"],
        Family::Apriel => ["Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"],
        Family::Gemma4 => ["<|channel>thought\n", "<channel|>"],
        Family::Mistral => ["[THINK]", "[/THINK]"],
        _ => ["<think>", "</think>"],
    }
}

/// A thought and a text, as the family writes them before calls.
fn opening(family: Family, thought: &str, said: &str) -> (&'static str, String) {
    let channel = match family {
        Family::Harmony => "<|start|>assistant",
        Family::Muse => "<|start|>assistant",
        _ => "",
    };
    let text = match family {
        Family::Seed => format!("<seed:think>{thought}</seed:think>{said}"),
        Family::Cohere => format!("<|START_THINKING|>{thought}<|END_THINKING|>{said}"),
        Family::Gemma4 => format!("<|channel>thought\n{thought}\n<channel|>{said}"),
        Family::Apriel => {
            format!("Here are my reasoning steps:{thought}[BEGIN FINAL RESPONSE]{said}")
        }
        Family::Mistral => format!("[THINK]{thought}[/THINK]{said}"),
        Family::Harmony => format!(
            "<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant<|channel|>commentary\
             <|message|>{said}<|end|>"
        ),
        Family::Muse => format!(
            " to=self<|message|>{thought}<|eom|><|start|>assistant to=user<|message|>{said}<|eom|>"
        ),
        _ => format!("<think>{thought}</think>{said}"),
    };
    (channel, text)
}

fn read<'a>(family: Family, prompt: &str, parts: impl IntoIterator<Item = &'a str>) -> Answer {
    let mut parser = AnswerParser::with_schemas(family, prompt, &tools());
    let mut pieces: Vec<_> = parts.into_iter().flat_map(|part| parser.push(part)).collect();
    pieces.extend(parser.finish());
    collect(pieces)
}

/// Text with all that a format might stumble over, but no mark of its own.
fn words() -> impl Strategy<Value = String> {
    let parts = vec![
        "a",
        "b c",
        "\n",
        "\"",
        "'",
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\\",
        "<",
        "|",
        ">",
        "é",
        "你好",
        "🌍",
        "12",
        "3.5",
        "true",
        "null",
        "</tool",
        "</function>",
        "<parameter",
        "<parameter=no>",
        "```",
        "; ",
        " ",
    ];
    proptest::collection::vec(proptest::sample::select(parts), 0..8)
        .prop_map(|parts| parts.concat())
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        (-1000..1000i32).prop_map(|n| (f64::from(n) / 8.0).into()),
        words().prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-z_]{1,6}", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn arguments() -> impl Strategy<Value = Arguments> {
    let value = |kind: &'static str| match kind {
        "text" => words().prop_map(Value::from).boxed(),
        "note" => prop_oneof![Just(Value::Null), "[a-z ]{1,5}".prop_map(Value::from)].boxed(),
        "count" => any::<i64>().prop_map(Value::from).boxed(),
        "share" => (-1000..1000i32).prop_map(|n| (f64::from(n) / 8.0).into()).boxed(),
        "flag" => any::<bool>().prop_map(Value::from).boxed(),
        "items" => proptest::collection::vec(value(), 0..4).prop_map(Value::from).boxed(),
        _ => proptest::collection::btree_map("[a-z_]{1,6}", value(), 0..4)
            .prop_map(|fields| Value::Object(fields.into_iter().collect()))
            .boxed(),
    };
    let kinds = ["text", "note", "count", "share", "flag", "items", "deep"];
    proptest::sample::subsequence(kinds.to_vec(), 0..=kinds.len()).prop_flat_map(move |kinds| {
        let fields: Vec<_> =
            kinds.into_iter().map(|kind| (Just(kind.to_owned()), value(kind))).collect();
        fields.prop_map(|fields| fields.into_iter().collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn calls_are_what_was_meant_however_they_come(
        family in proptest::sample::select(&FAMILIES[1..]),
        calls in proptest::collection::vec(
            (proptest::sample::select(vec!["weather", "get_time"]), arguments()), 1..4),
        thought in "[a-z .\"'{\n]{0,12}", said in "[a-z .\"']{0,10}", after in "[a-z .]{0,8}",
    ) {
        // Answers of these hold nothing but calls.
        let alone = family == Family::Llama3;
        let said = if alone { "" } else { said.as_str() };
        let (prompt, before) = opening(family, &thought, said);
        let after = match family {
            Family::Harmony => format!("<|start|>assistant<|channel|>final<|message|>{after}"),
            Family::Muse => format!("<|start|>assistant to=user<|message|>{after}"),
            _ if alone => String::new(),
            _ => format!(".{after}"),
        };
        let text = format!("{before}{}{after}", written(family, &calls));
        let at_once = read(family, prompt, [text.as_str()]);
        let parts = text.split_inclusive(|_| true);
        prop_assert_eq!(&read(family, prompt, parts), &at_once, "{}", text);
        prop_assert_eq!(at_once.reasoning.trim(), thought.trim(), "{}", text);
        let shown: String = at_once.content.split_whitespace().collect();
        let plain = after.rsplit('>').next().unwrap_or_default();
        let meant: String = format!("{said}{plain}").split_whitespace().collect();
        prop_assert_eq!(shown, meant, "{}", text);
        let found: Vec<(&str, Value)> = at_once.calls.iter().map(|(name, arguments)| {
            (name.as_str(), serde_json::from_str(arguments).expect("arguments are JSON"))
        }).collect();
        let meant: Vec<(&str, Value)> =
            calls.into_iter().map(|(name, arguments)| (name, Value::Object(arguments))).collect();
        prop_assert_eq!(found, meant, "{:?}: {}", family, text);
    }
    #[test]
    fn calls_that_end_reasoning_are_calls_and_drafts_in_it_are_not(
        family in proptest::sample::select(&FAMILIES[1..]),
        calls in proptest::collection::vec(
            (proptest::sample::select(vec!["weather", "get_time"]), arguments()), 1..4),
        thought in "[a-z .\"'{\n]{0,12}", after in "[ \n]{0,3}", closed in any::<bool>(),
        said in "[a-z .]{0,5}",
    ) {
        // These have no reasoning around calls, or no marks before them.
        prop_assume!(![Family::Harmony, Family::Muse, Family::Llama3].contains(&family));
        let [open, close] = thinking(family);
        let draft = format!("{thought}{}{after}", written(family, &calls));
        let parse = |text: &str| {
            let at_once = read(family, open, [text]);
            prop_assert_eq!(&read(family, open, text.split_inclusive(|_| true)), &at_once);
            Ok(at_once)
        };
        let got = parse(&draft)?;
        prop_assert_eq!(got.reasoning.trim(), thought.trim(), "{:?}: {}", family, draft);
        prop_assert_eq!(got.content, "");
        let found: Vec<(&str, Value)> = got.calls.iter().map(|(name, arguments)| {
            (name.as_str(), serde_json::from_str(arguments).expect("arguments are JSON"))
        }).collect();
        let meant: Vec<(&str, Value)> =
            calls.into_iter().map(|(name, arguments)| (name, Value::Object(arguments))).collect();
        prop_assert_eq!(found, meant, "{:?}: {}", family, draft);
        let (text, reasoning, content) = match closed {
            true => (format!("{draft}{close}{said}"), draft, said.as_str()),
            false => (format!("{draft}.{said}"), format!("{draft}.{said}"), ""),
        };
        let got = parse(&text)?;
        prop_assert_eq!(got.reasoning.trim(), reasoning.trim(), "{:?}: {}", family, text);
        prop_assert_eq!(got.content.trim(), content.trim(), "{:?}: {}", family, text);
        prop_assert!(got.calls.is_empty());
    }
}
