//! A span, and how OTLP writes it as JSON.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use super::settings::Traces;

/// The role of a span, by OTLP's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A part of a request.
    Internal = 1,
    /// A request as this server has it.
    Server = 2,
}

/// A stretch of time of a trace.
#[derive(Clone, Debug)]
pub struct Span {
    /// The trace.
    pub trace: u128,
    /// Its own id.
    pub id: u64,
    /// The span of which it is a part.
    pub parent: Option<u64>,
    /// Others' values of the trace.
    pub state: Option<String>,
    /// Its name.
    pub name: String,
    /// Its role.
    pub kind: Kind,
    /// When it began.
    pub began: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// Its attributes: texts, numbers, truths and lists of texts.
    pub attributes: Vec<(&'static str, Json)>,
    /// Why it failed, where it did.
    pub error: Option<String>,
}

impl Span {
    /// The span as OTLP's JSON has it: ids in hexadecimal, and whole numbers of 64 bits as texts.
    fn to_json(&self) -> Json {
        let mut span = json!({
            "traceId": format!("{:032x}", self.trace),
            "spanId": format!("{:016x}", self.id),
            // Spans that are not sampled are not made.
            "flags": 1,
            "name": self.name,
            "kind": self.kind as u8,
            "startTimeUnixNano": nanoseconds(self.began),
            "endTimeUnixNano": nanoseconds(self.ended),
            "attributes": attributes(&self.attributes),
        });
        if let Some(parent) = self.parent {
            span["parentSpanId"] = json!(format!("{parent:016x}"));
        }
        if let Some(state) = &self.state {
            span["traceState"] = json!(state);
        }
        if let Some(error) = &self.error {
            span["status"] = json!({"code": 2, "message": error});
        }
        span
    }
}

/// The body of a request to a collector with `spans` of the server that `settings` name.
pub fn body(settings: &Traces, spans: &[Span]) -> Json {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [("service.name", json!(settings.service)), ("service.version", json!(version))];
    json!({"resourceSpans": [{
        "resource": {"attributes": attributes(&resource)},
        "scopeSpans": [{
            "scope": {"name": env!("CARGO_PKG_NAME"), "version": version},
            "spans": spans.iter().map(Span::to_json).collect::<Vec<_>>(),
        }],
    }]})
}

fn nanoseconds(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

fn attributes(pairs: &[(&'static str, Json)]) -> Json {
    let pair = |(key, value): &(&str, Json)| json!({"key": key, "value": any_value(value)});
    pairs.iter().map(pair).collect()
}

/// `value` with its type.
fn any_value(value: &Json) -> Json {
    match value {
        Json::Bool(truth) => json!({"boolValue": truth}),
        Json::Number(number) if number.is_f64() => json!({"doubleValue": number}),
        Json::Number(number) => json!({"intValue": number.to_string()}),
        Json::Array(values) => {
            json!({"arrayValue": {"values": values.iter().map(any_value).collect::<Vec<_>>()}})
        }
        Json::String(text) => json!({"stringValue": text}),
        Json::Null | Json::Object(_) => json!({"stringValue": value.to_string()}),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::json;

    use super::{Kind, Span, body};
    use crate::traces::settings::Traces;

    #[test]
    fn a_span_is_written_as_otlp_has_it() {
        let span = Span {
            trace: 0xab,
            id: 0xcd,
            parent: Some(1),
            state: Some("a=1".into()),
            name: "decode".into(),
            kind: Kind::Internal,
            began: UNIX_EPOCH + Duration::from_nanos(1_700_000_000_000_000_001),
            ended: UNIX_EPOCH + Duration::from_secs(1_700_000_001),
            attributes: vec![("a", json!(1)), ("b", json!(0.5)), ("c", json!(["x"]))],
            error: Some("lost".into()),
        };
        let settings = Traces::new("http://a".parse().unwrap(), "fox");
        let body = body(&settings, &[span]);
        let resource = &body["resourceSpans"][0];
        let service = json!({"key": "service.name", "value": {"stringValue": "fox"}});
        assert_eq!(resource["resource"]["attributes"][0], service);
        let expected = json!({
            "traceId": "000000000000000000000000000000ab", "spanId": "00000000000000cd", "flags": 1,
            "name": "decode", "kind": 1,
            "startTimeUnixNano": "1700000000000000001", "endTimeUnixNano": "1700000001000000000",
            "attributes": [
                {"key": "a", "value": {"intValue": "1"}},
                {"key": "b", "value": {"doubleValue": 0.5}},
                {"key": "c", "value": {"arrayValue": {"values": [{"stringValue": "x"}]}}},
            ],
            "parentSpanId": "0000000000000001", "traceState": "a=1",
            "status": {"code": 2, "message": "lost"},
        });
        assert_eq!(resource["scopeSpans"][0]["spans"], json!([expected]));
    }
}
