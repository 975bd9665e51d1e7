//! `GET /openapi.json`: the description of the API, written from the tables that check requests.

mod kept;
mod responses;

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value as Json, json};

use self::responses::responses;
use crate::config::Limits;
use crate::fields::table::{Effect, Field};
use crate::http::response::json_response;
use crate::protocol::anthropic::tables as anthropic;
use crate::protocol::google::tables as google;
use crate::protocol::llama_server::{error as llama_error, tables as llama};
use crate::protocol::ollama::tables as ollama;
use crate::protocol::openai::{batch_tables, foreign, tables};
use crate::protocol::own::tables as own;
use crate::protocol::responses::tables as responses_of;
use crate::run::state::State;

/// The answer that is no JSON: sound as bytes, or events.
const SOUND: &str = "Sound";

/// An endpoint that takes a JSON object.
struct Endpoint {
    path: &'static str,
    about: &'static str,
    tables: &'static [&'static [Field]],
    answer: &'static str,
    error: &'static str,
    /// Fields of which exactly one must be there.
    one_of: &'static [&'static str],
}

const POSTS: &[Endpoint] = &[
    Endpoint {
        path: "/v1/chat/completions",
        about: "Answer a conversation",
        tables: &[
            tables::SAMPLING,
            tables::CHAT,
            foreign::GENERATING,
            foreign::CHAT,
            foreign::OF_LLAMA,
        ],
        answer: "ChatCompletion",
        error: "Error",
        one_of: &[],
    },
    Endpoint {
        path: "/v1/completions",
        about: "Continue texts",
        tables: &[tables::SAMPLING, tables::COMPLETIONS, foreign::GENERATING, foreign::OF_LLAMA],
        answer: "Completion",
        error: "Error",
        one_of: &[],
    },
    Endpoint {
        path: "/v1/messages",
        about: "Answer a conversation, in Anthropic's protocol",
        tables: &[anthropic::CONVERSATION, anthropic::CREATE],
        answer: "Message",
        error: "MessageError",
        one_of: &[],
    },
    Endpoint {
        path: "/v1/messages/count_tokens",
        about: "How many tokens a conversation has, in Anthropic's protocol",
        tables: &[anthropic::CONVERSATION],
        answer: "TokenCount",
        error: "MessageError",
        one_of: &[],
    },
    Endpoint {
        path: "/v1/batches",
        about: "Answer a file of requests while nothing else waits",
        tables: &[batch_tables::BATCHES],
        answer: "Object",
        error: "Error",
        one_of: &[],
    },
    Endpoint {
        path: "/v1/messages/batches",
        about: "Answer requests while nothing else waits, in Anthropic's protocol",
        tables: &[anthropic::BATCHES],
        answer: "Object",
        error: "MessageError",
        one_of: &[],
    },
    Endpoint {
        path: "/v1/responses",
        about: "Answer a conversation, in OpenAI's newer protocol",
        tables: &[responses_of::CONVERSATION, responses_of::CREATE],
        answer: "Response",
        error: "Error",
        one_of: &[],
    },
    Endpoint {
        path: "/v1/responses/input_tokens",
        about: "How many tokens that conversation has",
        tables: &[responses_of::CONVERSATION, responses_of::COUNT],
        answer: "TokenCount",
        error: "Error",
        one_of: &[],
    },
    Endpoint {
        path: "/v1beta/models/{model}:generateContent",
        about: "Answer a conversation, in Google's protocol",
        tables: &[google::CREATE, google::CONVERSATION],
        answer: "Object",
        error: "GoogleError",
        one_of: &[],
    },
    Endpoint {
        path: "/v1beta/models/{model}:streamGenerateContent",
        about: "The same in a stream: an array, or events with `?alt=sse`",
        tables: &[google::CREATE, google::CONVERSATION],
        answer: "Objects",
        error: "GoogleError",
        one_of: &[],
    },
    Endpoint {
        path: "/v1beta/models/{model}:countTokens",
        about: "How many tokens a conversation has, in Google's protocol",
        tables: &[google::COUNT, google::CONVERSATION],
        answer: "Object",
        error: "GoogleError",
        one_of: &["contents", "generateContentRequest"],
    },
    Endpoint {
        path: "/api/chat",
        about: "Answer a conversation, in Ollama's protocol",
        tables: &[ollama::GENERATING, ollama::CHAT],
        answer: "Object",
        error: "OllamaError",
        one_of: &[],
    },
    Endpoint {
        path: "/api/generate",
        about: "Answer or continue a prompt, in Ollama's protocol",
        tables: &[ollama::GENERATING, ollama::GENERATE],
        answer: "Object",
        error: "OllamaError",
        one_of: &[],
    },
    Endpoint {
        path: "/api/embed",
        about: "Make vectors of texts, in Ollama's protocol",
        tables: &[ollama::EMBED],
        answer: "Object",
        error: "OllamaError",
        one_of: &[],
    },
    Endpoint {
        path: "/api/embeddings",
        about: "Make the vector of a text, in Ollama's older form",
        tables: &[ollama::EMBEDDINGS],
        answer: "Object",
        error: "OllamaError",
        one_of: &[],
    },
    Endpoint {
        path: "/api/show",
        about: "What a model is, in Ollama's protocol",
        tables: &[ollama::SHOW],
        answer: "Object",
        error: "OllamaError",
        one_of: &[],
    },
    Endpoint {
        path: "/v1/images/generations",
        about: "Make pictures from words",
        tables: &[tables::IMAGES],
        answer: "Object",
        error: "Error",
        one_of: &[],
    },
    Endpoint {
        path: "/v1/images/edits",
        about: "Edit pictures",
        tables: &[tables::IMAGES, tables::IMAGE_EDITS],
        answer: "Object",
        error: "Error",
        one_of: &["image", "images"],
    },
    Endpoint {
        path: "/v1/audio/speech",
        about: "Say a text",
        tables: &[tables::SPEAKING],
        answer: SOUND,
        error: "Error",
        one_of: &[],
    },
    Endpoint {
        path: "/v1/audio/transcriptions",
        about: "Write down what is said in a sound",
        tables: &[tables::SPEECH, tables::TRANSCRIPTIONS],
        answer: "Object",
        error: "Error",
        one_of: &[],
    },
    Endpoint {
        path: "/v1/audio/translations",
        about: "Translate what is said in a sound to English",
        tables: &[tables::SPEECH],
        answer: "Object",
        error: "Error",
        one_of: &[],
    },
    Endpoint {
        path: "/v1/embeddings",
        about: "Make vectors of texts",
        tables: &[tables::EMBEDDINGS],
        answer: "Object",
        error: "Error",
        one_of: &["input", "content"],
    },
    Endpoint {
        path: "/v1/rerank",
        about: "Order documents by how well they fit a query",
        tables: &[own::RERANK],
        answer: "ObjectOrObjects",
        error: "Error",
        one_of: &["documents", "texts"],
    },
    Endpoint {
        path: "/completion",
        about: "Continue a text, in the form of llama.cpp's server",
        tables: &[tables::SAMPLING, foreign::GENERATING, llama::BOTH, llama::COMPLETION],
        answer: "ObjectOrObjects",
        error: "LlamaError",
        one_of: &[],
    },
    Endpoint {
        path: "/infill",
        about: "Fill in a text between two others, in the form of llama.cpp's server",
        tables: &[tables::SAMPLING, foreign::GENERATING, llama::BOTH, llama::INFILL],
        answer: "ObjectOrObjects",
        error: "LlamaError",
        one_of: &[],
    },
    Endpoint {
        path: "/v1/reranking",
        about: "The same as /v1/rerank",
        tables: &[own::RERANK],
        answer: "ObjectOrObjects",
        error: "Error",
        one_of: &["documents", "texts"],
    },
    Endpoint {
        path: "/v2/rerank",
        about: "The same, under the path of Cohere's newer clients",
        tables: &[own::RERANK],
        answer: "ObjectOrObjects",
        error: "Error",
        one_of: &["documents", "texts"],
    },
    Endpoint {
        path: "/v1/classify",
        about: "The likeliest next token, and how likely labels are",
        tables: &[own::TEMPLATE, own::CLASSIFY],
        answer: "Classification",
        error: "Error",
        one_of: &["input", "messages"],
    },
    Endpoint {
        path: "/v1/inspect",
        about: "Keys and queries of a prompt",
        tables: &[own::TEMPLATE, own::INSPECT],
        answer: "Attention",
        error: "Error",
        one_of: &["prompt", "messages"],
    },
    Endpoint {
        path: "/tokenize",
        about: "The token ids of a text or a conversation",
        tables: &[own::TEMPLATE, own::TOKENIZE],
        answer: "Tokens",
        error: "Error",
        one_of: &["prompt", "content", "messages"],
    },
    Endpoint {
        path: "/detokenize",
        about: "The text of token ids",
        tables: &[own::DETOKENIZE],
        answer: "Text",
        error: "Error",
        one_of: &[],
    },
    Endpoint {
        path: "/apply-template",
        about: "The prompt that a conversation becomes",
        tables: &[own::TEMPLATE, own::APPLY_TEMPLATE],
        answer: "Prompt",
        error: "Error",
        one_of: &[],
    },
    Endpoint {
        path: "/embedding",
        about: "The same as /v1/embeddings",
        tables: &[tables::EMBEDDINGS],
        answer: "Object",
        error: "Error",
        one_of: &["input", "content"],
    },
    Endpoint {
        path: "/v1/models/load",
        about: "Load a model, in the form of llama.cpp's server",
        tables: &[llama::LOAD],
        answer: "Object",
        error: "Error",
        one_of: &[],
    },
    Endpoint {
        path: "/v1/models/unload",
        about: "Unload a model, in the form of llama.cpp's server",
        tables: &[llama::LOAD],
        answer: "Object",
        error: "Error",
        one_of: &[],
    },
    Endpoint {
        path: "/shutdown",
        about: "End the server, where it was started so that a request may",
        tables: &[],
        answer: "Object",
        error: "Error",
        one_of: &[],
    },
];

