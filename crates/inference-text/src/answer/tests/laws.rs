//! The laws that hold for every text: cut anywhere, lose nothing, take linear time.

use proptest::prelude::*;

use super::{Answer, by_character, collect, parse, tools, whole};
use crate::answer::{AnswerParser, Family};

const FAMILIES: [Family; 24] = super::FAMILIES;

/// The parts of random texts: marks, their parts, calls and their parts, words, whitespace.
const PARTS: &[&str] = &[
    "<|channel>thought\n",
    "<channel|>",
    "<think>",
    "</think>",
    "[THINK]",
    "[/THINK]",
    "<seed:think>",
    "</seed:think>",
    "<seed:tool_call>",
    "</seed:tool_call>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<invoke name=\"time\">",
    "<parameter name=\"a\">",
    "</invoke>",
    "weather<arg_key>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<response>",
    "</response>",
    "<answer>",
    "</answer>",
    "<tool_calls>",
    "</tool_calls>",
    "<TOOLCALL>",
    "</TOOLCALL>",
    "<|tool_call|>",
    "<|/tool_call|>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<function_calls>",
    "</function_calls>",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>functions.time:0",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_section_begin|>",
    "<|tool_call_begin|>call_0",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "function<｜tool▁sep｜>time",
    "<｜tool▁sep｜>",
    "```json\n{}\n```",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<|START_THINKING|>",
    "<|END_THINKING|>",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    " to=self<|message|>",
    " to=user",
    " to=time<|message|>",
    "<|eom|>",
    "<|eot|>",
    "<atem:function_calls>",
    "<atem:invoke name=\"time\">",
    "<atem:parameter name=\"a\">",
    "</atem:parameter>",
    "</atem:invoke>",
    "</atem:function_calls>",
    "<tool_call>",
    "</tool_call>",
    "<function=",
    "<function=weather>",
    "</function>",
    "<parameter=city>",
    "</parameter>",
    "<|python_tag|>",
    "<|python_start|>",
    "<|python_end|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "```tool_code",
    "```json",
    "```",
    "<start_function_call>",
    "<end_function_call>",
    "<escape>",
    "<|tool_call>",
    "<tool_call|>",
    "<|\"|>",
    "<|channel|>",
    "<|message|>",
    "<|start|>",
    "<|end|>",
    "<|call|>",
    "<|constrain|>",
    "assistant",
    "analysis",
    "commentary to=functions.weather ",
    "final",
    "{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}",
    "{\"name\": \"time\", \"parameters\": {}}",
    "[{\"name\": \"time\", \"arguments\": {\"a\": [1]}}]",
    "{\"name\": \"other\", \"arguments\": {}}",
    "[weather(city=\"Rome\")]",
    "[weather(city=",
    "\"\"\"",
    "'",
    "5.",
    ")]",
    "call:weather{city:Paris, Rome,days:3}",
    "weather",
    "time(",
    "call:weather{city:<escape>Oslo<escape>}",
    "{\"city\": \"Oslo\"}",
    "{\"na",
    "me\": \"",
    "\"",
    "{",
    "}",
    "[",
    "]",
    ";",
    "<",
    ">",
    "|",
    " ",
    "\n",
    "\n\n",
    "Hello",
    "é",
    "\\",
];

fn text() -> impl Strategy<Value = String> {
    let part = proptest::sample::select(PARTS);
    proptest::collection::vec(part, 0..14).prop_map(|parts| parts.concat())
}

fn family() -> impl Strategy<Value = Family> {
    proptest::sample::select(FAMILIES.to_vec())
}

fn prompt() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "",
        "<|im_start|>assistant\n<think>\n",
        "<|turn>model\n<|channel>thought\n",
        "[THINK]",
        "<|START_THINKING|>",
        "<|start|>assistant",
        "<|start|>assistant<|channel|>analysis<|message|>",
        "<|start|>assistant<|channel|>final",
    ])
}

