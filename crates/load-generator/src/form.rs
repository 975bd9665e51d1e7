//! The body of a request: what is asked, and what the server takes beside it.

use hyper::body::Bytes;
use serde_json::{Map, Value as Json, json};

use crate::lines::Line;

/// Fields that all requests have.
#[derive(Clone, Debug)]
pub struct Form {
    /// The model's name.
    pub model: String,
    /// Tokens of an answer, where a request does not say.
    pub gen_tokens: usize,
    /// Sample greedily, as for generated prompts.
    pub greedy: bool,
    /// Send `ignore_eos`: answers go on past the model's own end.
    pub ignore_eos: bool,
    /// Ask for the usage in the last event.
    pub usage: bool,
    /// Further fields, which replace all others of the same name.
    pub fields: Map<String, Json>,
}

/// How an answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// In events, at the length that was asked for.
    Streamed,
    /// In events, of one token.
    Probe,
    /// Whole, of one token.
    Count,
}

impl Form {
    /// The body that asks `line`.
    pub fn body(&self, line: &Line, answer: Answer) -> Bytes {
        let mut body = Map::new();
        body.insert("model".to_owned(), json!(self.model));
        body.insert("max_tokens".to_owned(), json!(self.gen_tokens));
        if self.greedy {
            body.insert("temperature".to_owned(), json!(0));
        }
        if self.ignore_eos {
            body.insert("ignore_eos".to_owned(), json!(true));
        }
        if line.fields.contains_key("max_completion_tokens") {
            body.remove("max_tokens");
        }
        body.extend(line.fields.clone());
        body.extend(self.fields.clone());
        if answer != Answer::Streamed {
            let name = "max_completion_tokens";
            let name = if body.contains_key(name) { name } else { "max_tokens" };
            body.insert(name.to_owned(), json!(1));
        }
        if answer != Answer::Count {
            body.insert("stream".to_owned(), json!(true));
            if self.usage {
                body.insert("stream_options".to_owned(), json!({"include_usage": true}));
            }
        }
        Bytes::from(Json::Object(body).to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value as Json, json};

    use super::{Answer, Form};
    use crate::lines::{Api, Line};

    fn form() -> Form {
        Form {
            model: "m".into(),
            gen_tokens: 9,
            greedy: true,
            ignore_eos: true,
            usage: true,
            fields: Map::new(),
        }
    }

    fn body(form: &Form, line: &Line, answer: Answer) -> Json {
        serde_json::from_slice(&form.body(line, answer)).unwrap()
    }

    #[test]
    fn a_request_says_only_what_the_server_takes() {
        let line = Line::text(Api::Completions, "a".into());
        let all = json!({"model": "m", "prompt": "a", "max_tokens": 9, "temperature": 0,
            "ignore_eos": true, "stream": true, "stream_options": {"include_usage": true}});
        assert_eq!(body(&form(), &line, Answer::Streamed), all);
        let bare = Form { ignore_eos: false, usage: false, greedy: false, ..form() };
        let streamed = json!({"model": "m", "prompt": "a", "max_tokens": 9, "stream": true});
        assert_eq!(body(&bare, &line, Answer::Streamed), streamed);
        let counted = json!({"model": "m", "prompt": "a", "max_tokens": 1});
        assert_eq!(body(&bare, &line, Answer::Count), counted);
    }

    #[test]
    fn a_lines_fields_replace_ours_and_given_ones_replace_both() {
        let mut line = Line::text(Api::Chat, "a".into());
        line.fields.insert("max_completion_tokens".into(), json!(4));
        line.fields.insert("temperature".into(), json!(0.5));
        let mut form = form();
        form.fields.insert("temperature".into(), json!(0.7));
        let streamed = body(&form, &line, Answer::Streamed);
        assert_eq!(streamed["temperature"], 0.7);
        assert_eq!(streamed["max_completion_tokens"], 4);
        assert!(streamed.get("max_tokens").is_none());
        assert_eq!(body(&form, &line, Answer::Probe)["max_completion_tokens"], 1);
    }
}
