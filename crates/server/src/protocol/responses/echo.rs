//! The object of a response: what was asked, how far it is, and what was answered.

use serde_json::{Map, Value as Json, json};

use crate::error::{ApiError, Kind};
use crate::fields::reader::Reader;
use crate::run::part::{End, Usage};
use crate::run::state::now;

/// The fields of a response that repeat its request, the same from the first event to the last.
#[derive(Debug)]
pub struct Echo {
    id: String,
    created: u64,
    model: String,
    asked: Map<String, Json>,
    store: bool,
}

/// Fields that are told as they were given, with what stands where they were not.
const TOLD: &[(&str, &str)] = &[
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("parallel_tool_calls", "true"),
    ("previous_response_id", "null"),
    ("prompt_cache_key", "null"),
    ("safety_identifier", "null"),
    ("temperature", "null"),
    ("tool_choice", "\"auto\""),
    ("tools", "[]"),
    ("top_logprobs", "0"),
    ("top_p", "null"),
    ("user", "null"),
    ("metadata", "{}"),
];

/// How far a response is.
#[derive(Clone, Debug)]
pub enum Stage {
    /// It has begun.
    InProgress,
    /// It has ended.
    Ended(Option<End>),
    /// It failed with this error.
    Failed(ApiError),
}

impl Echo {
    /// Of the request of `reader`, of which nothing was taken yet.
    pub fn new(reader: &Reader, id: String, model: String, store: bool) -> Echo {
        let told = |(name, default): &(&str, &str)| {
            let given = Some(reader.copy(name)).filter(|value| !value.is_null());
            let value = given.or_else(|| serde_json::from_str(default).ok());
            ((*name).to_owned(), value.unwrap_or_default())
        };
        let mut asked: Map<String, Json> = TOLD.iter().map(told).collect();
        let given = |name: &str, inner: &str| reader.copy(name)[inner].clone();
        let or = |value: Json, default: Json| if value.is_null() { default } else { value };
        asked.insert(
            "text".into(),
            json!({
                "format": or(given("text", "format"), json!({"type": "text"})),
                "verbosity": "medium",
            }),
        );
        asked.insert("reasoning".into(), json!({
            "effort": given("reasoning", "effort"),
            "summary": or(given("reasoning", "summary"), given("reasoning", "generate_summary")),
        }));
        Echo { id, created: now(), model, asked, store }
    }

    /// The response's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The whole object.
    pub fn object(&self, stage: &Stage, output: &[Json], usage: Option<Usage>) -> Json {
        let (status, error, incomplete) = match stage {
            Stage::InProgress => ("in_progress", Json::Null, Json::Null),
            Stage::Ended(Some(End::Length)) => {
                ("incomplete", Json::Null, json!({"reason": "max_output_tokens"}))
            }
            Stage::Ended(_) => ("completed", Json::Null, Json::Null),
            Stage::Failed(error) => ("failed", of_error(error), Json::Null),
        };
        let mut object = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": false,
            "completed_at": if status == "completed" { json!(now()) } else { Json::Null },
            "error": error,
            "incomplete_details": incomplete,
            "max_tool_calls": null,
            "model": self.model,
            "output": output,
            "service_tier": "default",
            "store": self.store,
            "truncation": "disabled",
            "usage": usage.map_or(Json::Null, of_usage),
        });
        for (name, value) in &self.asked {
            object[name] = value.clone();
        }
        object
    }
}

fn of_usage(usage: Usage) -> Json {
    json!({
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    })
}

/// OpenAI's `error` of a response: of few codes, so that the message tells more.
fn of_error(error: &ApiError) -> Json {
    let code = match error.kind {
        Kind::QueueFull => "rate_limit_exceeded",
        kind if kind.is_bad_request() => "invalid_prompt",
        _ => "server_error",
    };
    json!({"code": code, "message": error.message})
}
