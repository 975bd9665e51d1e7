//! `+`, `~`, `*`, `%` and slices with Python's semantics, counting what they make.

use super::meter::{self, charge, charge_bytes, charge_list};
use super::print::python_str;
use minijinja::formatting::{FormatStyle, format};
use minijinja::value::{Rest, Tuple, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};

/// Puts the operators where the metered instructions look for them.
pub(super) fn register(env: &mut Environment<'static>) {
    env.add_filter(meter::ADD, add);
    env.add_filter(meter::CONCAT, concat);
    env.add_filter(meter::MUL, mul);
    env.add_filter(meter::MOD, modulo);
    env.add_filter(meter::SLICE, slice);
    env.add_filter("format", format_filter);
    env.add_filter(meter::ITERATE, iterable);
    env.add_filter(meter::CHARGE, charge);
    env.add_filter(meter::CHARGE_NESTED, meter::charge_nested);
}

pub(super) fn invalid(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.into())
}

fn unsupported(op: &str, a: &Value, b: &Value) -> Error {
    let (a, b) = (a.kind(), b.kind());
    if [a, b].contains(&ValueKind::Undefined) {
        return Error::new(ErrorKind::UndefinedError, format!("an operand of {op} is undefined"));
    }
    invalid(format!("unsupported operand types for {op}: {a} and {b}"))
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// An `int` or a `bool`, which is one.
fn integer(value: &Value) -> Option<i128> {
    match value.kind() {
        ValueKind::Bool => Some(i128::from(value.is_true())),
        ValueKind::Number if value.is_integer() => i128::try_from(value.clone()).ok(),
        _ => None,
    }
}

fn float(value: &Value) -> Option<f64> {
    match value.kind() {
        ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        _ => None,
    }
}

fn of_integer(value: i128) -> Value {
    i64::try_from(value).map_or_else(|_| Value::from(value), Value::from)
}

fn arithmetic(
    op: &str,
    (a, b): (&Value, &Value),
    on_integers: fn(i128, i128) -> Option<i128>,
    on_floats: fn(f64, f64) -> f64,
) -> Result<Value, Error> {
    if let (Some(x), Some(y)) = (integer(a), integer(b)) {
        return on_integers(x, y).map(of_integer).ok_or_else(|| invalid(format!("{op} overflows")));
    }
    match (float(a), float(b)) {
        (Some(x), Some(y)) => Ok(Value::from(on_floats(x, y))),
        _ => Err(unsupported(op, a, b)),
    }
}

fn add(state: &mut State, a: Value, b: Value) -> Result<Value, Error> {
    if let (Some(x), Some(y)) = (a.as_str(), b.as_str()) {
        charge_bytes(state, x.len() + y.len())?;
        return Ok(Value::from([x, y].concat()));
    }
    if is_list(&a) && is_list(&b) && a.is_tuple() == b.is_tuple() {
        charge_list(state, a.len().unwrap_or(0).saturating_add(b.len().unwrap_or(0)))?;
        let items: Vec<Value> = a.try_iter()?.chain(b.try_iter()?).collect();
        return Ok(if a.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) });
    }
    arithmetic("+", (&a, &b), i128::checked_add, |x, y| x + y)
}

fn concat(state: &mut State, a: Value, b: Value) -> Result<Value, Error> {
    let (mut text, tail) = (python_str(&a)?, python_str(&b)?);
    charge_bytes(state, text.len() + tail.len())?;
    text.push_str(&tail);
    Ok(Value::from(text))
}

fn mul(state: &mut State, a: Value, b: Value) -> Result<Value, Error> {
    let repeat = |value: &Value, times: &Value| {
        let times = integer(times).filter(|_| value.as_str().is_some() || is_list(value))?;
        Some((value.clone(), usize::try_from(times.max(0)).unwrap_or(usize::MAX)))
    };
    let Some((value, times)) = repeat(&a, &b).or_else(|| repeat(&b, &a)) else {
        return arithmetic("*", (&a, &b), i128::checked_mul, |x, y| x * y);
    };
    if let Some(text) = value.as_str() {
        charge_bytes(state, text.len().saturating_mul(times))?;
        return Ok(Value::from(if text.is_empty() { String::new() } else { text.repeat(times) }));
    }
    charge_list(state, value.len().unwrap_or(0).saturating_mul(times))?;
    let items: Vec<Value> = value.try_iter()?.collect();
    if items.is_empty() {
        return Ok(value);
    }
    charge_list(state, items.len().saturating_mul(times))?;
    let repeated: Vec<Value> = std::iter::repeat_n(&items, times).flatten().cloned().collect();
    Ok(if value.is_tuple() { Value::from(Tuple::from(repeated)) } else { Value::from(repeated) })
}