const GETS: &[(&str, &str, &str)] = &[
    ("/", "A page to chat on", "text/html"),
    ("/health", "Whether the engine answers", "application/json"),
    ("/metrics", "Counts and times for Prometheus", "application/openmetrics-text"),
    ("/openapi.json", "This description", "application/json"),
    ("/props", "What the model is, in the form of llama.cpp's server", "application/json"),
    ("/slots", "How many slots compute, in the form of llama.cpp's server", "application/json"),
    ("/lora-adapters", "Adapters that a request could turn on", "application/json"),
    ("/version", "The server's version", "application/json"),
    ("/api/version", "The version of Ollama's protocol", "application/json"),
    ("/api/tags", "The models, in Ollama's protocol", "application/json"),
    ("/api/ps", "The models that are loaded, in Ollama's protocol", "application/json"),
    ("/v1beta/models", "The models, in Google's protocol", "application/json"),
    ("/v1beta/models/{model}", "One model, in Google's protocol", "application/json"),
    ("/v1/files", "Files with requests and answers of batches", "application/json"),
    ("/v1/batches", "Batches of requests", "application/json"),
    ("/v1/messages/batches", "Batches, in Anthropic's protocol", "application/json"),
    ("/v1/models", "The models, and which are loaded", "application/json"),
    ("/v1/models/{model}", "One model, by its name", "application/json"),
];

