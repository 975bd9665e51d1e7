//! Methods of Python's `str`, `dict` and `list` that templates call.
//!
//! The common ones come from minijinja's `pycompat`; here are those it lacks and
//! those whose result can be much larger than their input.

use super::filters::replace;
use super::meter::{MAX_STRING, charge_bytes, charge_list, exceeded};
use super::ops::{invalid, no_wide_fields};
use super::print::python_str;
use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

pub(super) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match (value.kind(), method) {
        (ValueKind::String, _) => string(state, value.as_str().unwrap_or_default(), method, args)
            .unwrap_or_else(|| unknown_method_callback(state, value, method, args)),
        (ValueKind::Map, "copy") => Ok(value.clone()),
        (ValueKind::Seq, "index") => {
            let (wanted,): (Value,) = from_args(args)?;
            let at = value.try_iter()?.position(|item| item == wanted);
            at.map(Value::from).ok_or_else(|| invalid("the value is not in the list"))
        }
        // jinja2's sandbox for chat templates is the immutable one.
        (ValueKind::Map, "update" | "pop" | "popitem" | "clear" | "setdefault")
        | (
            ValueKind::Seq,
            "append" | "extend" | "insert" | "pop" | "remove" | "reverse" | "sort" | "clear",
        ) => Err(invalid(format!(
            "access to `{method}` is unsafe: a template cannot change its input"
        ))),
        (ValueKind::Undefined, _) => Err(Error::new(
            ErrorKind::UndefinedError,
            format!("the value with the method `{method}` is undefined"),
        )),
        _ => unknown_method_callback(state, value, method, args),
    }
}

/// `None` for the methods that `pycompat` has.
fn string(
    state: &mut State,
    text: &str,
    method: &str,
    args: &[Value],
) -> Option<Result<Value, Error>> {
    Some(match method {
        "replace" => from_args::<(&str, &str, Option<i64>)>(args).and_then(|(from, to, n)| {
            replace(state, text, (from, to), n.and_then(|n| usize::try_from(n).ok()))
        }),
        "join" => join(state, text, args),
        "split" => split(state, text, args, |text, separator, limit| match (separator, limit) {
            (Some(separator), Some(n)) => text.splitn(n + 1, separator).map(Value::from).collect(),
            (Some(separator), None) => text.split(separator).map(Value::from).collect(),
            (None, limit) => words(text, limit.unwrap_or(usize::MAX)),
        }),
        "rsplit" => split(state, text, args, |text, separator, limit| match (separator, limit) {
            (Some(separator), Some(n)) => reversed(text.rsplitn(n + 1, separator)),
            (Some(separator), None) => text.split(separator).map(Value::from).collect(),
            (None, limit) => words_from_end(text, limit.unwrap_or(usize::MAX)),
        }),
        "partition" | "rpartition" => from_args::<(&str,)>(args).map(|(separator,)| {
            let parts = match (method, text.split_once(separator), text.rsplit_once(separator)) {
                ("partition", Some((a, b)), _) | ("rpartition", _, Some((a, b))) => {
                    [a, separator, b]
                }
                ("partition", ..) => [text, "", ""],
                _ => ["", "", text],
            };
            Value::from(Tuple::from(parts.map(Value::from).to_vec()))
        }),
        "removeprefix" => {
            from_args::<(&str,)>(args).map(|(p,)| Value::from(text.strip_prefix(p).unwrap_or(text)))
        }
        "removesuffix" => {
            from_args::<(&str,)>(args).map(|(p,)| Value::from(text.strip_suffix(p).unwrap_or(text)))
        }
        "ljust" | "rjust" | "center" | "zfill" => pad(state, text, method, args),
        "casefold" => from_args(args).map(|()| Value::from(text.to_lowercase())),
        "swapcase" => from_args(args).map(|()| {
            let swap = |c: char| {
                if c.is_uppercase() {
                    c.to_lowercase().to_string()
                } else {
                    c.to_uppercase().to_string()
                }
            };
            Value::from(text.chars().map(swap).collect::<String>())
        }),
        "title" => from_args(args).map(|()| {
            let mut inside = false;
            let mut cased = |c: char| {
                let before = std::mem::replace(&mut inside, c.is_alphabetic());
                if before { c.to_lowercase().to_string() } else { c.to_uppercase().to_string() }
            };
            Value::from(text.chars().map(&mut cased).collect::<String>())
        }),
        "index" => from_args::<(&str,)>(args).and_then(|(part,)| {
            let at = text.find(part).ok_or_else(|| invalid("substring not found"))?;
            Ok(Value::from(text[..at].chars().count()))
        }),
        "format" => match no_wide_fields(text) {
            Ok(()) => return None,
            Err(err) => Err(err),
        },
        _ => return None,
    })
}