/// The remainder has the divisor's sign; on a string, `%` formats.
fn modulo(state: &mut State, a: Value, b: Value) -> Result<Value, Error> {
    if let Some(text) = a.as_str() {
        let args = if b.is_tuple() { b.try_iter()?.collect() } else { vec![b] };
        return printf(state, text, &args);
    }
    if float(&b) == Some(0.0) {
        return Err(invalid("modulo by zero"));
    }
    let on_integers = |x: i128, y: i128| {
        x.checked_rem(y).map(|r| if r != 0 && (r < 0) != (y < 0) { r + y } else { r })
    };
    arithmetic("%", (&a, &b), on_integers, |x, y| x - y * (x / y).floor())
}

/// A loop over nothing is an empty loop, over none it is an error.
fn iterable(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::None => Err(invalid("none is not iterable")),
        _ => Ok(value),
    }
}

/// `'%s'|format(…)`.
fn format_filter(state: &mut State, text: String, args: Rest<Value>) -> Result<Value, Error> {
    printf(state, &text, &args)
}

fn printf(state: &mut State, text: &str, args: &[Value]) -> Result<Value, Error> {
    no_wide_fields(text)?;
    let text = format(FormatStyle::Printf, text, args)?;
    charge_bytes(state, text.len())?;
    Ok(Value::from(text))
}

/// "%1000000000d" and "{:>1000000000}" are a gigabyte each; no template needs five digits of width.
pub(super) fn no_wide_fields(format: &str) -> Result<(), Error> {
    if format.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 4) {
        return Err(meter::exceeded("a width in a format string has more than four digits"));
    }
    Ok(())
}

/// `value[start:stop:step]` as in Python: negative positions count from the end, bounds are
/// clamped.
fn slice(
    state: &mut State,
    value: Value,
    start: Value,
    stop: Value,
    step: Value,
) -> Result<Value, Error> {
    let position = |value: &Value| match value.kind() {
        ValueKind::None => Ok(None),
        _ => integer(value)
            .map(Some)
            .ok_or_else(|| invalid("slice indices must be integers or none")),
    };
    let (start, stop, step) = (position(&start)?, position(&stop)?, position(&step)?.unwrap_or(1));
    if step == 0 {
        return Err(invalid("slice step cannot be zero"));
    }
    if let Some(text) = value.as_str() {
        if step == 1 {
            let len = text.chars().count();
            let picked = picks(len, start, stop, step);
            let from = picked.first().copied().unwrap_or(0);
            charge_bytes(state, text.len())?;
            return Ok(Value::from(text.chars().skip(from).take(picked.len()).collect::<String>()));
        }
        charge_list(state, text.len())?;
        let chars: Vec<char> = text.chars().collect();
        return Ok(Value::from(
            picks(chars.len(), start, stop, step).iter().map(|&i| chars[i]).collect::<String>(),
        ));
    }
    if !is_list(&value) {
        return Err(unsupported("[:]", &value, &value));
    }
    charge_list(state, value.len().unwrap_or(0))?;
    let items: Vec<Value> = value.try_iter()?.collect();
    let picked: Vec<Value> =
        picks(items.len(), start, stop, step).iter().map(|&i| items[i].clone()).collect();
    Ok(if value.is_tuple() { Value::from(Tuple::from(picked)) } else { Value::from(picked) })
}

/// The indices of a slice of `len` elements (`slice.indices`).
fn picks(len: usize, start: Option<i128>, stop: Option<i128>, step: i128) -> Vec<usize> {
    let len = len as i128;
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let clamp = |at: i128| {
        if at < 0 { (at.saturating_add(len)).max(low) } else { at.min(high) }
    };
    let mut at = start.map_or(if step > 0 { low } else { high }, clamp);
    let stop = stop.map_or(if step > 0 { high } else { low }, clamp);
    let mut indices = Vec::new();
    while (step > 0 && at < stop) || (step < 0 && at > stop) {
        indices.push(at as usize);
        at = at.saturating_add(step);
    }
    indices
}
