//! The way of spans from their queue to a collector.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HOST};
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value as Json;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::queue::Queue;
use super::settings::Traces;
use super::span::{Span, body};

/// For a collector to take a batch.
const ANSWER: Duration = Duration::from_secs(10);

/// How often a batch is sent before it is lost.
const TRIES: u32 = 4;

/// Bytes of a collector's answer.
const LONGEST: usize = 64 << 10;

/// Why a batch was not taken.
enum Failure {
    /// The collector cannot be reached, or is too busy.
    ForNow(String),
    /// It never will be.
    ForEver(String),
}

/// Sends what comes into a queue.
pub struct Sender {
    queue: Arc<Queue>,
    settings: Traces,
    /// Of the last batch, not all was taken. That was logged when it began.
    has_failed: bool,
}

impl Sender {
    /// A sender of the spans of `queue` to the collector of `settings`.
    pub fn new(queue: Arc<Queue>, settings: Traces) -> Sender {
        Sender { queue, settings, has_failed: false }
    }

    /// Sends spans until no more come, and those that still wait then.
    pub async fn run(mut self) {
        loop {
            let ends = self.queue.is_ended();
            while let Some(spans) = Some(self.queue.take()).filter(|spans| !spans.is_empty()) {
                self.deliver(spans).await;
            }
            if ends {
                return;
            }
            tokio::select! {
                () = sleep(self.settings.every) => {}
                () = self.queue.has_enough() => {}
                () = self.queue.ends() => {}
            }
        }
    }

    /// Sends `spans`, again where a collector may take them later, and counts what became of them.
    async fn deliver(&mut self, spans: Vec<Span>) {
        let (count, endpoint) = (spans.len() as u64, self.settings.endpoint.to_string());
        let bytes = Bytes::from(body(&self.settings, &spans).to_string());
        drop(spans);
        let mut wait = self.settings.every;
        for tried in 1..=TRIES {
            let reason = match self.post(bytes.clone()).await {
                Ok(rejected) => {
                    let rejected = rejected.min(count);
                    self.queue.settle(count - rejected, rejected);
                    match (rejected > 0, self.has_failed) {
                        (true, false) => {
                            tracing::warn!(target: "traces", endpoint, rejected, "spans are refused");
                        }
                        (false, true) => {
                            tracing::info!(target: "traces", endpoint, "spans are taken again");
                        }
                        _ => {}
                    }
                    self.has_failed = rejected > 0;
                    return;
                }
                Err(Failure::ForNow(_)) if tried < TRIES && !self.queue.is_ended() => {
                    tokio::select! {
                        () = sleep(wait) => {}
                        () = self.queue.ends() => {}
                    }
                    wait *= 2;
                    continue;
                }
                Err(Failure::ForNow(reason) | Failure::ForEver(reason)) => reason,
            };
            self.queue.settle(0, count);
            // Once: a collector that stays away is counted, and does not fill the log.
            if !self.has_failed {
                tracing::warn!(target: "traces", endpoint, error = reason, "spans are lost");
            }
            self.has_failed = true;
            return;
        }
    }

    /// Sends a body. Returns how many spans of it the collector refuses.
    async fn post(&self, bytes: Bytes) -> Result<u64, Failure> {
        let answered = timeout(ANSWER, self.exchange(bytes)).await;
        let answered = answered.map_err(|_| Failure::ForNow("no answer in time".to_owned()))?;
        let (status, answer) = answered.map_err(|error| Failure::ForNow(error.to_string()))?;
        match status.as_u16() {
            200..=299 => Ok(rejected(&answer)),
            429 | 502 | 503 | 504 => Err(Failure::ForNow(format!("status {status}"))),
            _ => Err(Failure::ForEver(format!("status {status}"))),
        }
    }

    async fn exchange(&self, bytes: Bytes) -> io::Result<(StatusCode, Bytes)> {
        let endpoint = &self.settings.endpoint;
        let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let request = Request::post(&endpoint.path)
            .header(HOST, &endpoint.authority)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(bytes))
            .map_err(io::Error::other)?;
        let exchange = async {
            let answer = sender.send_request(request).await.map_err(io::Error::other)?;
            let status = answer.status();
            // The status says what became of the spans, however its body ends.
            let read = Limited::new(answer.into_body(), LONGEST).collect().await;
            Ok((status, read.map(Collected::to_bytes).unwrap_or_default()))
        };
        tokio::pin!(exchange, connection);
        tokio::select! {
            answer = &mut exchange => answer,
            // What it had read before it ended is there.
            _ = &mut connection => exchange.await,
        }
    }
}

/// How many spans a collector's answer says that it refused.
fn rejected(answer: &[u8]) -> u64 {
    let answer: Json = serde_json::from_slice(answer).unwrap_or_default();
    let count = &answer["partialSuccess"]["rejectedSpans"];
    // Whole numbers of 64 bits are texts in this form.
    count.as_u64().or_else(|| count.as_str()?.parse().ok()).unwrap_or(0)
}
