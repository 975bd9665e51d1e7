//! The spans of a request: its own, and below it those of its generations.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::extract::Request;
use axum::http::Method;
use serde_json::{Value as Json, json};

use crate::run::phases::Phase;
use crate::run::tally::Tallied;
use crate::traces::context::Context;
use crate::traces::queue::Queue;
use crate::traces::span::{Kind, Span};

/// The provider of models by the names of the conventions, where the server answers by itself.
const PROVIDER: &str = "ml-on-mlx";

/// Paths that are asked over and over by what watches the server.
const WATCHED: [&str; 2] = ["/health", "/metrics"];

/// The methods that the conventions know.
const METHODS: [&str; 9] =
    ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];

/// Spans of generations of one request; further ones have none.
const MOST_PHASES: usize = 192;

/// A request that has ended.
pub struct Facts<'a> {
    /// Its id.
    pub id: &'a str,
    /// The route that it was for.
    pub endpoint: &'a str,
    /// Its path, where it has no route.
    pub path: Option<&'a str>,
    /// The address of its client.
    pub peer: Option<IpAddr>,
    /// Its method.
    pub method: &'a Method,
    /// When it began.
    pub began: Instant,
    /// The status of its answer.
    pub status: Option<u16>,
    /// How its answer ended, where that is not certain from its status.
    pub ended: Option<&'static str>,
    /// The reason why it failed, as the log has it.
    pub error: Option<&'a str>,
}

/// A request whose spans are sent once it has ended.
pub struct Traced {
    queue: Arc<Queue>,
    trace: u128,
    id: u64,
    parent: Option<u64>,
    state: Option<String>,
    began: SystemTime,
}

impl Traced {
    /// The spans of `request`, which begins now. It goes on with its client's trace. `None` where
    /// nothing is sent, and where the client does not record the trace.
    pub fn begin(queue: Option<&Arc<Queue>>, request: &Request) -> Option<Traced> {
        let queue = queue.filter(|_| !WATCHED.contains(&request.uri().path()))?;
        let context = Context::of(request.headers());
        if context.as_ref().is_some_and(|context| !context.is_sampled) {
            return None;
        }
        Some(Traced {
            trace: context.as_ref().map_or_else(|| queue.trace(), |context| context.trace),
            id: queue.id(),
            parent: context.as_ref().map(|context| context.parent),
            state: context.and_then(|context| context.state),
            began: SystemTime::now(),
            queue: Arc::clone(queue),
        })
    }

    /// The trace's id, for the log.
    pub fn trace(&self) -> String {
        format!("{:032x}", self.trace)
    }

    /// Sends the spans of a request of these facts, with what was told of it.
    pub fn end(&self, facts: &Facts<'_>, told: &Tallied) {
        let mut spans = vec![self.request(facts, told)];
        let phases = told.phases.iter().take(MOST_PHASES);
        spans.extend(phases.map(|phase| self.phase(phase, told, facts.began)));
        if self.queue.push(spans) {
            tracing::warn!(target: "traces", "spans are lost: too many wait for the collector");
        }
    }

    fn request(&self, facts: &Facts<'_>, told: &Tallied) -> Span {
        let method = facts.method.as_str();
        let method = if METHODS.contains(&method) { method } else { "_OTHER" };
        let verb = if method == "_OTHER" { "HTTP" } else { method };
        let has_broken_off = told.error.is_some();
        let fails = facts.status.is_some_and(|status| status >= 500) || has_broken_off;
        let mut attributes = vec![("http.request.method", json!(method))];
        let mut add = |key, value: Option<Json>| attributes.extend(value.map(|value| (key, value)));
        let route = facts.path.is_none().then_some(facts.endpoint);
        add("http.route", route.map(|route| json!(route)));
        add("url.path", facts.path.map(|path| json!(path)));
        add("client.address", facts.peer.map(|peer| json!(peer.to_string())));
        add("http.response.status_code", facts.status.map(|status| json!(status)));
        add("http.response.header.x-request-id", Some(json!([facts.id])));
        add("ml.ended", facts.ended.map(|ended| json!(ended)));
        let type_ = match facts.status {
            Some(status) if status >= 500 => status.to_string(),
            _ => "_OTHER".to_owned(),
        };
        add("error.type", fails.then(|| json!(type_)));
        attributes.extend(generative(facts.endpoint, told));
        Span {
            trace: self.trace,
            id: self.id,
            parent: self.parent,
            state: self.state.clone(),
            name: route.map_or_else(|| verb.to_owned(), |route| format!("{verb} {route}")),
            kind: Kind::Server,
            began: self.began,
            ended: self.at(facts.began, Instant::now()),
            attributes,
            error: fails.then(|| facts.error.unwrap_or_default().to_owned()),
        }
    }

