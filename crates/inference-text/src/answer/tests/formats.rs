//! Each family's formats, as their documentation and templates write them.

use super::{Answer, answer, by_character, parse, tools, whole};
use crate::answer::{AnswerParser, Family, Piece, Tool};

/// A text means the same whole and by character.
fn read(family: Family, prompt: &str, text: &str) -> Answer {
    let at_once = parse(family, prompt, [text]);
    assert_eq!(by_character(family, prompt, text), at_once);
    at_once
}

#[test]
fn a_hermes_call_with_text_before_it() {
    let text = "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":  \"Paris, </tool_call>\"}}\n</tool_call>";
    assert_eq!(
        read(Family::Hermes, "", text),
        answer("Let me see.", &[("weather", "{\"city\":  \"Paris, </tool_call>\"}")])
    );
}

#[test]
fn several_hermes_calls_and_text_after_them() {
    let text = "<tool_call>{\"name\":\"weather\",\"arguments\":{\"a\":1}}</tool_call>\n<tool_call>\n{\"name\": \"time\"}\n</tool_call>\nDone.";
    assert_eq!(
        read(Family::Hermes, "", text),
        answer("\nDone.", &[("weather", "{\"a\":1}"), ("time", "{}")])
    );
}

#[test]
fn a_hermes_call_without_its_last_mark_is_one() {
    for end in ["", "\n", "\n</tool", "\n</tool_call>\n\n"] {
        let text = format!("<tool_call>\n{{\"name\": \"time\", \"arguments\": {{}}}}{end}");
        assert_eq!(read(Family::Hermes, "", &text), answer("", &[("time", "{}")]), "{end:?}");
    }
}

#[test]
fn what_is_no_call_comes_back_as_content() {
    for text in [
        "A <tool_call>\n{\"name\": \"unknown\", \"arguments\": {}}\n</tool_call> B",
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Par",
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": [1]}\n</tool_call>",
        "<tool_call>\nweather(city)\n</tool_call>",
        "The mark <tool_call> begins a call.\n",
        "<tool_call>{\"name\": \"weather\" \"arguments\": {}}</tool_call>",
        "<function=weather>\n<parameter=city>\nParis\n</function> B",
    ] {
        assert_eq!(read(Family::Hermes, "", text), answer(text, &[]));
    }
    let after =
        "<tool_call>{\"name\": <tool_call>{\"name\": \"time\", \"arguments\": {}}</tool_call>";
    assert_eq!(read(Family::Hermes, "", after), answer("<tool_call>{\"name\":", &[("time", "{}")]));
}

#[test]
fn arguments_in_a_string_are_taken_out_of_it() {
    let text = "<tool_call>{\"name\": \"time\", \"arguments\": \"{\\\"zone\\\": \\\"CET\\\"}\"}</tool_call>";
    assert_eq!(read(Family::Hermes, "", text), answer("", &[("time", "{\"zone\": \"CET\"}")]));
}

#[test]
fn elements_follow_the_schema_where_there_is_one() {
    let text = "<tool_call>\n<function=weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=text>\na <b>\n\"c\"\n</parameter>\n<parameter=deep>\n{\"a\": [1, 2]}\n</parameter>\n<parameter=now>True</parameter>\n</function>\n</tool_call>";
    assert_eq!(
        read(Family::Hermes, "", text),
        answer(
            "",
            &[(
                "weather",
                "{\"city\": 12, \"days\": 3, \"text\": \"a <b>\\n\\\"c\\\"\", \"deep\": {\"a\": [1, 2]}, \"now\": \"True\"}"
            )]
        )
    );
    let parameters = serde_json::json!({"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "text": {"type": ["string", "null"]},
        "deep": {"type": "object"}, "now": {"type": "boolean"},
    }});
    let tool = Tool { name: "weather".into(), parameters, strict: false };
    let mut parser = AnswerParser::with_schemas(Family::Hermes, "", &[tool]);
    let pieces = parser.push(text);
    let expected = "{\"city\": \"12\", \"days\": 3, \"text\": \"a <b>\\n\\\"c\\\"\", \"deep\": {\"a\": [1, 2]}, \"now\": true}";
    assert_eq!(pieces[1], Piece::Arguments { index: 0, text: expected.into() });
}

