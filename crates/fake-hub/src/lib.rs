//! A hub for tests, on a free port of 127.0.0.1: it has the repositories that a test gives it,
//! answers as the real one does, with the faults that a test asks for, and remembers what it was
//! asked.
//!
//! Large files (`.safetensors`) are on another host, `localhost` on a second port, to which the hub
//! sends on.
//!
//! ```
//! use fake_hub::FakeHub;
//!
//! let hub = FakeHub::start();
//! hub.add("org/name", &[("config.json", b"{}"), ("model.safetensors", b"weights")]);
//! assert!(hub.url().starts_with("http://127.0.0.1:"));
//! assert!(hub.seen().is_empty());
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod fault;
mod http;
mod repository;
mod state;

use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

pub use fault::Fault;
pub use repository::{Repository, git_sha1, sha256};
pub use state::Request;

use state::State;

/// The hub. Its threads end with the process.
pub struct FakeHub {
    state: Arc<Mutex<State>>,
    url: String,
}

impl FakeHub {
    /// Listens, with no repository.
    pub fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let store = listen(&state);
        state.lock().unwrap().store = format!("http://localhost:{store}");
        let url = format!("http://127.0.0.1:{}", listen(&state));
        FakeHub { state, url }
    }

    /// Its address, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Adds or replaces the repository `name` with these files; its commit.
    pub fn add(&self, name: &str, files: &[(&str, &[u8])]) -> String {
        let repository = Repository::new(name, files);
        let commit = repository.commit.clone();
        let mut state = self.lock();
        state.repositories.retain(|other| other.name != name);
        state.repositories.push(repository);
        commit
    }

    /// Changes what the hub lists of the repository `name`.
    pub fn change(&self, name: &str, change: impl FnOnce(&mut Repository)) {
        let mut state = self.lock();
        change(state.repositories.iter_mut().find(|repository| repository.name == name).unwrap());
    }

    /// The next request whose method and path (`GET /api/…`) have `part` in them meets `fault`;
    /// several wait for their turns.
    pub fn next(&self, part: &str, fault: Fault) {
        self.lock().faults.push((part.to_owned(), fault));
    }

    /// Every request with `part` in its path meets `fault`.
    pub fn always(&self, part: &str, fault: Fault) {
        self.next(part, Fault::Always(Box::new(fault)));
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Request> {
        self.lock().seen.clone()
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        self.lock().seen.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves a free port from a thread of its own; the port.
fn listen(state: &Arc<Mutex<State>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let state = state.clone();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let state = state.clone();
            thread::spawn(move || http::serve(&connection, &state));
        }
    });
    port
}
