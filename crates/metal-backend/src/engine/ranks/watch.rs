//! A thread that listens to the other ranks, so that one that is lost is noticed at any time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use inference_core::Error;
use mlx_ffi::distributed::Group;
use serde::Serialize;
use serde_json::Value as Json;

use crate::engine::shared::Shared;
use crate::error::Result;

/// The topic of an order that ends the group.
pub(super) const BROKEN: &str = "broken";
/// The topic of a rank's answer once it has loaded the model, with the bytes that it may take.
/// It answers so again once it has nothing left to compute.
pub(super) const READY: &str = "ready";
/// For the thread to hear why, once an operation has failed.
const SOON: Duration = Duration::from_millis(500);

/// Who hears of a rank that is lost.
pub(in crate::engine) struct Listener<'a> {
    /// Rank 0's engine, which may wait for a request.
    pub engine: Box<dyn FnOnce(String) + Send>,
    /// The state that callers read.
    pub shared: &'a Arc<Shared>,
}

/// Tells the others.
pub(super) fn tell(group: &Group, topic: &str, value: &impl Serialize) -> Result<()> {
    let message = serde_json::to_vec(&(topic, value));
    let message = message.map_err(|error| Error::Engine(format!("{topic}: {error}")))?;
    Ok(group.orders().tell(&message)?)
}

/// Why the group ended: the first reason.
#[derive(Default)]
pub(super) struct Lost {
    reason: Mutex<Option<String>>,
    told: Condvar,
    /// This rank has nothing left to compute, and others leave in good order.
    parts: AtomicBool,
}

impl Lost {
    /// The reason, which may take a moment to be known.
    pub fn known_soon(&self) -> Option<String> {
        let reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = |reason: &mut Option<String>| reason.is_none();
        let waited = self.told.wait_timeout_while(reason, SOON, unknown);
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// The reason, where it is known.
    pub fn known(&self) -> Option<String> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on, this rank computes nothing.
    pub fn part(&self) {
        self.parts.store(true, Ordering::Release);
    }

    /// Takes note of a reason. False where there was one.
    fn tell(&self, reason: &str) -> bool {
        let mut first = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = first.is_none();
        first.get_or_insert_with(|| reason.to_owned());
        self.told.notify_all();
        is_first
    }
}

/// The receivers of what the thread hears.
pub(super) struct Watched {
    pub orders: Receiver<Vec<u8>>,
    pub ready: Receiver<u64>,
    pub lost: Arc<Lost>,
}

/// The thread's own side, with the senders of what it hears.
struct Ears {
    group: Group,
    orders: Sender<Vec<u8>>,
    ready: Sender<u64>,
    lost: Arc<Lost>,
    engine: Box<dyn FnOnce(String) + Send>,
    shared: Arc<Shared>,
}

/// Listens until the group has ended.
pub(super) fn start(group: &Group, listener: Listener<'_>) -> Result<Watched> {
    let ((orders, all_orders), (ready, all_ready)) = (mpsc::channel(), mpsc::channel());
    let lost = Arc::<Lost>::default();
    let ears = Ears {
        group: group.clone(),
        orders,
        ready,
        lost: Arc::clone(&lost),
        engine: listener.engine,
        shared: Arc::clone(listener.shared),
    };
    std::thread::Builder::new()
        .name("ml-ranks".into())
        .spawn(move || ears.listen())
        .map_err(|error| Error::Engine(format!("cannot start the thread of the ranks: {error}")))?;
    Ok(Watched { orders: all_orders, ready: all_ready, lost })
}

impl Ears {
    fn listen(self) {
        let reason = loop {
            let (rank, message) = match self.group.orders().next() {
                Ok(heard) => heard,
                Err(error) => break error.to_string(),
            };
            if self.group.rank() > 0 {
                if let Ok((BROKEN, reason)) = serde_json::from_slice::<(&str, String)>(&message) {
                    break reason;
                }
                // Where nobody waits for orders any more, the engine has ended.
                let _ = self.orders.send(message);
                continue;
            }
            match serde_json::from_slice::<(&str, Json)>(&message) {
                Ok((READY, Json::Number(bytes))) => {
                    let _ = self.ready.send(bytes.as_u64().unwrap_or(0));
                }
                Ok((BROKEN, Json::String(reason))) => {
                    break format!("rank {rank} has ended: {reason}");
                }
                _ => break format!("rank {rank} says what no rank says: run the same version"),
            }
        };
        let is_news = self.lost.tell(&reason) && !self.shared.is_closing();
        if is_news && self.group.rank() == 0 {
            // Who is gone needs no reason.
            let _ = tell(&self.group, BROKEN, &reason);
        }
        // Whoever waits for a value of that rank waits no more.
        if !self.lost.parts.load(Ordering::Acquire) {
            self.group.give_up();
        }
        self.group.leave();
        if is_news && self.group.rank() == 0 {
            self.shared.set_fault(&Error::Unusable(reason.clone()));
            (self.engine)(reason);
        }
    }
}
