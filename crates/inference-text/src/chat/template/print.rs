//! Values as Python prints them: `str()`, `repr()`, floats and `json.dumps`.

use super::meter::{MAX_DEPTH, MAX_STRING, exceeded};
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// `str(value)`; an undefined value prints as nothing.
pub(super) fn python_str(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    match value.kind() {
        ValueKind::String => out.push_str(value.as_str().unwrap_or_default()),
        ValueKind::Undefined => {}
        _ => repr(value, MAX_DEPTH, &mut out)?,
    }
    Ok(out)
}

fn repr(value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    bounded(depth, out)?;
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => repr_str(value.as_str().unwrap_or_default(), out),
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr(&key, depth - 1, out)?;
                out.push_str(": ");
                repr(&value.get_item(&key)?, depth - 1, out)?;
            }
            out.push('}');
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let (open, close) = if value.is_tuple() { ('(', ')') } else { ('[', ']') };
            out.push(open);
            let mut len = 0;
            for item in value.try_iter()? {
                if len > 0 {
                    out.push_str(", ");
                }
                repr(&item, depth - 1, out)?;
                len += 1;
            }
            if value.is_tuple() && len == 1 {
                out.push(',');
            }
            out.push(close);
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

fn bounded(depth: usize, out: &str) -> Result<(), Error> {
    if depth == 0 {
        return Err(exceeded(&format!(
            "printing a value nested more than {MAX_DEPTH} levels deep"
        )));
    }
    if out.len() > MAX_STRING {
        return Err(exceeded(&format!("printing a value of more than {MAX_STRING} bytes")));
    }
    Ok(())
}

fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => python_float(float),
        _ => value.to_string(),
    }
}

/// `repr(float)`: shortest digits that read back, exponent below 1e-4 and from 1e16 on.
pub(super) fn python_float(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{x:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if x != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{x}");
    if plain.contains('.') { plain } else { plain + ".0" }
}

fn repr_str(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if printable(c) => out.push(c),
            c if (c as u32) < 0x100 => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if (c as u32) < 0x1_0000 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push_str(&format!("\\U{:08x}", c as u32)),
        }
    }
    out.push(quote);
}

/// `str.isprintable` for the ranges that occur: controls, odd spaces, format characters, private
/// use. The noncharacters U+FDD0 to U+FDEF pass, as one of them may be a mark of ours.
fn printable(c: char) -> bool {
    !(c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(c as u32, 0xAD | 0x600..=0x605 | 0x61C | 0x6DD | 0x70F | 0x180E | 0x200B..=0x200F
            | 0x202A..=0x202E | 0x2060..=0x206F | 0xE000..=0xF8FF | 0xFEFF | 0xFFF0..=0xFFFB | 0xFFFE..=0xFFFF
            | 0xE0000..=0x10FFFF))
}

/// Options of `json.dumps` that transformers offers on the `tojson` filter.
pub(super) struct JsonStyle {
    pub ensure_ascii: bool,
    /// One level of indentation; `None` is the one-line form.
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
    /// Never escaped, as it is removed later.
    pub sentinel: Option<char>,
}

/// `json.dumps(value, …)`.
pub(super) fn json(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut out = String::new();
    write_json(value, style, 0, &mut out)?;
    Ok(out)
}

fn write_json(
    value: &Value,
    style: &JsonStyle,
    level: usize,
    out: &mut String,
) -> Result<(), Error> {
    bounded(MAX_DEPTH.saturating_sub(level), out)?;
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&json_number(value)),
        ValueKind::String => json_str(value.as_str().unwrap_or_default(), style, out),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            let mut empty = true;
            for item in value.try_iter()? {
                separate(&mut empty, style, level, out);
                write_json(&item, style, level + 1, out)?;
            }
            close(empty, ']', style, level, out);
        }
        ValueKind::Map => {
            let mut keys = value.try_iter()?.collect::<Vec<_>>();
            if style.sort_keys {
                keys.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
            }
            out.push('{');
            let mut empty = true;
            for key in keys {
                separate(&mut empty, style, level, out);
                match key.kind() {
                    ValueKind::String => json_str(key.as_str().unwrap_or_default(), style, out),
                    ValueKind::None => out.push_str("\"null\""),
                    ValueKind::Bool => {
                        out.push_str(if key.is_true() { "\"true\"" } else { "\"false\"" })
                    }
                    _ => out.push_str(&format!("\"{}\"", json_number(&key))),
                }
                out.push_str(&style.key_separator);
                write_json(&value.get_item(&key)?, style, level + 1, out)?;
            }
            close(empty, '}', style, level, out);
        }
        kind => {
            let reason = format!("a value of type {kind} is not JSON serializable");
            return Err(Error::new(ErrorKind::InvalidOperation, reason));
        }
    }
    Ok(())
}

fn separate(first: &mut bool, style: &JsonStyle, level: usize, out: &mut String) {
    if !std::mem::take(first) {
        out.push_str(&style.item_separator);
    }
    newline(style, level + 1, out);
}

fn close(empty: bool, bracket: char, style: &JsonStyle, level: usize, out: &mut String) {
    if !empty {
        newline(style, level, out);
    }
    out.push(bracket);
}

fn newline(style: &JsonStyle, level: usize, out: &mut String) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        out.extend(std::iter::repeat_n(indent.as_str(), level));
    }
}

fn json_number(value: &Value) -> String {
    match number(value).as_str() {
        "nan" => "NaN".into(),
        "inf" => "Infinity".into(),
        "-inf" => "-Infinity".into(),
        other => other.into(),
    }
}

fn json_str(text: &str, style: &JsonStyle, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c if style.ensure_ascii
                && (c as u32) >= 0x7f
                && c != '\u{7f}'
                && Some(c) != style.sentinel =>
            {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
