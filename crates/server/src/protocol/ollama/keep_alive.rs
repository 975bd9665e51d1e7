//! `keep_alive`: how long a model stays loaded after the request.

use std::time::Duration;

use serde_json::Value as Json;

use crate::error::{ApiError, Result};
use crate::fields::reader::{Reader, expected};
use crate::pool::slot::Keep;

/// The form of durations, for errors.
const WHAT: &str = "seconds, or a duration such as `5m`, `1h30m` or `-1`";

/// Takes the field `keep_alive`.
///
/// # Errors
/// It is no duration.
pub fn keep_alive(reader: &mut Reader) -> Result<Keep> {
    let seconds = match reader.take("keep_alive") {
        None => return Ok(Keep::AsOthers),
        Some(Json::Number(number)) => number.as_f64(),
        Some(Json::String(text)) => Some(
            of_text(&text)
                .ok_or_else(|| ApiError::value("keep_alive", format!("`{text}` is not {WHAT}")))?,
        ),
        Some(other) => return Err(expected("keep_alive", WHAT, &other)),
    };
    let seconds = seconds.unwrap_or(f64::INFINITY);
    Ok(match seconds < 0.0 {
        true => Keep::Always,
        // What is longer than a clock can tell is for ever.
        false => Duration::try_from_secs_f64(seconds).map_or(Keep::Always, Keep::For),
    })
}

/// Seconds of a duration in Go's form, such as `1h30m`; a bare number is of seconds.
fn of_text(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let is_bare = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if !rest.is_empty() && is_bare(rest) {
        return rest.parse::<f64>().ok().map(|seconds| sign * seconds);
    }
    let mut whole = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let units = [
            ("ms", 1e-3),
            ("us", 1e-6),
            ("µs", 1e-6),
            ("ns", 1e-9),
            ("h", 3600.0),
            ("m", 60.0),
            ("s", 1.0),
        ];
        let (unit, seconds) = units.into_iter().find(|(unit, _)| after.starts_with(unit))?;
        whole += number.parse::<f64>().ok()? * seconds;
        rest = &after[unit.len()..];
    }
    (!text.is_empty() && text != "-" && text != "+").then_some(sign * whole)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value as Json, json};

    use super::{Keep, keep_alive};
    use crate::fields::reader::Reader;

    fn read(value: Json) -> Option<Keep> {
        keep_alive(&mut Reader::new("", json!({"keep_alive": value})).unwrap()).ok()
    }

    #[test]
    fn seconds_and_durations_are_read() {
        let seconds = |seconds| Some(Keep::For(Duration::from_secs_f64(seconds)));
        assert_eq!(read(json!(0)), seconds(0.0));
        assert_eq!(read(json!("0")), seconds(0.0));
        assert_eq!(read(json!("300ms")), seconds(0.3));
        assert_eq!(read(json!("1h30m5s")), seconds(5405.0));
        assert_eq!(read(json!(2.5)), seconds(2.5));
        assert_eq!(
            [read(json!(-1)), read(json!("-1m")), read(json!(1e300))],
            [Some(Keep::Always); 3]
        );
        assert_eq!(read(Json::Null), Some(Keep::AsOthers));
        for wrong in
            [json!(""), json!("-"), json!("5 minutes"), json!("m"), json!("1h3"), json!(true)]
        {
            assert_eq!(read(wrong.clone()), None, "{wrong}");
        }
    }
}
