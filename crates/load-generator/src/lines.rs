//! Requests of a JSON-lines file.

use serde_json::{Map, Value as Json, json};

use crate::error::{Error, Result};

/// An interface of OpenAI's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `/v1/completions`.
    Completions,
    /// `/v1/chat/completions`.
    Chat,
}

impl Api {
    /// The path after `/v1`.
    pub fn path(self) -> &'static str {
        match self {
            Api::Completions => "/completions",
            Api::Chat => "/chat/completions",
        }
    }
}

/// A request as a file or a maker of prompts gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The API that it is sent to.
    pub api: Api,
    /// Its fields, a prompt or messages among them.
    pub fields: Map<String, Json>,
}

/// Fields that the measurement itself sets; a line must not have them.
const OURS: [&str; 2] = ["stream", "stream_options"];

impl Line {
    /// A request that asks `text`.
    pub fn text(api: Api, text: String) -> Line {
        let asked = match api {
            Api::Completions => ("prompt", Json::from(text)),
            Api::Chat => ("messages", json!([{"role": "user", "content": text}])),
        };
        Line { api, fields: Map::from_iter([(asked.0.to_owned(), asked.1)]) }
    }
}

/// The requests of `text`, a line each: a JSON text, which asks `api`, or an object with `prompt`
/// or `messages` and any further fields. `name` is the file's.
///
/// # Errors
/// [`Error::Options`] with the number of the line, from 1 on.
pub fn parse_lines(text: &str, name: &str, api: Api) -> Result<Vec<Line>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = lines.map(|(index, line)| {
        parse(line, api)
            .map_err(|reason| Error::Options(format!("{name}: line {}: {reason}", index + 1)))
    });
    parsed.collect()
}

fn parse(line: &str, api: Api) -> Result<Line, String> {
    let fields = match serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))? {
        Json::String(text) => return Ok(Line::text(api, text)),
        Json::Object(fields) => fields,
        _ => return Err("expected a text, or an object with `prompt` or `messages`".to_owned()),
    };
    if let Some(field) = OURS.iter().find(|field| fields.contains_key(**field)) {
        return Err(format!("`{field}` is the measurement's own: leave it out"));
    }
    let api = match (fields.contains_key("prompt"), fields.contains_key("messages")) {
        (true, false) => Api::Completions,
        (false, true) => Api::Chat,
        _ => return Err("expected either `prompt` or `messages`".to_owned()),
    };
    Ok(Line { api, fields })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Api, parse_lines};

    #[test]
    fn a_line_is_a_text_or_an_object() {
        let text = "\"a\"\n\n{\"prompt\": [1, 2], \"max_tokens\": 3}\n{\"messages\": []}\n";
        let lines = parse_lines(text, "f", Api::Chat).unwrap();
        let apis: Vec<_> = lines.iter().map(|line| line.api).collect();
        assert_eq!(apis, [Api::Chat, Api::Completions, Api::Chat]);
        assert_eq!(lines[0].fields["messages"], json!([{"role": "user", "content": "a"}]));
        assert_eq!(lines[1].fields["max_tokens"], 3);
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = |text: &str| parse_lines(text, "f", Api::Chat).unwrap_err().to_string();
        assert!(error("\"a\"\n{").starts_with("f: line 2: not JSON"));
        assert!(error("3").contains("expected a text"));
        assert!(error("{\"prompt\": \"\", \"messages\": []}").contains("either"));
        assert!(error("{\"prompt\": \"\", \"stream\": true}").contains("`stream`"));
    }
}
