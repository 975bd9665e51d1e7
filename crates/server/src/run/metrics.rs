//! What is counted, in Prometheus' text format.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use inference_core::{EngineStatus, GenerateMetrics};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// The media type of [`Metrics::render`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Seconds = Gauge<f64, AtomicU64>;

/// The labels of an HTTP request.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Route {
    endpoint: String,
    status: u16,
}

/// The label of a cached prompt's end.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Miss {
    reason: &'static str,
}

/// The label of a generation's end.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct End {
    finish_reason: &'static str,
}

/// Counts and times of one server.
pub struct Metrics {
    registry: Registry,
    requests: Family<Route, Counter>,
    request_time: Histogram,
    generations: Family<End, Counter>,
    cancelled: Counter,
    rejected: Counter,
    prompt_tokens: Counter,
    cached_tokens: Counter,
    generated_tokens: Counter,
    misses: Family<Miss, Counter>,
    queue_time: Histogram,
    prefill_time: Histogram,
    first_token: Histogram,
    per_token: Histogram,
    running: Gauge,
    waiting: Gauge,
    kv_bytes: Gauge,
    prefix_bytes: Gauge,
    held_bytes: Gauge,
    heartbeat: Seconds,
    /// Open connections.
    pub connections: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("ml");
        let long = || Histogram::new(exponential_buckets(0.005, 2.0, 16));
        let short = || Histogram::new(exponential_buckets(0.001, 2.0, 14));
        let metrics = Metrics {
            requests: Family::default(),
            request_time: long(),
            generations: Family::default(),
            cancelled: Counter::default(),
            rejected: Counter::default(),
            prompt_tokens: Counter::default(),
            cached_tokens: Counter::default(),
            generated_tokens: Counter::default(),
            misses: Family::default(),
            queue_time: long(),
            prefill_time: long(),
            first_token: long(),
            per_token: short(),
            running: Gauge::default(),
            waiting: Gauge::default(),
            kv_bytes: Gauge::default(),
            prefix_bytes: Gauge::default(),
            held_bytes: Gauge::default(),
            heartbeat: Seconds::default(),
            connections: Gauge::default(),
            registry: Registry::default(),
        };
        let r = &mut registry;
        r.register("http_requests", "Answered requests", metrics.requests.clone());
        r.register("generations", "Ended generations", metrics.generations.clone());
        r.register("cancelled", "Generations whose client left", metrics.cancelled.clone());
        r.register("rejected", "Requests refused with 429", metrics.rejected.clone());
        r.register("prompt_tokens", "Tokens of prompts", metrics.prompt_tokens.clone());
        r.register("cached_prompt_tokens", "Those a cache held", metrics.cached_tokens.clone());
        r.register("generation_tokens", "Generated tokens", metrics.generated_tokens.clone());
        r.register("prefix_cache_misses", "Prompts cached in part", metrics.misses.clone());
        let times = [
            ("request_duration", "From a request's headers to its answer's", &metrics.request_time),
            ("request_queue_time", "From the queue to the engine", &metrics.queue_time),
            ("request_prefill_time", "From the engine to the first token", &metrics.prefill_time),
            ("time_to_first_token", "From the queue to the first token", &metrics.first_token),
            ("time_per_output_token", "Between tokens after the first", &metrics.per_token),
        ];
        for (name, help, metric) in times {
            r.register_with_unit(name, help, Unit::Seconds, metric.clone());
        }
        let gauges = [
            ("num_requests_running", "Generations in prefill or decode", &metrics.running),
            ("num_requests_waiting", "Generations that wait", &metrics.waiting),
            ("num_connections", "Open connections", &metrics.connections),
        ];
        for (name, help, metric) in gauges {
            r.register(name, help, metric.clone());
        }
        let bytes = [
            ("kv_cache_usage", "Keys and values of what runs", &metrics.kv_bytes),
            ("prefix_cache_usage", "The prefix cache", &metrics.prefix_bytes),
            ("held_memory", "What the process holds of the device's memory", &metrics.held_bytes),
        ];
        for (name, help, metric) in bytes {
            r.register_with_unit(name, help, Unit::Bytes, metric.clone());
        }
        let help = "Since the engine last finished a step; 0 while it is idle";
        r.register_with_unit(
            "engine_heartbeat_age",
            help,
            Unit::Seconds,
            metrics.heartbeat.clone(),
        );
        Metrics { registry, ..metrics }
    }
}

impl Metrics {
    /// A request to `endpoint` was answered after `time`.
    pub fn answered(&self, endpoint: &str, status: u16, time: Duration) {
        let route = Route { endpoint: endpoint.to_owned(), status };
        self.requests.get_or_create(&route).inc();
        self.request_time.observe(time.as_secs_f64());
        if status == 429 {
            self.rejected.inc();
        }
    }

    /// A generation ended by itself.
    pub fn generated(&self, finish_reason: &'static str, cost: &GenerateMetrics) {
        self.generations.get_or_create(&End { finish_reason }).inc();
        self.prompt_tokens.inc_by(cost.prompt_tokens as u64);
        self.cached_tokens.inc_by(cost.cached_prompt_tokens as u64);
        self.generated_tokens.inc_by(cost.generated_tokens as u64);
        if let Some(miss) = cost.cache_miss {
            self.misses.get_or_create(&Miss { reason: miss.as_str() }).inc();
        }
        self.queue_time.observe(cost.queue_duration.as_secs_f64());
        self.prefill_time.observe(cost.prefill_duration.as_secs_f64());
        if let Some(time) = cost.time_to_first_token {
            self.first_token.observe(time.as_secs_f64());
        }
        let rate = cost.decode_tokens_per_second();
        if rate > 0.0 {
            self.per_token.observe(1.0 / rate);
        }
    }

    /// A generation was dropped before its end.
    pub fn cancelled(&self) {
        self.cancelled.inc();
    }

    /// All of it as text, with the engine's `status`, of which `waiting` are known to wait.
    pub fn render(&self, status: &EngineStatus, waiting: usize) -> String {
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.running.set(signed(status.running as u64));
        self.waiting.set(signed(status.waiting.max(waiting) as u64));
        self.kv_bytes.set(signed(status.kv_bytes));
        self.prefix_bytes.set(signed(status.prefix_cache_bytes));
        self.held_bytes.set(signed(status.held_bytes.unwrap_or(0)));
        self.heartbeat.set(status.heartbeat_age.as_secs_f64());
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = text::encode(&mut text, &self.registry);
        text
    }
}