/// The description, as this server is configured.
pub async fn serve(Shared(state): Shared<Arc<State>>) -> Response {
    json_response(StatusCode::OK, &document(&state.config.limits))
}

/// The description of a server with `limits`.
pub fn document(limits: &Limits) -> Json {
    let mut paths = Map::new();
    for (path, about, media_type) in GETS {
        let error = match path {
            path if path.starts_with("/api/") => "OllamaError",
            path if path.starts_with("/v1beta/") => "GoogleError",
            path if path.starts_with("/v1/messages") => "MessageError",
            path if llama_error::is_own(path) => "LlamaError",
            _ => "Error",
        };
        let mut operation = json!({
            "summary": about,
            "responses": responses(json!({*media_type: {}}), error),
        });
        if path.contains('{') {
            operation["parameters"] = json!([model_parameter()]);
        }
        paths.insert((*path).to_owned(), json!({"get": operation}));
    }
    for endpoint in POSTS {
        let mut content = answer(endpoint);
        if endpoint.tables.iter().any(|table| table.iter().any(|field| field.name == "stream")) {
            let lines = endpoint.path.starts_with("/api/");
            let media_type = if lines { "application/x-ndjson" } else { "text/event-stream" };
            content[media_type] = json!({"schema": {"type": "string"}});
        }
        if endpoint.path.ends_with(":streamGenerateContent") {
            content["text/event-stream"] = json!({"schema": {"type": "string"}});
        }
        let mut operation = json!({
            "summary": endpoint.about,
            "requestBody": {
                "required": true,
                "content": {"application/json": {"schema": request(endpoint, limits)}},
            },
            "responses": responses(content, endpoint.error),
        });
        if endpoint.path.contains('{') {
            operation["parameters"] = json!([model_parameter()]);
        }
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path["post"] = operation;
    }
    kept::describe(&mut paths);
    let schemas: Json =
        serde_json::from_str(include_str!("openapi.schemas.json")).unwrap_or_default();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ml",
            "description": "OpenAI's, Anthropic's, Google's and Ollama's interfaces, and some of its own, over a local model.",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "security": [{}, {"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    })
}

/// The media types of an endpoint's whole answer.
fn answer(endpoint: &Endpoint) -> Json {
    if endpoint.answer == SOUND {
        let bytes = json!({"schema": {"type": "string", "format": "binary"}});
        let events = json!({"schema": {"type": "string"}});
        return json!({"audio/wav": bytes, "audio/pcm": bytes, "text/event-stream": events});
    }
    let schema = json!({"$ref": format!("#/components/schemas/{}", endpoint.answer)});
    json!({"application/json": {"schema": schema}})
}

/// The name of a model in a path.
fn model_parameter() -> Json {
    json!({"name": "model", "in": "path", "required": true, "schema": {"type": "string"}})
}

fn request(endpoint: &Endpoint, limits: &Limits) -> Json {
    let fields = || endpoint.tables.iter().flat_map(|table| table.iter());
    let properties: Map<String, Json> =
        fields().map(|field| (field.name.to_owned(), field.schema(limits))).collect();
    let required: Vec<_> = fields()
        .filter(|field| matches!(field.effect, Effect::Required))
        .map(|field| field.name)
        .collect();
    let mut schema = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
        "required": required,
    });
    if !endpoint.one_of.is_empty() {
        let given = |name: &&str| {
            // `null` counts as left out.
            let not_null = json!({*name: {"not": {"type": "null"}}});
            json!({"required": [name], "properties": not_null})
        };
        schema["oneOf"] = endpoint.one_of.iter().map(given).collect();
    }
    schema
}