#[test]
fn reasoning_is_told_apart() {
    let thought = |reasoning: &str, content: &str| Answer {
        reasoning: reasoning.into(),
        content: content.into(),
        calls: Vec::new(),
    };
    let open = "<|im_start|>assistant\n<think>\n";
    for family in [Family::Plain, Family::Hermes, Family::Llama3, Family::Gemma] {
        let closed = read(family, "", "<think>\nWell.\n\nYes.\n</think>\n\nHi \n");
        assert_eq!(closed, thought("Well.\n\nYes.", "Hi \n"));
        assert_eq!(read(family, open, "Well.</think>Hi"), thought("Well.", "Hi"));
        assert_eq!(read(family, open, "Well, <think"), thought("Well, <think", ""));
        assert_eq!(read(family, open, "Well.\n</thi"), thought("Well.\n</thi", ""));
        assert_eq!(read(family, open, "Well.</think>\n\n"), thought("Well.", ""));
        assert_eq!(read(family, "", "<think>\n\n</think>\n\nHi"), thought("", "Hi"));
        assert_eq!(read(family, "", "Say <think>"), thought("", "Say <think>"));
        assert_eq!(read(family, "", " <thin"), thought("", " <thin"));
    }
    let mistral = read(Family::Mistral, "", "[THINK]Well.[/THINK]Hi");
    assert_eq!(mistral, thought("Well.", "Hi"));
    let channel = "<|turn>model\n<|channel>thought\n";
    let gemma = read(Family::Gemma, "", "<|channel>thought\nWell.\n\nYes.\n<channel|>Hi");
    assert_eq!(gemma, thought("Well.\n\nYes.", "Hi"));
    assert_eq!(read(Family::Gemma, channel, "Well.\n<channel|>Hi"), thought("Well.", "Hi"));
    assert_eq!(read(Family::Gemma, "", "<|channel>thought\n<channel|>Hi"), thought("", "Hi"));
    let closed = format!("{channel}<channel|>");
    assert_eq!(read(Family::Gemma, &closed, "Hi <channel|>"), thought("", "Hi <channel|>"));
    assert_eq!(read(Family::Gemma, "", "<|channel>"), thought("", "<|channel>"));
    let call = "Hm\n<channel|><|tool_call>call:time{zone:<|\"|>CET<|\"|>}<tool_call|>";
    let expected =
        Answer { reasoning: "Hm".into(), ..answer("", &[("time", "{\"zone\": \"CET\"}")]) };
    assert_eq!(read(Family::Gemma, channel, call), expected);
    let call = "Hm\n</think>\n\n<tool_call>{\"name\": \"time\", \"arguments\": {}}</tool_call>";
    let expected = Answer { reasoning: "Hm".into(), ..answer("", &[("time", "{}")]) };
    assert_eq!(read(Family::Hermes, open, call), expected);
}

#[test]
fn llama_calls_are_the_whole_answer() {
    let call = "{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\"}}";
    let args = "{\"city\": \"Oslo\"}";
    let one = answer("", &[("weather", args)]);
    let two = answer("", &[("weather", args), ("weather", args)]);
    assert_eq!(read(Family::Llama3, "", call), one);
    assert_eq!(read(Family::Llama3, "", &format!("\n<|python_tag|>{call}")), one);
    assert_eq!(read(Family::Llama3, "", &format!("{call}; {call}")), two);
    assert_eq!(read(Family::Llama3, "", &format!("<|python_tag|>{call};{call}\n")), two);
    assert_eq!(read(Family::Llama3, "", &format!("{call}\n{call}")), two);
    let typed = "{\"type\": \"function\", \"name\": \"time\", \"parameters\": {}}";
    assert_eq!(read(Family::Llama3, "", typed), answer("", &[("time", "{}")]));
    for text in [
        "{\"answer\": 42}",
        "{\"name\": \"John\"}",
        "A call: {\"name\": \"time\", \"parameters\": {}}",
        "[1, 2]",
        "[note]: x",
        "{",
        "[ ",
    ] {
        assert_eq!(read(Family::Llama3, "", text), answer(text, &[]));
    }
    let then = format!("{call}; and more");
    assert_eq!(read(Family::Llama3, "", &then), answer("; and more", &[("weather", args)]));
}

#[test]
fn llama_calls_in_python() {
    let calls = "[weather(city='San \"F\"', metric=\"celsius\"), time(a=[1, -2.5], b={'k': None}, c=True,)]";
    let expected = answer(
        "",
        &[
            ("weather", "{\"city\": \"San \\\"F\\\"\", \"metric\": \"celsius\"}"),
            ("time", "{\"a\": [1, -2.5], \"b\": {\"k\": null}, \"c\": true}"),
        ],
    );
    assert_eq!(read(Family::Llama3, "", calls), expected);
    assert_eq!(
        read(Family::Llama3, "", &format!("<|python_start|>{calls}<|python_end|>")),
        expected
    );
    for text in [
        "[weather(1)]",
        "[weather(city=Paris)]",
        "[other(a=1)]",
        "[weather(city=\"a\"",
        "[weather(a=1, a=2)]",
    ] {
        assert_eq!(read(Family::Llama3, "", text), answer(text, &[]));
    }
}