/// The text without marks and whitespace, in which pieces and text agree.
fn bare(text: &str) -> String {
    let marks = [
        "<|channel>thought",
        "<channel|>",
        "<think>",
        "</think>",
        "[THINK]",
        "[/THINK]",
        "<seed:think>",
        "</seed:think>",
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        "<|START_RESPONSE|>",
        "<|END_RESPONSE|>",
        "<response>",
        "</response>",
        "<answer>",
        "</answer>",
        "<|eom|>",
        "<|eot|>",
        "to=self",
        "to=user",
        "<|channel|>",
        "<|message|>",
        "<|start|>",
        "<|end|>",
        "<|call|>",
        "assistant",
        "analysis",
        "final",
        "commentary",
        "<|constrain|>",
        "json",
        "code",
    ];
    let mut text: String = text.split_whitespace().collect();
    for mark in marks {
        text = text.replace(mark, "");
    }
    text
}

/// Text with all that a format might stumble over, but no mark of its own.
fn words() -> impl Strategy<Value = String> {
    let parts = [
        "a", "b c", "\n", "\"", "'", "{", "}", "[", "]", ":", ",", "\\", "<", "|", ">", "é",
        "你好", "🌍",
    ];
    proptest::collection::vec(proptest::sample::select(parts.to_vec()), 0..8)
        .prop_map(|parts| parts.concat())
        .prop_filter("no mark", |text| !text.contains("<|"))
}

