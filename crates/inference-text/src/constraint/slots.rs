//! How many compilations run at once, and which of those that wait is next.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inference_core::{Error, Result};

/// Compilations of one model that run at once, those that were given up included.
const MAX_AT_ONCE: usize = 4;

/// Counts the compilations that run. Of those that wait, the shortest is next.
#[derive(Default)]
pub(super) struct Slots {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    running: usize,
    /// Bytes and number of each.
    waiting: BTreeSet<(usize, u64)>,
    /// The number of the next one.
    next: u64,
}

/// Frees its place when it is dropped.
pub(super) struct Slot(Arc<Slots>);

impl Slots {
    /// Waits at most `patience` for a slot to compile so many `bytes`.
    ///
    /// # Errors
    /// [`Error::QueueFull`].
    pub fn take(slots: &Arc<Slots>, bytes: usize, patience: Duration) -> Result<Slot> {
        let mut queue = slots.lock();
        let ticket = (bytes, queue.next);
        queue.next += 1;
        queue.waiting.insert(ticket);
        let must_wait = |queue: &mut Queue| {
            queue.running >= MAX_AT_ONCE || queue.waiting.first() != Some(&ticket)
        };
        let waited = slots.changed.wait_timeout_while(queue, patience, must_wait);
        let (mut queue, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        queue.waiting.remove(&ticket);
        // The next one may have waited for this ticket alone.
        slots.changed.notify_all();
        if timeout.timed_out() {
            return Err(Error::QueueFull { limit: MAX_AT_ONCE });
        }
        queue.running += 1;
        Ok(Slot(Arc::clone(slots)))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    use inference_core::Error;

    use super::{MAX_AT_ONCE, Slots};

    #[test]
    fn the_shortest_that_waits_is_next_and_patience_ends() {
        let slots = Arc::new(Slots::default());
        let long = Duration::from_secs(60);
        let mut held: Vec<_> =
            (0..MAX_AT_ONCE).map(|_| Slots::take(&slots, 1000, long).unwrap()).collect();
        let none = Slots::take(&slots, 1, Duration::from_millis(5));
        assert!(matches!(none, Err(Error::QueueFull { .. })));
        let (sender, order) = mpsc::channel();
        let threads: Vec<_> = [500, 20, 300]
            .into_iter()
            .map(|bytes| {
                let (slots, sender) = (Arc::clone(&slots), sender.clone());
                thread::spawn(move || {
                    let slot = Slots::take(&slots, bytes, long).unwrap();
                    sender.send(bytes).unwrap();
                    drop(slot);
                })
            })
            .collect();
        while slots.lock().waiting.len() < 3 {
            thread::yield_now();
        }
        held.pop();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(order.iter().take(3).collect::<Vec<_>>(), [20, 300, 500]);
    }
}
