//! JSON as Python writes it, so that files are equal to mlx-lm's byte for byte.

use std::fmt::Write;

use serde_json::Value;

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
        Value::String(string) => write_string(text, string),
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
    fn objects_are_indented_by_four_and_in_ascii() {
        let value = json!({"a": [1, null], "b": {}, "c": [], "ü😀\n": true});
        let expected = "{\n    \"a\": [\n        1,\n        null\n    ],\n    \"b\": {},\n    \"c\": [],\n    \"\\u00fc\\ud83d\\ude00\\n\": true\n}";
        assert_eq!(dump(&value), expected);
    }
}
