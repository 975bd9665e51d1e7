//! Values of options: what can be told wrong about one value alone. Ranges are the contract's.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;
use std::time::Duration;

use inference_core::{CpuActivations, Dtype, PenaltyScope, Ranks, Speculate, Value};

/// A year is longer than any generation, and no clock overflows on it.
const LONGEST: f64 = 31_536_000.0;

/// A whole number from 0 on.
pub fn count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("expected a whole number from 0 to {}", usize::MAX))
}

/// A number from 1 on.
pub fn positive(text: &str) -> Result<usize, String> {
    let expected = || "expected a whole number from 1 on".to_owned();
    text.parse().ok().filter(|count| *count > 0).ok_or_else(expected)
}

/// An address to listen on; `localhost` is 127.0.0.1.
pub fn host(text: &str) -> Result<IpAddr, String> {
    let expected = "expected an address such as 127.0.0.1, 0.0.0.0 or ::1, or localhost";
    match text {
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        _ => text.parse().map_err(|_| expected.to_owned()),
    }
}

/// How many files come at once.
pub fn connections(text: &str) -> Result<usize, String> {
    let count = count(text)?;
    let expected = || "expected a whole number from 1 to 64".to_owned();
    (1..=64).contains(&count).then_some(count).ok_or_else(expected)
}

/// How many processes compute a model together.
pub fn ranks(text: &str) -> Result<usize, String> {
    let (count, most) = (count(text)?, Ranks::MAX);
    let expected = || format!("expected a whole number from 2 to {most}");
    (2..=most).contains(&count).then_some(count).ok_or_else(expected)
}

/// A seed or another whole number of 64 bits.
pub fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("expected a whole number from 0 to {}", u64::MAX))
}

/// The id of a token.
pub fn token_id(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("expected a token id, a whole number from 0 to {}", u32::MAX))
}

/// Any number; whether it is in range is for the options' `validate` to tell.
pub fn number(text: &str) -> Result<f32, String> {
    text.parse().map_err(|_| "expected a number".to_owned())
}

/// A time in seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= LONGEST => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("expected seconds, above 0 and at most {LONGEST}")),
    }
}

/// A time with its unit: `90s`, `10m`, `2h`, `1.5h`; a number alone is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale = match unit.trim_start() {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => f64::NAN,
    };
    let seconds = number.parse::<f64>().unwrap_or(f64::NAN) * scale;
    match seconds > 0.0 && seconds <= LONGEST {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("expected a time such as 90s, 10m or 2h, at most a year".to_owned()),
    }
}

/// A floating-point type.
pub fn dtype(text: &str) -> Result<Dtype, String> {
    text.parse().map_err(|_| "expected f32, f16 or bf16".to_owned())
}

/// The type that activations are rounded to.
pub fn cpu_activations(text: &str) -> Result<CpuActivations, String> {
    text.parse().map_err(|_| "expected int8".to_owned())
}

/// Whoever drafts tokens.
pub fn speculate(text: &str) -> Result<Speculate, String> {
    let named = Speculate::ALL.into_iter().find(|(name, _)| *name == text);
    named.map(|(_, who)| who).ok_or_else(|| {
        let names: Vec<&str> = Speculate::ALL.iter().map(|(name, _)| *name).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// Which tokens the penalties look at.
pub fn penalty_scope(text: &str) -> Result<PenaltyScope, String> {
    text.parse().map_err(|_| "expected context or generated".to_owned())
}

/// Additions to logits: `ID=BIAS`, or a JSON object of several.
#[derive(Clone, Debug, PartialEq)]
pub struct LogitBias(pub Vec<(u32, f32)>);

impl FromStr for LogitBias {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.trim_start().starts_with('{') {
            let (id, bias) = text
                .split_once('=')
                .ok_or("expected ID=BIAS, or a JSON object such as {\"42\": -5}")?;
            return Ok(LogitBias(vec![(token_id(id.trim())?, number(bias.trim())?)]));
        }
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))?;
        let entry = |(id, bias): (&String, &serde_json::Value)| {
            let bias = bias.as_f64().ok_or_else(|| format!("the bias of {id} is not a number"))?;
            Ok((token_id(id)?, bias as f32))
        };
        object.iter().map(entry).collect::<Result<_, String>>().map(LogitBias)
    }
}

/// Variables of the chat template: a JSON object.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateKwargs(pub Vec<(String, Value)>);

impl FromStr for TemplateKwargs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
        match inference_text::json::to_value(value) {
            Value::Object(fields) => Ok(TemplateKwargs(fields)),
            _ => Err("expected a JSON object, such as {\"enable_thinking\": false}".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use inference_core::Value;

    use super::{LogitBias, TemplateKwargs, connections, count, duration, host, number, seconds};

    #[test]
    fn numbers_tell_what_was_expected() {
        assert_eq!(count("12"), Ok(12));
        for text in ["-1", "1.5", "x", "", "99999999999999999999"] {
            assert!(count(text).is_err_and(|e| e.contains("from 0 to")), "{text}");
        }
        assert_eq!(number("-0.5"), Ok(-0.5));
        assert_eq!(connections("8"), Ok(8));
        assert!(["0", "65"].iter().all(|text| connections(text).is_err()));
        assert_eq!(number("half"), Err("expected a number".to_owned()));
    }

    #[test]
    fn a_host_is_an_address_or_localhost() {
        assert_eq!(host("localhost"), host("127.0.0.1"));
        assert!(host("::1").is_ok_and(|address| address.is_loopback()));
        assert!(host("example.org").is_err_and(|error| error.contains("0.0.0.0")));
    }

    #[test]
    fn seconds_are_positive_and_finite() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "nan", "inf", "1e300", "soon"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_has_a_unit_or_is_seconds() {
        for (text, seconds) in
            [("90", 90), ("90s", 90), ("10m", 600), ("1.5 h", 5400), ("2d", 172_800)]
        {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["0", "-1m", "m", "", "1x", "1e3s", "400d", "10 minutes"] {
            assert!(duration(text).is_err_and(|error| error.contains("10m")), "{text}");
        }
    }

    #[test]
    fn a_logit_bias_is_a_pair_or_an_object() {
        assert_eq!("5=-1.5".parse(), Ok(LogitBias(vec![(5, -1.5)])));
        assert_eq!("5=-inf".parse(), Ok(LogitBias(vec![(5, f32::NEG_INFINITY)])));
        assert_eq!(r#"{"7": 2, "8": -3.5}"#.parse(), Ok(LogitBias(vec![(7, 2.0), (8, -3.5)])));
        for text in ["5", "x=1", "5=y", "-1=2", "{", r#"{"a": 1}"#, r#"{"1": "b"}"#] {
            assert!(text.parse::<LogitBias>().is_err(), "{text}");
        }
    }

    #[test]
    fn template_kwargs_are_an_object() {
        let kwargs: TemplateKwargs = r#"{"enable_thinking": false}"#.parse().unwrap();
        assert_eq!(kwargs.0, vec![("enable_thinking".to_owned(), Value::Bool(false))]);
        assert!("[1]".parse::<TemplateKwargs>().is_err());
        assert!("{".parse::<TemplateKwargs>().is_err());
    }
}
