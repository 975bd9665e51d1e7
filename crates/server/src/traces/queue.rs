//! Spans that wait to be sent.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use tokio::sync::{Notify, watch};

use super::span::Span;

/// Spans that wait at most: some megabytes.
const MOST: usize = 8192;

/// Spans that are sent at once.
pub const BATCH: usize = 256;

/// Spans that wait to be sent. Nobody waits for room: what finds none is counted as lost.
pub struct Queue {
    spans: Mutex<Vec<Span>>,
    /// Told when there are enough for a batch.
    enough: Notify,
    /// Becomes `true` when no more will come.
    ended: watch::Sender<bool>,
    /// Keyed by the system's randomness, so that no one can tell the next id.
    ids: RandomState,
    count: AtomicU64,
    /// Spans that a collector took.
    pub sent: Counter,
    /// Spans that no collector has.
    pub lost: Counter,
}

impl Queue {
    /// An empty queue, which counts in `sent` and `lost`.
    pub fn new(sent: Counter, lost: Counter) -> Queue {
        Queue {
            spans: Mutex::default(),
            enough: Notify::new(),
            ended: watch::Sender::new(false),
            ids: RandomState::new(),
            count: AtomicU64::new(0),
            sent,
            lost,
        }
    }

    /// A new id of a span, which is not 0.
    pub fn id(&self) -> u64 {
        loop {
            match self.ids.hash_one(self.count.fetch_add(1, Ordering::Relaxed)) {
                0 => {}
                id => return id,
            }
        }
    }

    /// A new id of a trace.
    pub fn trace(&self) -> u128 {
        u128::from(self.id()) << 64 | u128::from(self.id())
    }

    /// Takes all spans of a request, or none where there is no room for all.
    pub fn push(&self, spans: Vec<Span>) {
        let mut waiting = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() + spans.len() > MOST {
            self.lost.inc_by(spans.len() as u64);
            return;
        }
        waiting.extend(spans);
        if waiting.len() >= BATCH {
            self.enough.notify_one();
        }
    }

    /// The oldest spans, at most a batch.
    pub fn take(&self) -> Vec<Span> {
        let mut waiting = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.len().min(BATCH);
        waiting.drain(..count).collect()
    }

    /// Waits until there are enough for a batch.
    pub async fn has_enough(&self) {
        self.enough.notified().await;
    }

    /// No more will come: what waits is sent once, and nothing is sent again.
    pub fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Returns true when no more will come.
    pub fn is_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Waits until no more will come.
    pub async fn ends(&self) {
        // The sender lives as long as this does.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::SystemTime;

    use super::{BATCH, MOST, Queue};
    use crate::traces::span::{Kind, Span};

    fn spans(count: usize) -> Vec<Span> {
        let now = SystemTime::now();
        let span = Span {
            trace: 1,
            id: 1,
            parent: None,
            state: None,
            name: String::new(),
            kind: Kind::Server,
            began: now,
            ended: now,
            attributes: Vec::new(),
            error: None,
        };
        vec![span; count]
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let queue = Queue::new(Default::default(), Default::default());
        queue.push(spans(MOST - 1));
        assert_eq!(queue.lost.get(), 0);
        queue.push(spans(2));
        assert_eq!(queue.lost.get(), 2, "all spans of a request, or none");
        queue.push(spans(1));
        assert_eq!((queue.lost.get(), queue.take().len()), (2, BATCH));
        queue.push(spans(2));
        assert_eq!(queue.lost.get(), 2);
    }

    #[test]
    fn ids_differ() {
        let queue = Queue::new(Default::default(), Default::default());
        let ids: BTreeSet<u128> = (0..1000).map(|_| queue.trace()).collect();
        assert_eq!(ids.len(), 1000);
    }
}