fn split(
    state: &mut State,
    text: &str,
    args: &[Value],
    cut: impl Fn(&str, Option<&str>, Option<usize>) -> Vec<Value>,
) -> Result<Value, Error> {
    let (separator, limit, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = kwargs.get::<Option<Value>>("sep")?.or(separator).filter(|s| !s.is_none());
    let limit =
        kwargs.get::<Option<i64>>("maxsplit")?.or(limit).and_then(|n| usize::try_from(n).ok());
    kwargs.assert_all_used()?;
    let separator = match &separator {
        Some(value) => {
            Some(value.as_str().ok_or_else(|| invalid("the separator must be a string"))?)
        }
        None => None,
    };
    if separator == Some("") {
        return Err(invalid("empty separator"));
    }
    // Before the list is made: at most one part more than there are separators.
    let parts =
        separator.map_or_else(|| text.split_whitespace().count(), |s| text.matches(s).count() + 1);
    charge_list(state, parts)?;
    Ok(Value::from(cut(text, separator, limit)))
}

fn reversed<'a>(parts: impl Iterator<Item = &'a str>) -> Vec<Value> {
    let mut parts: Vec<Value> = parts.map(Value::from).collect();
    parts.reverse();
    parts
}

fn words(text: &str, limit: usize) -> Vec<Value> {
    let mut rest = text.trim_start();
    let mut parts = Vec::new();
    while !rest.is_empty() {
        if parts.len() == limit {
            parts.push(Value::from(rest));
            break;
        }
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        parts.push(Value::from(&rest[..end]));
        rest = rest[end..].trim_start();
    }
    parts
}

fn words_from_end(text: &str, limit: usize) -> Vec<Value> {
    let mut rest = text.trim_end();
    let mut parts = Vec::new();
    while !rest.is_empty() {
        if parts.len() == limit {
            parts.push(rest);
            break;
        }
        let start = rest
            .char_indices()
            .rfind(|(_, c)| c.is_whitespace())
            .map_or(0, |(at, c)| at + c.len_utf8());
        parts.push(&rest[start..]);
        rest = rest[..start].trim_end();
    }
    reversed(parts.into_iter())
}

fn join(state: &mut State, separator: &str, args: &[Value]) -> Result<Value, Error> {
    let (items,): (Value,) = from_args(args)?;
    let mut out = String::new();
    let mut put = |i: usize, part: &str| {
        if i > 0 {
            out.push_str(separator);
        }
        out.push_str(part);
        if out.len() > MAX_STRING {
            return Err(exceeded(&format!("`join` makes more than {MAX_STRING} bytes")));
        }
        Ok(())
    };
    if let Some(text) = items.as_str() {
        for (i, c) in text.chars().enumerate() {
            put(i, c.encode_utf8(&mut [0; 4]))?;
        }
    } else {
        for (i, item) in items.try_iter()?.enumerate() {
            let part = item.as_str().ok_or_else(|| {
                invalid(format!("sequence item {i}: expected a string, found {}", item.kind()))
            })?;
            put(i, part)?;
        }
    }
    charge_bytes(state, out.len())?;
    Ok(Value::from(out))
}

fn pad(state: &mut State, text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (i64, Option<Value>) = from_args(args)?;
    let fill = match fill {
        Some(fill) => python_str(&fill)?,
        None => if method == "zfill" { "0" } else { " " }.to_owned(),
    };
    if fill.chars().count() != 1 {
        return Err(invalid("the fill character must be exactly one character long"));
    }
    let width = usize::try_from(width).unwrap_or(0);
    let len = text.chars().count();
    let missing = width.saturating_sub(len);
    charge_bytes(state, text.len().saturating_add(fill.len().saturating_mul(missing)))?;
    let (left, right) = match method {
        "ljust" => (0, missing),
        // CPython puts the odd one on the left when the width is odd.
        "center" => {
            (missing / 2 + (missing & width & 1), missing - missing / 2 - (missing & width & 1))
        }
        _ => (missing, 0),
    };
    let sign = if method == "zfill" && text.starts_with(['+', '-']) { &text[..1] } else { "" };
    Ok(Value::from(format!(
        "{sign}{}{}{}",
        fill.repeat(left),
        &text[sign.len()..],
        fill.repeat(right)
    )))
}
