//! The end of a path that says what a model is to do: `…/models/{model}:generateContent`.

use axum::http::HeaderMap;

use crate::error::{ApiError, Result};
use crate::http::query;

/// The beginning of the paths that are Google's alone.
const OWN: &str = "/v1beta/";

/// The headers by which Google's clients are known.
const CLIENT: [&str; 2] = ["x-goog-api-client", "x-goog-api-key"];

/// The part of a path before a model's name.
const MODELS: &str = "/models/";

/// Something that a model is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To answer, whole.
    Generate,
    /// To answer in a stream.
    Stream,
    /// To count the tokens of a conversation.
    Count,
}

const ACTIONS: [(&str, Action); 3] = [
    ("generateContent", Action::Generate),
    ("streamGenerateContent", Action::Stream),
    ("countTokens", Action::Count),
];

impl Action {
    /// The model and the action of `name`, the end of a path behind `models/`.
    pub fn of(name: &str) -> Option<(&str, Action)> {
        let (model, word) = name.rsplit_once(':')?;
        let known = ACTIONS.iter().find(|(own, _)| *own == word);
        known.map(|(_, action)| (model, *action))
    }
}

/// Returns true when `path` is one of this protocol.
pub fn is_own(path: &str) -> bool {
    let of_model = path.split_once(MODELS).and_then(|(_, name)| Action::of(name));
    path.starts_with(OWN) || of_model.is_some()
}

/// Returns true when `headers` are those of one of Google's clients.
pub fn is_client(headers: &HeaderMap) -> bool {
    CLIENT.iter().any(|name| headers.contains_key(*name))
}

/// The form in which a stream is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alt {
    /// One array of JSON.
    Json,
    /// Server-sent events.
    Events,
}

impl Alt {
    /// The form that the query of an address asks for.
    ///
    /// # Errors
    /// It asks for another one, or for something else that is not there.
    pub fn of(query: Option<&str>) -> Result<Alt> {
        let mut alt = Alt::Json;
        for (name, value) in query::pairs(query)? {
            match (name.trim_start_matches('$'), value.as_str()) {
                ("alt", "sse") => alt = Alt::Events,
                ("alt", "json") => alt = Alt::Json,
                ("alt", other) => {
                    let reason = format!("`{other}` is not one of json, sse");
                    return Err(ApiError::value("alt", reason));
                }
                // The first was looked at already, and the others change no answer.
                ("key" | "prettyPrint" | "quotaUser", _) => {}
                _ => {
                    return Err(ApiError::unsupported(
                        name,
                        "addresses have `alt` and `key` alone; take it out",
                    ));
                }
            }
        }
        Ok(alt)
    }
}

#[cfg(test)]
mod tests {
    use super::{Action, Alt, is_own};

    #[test]
    fn a_name_may_have_slashes_and_colons_before_its_action() {
        let of = Action::of;
        assert_eq!(of("org/a:7b:countTokens"), Some(("org/a:7b", Action::Count)));
        assert_eq!(of("a:streamGenerateContent"), Some(("a", Action::Stream)));
        assert_eq!((of("a"), of("a:b"), of("generateContent")), (None, None, None));
    }

    #[test]
    fn paths_are_told_from_those_of_other_protocols() {
        for path in ["/v1beta/models", "/v1beta/x", "/v1/models/a:generateContent"] {
            assert!(is_own(path), "{path}");
        }
        for path in ["/v1/models/a", "/v1/models", "/v1/chat/completions", "/v1betamax"] {
            assert!(!is_own(path), "{path}");
        }
    }

    #[test]
    fn a_query_asks_for_a_form_that_there_is() {
        assert_eq!(Alt::of(Some("alt=sse&key=k&prettyPrint=false")).unwrap(), Alt::Events);
        assert_eq!(Alt::of(None).unwrap(), Alt::Json);
        for (query, field) in [("alt=proto", "alt"), ("fields=a", "fields"), ("alt=a&alt=b", "alt")]
        {
            assert_eq!(Alt::of(Some(query)).unwrap_err().param.as_deref(), Some(field));
        }
    }
}