#[test]
fn mistral_calls_in_both_spellings() {
    let list = "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}, \"id\": \"9Ae3bDc2F\"}, {\"name\": \"time\", \"arguments\": {}}]";
    let expected = answer("", &[("weather", "{\"city\": \"Oslo\"}"), ("time", "{}")]);
    assert_eq!(read(Family::Mistral, "", list), expected);
    let named =
        "[TOOL_CALLS]weather[ARGS]{\"city\": \"Oslo\"}[TOOL_CALLS]time[CALL_ID]9Ae3bDc2F[ARGS]{}";
    assert_eq!(read(Family::Mistral, "", named), expected);
    for text in [
        "[TOOL_CALLS]other[ARGS]{}",
        "[TOOL_CALLS]weather[ARGS]{\"city\": ",
        "[TOOL_CALLS]weather {}",
        "[TOOL_CALLS][{\"name\": \"time\", \"arguments\": {}}, {\"name\": \"other\", \"arguments\": {}}]",
        "[TOOL_CALLS]",
    ] {
        assert_eq!(read(Family::Mistral, "", text), answer(text, &[]));
    }
}

#[test]
fn gemma_calls_in_all_spellings() {
    let expected = answer("", &[("weather", "{\"city\": \"Oslo\", \"days\": 2}")]);
    for text in [
        "<start_function_call>call:weather{city:<escape>Oslo<escape>,days:2}<end_function_call>",
        "<|tool_call>call:weather{city:<|\"|>Oslo<|\"|>,days:2}<tool_call|>",
        "```tool_code\nprint(weather(city=\"Oslo\", days=2))\n```",
        "```tool_code\nweather(city=\"Oslo\", days=2)\n```\n",
        "[weather(city=\"Oslo\", days=2)]",
        "{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": 2}}",
        "```json\n{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": 2}}\n```",
    ] {
        assert_eq!(read(Family::Gemma, "", text), expected, "{text}");
    }
    let deep = "<start_function_call>call:time{a:{b:[<escape>x,}<escape>,true]},c:later}<end_function_call>";
    assert_eq!(
        read(Family::Gemma, "", deep),
        answer("", &[("time", "{\"a\": {\"b\": [\"x,}\", true]}, \"c\": \"later\"}")])
    );
    for text in [
        "```json\n{\"a\": 1}\n```",
        "```tool_code\nimport os\n```",
        "<start_function_call>call:other{}<end_function_call>",
        "<start_function_call>call:weather{city:<escape>Os",
        "```python\nweather(city=\"Oslo\")\n```",
    ] {
        assert_eq!(read(Family::Gemma, "", text), answer(text, &[]), "{text}");
    }
}

#[test]
fn harmony_channels_and_recipients() {
    let prompt = "<|start|>user<|message|>Hi<|end|><|start|>assistant";
    let text = "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\":\"Oslo\"}";
    let expected = Answer {
        reasoning: "Think.".into(),
        ..answer("I look.", &[("weather", "{\"city\":\"Oslo\"}")])
    };
    assert_eq!(read(Family::Harmony, prompt, text), expected);
    assert_eq!(read(Family::Harmony, prompt, &format!("{text}<|call|>")), expected);
    let early = " to=functions.weather<|channel|>commentary json<|message|>{\"city\":\"Oslo\"}";
    assert_eq!(read(Family::Harmony, prompt, early), answer("", &expected_call()));
    let last = "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>analysis<|message|>B<|end|><|start|>assistant<|channel|>final<|message|>Hello <b>\n";
    let got = read(Family::Harmony, prompt, last);
    assert_eq!((got.reasoning.as_str(), got.content.as_str()), ("A\nB", "Hello <b>\n"));
}

fn expected_call() -> [(&'static str, &'static str); 1] {
    [("weather", "{\"city\":\"Oslo\"}")]
}

#[test]
fn harmony_goes_on_where_the_prompt_ends() {
    let open = "<|start|>assistant<|channel|>analysis<|message|>";
    let got =
        read(Family::Harmony, open, "So.<|end|><|start|>assistant<|channel|>final<|message|>Hi");
    assert_eq!((got.reasoning.as_str(), got.content.as_str()), ("So.", "Hi"));
    let got = read(Family::Harmony, "<|start|>assistant<|channel|>final", "<|message|>Hi");
    assert_eq!(got, answer("Hi", &[]));
    assert_eq!(read(Family::Harmony, "<|start|>assistant", "Just text"), answer("Just text", &[]));
}

#[test]
fn harmony_loses_nothing_that_is_no_call() {
    for text in [
        "<|channel|>commentary to=functions.other <|constrain|>json<|message|>{}",
        "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\":",
        "<|channel|>commentary to=functions.wea",
        "<|channel|>secret<|message|>x",
        "<|chan",
        "<|channel|>final<|mess",
    ] {
        assert_eq!(read(Family::Harmony, "<|start|>assistant", text), answer(text, &[]));
    }
    for cut in ["", "<|channel|>", "<|channel|>ana", "<|channel|>final"] {
        assert_eq!(read(Family::Harmony, "<|start|>assistant", cut), answer("", &[]));
    }
}

#[test]
fn a_name_must_be_given() {
    assert!(!tools().contains(&"other".to_owned()));
    let text = "<tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>";
    assert_eq!(whole(Family::Hermes, text), answer(text, &[]));
}
