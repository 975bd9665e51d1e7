//! Counters and gauges, in Prometheus' text format.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use inference_core::GenerateMetrics;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::pool::keeper::Pool;
use crate::pool::known::Known;
use crate::pool::report::Report;

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

/// The label of a model.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfModel {
    model: String,
}

type ByModel<M> = Family<OfModel, M>;

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
    draft_tokens: Counter,
    accepted_draft_tokens: Counter,
    misses: Family<Miss, Counter>,
    queue_time: Histogram,
    prefill_time: Histogram,
    first_token: Histogram,
    picture_preparation: Histogram,
    picture_tower: Histogram,
    per_token: Histogram,
    running: Gauge,
    waiting: Gauge,
    kv_bytes: Gauge,
    prefix_bytes: Gauge,
    held_bytes: Gauge,
    heartbeat: Seconds,
    model_loaded: ByModel<Gauge>,
    model_bytes: ByModel<Gauge>,
    model_running: ByModel<Gauge>,
    model_waiting: ByModel<Gauge>,
    model_waiting_for_load: ByModel<Gauge>,
    model_loads: ByModel<Counter>,
    model_load_failures: ByModel<Counter>,
    model_unloads: ByModel<Counter>,
    model_generations: ByModel<Counter>,
    model_prompt_tokens: ByModel<Counter>,
    model_tokens: ByModel<Counter>,
    /// Open connections.
    pub connections: Gauge,
    /// Spans that a collector took.
    pub spans_sent: Counter,
    /// Spans that no collector has.
    pub spans_lost: Counter,
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
            draft_tokens: Counter::default(),
            accepted_draft_tokens: Counter::default(),
            misses: Family::default(),
            queue_time: long(),
            prefill_time: long(),
            first_token: long(),
            picture_preparation: short(),
            picture_tower: short(),
            per_token: short(),
            running: Gauge::default(),
            waiting: Gauge::default(),
            kv_bytes: Gauge::default(),
            prefix_bytes: Gauge::default(),
            held_bytes: Gauge::default(),
            heartbeat: Seconds::default(),
            model_loaded: Family::default(),
            model_bytes: Family::default(),
            model_running: Family::default(),
            model_waiting: Family::default(),
            model_waiting_for_load: Family::default(),
            model_loads: Family::default(),
            model_load_failures: Family::default(),
            model_unloads: Family::default(),
            model_generations: Family::default(),
            model_prompt_tokens: Family::default(),
            model_tokens: Family::default(),
            connections: Gauge::default(),
            spans_sent: Counter::default(),
            spans_lost: Counter::default(),
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
        r.register("draft_tokens", "Verified draft tokens", metrics.draft_tokens.clone());
        let accepted = metrics.accepted_draft_tokens.clone();
        r.register("accepted_draft_tokens", "Those that were drawn", accepted);
        r.register("prefix_cache_misses", "Prompts cached in part", metrics.misses.clone());
        let times = [
            ("request_duration", "From a request's headers to its answer's", &metrics.request_time),
            ("request_queue_time", "From the queue to the engine", &metrics.queue_time),
            ("request_prefill_time", "From the engine to the first token", &metrics.prefill_time),
            ("time_to_first_token", "From the queue to the first token", &metrics.first_token),
            ("time_per_output_token", "Between tokens after the first", &metrics.per_token),
            (
                "picture_preparation",
                "Decoding and cutting a prompt's",
                &metrics.picture_preparation,
            ),
            ("picture_tower", "Computing vectors of a prompt's", &metrics.picture_tower),
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
        r.register("trace_spans_sent", "Spans that a collector took", metrics.spans_sent.clone());
        r.register("trace_spans_lost", "Spans that no collector has", metrics.spans_lost.clone());
        metrics.register_models(r);
        Metrics { registry, ..metrics }
    }
}

impl Metrics {
    fn register_models(&self, r: &mut Registry) {
        let gauges = [
            ("model_loaded", "1 while the model is loaded", &self.model_loaded),
            ("model_requests_running", "Its generations that run", &self.model_running),
            ("model_requests_waiting", "Its generations that wait", &self.model_waiting),
            ("model_load_waiting", "Requests that wait for its load", &self.model_waiting_for_load),
        ];
        for (name, help, metric) in gauges {
            r.register(name, help, metric.clone());
        }
        let bytes = self.model_bytes.clone();
        r.register_with_unit("model_memory", "What its weights take now", Unit::Bytes, bytes);
        let counters = [
            ("model_loads", "How often it was loaded", &self.model_loads),
            ("model_load_failures", "Loads that failed", &self.model_load_failures),
            ("model_unloads", "How often it was unloaded", &self.model_unloads),
            ("model_generations", "Its ended generations", &self.model_generations),
            ("model_prompt_tokens", "Tokens of its prompts", &self.model_prompt_tokens),
            ("model_generation_tokens", "Tokens that it generated", &self.model_tokens),
        ];
        for (name, help, metric) in counters {
            r.register(name, help, metric.clone());
        }
    }

