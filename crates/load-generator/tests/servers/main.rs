//! Measurements of servers whose times and answers are known.

// A helper of a test may panic as the test itself may.
#![allow(clippy::unwrap_used)]

mod others;
mod ours;
mod scripted;

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;

use fake_model::{FakeModel, Seen};
use inference_core::TextModel;
use inference_server::{Config, Server};
use tokio::sync::oneshot;

/// This project's server in a thread, on a free port, ready to answer.
struct Ours {
    url: String,
    /// The requests that its model received.
    seen: Arc<Seen>,
    _ends: oneshot::Sender<()>,
}

impl Ours {
    fn start(model: FakeModel) -> Ours {
        Ours::with(model, |_| {})
    }

    fn with(model: FakeModel, change: impl FnOnce(&mut Config)) -> Ours {
        let seen = Arc::clone(&model.seen);
        let mut config = Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            model: "fake".into(),
            slots: 64,
            ..Config::default()
        };
        change(&mut config);
        let (told, address) = mpsc::channel();
        let (ends, ended) = oneshot::channel::<()>();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let server = Server::bind(config).await.unwrap();
                told.send(server.address()).unwrap();
                let load = move || Ok(Box::new(model) as Box<dyn TextModel>);
                server.run(load, async { drop(ended.await) }).await.unwrap();
            });
        });
        let address = address.recv().unwrap();
        let ours = Ours { url: format!("http://{address}"), seen, _ends: ends };
        while !scripted::get(&address.to_string(), "/health").contains("\"status\":\"ok\"") {
            thread::yield_now();
        }
        ours
    }
}
