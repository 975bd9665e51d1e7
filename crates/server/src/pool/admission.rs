//! How many generations may be under way or waiting: the bound that holds whatever the engine does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{ApiError, Result};

/// The share of the newest generation in the mean time of one.
const NEWEST: f64 = 0.2;

/// The longest that a client is told to wait, in seconds.
const LONGEST_RETRY: f64 = 60.0;

#[derive(Debug, Default)]
struct State {
    held: usize,
    /// Seconds that a generation takes in the mean.
    mean: f64,
}

/// Counts generations from their request to their end.
#[derive(Debug)]
pub struct Admission {
    slots: usize,
    waiting: usize,
    state: Mutex<State>,
}

impl Admission {
    /// Room for as many as run in `slots`, and for `waiting` more.
    pub fn new(slots: usize, waiting: usize) -> Arc<Self> {
        Arc::new(Admission { slots, waiting, state: Mutex::default() })
    }

    /// Room for `count` generations, at once or not at all.
    ///
    /// # Errors
    /// 429 where others are in the way, 400 where there never is so much room.
    pub fn take(self: &Arc<Self>, count: usize, field: &str) -> Result<Vec<Permit>> {
        let room = self.slots + self.waiting;
        if count > room {
            let reason = format!("asks for {count} generations, this server holds {room} at once");
            return Err(ApiError::value(field, reason));
        }
        let mut state = self.lock();
        if state.held + count > room {
            let waiting = state.held.saturating_sub(self.slots);
            let rounds = (waiting + count) as f64 / self.slots as f64;
            let seconds = (rounds * state.mean).ceil().clamp(1.0, LONGEST_RETRY);
            return Err(ApiError::queue_full(waiting, seconds as u64));
        }
        state.held += count;
        Ok((0..count).map(|_| Permit(Arc::clone(self))).collect())
    }

    /// Generations that are held now, and how many of them more than run together.
    pub fn held(&self) -> (usize, usize) {
        let held = self.lock().held;
        (held, held.saturating_sub(self.slots))
    }

    /// Learns that a generation took `time` of the engine.
    pub fn ended(&self, time: Duration) {
        let mut state = self.lock();
        let time = time.as_secs_f64();
        state.mean = match state.mean {
            0.0 => time,
            mean => mean + NEWEST * (time - mean),
        };
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room for one generation; given back when it is dropped.
#[derive(Debug)]
pub struct Permit(Arc<Admission>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.lock().held -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Admission;

    #[test]
    fn room_is_given_back() {
        let admission = Admission::new(1, 2);
        let held = admission.take(2, "n").unwrap();
        assert_eq!(admission.held(), (2, 1));
        assert!(admission.take(2, "n").is_err(), "all or nothing");
        drop(held);
        assert!(admission.take(3, "n").is_ok());
        assert_eq!(admission.held(), (0, 0));
    }

    #[test]
    fn what_never_fits_is_the_requests_fault() {
        let error = Admission::new(1, 2).take(4, "n").unwrap_err();
        assert_eq!(error.param.as_deref(), Some("n"));
    }

    #[test]
    fn the_time_to_wait_follows_from_how_long_generations_take() {
        let admission = Admission::new(2, 2);
        admission.ended(Duration::from_secs(10));
        let _held = admission.take(4, "n").unwrap();
        let error = admission.take(1, "n").unwrap_err();
        assert_eq!(error.retry_after, Some(15));
        assert!(error.message.ends_with("try again in 15 s"), "{}", error.message);
    }
}