    /// A request to `endpoint` was answered after `time`.
    pub fn answered(&self, endpoint: &str, status: u16, time: Duration) {
        let route = Route { endpoint: endpoint.to_owned(), status };
        self.requests.get_or_create(&route).inc();
        self.request_time.observe(time.as_secs_f64());
        if status == 429 {
            self.rejected.inc();
        }
    }

    /// Tokens of a generation of `model`, whatever its end was.
    pub fn computed(&self, model: &str, prompt: usize, generated: usize) {
        let label = OfModel { model: model.to_owned() };
        self.model_prompt_tokens.get_or_create(&label).inc_by(prompt as u64);
        self.model_tokens.get_or_create(&label).inc_by(generated as u64);
        self.prompt_tokens.inc_by(prompt as u64);
        self.generated_tokens.inc_by(generated as u64);
    }

    /// A generation of `model` ended by itself.
    pub fn generated(&self, model: &str, finish_reason: &'static str, cost: &GenerateMetrics) {
        let label = OfModel { model: model.to_owned() };
        self.model_generations.get_or_create(&label).inc();
        self.generations.get_or_create(&End { finish_reason }).inc();
        self.computed(model, cost.prompt_tokens, cost.generated_tokens);
        self.cached_tokens.inc_by(cost.cached_prompt_tokens as u64);
        self.draft_tokens.inc_by(cost.draft_tokens as u64);
        self.accepted_draft_tokens.inc_by(cost.accepted_draft_tokens as u64);
        if let Some(miss) = cost.cache_miss {
            self.misses.get_or_create(&Miss { reason: miss.as_str() }).inc();
        }
        self.queue_time.observe(cost.queue_duration.as_secs_f64());
        self.prefill_time.observe(cost.prefill_duration.as_secs_f64());
        if let Some(time) = cost.time_to_first_token {
            self.first_token.observe(time.as_secs_f64());
        }
        let pictures = [
            (&self.picture_preparation, cost.picture_preparation),
            (&self.picture_tower, cost.picture_tower),
        ];
        for (metric, time) in pictures.into_iter().filter(|(_, time)| !time.is_zero()) {
            metric.observe(time.as_secs_f64());
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

    /// All of it as text, with what the engines of `pool` do.
    pub fn render(&self, pool: &Pool) -> String {
        let reports = pool.reports();
        let (status, (_, waiting)) = (pool.status(), pool.held());
        self.running.set(signed(status.running as u64));
        self.waiting.set(signed(status.waiting.max(waiting) as u64));
        self.kv_bytes.set(signed(status.kv_bytes));
        self.prefix_bytes.set(signed(status.prefix_cache_bytes));
        self.held_bytes.set(signed(status.held_bytes.unwrap_or(0)));
        self.heartbeat.set(status.heartbeat_age.as_secs_f64());
        self.forget(pool);
        reports.iter().for_each(|report| self.model(&report.known, report));
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = text::encode(&mut text, &self.registry);
        text
    }

    /// Nothing is told of models that are gone.
    fn forget(&self, pool: &Pool) {
        let catalogue = pool.catalogue();
        for known in catalogue.gone() {
            let label = OfModel { model: known.name.to_string() };
            let gauges = [
                &self.model_loaded,
                &self.model_bytes,
                &self.model_running,
                &self.model_waiting,
                &self.model_waiting_for_load,
            ];
            for gauge in gauges {
                gauge.remove(&label);
            }
            let counters = [&self.model_loads, &self.model_load_failures, &self.model_unloads];
            for counter in counters {
                counter.remove(&label);
            }
        }
    }

    fn model(&self, known: &Known, report: &Report) {
        let label = OfModel { model: known.name.to_string() };
        let (status, (_, waiting)) = (report.status(), known.admission.held());
        let bytes = report.bytes.filter(|_| report.model.is_some()).unwrap_or(0);
        let gauges = [
            (&self.model_loaded, u64::from(report.model.is_some())),
            (&self.model_bytes, bytes),
            (&self.model_running, status.running as u64),
            (&self.model_waiting, status.waiting.max(waiting) as u64),
            (&self.model_waiting_for_load, report.waiting as u64),
        ];
        for (gauge, value) in gauges {
            gauge.get_or_create(&label).set(signed(value));
        }
        let counters = [
            (&self.model_loads, report.counts.loads),
            (&self.model_load_failures, report.counts.failures),
            (&self.model_unloads, report.counts.unloads),
        ];
        for (counter, count) in counters {
            counter.get_or_create(&label).inner().store(count, Ordering::Relaxed);
        }
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
