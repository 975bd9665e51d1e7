//! Lines of answers, as each protocol has them.

use serde_json::{Value as Json, json};

use crate::batches::record::{Form, Stop, Tokens};

/// The answer to a request of a batch.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The client's id of the request.
    pub id: String,
    /// The server's.
    pub request_id: String,
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Json,
}

impl Answered {
    /// Returns true when it is an error.
    pub fn is_error(&self) -> bool {
        self.status != 200
    }

    /// Its line.
    pub fn line(&self, form: Form) -> Json {
        match form {
            Form::Files => json!({
                "id": format!("batch_{}", self.request_id),
                "custom_id": self.id,
                "response": {
                    "status_code": self.status,
                    "request_id": self.request_id,
                    "body": self.body,
                },
                "error": null,
            }),
            Form::Whole if self.is_error() => {
                json!({"custom_id": self.id, "result": {"type": "errored", "error": self.body}})
            }
            Form::Whole => {
                json!({"custom_id": self.id, "result": {"type": "succeeded", "message": self.body}})
            }
        }
    }
}

/// The line of the request `id`, which was not answered before the end `stop`; none where the
/// protocol has none. `request_id` is an id that no other line has.
pub fn unanswered(form: Form, id: &str, request_id: &str, stop: Stop) -> Option<Json> {
    const FULL: &str = "there was no room for its answer (--max-batch-bytes)";
    match form {
        Form::Files => {
            let (code, message) = match stop {
                Stop::Expired => {
                    ("batch_expired", "the batch's time was over before it was answered")
                }
                Stop::Cancelled => {
                    ("batch_cancelled", "the batch was cancelled before it was answered")
                }
                Stop::Full => ("storage_full", FULL),
                Stop::Done => return None,
            };
            Some(json!({
                "id": format!("batch_{request_id}"),
                "custom_id": id,
                "response": null,
                "error": {"code": code, "message": message},
            }))
        }
        Form::Whole => {
            let result = match stop {
                Stop::Expired => json!({"type": "expired"}),
                Stop::Cancelled => json!({"type": "canceled"}),
                Stop::Full => {
                    let error = json!({"type": "api_error", "message": FULL});
                    json!({"type": "errored", "error": {"type": "error", "error": error}})
                }
                Stop::Done => return None,
            };
            Some(json!({"custom_id": id, "result": result}))
        }
    }
}

/// Adds the tokens of the answer in `line` to `tokens`.
pub fn add_tokens(tokens: &mut Tokens, line: &Json) {
    let usage = &line["response"]["body"]["usage"];
    let first =
        |names: [&str; 2]| names.iter().find_map(|name| usage.pointer(name)?.as_u64()).unwrap_or(0);
    tokens.input += first(["/prompt_tokens", "/input_tokens"]);
    tokens.output += first(["/completion_tokens", "/output_tokens"]);
    let cached = ["/prompt_tokens_details/cached_tokens", "/input_tokens_details/cached_tokens"];
    tokens.cached += first(cached);
    tokens.reasoning += first([
        "/completion_tokens_details/reasoning_tokens",
        "/output_tokens_details/reasoning_tokens",
    ]);
}
