//! JSON as Python reads and writes it, so that files are equal to mlx-lm's byte for byte.

use std::borrow::Cow;
use std::fmt::Write;

use inference_text::json::standard_json;
use serde_json::Value;

/// The prefix of a string that stands for a number which [`Value`] may change.
/// The number as Python writes it follows.
const NUMBER: &str = "\0number ";

/// The value of `text`. Floats, and whole numbers beyond 64 bits, are strings in it that [`dump`]
/// writes as Python writes these numbers, to the last digit. Infinities and NaN become the objects
/// that mlx-lm writes for them.
///
/// # Errors
/// Text that is no JSON of Python.
pub(super) fn parse(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(&with_marks(&standard_json(text)))
}

/// `text` with strings in place of the numbers that [`Value`] may change.
fn with_marks(text: &str) -> Cow<'_, str> {
    let mut marked = String::new();
    let (mut copied, mut at) = (0, 0);
    let bytes = text.as_bytes();
    while let Some(&byte) = bytes.get(at) {
        let length = match byte {
            b'"' => string_length(&bytes[at..]),
            b'-' | b'0'..=b'9' => {
                let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                let length = bytes[at..].iter().take_while(|byte| is_of_word(byte)).count();
                let word = &text[at..at + length];
                if let Some(number) = changed(word) {
                    // Writing into a string does not fail.
                    let _ = write!(marked, "{}\"\\u0000number {number}\"", &text[copied..at]);
                    copied = at + length;
                }
                length
            }
            _ => 1,
        };
        at += length.max(1);
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    marked.push_str(&text[copied..]);
    Cow::Owned(marked)
}

/// Bytes of the string that `bytes` begin with, quotes included.
fn string_length(bytes: &[u8]) -> usize {
    let mut at = 1;
    loop {
        match bytes.get(at) {
            None => return bytes.len(),
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
        }
    }
}

/// Python's text for the number `word`, where [`Value`] may change it.
fn changed(word: &str) -> Option<String> {
    let digits = word.strip_prefix('-').unwrap_or(word);
    let (whole, rest) = digits.split_at(digits.bytes().take_while(u8::is_ascii_digit).count());
    if whole.is_empty() || whole.len() > 1 && whole.starts_with('0') {
        return None;
    }
    if rest.is_empty() {
        let is_held = word.parse::<i64>().is_ok() || word.parse::<u64>().is_ok();
        return (!is_held).then(|| word.to_owned());
    }
    // What is no number stays, so that it is an error.
    let is_form_of_json =
        !rest.starts_with(".e") && !rest.starts_with(".E") && !rest.ends_with('.');
    let number: f64 =
        word.parse().ok().filter(|number: &f64| is_form_of_json && number.is_finite())?;
    Some(float_text(number))
}

/// The text that `json.dump(value, indent=4)` writes.
pub(super) fn dump(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value, 0);
    text
}

fn write_value(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(flag) => text.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => text.push_str(&float_text(float)),
            None => text.push_str(&number.to_string()),
        },
        Value::String(string) => match string.strip_prefix(NUMBER) {
            Some(number) => text.push_str(number),
            None => write_string(text, string),
        },
        Value::Array(items) => {
            let items = items.iter().map(|item| (None, item));
            write_items(text, ['[', ']'], items, depth);
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (Some(key), value));
            write_items(text, ['{', '}'], fields, depth);
        }
    }
}

fn write_items<'a>(
    text: &mut String,
    [open, close]: [char; 2],
    items: impl Iterator<Item = (Option<&'a String>, &'a Value)>,
    depth: usize,
) {
    text.push(open);
    let mut is_empty = true;
    for (key, value) in items {
        text.push_str(if is_empty { "\n" } else { ",\n" });
        is_empty = false;
        text.push_str(&"    ".repeat(depth + 1));
        if let Some(key) = key {
            write_string(text, key);
            text.push_str(": ");
        }
        write_value(text, value, depth + 1);
    }
    if !is_empty {
        text.push('\n');
        text.push_str(&"    ".repeat(depth));
    }
    text.push(close);
}

/// A string in ASCII.
fn write_string(text: &mut String, string: &str) {
    text.push('"');
    for character in string.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            ' '..='~' => text.push(character),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    // Writing into a string does not fail.
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
        }
    }
    text.push('"');
}

/// The shortest digits that read back as `number`, in Python's form.
fn float_text(number: f64) -> String {
    // As in `1.25e-7`: the digits, and the power of ten.
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let power: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&power) {
        let plain = format!("{number}");
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", power.abs())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn floats_are_those_of_python() {
        for (number, text) in [
            (1e-6, "1e-06"),
            (1.5e-7, "1.5e-07"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1_000_000.0, "1000000.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.25e22, "1.25e+22"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (0.0, "0.0"),
        ] {
            assert_eq!(float_text(number), text);
        }
    }

    #[test]
    fn numbers_are_written_as_they_were_read() {
        let numbers = [
            "1e-05",
            "1000000.0",
            "0.1",
            "-0.0",
            "5e-324",
            "0.30000000000000004",
            "0.00026041666666666666",
            "2.2250738585072014e-308",
            "1.7976931348623157e+308",
            "9007199254740993",
            "18446744073709551615",
            "-9223372036854775808",
            "1000000000000000019884624838656",
            "-123456789012345678901234567890",
        ];
        for number in numbers {
            let text = format!("{{\n    \"a\": {number}\n}}");
            assert_eq!(dump(&parse(&text).unwrap()), text);
        }
        // Other spellings become Python's.
        for (given, expected) in [("1e6", "1000000.0"), ("1E-5", "1e-05"), ("10000", "10000")] {
            assert_eq!(dump(&parse(given).unwrap()), expected);
        }
        let strings = r#"["NaN", "a\"-Infinity", "é 1000000000000000000000", "\\\\"]"#;
        let plain: Value = serde_json::from_str(strings).unwrap();
        assert_eq!(parse(strings).unwrap(), plain);
        for wrong in
            ["", "{", "Infinit", "[1, -]", "0123", "\"", "1000000000000000000000x", "1.", "1.e5"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn floats_keep_their_last_digit() {
        let mut state = 7_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = f64::from_bits(state.rotate_left(17));
            if number.is_finite() {
                let text = float_text(number);
                assert_eq!(dump(&parse(&text).unwrap()), text);
            }
        }
    }

    #[test]
    fn objects_are_indented_by_four_and_in_ascii() {
        let value = json!({"a": [1, null], "b": {}, "c": [], "ü😀\n": true});
        let expected = "{\n    \"a\": [\n        1,\n        null\n    ],\n    \"b\": {},\n    \"c\": [],\n    \"\\u00fc\\ud83d\\ude00\\n\": true\n}";
        assert_eq!(dump(&value), expected);
    }
}
