//! Filters and tests where jinja2, or transformers, differs from the engine's own.

use super::meter::{MAX_STRING, charge_bytes, charge_list, exceeded};
use super::ops::invalid;
use super::print::{JsonStyle, json, python_str};
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, State, Value};

/// Name of the context variable with the mark of control tokens, which no template can write.
pub(super) const SENTINEL: &str = " sentinel";

pub(super) fn register(env: &mut Environment<'static>) {
    // Not in jinja2, or able to make any amount of output from none.
    let foreign = ["zip", "chain", "lines", "split", "bool", "pprint", "batch", "slice"];
    for name in foreign {
        env.remove_filter(name);
    }
    env.remove_global("debug");
    env.add_filter("tojson", tojson);
    env.add_filter("string", |value: Value| python_str(&value));
    env.add_filter("list", list);
    env.add_filter("join", join);
    env.add_filter("replace", replace_filter);
    env.add_filter("indent", indent);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter("length", length);
    env.add_filter("count", length);
    env.add_filter("wordcount", |value: Value| {
        Ok::<_, Error>(python_str(&value)?.split_whitespace().count())
    });
    env.add_test("sequence", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined
        )
    });
    env.add_test("iterable", |value: &Value| {
        let kind = value.kind();
        matches!(
            kind,
            ValueKind::Seq
                | ValueKind::Map
                | ValueKind::String
                | ValueKind::Iterable
                | ValueKind::Undefined
        )
    });
    env.add_test("number", |value: &Value| {
        matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
    });
    env.add_test("callable", |value: &Value| {
        matches!(value.kind(), ValueKind::Plain | ValueKind::Undefined)
    });
}

fn tojson(
    state: &mut State,
    value: Value,
    positional: Rest<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let names = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let option = |at: usize| -> Result<Option<Value>, Error> {
        Ok(kwargs
            .get::<Option<Value>>(names[at])?
            .or_else(|| positional.get(at).cloned())
            .filter(|v| !v.is_none()))
    };
    let indent = option(1)?.map(|indent| match indent.as_str() {
        Some(text) => text.to_owned(),
        // JSON nested 128 levels deep, each with this many spaces, must stay small.
        None => " ".repeat(indent.as_i64().unwrap_or(0).clamp(0, 64) as usize),
    });
    let separators = match option(2)? {
        Some(pair) => {
            (python_str(&pair.get_item_by_index(0)?)?, python_str(&pair.get_item_by_index(1)?)?)
        }
        None if indent.is_some() => (",".into(), ": ".into()),
        None => (", ".into(), ": ".into()),
    };
    let style = JsonStyle {
        ensure_ascii: option(0)?.is_some_and(|v| v.is_true()),
        indent,
        item_separator: separators.0,
        key_separator: separators.1,
        sort_keys: option(3)?.is_some_and(|v| v.is_true()),
        sentinel: state.lookup(SENTINEL).and_then(|s| s.as_str().and_then(|s| s.chars().next())),
    };
    kwargs.assert_all_used()?;
    let text = json(&value, &style)?;
    charge_bytes(state, text.len())?;
    Ok(Value::from(text))
}

fn list(state: &mut State, value: Value) -> Result<Value, Error> {
    charge_list(state, value.as_str().map(str::len).or(value.len()).unwrap_or(0))?;
    if let Some(text) = value.as_str() {
        return Ok(Value::from(
            text.chars().map(|c| Value::from(c.to_string())).collect::<Vec<_>>(),
        ));
    }
    Ok(Value::from(value.try_iter()?.collect::<Vec<_>>()))
}

fn join(
    state: &mut State,
    value: Value,
    separator: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let separator = match kwargs.get::<Option<Value>>("d")?.or(separator) {
        Some(separator) => python_str(&separator)?,
        None => String::new(),
    };
    let attribute = kwargs.get::<Option<Value>>("attribute")?;
    kwargs.assert_all_used()?;
    let mut out = String::new();
    let value = if value.as_str().is_some() { list(state, value)? } else { value };
    for (i, item) in value.try_iter()?.enumerate() {
        if i > 0 {
            out.push_str(&separator);
        }
        let item = attribute.as_ref().map_or(Ok(item.clone()), |key| item.get_item(key))?;
        out.push_str(&python_str(&item)?);
        if out.len() > MAX_STRING {
            return Err(exceeded(&format!("`join` makes more than {MAX_STRING} bytes")));
        }
    }
    charge_bytes(state, out.len())?;
    Ok(Value::from(out))
}