/// A random argument of a call, nested.
fn argument() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i32>().prop_map(Into::into),
        (-1000..1000i32).prop_map(|n| (f64::from(n) / 8.0).into()),
        words().prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            proptest::collection::btree_map("[a-z_]{1,6}", inner, 0..4)
                .prop_map(|fields| serde_json::Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A value as Gemma 4's template writes it: bare keys, strings between marks.
fn as_gemma4(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => format!("<|\"|>{text}<|\"|>"),
        serde_json::Value::Array(items) => {
            format!("[{}]", items.iter().map(as_gemma4).collect::<Vec<_>>().join(","))
        }
        serde_json::Value::Object(fields) => {
            let field =
                |(key, value): (&String, &serde_json::Value)| format!("{key}:{}", as_gemma4(value));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn calls_of_gemma_4_are_what_was_meant_however_they_come(
        arguments in proptest::collection::vec(
            proptest::collection::btree_map("[a-z_]{1,6}", argument(), 0..4), 1..3),
        thought in words(), said in "[a-z .]{0,10}",
    ) {
        let arguments: Vec<serde_json::Value> = arguments
            .into_iter()
            .map(|fields| serde_json::Value::Object(fields.into_iter().collect()))
            .collect();
        let mut text = format!("<|channel>thought\n{thought}\n<channel|>{said}");
        for arguments in &arguments {
            text += &format!("<|tool_call>call:weather{}<tool_call|>", as_gemma4(arguments));
        }
        let at_once = whole(Family::Gemma, &text);
        prop_assert_eq!(&by_character(Family::Gemma, "", &text), &at_once);
        prop_assert_eq!(at_once.reasoning.trim(), thought.trim());
        prop_assert_eq!(at_once.content.trim(), said.trim());
        let found = at_once.calls.iter().map(|(name, arguments)| {
            (name.as_str(), serde_json::from_str::<serde_json::Value>(arguments).unwrap())
        });
        let meant = arguments.into_iter().map(|arguments| ("weather", arguments));
        prop_assert!(found.eq(meant), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn where_a_text_is_cut_makes_no_difference(
        family in family(), prompt in prompt(), text in text(), cuts in proptest::collection::vec(0..200usize, 0..6)
    ) {
        let at_once = parse(family, prompt, [text.as_str()]);
        prop_assert_eq!(&by_character(family, prompt, &text), &at_once);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| text.floor_char_boundary(cut)).collect();
        cuts.sort_unstable();
        let mut parts = Vec::new();
        let mut from = 0;
        for cut in cuts.into_iter().chain([text.len()]) {
            parts.push(&text[from..cut]);
            from = cut;
        }
        prop_assert_eq!(&parse(family, prompt, parts), &at_once);
    }

    #[test]
    fn without_calls_the_text_is_what_it_was(family in family(), prompt in prompt(), text in text()) {
        let got = parse(family, prompt, [text.as_str()]);
        // What a message of a channel is written in is no part of it.
        let says_format = family == Family::Harmony && text.contains("<|constrain|>");
        if got.calls.is_empty() && !says_format {
            prop_assert_eq!(bare(&(got.reasoning + &got.content)).len(), bare(&text).len());
        }
    }

    #[test]
    fn arguments_are_always_a_json_object(family in family(), text in text()) {
        for (name, arguments) in whole(family, &text).calls {
            prop_assert!(tools().contains(&name));
            let arguments: serde_json::Value = serde_json::from_str(&arguments)?;
            prop_assert!(arguments.is_object());
        }
    }

    #[test]
    fn without_tools_nothing_is_a_call(family in family(), text in text()) {
        let mut parser = AnswerParser::new(family, "", &[]);
        let mut pieces = parser.push(&text);
        pieces.extend(parser.finish());
        prop_assert!(collect(pieces).calls.is_empty());
    }

    #[test]
    fn plain_text_without_marks_is_content_to_the_letter(family in family(), text in "[a-zA-Z0-9 .,\n]{0,40}") {
        prop_assert_eq!(whole(family, &text).content, text);
    }
}

/// A parser that looked at the same text again and again would take many minutes for these.
#[test]
fn hostile_answers_take_linear_time() {
    let units = [
        "<",
        "{",
        "[",
        "\n",
        "\"",
        "<tool_call>",
        "<tool_call>{\"",
        "<tool_call>{\"a\":[",
        "[TOOL_CALLS]",
        "[TOOL_CALLS]weather",
        "<|channel|>",
        "<|start|>",
        "<|message|>",
        "<|channel|>final<|message|>",
        "<|python_tag|>[weather(",
        "```json\n{",
        "```",
        "<start_function_call>",
        "<start_function_call>call:weather{a:[",
        "<function=",
        "{\"name\":",
        "<|start|>assistant<|channel|>commentary to=functions.weather<|message|>{",
        "<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>\n",
        "<tool_call>weather<arg_key>",
        "<tool_call>weather<arg_key>a</arg_key><arg_value></tool_call>",
        "<tool_call><function=weather><parameter=a></function>\n",
        "<minimax:tool_call><invoke name=\"weather\"></invoke>",
        "<invoke name=\"weather\"></invoke>\n\n",
        "<|tool_calls_section_begin|><|tool_call_begin|>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>time<｜tool▁sep｜>{}",
        "<|tool_call_start|>[weather(a='",
        "<|START_RESPONSE|>",
        "<|START_RESPONSE|><|END_RESPONSE|>",
        " to=weather<|message|><atem:function_calls>",
        "<|start|> to=self<|message|>a<|eom|>",
        "<function=weather><parameter=a><parameter=",
        "<tool_call>time</tool_call>",
        "<|tool_call>call:weather{a:b,c",
        "[weather(a=\"\"\"",
    ];
    for unit in units {
        let text = unit.repeat((1 << 14) / unit.len());
        let both = |family| [(family, ""), (family, "<think>")];
        for (family, prompt) in FAMILIES.into_iter().flat_map(both) {
            let at_once = parse(family, prompt, [text.as_str()]);
            assert_eq!(parse(family, prompt, text.split_inclusive(['<', '{'])), at_once);
        }
    }
    let megabyte = "<".repeat(1 << 20);
    for family in FAMILIES {
        assert_eq!(by_character(family, "", &megabyte).content, megabyte);
    }
    let call = "<tool_call>{\"name\": \"time\", \"arguments\": {}}</tool_call>";
    let waiting = format!("{call}{}", "\n".repeat(1 << 18));
    assert_eq!(by_character(Family::Hermes, "<think>", &waiting).calls.len(), 1);
}

#[test]
fn what_can_no_longer_be_a_mark_is_released() {
    for family in FAMILIES {
        let mut parser = AnswerParser::new(family, "", &tools());
        let mut pieces = Vec::new();
        for part in ["Hello <b", "old> [x]", " {\"a\"", ": 1} "] {
            pieces.extend(parser.push(part));
        }
        assert_eq!(
            collect(pieces),
            Answer {
                content: match family {
                    Family::Plain | Family::Harmony | Family::Muse =>
                        "Hello <bold> [x] {\"a\": 1} ".into(),
                    _ => "Hello <bold> [x] {\"a\": 1}".into(),
                },
                ..Answer::default()
            },
            "{family:?}"
        );
    }
}
