//! The description of what is kept: responses, files and batches.

use serde_json::{Map, Value as Json, json};

use super::responses::responses;

/// An operation on what is kept.
struct OfStored {
    method: &'static str,
    path: &'static str,
    about: &'static str,
    /// The schema of its answer; none: bytes.
    answer: &'static str,
    /// Its query, as OpenAPI's parameters.
    query: &'static str,
}

const STORED: &[OfStored] = &[
    OfStored {
        method: "get",
        path: "/v1/responses/{id}",
        about: "A stored response",
        answer: "Response",
        query: "[]",
    },
    OfStored {
        method: "delete",
        path: "/v1/responses/{id}",
        about: "Forget a stored response",
        answer: "Object",
        query: "[]",
    },
    OfStored {
        method: "post",
        path: "/v1/responses/{id}/cancel",
        about: "Refused: a stored response has ended",
        answer: "Response",
        query: "[]",
    },
    OfStored {
        method: "get",
        path: "/v1/responses/{id}/input_items",
        about: "The items that a stored response answers",
        answer: "Items",
        query: r#"[
            {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 100}},
            {"name": "order", "in": "query", "schema": {"enum": ["asc", "desc"]}},
            {"name": "after", "in": "query", "schema": {"type": "string"}}
        ]"#,
    },
    OfStored {
        method: "get",
        path: "/v1/files/{id}",
        about: "A file",
        answer: "Object",
        query: "[]",
    },
    OfStored {
        method: "delete",
        path: "/v1/files/{id}",
        about: "Remove a file",
        answer: "Object",
        query: "[]",
    },
    OfStored {
        method: "get",
        path: "/v1/files/{id}/content",
        about: "The bytes of a file",
        answer: "",
        query: "[]",
    },
    OfStored {
        method: "get",
        path: "/v1/batches/{id}",
        about: "A batch",
        answer: "Object",
        query: "[]",
    },
    OfStored {
        method: "post",
        path: "/v1/batches/{id}/cancel",
        about: "End a batch",
        answer: "Object",
        query: "[]",
    },
    OfStored {
        method: "get",
        path: "/v1/messages/batches/{id}",
        about: "A batch, in Anthropic's protocol",
        answer: "Object",
        query: "[]",
    },
    OfStored {
        method: "delete",
        path: "/v1/messages/batches/{id}",
        about: "Remove a batch that is over",
        answer: "Object",
        query: "[]",
    },
    OfStored {
        method: "post",
        path: "/v1/messages/batches/{id}/cancel",
        about: "End a batch, in Anthropic's protocol",
        answer: "Object",
        query: "[]",
    },
    OfStored {
        method: "get",
        path: "/v1/messages/batches/{id}/results",
        about: "A line of JSON for each request of a batch that is over",
        answer: "",
        query: "[]",
    },
];

/// Describes the operations in `paths`.
pub fn describe(paths: &mut Map<String, Json>) {
    for operation in STORED {
        let mut parameters: Vec<Json> = serde_json::from_str(operation.query).unwrap_or_default();
        let schema = json!({"type": "string"});
        parameters
            .insert(0, json!({"name": "id", "in": "path", "required": true, "schema": schema}));
        let content = match operation.answer {
            "" => json!({"application/octet-stream": {}, "application/x-jsonl": {}}),
            name => {
                let answer = json!({"$ref": format!("#/components/schemas/{name}")});
                json!({"application/json": {"schema": answer}})
            }
        };
        let error = match operation.path.starts_with("/v1/messages") {
            true => "MessageError",
            false => "Error",
        };
        let described = json!({
            "summary": operation.about,
            "parameters": parameters,
            "responses": responses(content, error),
        });
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = described;
    }
    let schema = json!({
        "type": "object",
        "required": ["file", "purpose"],
        "additionalProperties": false,
        "properties": {
            "file": {"type": "string", "format": "binary"},
            "purpose": {"const": "batch"},
            "expires_after[anchor]": {"const": "created_at"},
            "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2_592_000},
        },
    });
    let answer = json!({"$ref": "#/components/schemas/Object"});
    let upload = json!({
        "summary": "Upload a file with requests",
        "requestBody": {"required": true, "content": {"multipart/form-data": {"schema": schema}}},
        "responses": responses(json!({"application/json": {"schema": answer}}), "Error"),
    });
    paths.entry("/v1/files").or_insert_with(|| json!({}))["post"] = upload;
}