    fn phase(&self, phase: &Phase, told: &Tallied, began: Instant) -> Span {
        let model = told.model.as_ref().map(|model| ("gen_ai.response.model", json!(model)));
        let generation = ("ml.generation", json!(phase.generation));
        Span {
            trace: self.trace,
            id: self.queue.id(),
            parent: Some(self.id),
            state: self.state.clone(),
            name: phase.stage.as_str().to_owned(),
            kind: Kind::Internal,
            began: self.at(began, phase.began),
            ended: self.at(began, phase.ended),
            attributes: model.into_iter().chain([generation]).collect(),
            error: None,
        }
    }

    /// The time of day at `instant`, where the request began at `began`. So all spans are as long
    /// as a clock says that is not set.
    fn at(&self, began: Instant, instant: Instant) -> SystemTime {
        self.began + instant.saturating_duration_since(began)
    }
}

/// The attributes of the conventions for generative models; none of a request without a model.
fn generative(endpoint: &str, told: &Tallied) -> Vec<(&'static str, Json)> {
    let (Some(model), asked) = (told.model.as_ref(), &told.asked) else {
        let asked = told.asked.as_ref();
        return asked
            .map(|asked| ("gen_ai.request.model", json!(cut(asked))))
            .into_iter()
            .collect();
    };
    let mut attributes = vec![("gen_ai.provider.name", json!(PROVIDER))];
    let mut add = |key, value: Option<Json>| attributes.extend(value.map(|value| (key, value)));
    add("gen_ai.operation.name", operation(endpoint).map(|name| json!(name)));
    // A request without a name is for the model that is served.
    add("gen_ai.request.model", Some(json!(asked.as_deref().map_or(model.as_str(), cut))));
    add("gen_ai.response.model", Some(json!(model)));
    if let Some(drawing) = told.drawing {
        let count = Some(drawing.choices).filter(|count| *count != 1);
        add("gen_ai.request.choice.count", count.map(|count| json!(count)));
        add("gen_ai.request.max_tokens", drawing.max_tokens.map(|most| json!(most)));
        add("gen_ai.request.temperature", drawing.temperature.map(|value| json!(value)));
        add("gen_ai.request.top_p", drawing.top_p.map(|value| json!(value)));
        add("gen_ai.request.seed", drawing.seed.map(|seed| json!(seed)));
    }
    let reasons = &told.finish_reasons;
    add("gen_ai.response.finish_reasons", (!reasons.is_empty()).then(|| json!(reasons)));
    if let Some(usage) = told.usage {
        add("gen_ai.usage.input_tokens", Some(json!(usage.prompt)));
        add("gen_ai.usage.output_tokens", Some(json!(usage.completion)));
        add("gen_ai.usage.cache_read.input_tokens", Some(json!(usage.cached)));
    }
    attributes
}

/// The operation by the names of the conventions.
fn operation(endpoint: &str) -> Option<&'static str> {
    match endpoint {
        "/v1/chat/completions" | "/v1/messages" | "/v1/responses" | "/api/chat" => Some("chat"),
        "/v1/completions" | "/api/generate" | "/completion" | "/infill" => Some("text_completion"),
        "/v1beta/models/{*model}" => Some("generate_content"),
        "/v1/embeddings" | "/api/embed" | "/api/embeddings" => Some("embeddings"),
        _ => None,
    }
}

/// The beginning of a name that a client gave, which may be as long as its body.
fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(300)]
}
