//! The server over HTTP, on a model that does what a test tells it.

// A helper of a test may panic as the test itself may.
#![allow(clippy::unwrap_used)]

mod access;
mod addresses;
mod bad;
mod batches;
mod chat;
mod client;
mod completions;
mod description;
mod embeddings;
mod extras;
mod faults;
mod fields;
mod generic_tools;
mod google;
mod hints;
mod images;
mod instructions;
mod lifecycle;
mod limits;
mod llama_server;
mod logged;
mod many;
mod message_batches;
mod messages;
mod multiplied;
mod mutations;
mod notified;
mod ollama;
mod pictures;
mod response_fields;
mod responses;
mod results;
mod slow;
mod sounds;
mod speaking;
mod speech;
mod stored;
mod tls;
mod tools;
mod traces;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use client::{Answer, Client};
use fake_model::{FakeModel as Fake, Seen};
use inference_core::{Result, TextModel};
use inference_server::{Config, Ended, Models, ServeError, Server};
use serde_json::{Value as Json, json};

type Ending = Pin<Box<dyn Future<Output = ()> + Send>>;
type Running = Pin<Box<dyn Future<Output = Result<Ended, ServeError>>>>;

/// A server in a thread of this process, on a free port.
pub struct TestServer {
    /// The address on which it listens.
    pub address: SocketAddr,
    /// The requests that the model received.
    pub model: Arc<Seen>,
    shutdown: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<Ended, ServeError>>>,
}

/// A server whose model calls functions, thinks, and says these pieces.
pub fn server_that_says(says: &[&'static str]) -> TestServer {
    let fake = Fake { calls: true, thinks: true, says: says.to_vec(), ..Fake::default() };
    TestServer::with(fake, |_| {})
}

impl TestServer {
    /// A server on the usual fake model.
    pub fn start() -> Self {
        TestServer::with(Fake::default(), |_| {})
    }

    /// A server on `fake`, ready to answer.
    pub fn with(fake: Fake, change: impl FnOnce(&mut Config)) -> Self {
        let server = TestServer::loading(fake, change, || {});
        while server.get("/health").status != 200 {
            std::thread::yield_now();
        }
        server
    }

    /// A server whose model is loaded once `wait` returns.
    pub fn loading(
        fake: Fake,
        change: impl FnOnce(&mut Config),
        wait: impl FnOnce() + Send + 'static,
    ) -> Self {
        let model = Arc::clone(&fake.seen);
        let load = move || {
            wait();
            Ok(Box::new(fake) as Box<dyn TextModel>)
        };
        TestServer::run(model, change, |server, ends| Box::pin(server.run(load, ends)))
    }

    /// A server that has `models`, none of them loaded yet.
    pub fn many(models: Models, change: impl FnOnce(&mut Config)) -> Self {
        let run = |server: Server, ends| -> Running { Box::pin(server.run_models(models, ends)) };
        TestServer::run(Arc::default(), change, run)
    }

    fn run(
        model: Arc<Seen>,
        change: impl FnOnce(&mut Config),
        run: impl FnOnce(Server, Ending) -> Running + Send + 'static,
    ) -> Self {
        let mut config = Config {
            listen: ([127, 0, 0, 1], 0).into(),
            model: "fake".into(),
            ..Config::default()
        };
        change(&mut config);
        let (told, address) = mpsc::channel();
        let (shutdown, ends) = tokio::sync::oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .expect("a runtime");
            let ended = runtime.block_on(async move {
                let server = Server::bind(config).await?;
                let _ = told.send(server.address());
                run(server, Box::pin(async { drop(ends.await) })).await
            });
            runtime.shutdown_background();
            ended
        });
        let address = address.recv().expect("the server listens");
        TestServer { address, model, shutdown: Some(shutdown), thread: Some(thread) }
    }

    /// Asks the server to end.
    pub fn shut_down(&mut self) {
        drop(self.shutdown.take());
    }

    /// How the server ended.
    pub fn join(&mut self) -> Result<Ended, ServeError> {
        self.thread.take().expect("joined once").join().expect("the server does not panic")
    }

    /// The answer to `GET path`.
    pub fn get(&self, path: &str) -> Answer {
        Client::connect(self.address).get(path)
    }

    /// The answer to `POST path` with `body`.
    pub fn post(&self, path: &str, body: &Json) -> Answer {
        Client::connect(self.address).post(path, body)
    }

    /// A chat of one user message, with further fields.
    pub fn chat(&self, more: Json) -> Answer {
        self.post("/v1/chat/completions", &chat(more))
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.shut_down();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The body of a chat of one user message, with further fields.
pub fn chat(more: Json) -> Json {
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
    merge(&mut body, more);
    body
}

/// Sets the fields of `more` in `body`.
pub fn merge(body: &mut Json, more: Json) {
    let Json::Object(more) = more else { panic!("an object") };
    for (name, value) in more {
        body[&name] = value;
    }
}