fn replace_filter(
    state: &mut State,
    value: Value,
    from: Value,
    to: Value,
    count: Option<i64>,
) -> Result<Value, Error> {
    let limit = count.and_then(|count| usize::try_from(count).ok());
    replace(state, &python_str(&value)?, (&python_str(&from)?, &python_str(&to)?), limit)
}

/// `str.replace`, with the size of the result counted before it is made.
pub(super) fn replace(
    state: &mut State,
    text: &str,
    (from, to): (&str, &str),
    limit: Option<usize>,
) -> Result<Value, Error> {
    let limit = limit.unwrap_or(usize::MAX);
    let times = text.matches(from).count().min(limit);
    charge_bytes(state, text.len().saturating_add(to.len().saturating_mul(times)))?;
    Ok(Value::from(text.replacen(from, to, limit)))
}

fn indent(
    state: &mut State,
    value: Value,
    positional: Rest<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let text = python_str(&value)?;
    let option = |name, at: usize| -> Result<_, Error> {
        Ok(kwargs.get::<Option<Value>>(name)?.or_else(|| positional.get(at).cloned()))
    };
    let width = option("width", 0)?;
    let first = option("first", 1)?.is_some_and(|v: Value| v.is_true());
    let blank = option("blank", 2)?.is_some_and(|v: Value| v.is_true());
    kwargs.assert_all_used()?;
    let pad = match width {
        None => " ".repeat(4),
        Some(width) => match (width.as_str(), width.as_usize()) {
            (Some(pad), _) => pad.to_owned(),
            (_, Some(width)) if width <= 1024 => " ".repeat(width),
            _ => {
                return Err(invalid("`indent` takes a width from 0 to 1024, or a string"));
            }
        },
    };
    let lines = text.matches('\n').count() + 1;
    charge_bytes(state, text.len().saturating_add(pad.len().saturating_mul(lines)))?;
    let mut out = String::new();
    for (i, line) in text.split('\n').enumerate() {
        if i > 0 {
            out.push('\n');
        }
        if (i > 0 || first) && (blank || !line.is_empty() || i == 0) {
            out.push_str(&pad);
        }
        out.push_str(line);
    }
    Ok(Value::from(out))
}

fn int(value: Value, default: Option<Value>) -> Result<Value, Error> {
    let default = default.unwrap_or(Value::from(0));
    Ok(match value.kind() {
        ValueKind::Bool => Value::from(i64::from(value.is_true())),
        ValueKind::Number if value.is_integer() => value,
        ValueKind::Number => {
            f64::try_from(value.clone()).map_or(default, |x| Value::from(x as i64))
        }
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default().trim();
            let parsed =
                text.parse::<i64>().ok().or_else(|| text.parse::<f64>().ok().map(|x| x as i64));
            parsed.map_or(default, Value::from)
        }
        _ => default,
    })
}

fn float(value: Value, default: Option<Value>) -> Result<Value, Error> {
    let default = default.unwrap_or(Value::from(0.0));
    Ok(match value.kind() {
        ValueKind::Bool => Value::from(f64::from(u8::from(value.is_true()))),
        ValueKind::Number => f64::try_from(value).map_or(default, Value::from),
        ValueKind::String => value
            .as_str()
            .and_then(|text| text.trim().parse::<f64>().ok())
            .map_or(default, Value::from),
        _ => default,
    })
}

fn length(value: Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    if let Some(text) = value.as_str() {
        return Ok(text.chars().count());
    }
    match value.len() {
        Some(len) => Ok(len),
        None => Err(invalid(format!("a value of type {} has no length", value.kind()))),
    }
}
