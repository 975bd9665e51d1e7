//! Spans that wait to be sent.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::counter::Counter;
use tokio::sync::{Notify, watch};

use super::span::Span;

/// Spans that wait at most: some megabytes.
const MOST: usize = 8192;

/// Spans that are sent at once.
pub const BATCH: usize = 256;

/// Spans, and what became of those that no longer wait.
#[derive(Default)]
struct Waiting {
    spans: Vec<Span>,
    /// Those that were taken and are neither sent nor lost.
    taken: usize,
    /// There was no room, which was logged. It holds until nothing waits.
    was_full: bool,
}

/// Spans that wait to be sent. Nobody waits for room: what finds none is counted as lost.
pub struct Queue {
    waiting: Mutex<Waiting>,
    /// Told when there are enough for a batch.
    enough: Notify,
    /// Becomes `true` when no more will come.
    ended: watch::Sender<bool>,
    /// Keyed by the system's randomness, so that no one can tell the next id.
    ids: RandomState,
    count: AtomicU64,
    /// Spans that a collector took.
    sent: Counter,
    /// Spans that no collector has.
    lost: Counter,
}

impl Queue {
    /// An empty queue, which counts in `sent` and `lost`.
    pub fn new(sent: Counter, lost: Counter) -> Queue {
        Queue {
            waiting: Mutex::default(),
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

    /// Takes all spans of a request, or none where there is no room for all. Returns true where
    /// these are the first ones for which there is none since the last time that nothing waited.
    pub fn push(&self, spans: Vec<Span>) -> bool {
        let mut waiting = self.lock();
        if waiting.spans.len() + spans.len() > MOST {
            self.lost.inc_by(spans.len() as u64);
            return !std::mem::replace(&mut waiting.was_full, true);
        }
        waiting.spans.extend(spans);
        if waiting.spans.len() >= BATCH {
            self.enough.notify_one();
        }
        false
    }

    /// The oldest spans, at most a batch. [`settle`](Self::settle) tells what became of them.
    pub fn take(&self) -> Vec<Span> {
        let mut waiting = self.lock();
        let count = waiting.spans.len().min(BATCH);
        waiting.taken += count;
        waiting.was_full &= count > 0;
        waiting.spans.drain(..count).collect()
    }

    /// Of the spans that were taken, so many were sent, and so many are lost.
    pub fn settle(&self, sent: u64, lost: u64) {
        let mut waiting = self.lock();
        waiting.taken = waiting.taken.saturating_sub((sent + lost) as usize);
        self.sent.inc_by(sent);
        self.lost.inc_by(lost);
    }

    /// Counts as lost what waits and what was taken, since nobody sends it any more. Returns how
    /// many those are.
    pub fn give_up(&self) -> u64 {
        let mut waiting = self.lock();
        let count = (std::mem::take(&mut waiting.spans).len() + waiting.taken) as u64;
        waiting.taken = 0;
        self.lost.inc_by(count);
        count
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert!(!queue.push(spans(MOST - 1)));
        assert_eq!(queue.lost.get(), 0);
        assert!(queue.push(spans(2)));
        assert_eq!(queue.lost.get(), 2, "all spans of a request, or none");
        assert!(!queue.push(spans(1)));
        assert_eq!((queue.lost.get(), queue.take().len()), (2, BATCH));
        assert!(!queue.push(spans(2)));
        assert_eq!(queue.lost.get(), 2);
        assert!(!queue.push(spans(MOST)), "that there is no room is told once");
        while !queue.take().is_empty() {}
        assert!(!queue.push(spans(MOST)) && queue.push(spans(1)), "and once anew");
    }

    #[test]
    fn what_is_given_up_is_lost_whether_it_waits_or_was_taken() {
        let queue = Queue::new(Default::default(), Default::default());
        queue.push(spans(BATCH + 7));
        assert_eq!(queue.take().len(), BATCH);
        queue.settle(3, 2);
        assert_eq!(queue.give_up(), BATCH as u64 + 2);
        assert_eq!((queue.sent.get(), queue.lost.get()), (3, BATCH as u64 + 4));
        assert_eq!(queue.give_up(), 0);
    }

    #[test]
    fn ids_differ() {
        let queue = Queue::new(Default::default(), Default::default());
        let ids: BTreeSet<u128> = (0..1000).map(|_| queue.trace()).collect();
        assert_eq!(ids.len(), 1000);
    }
}
