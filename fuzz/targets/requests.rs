//! Bodies of requests in each protocol, sent to a server in this process. An input's first line is
//! a path, the rest is the body.
#![no_main]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use fake_model::{FakeModel, Seen};
use inference_core::TextModel;
use inference_server::{Config, Server};
use libfuzzer_sys::fuzz_target;

/// Each path that takes a body.
const PATHS: [&str; 20] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/responses",
    "/v1/responses/input_tokens",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/classify",
    "/v1/inspect",
    "/api/show",
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/api/embeddings",
    "/tokenize",
    "/detokenize",
    "/apply-template",
];

/// A server that runs as long as the process.
struct Running {
    address: SocketAddr,
    seen: Arc<Seen>,
}

fn server() -> &'static Running {
    static SERVER: OnceLock<Running> = OnceLock::new();
    SERVER.get_or_init(|| {
        let fake = FakeModel { calls: true, thinks: true, ..FakeModel::default() };
        let seen = Arc::clone(&fake.seen);
        let (told, address) = mpsc::channel();
        thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let config = Config {
                    listen: ([127, 0, 0, 1], 0).into(),
                    model: "fake".into(),
                    ..Config::default()
                };
                let server = Server::bind(config).await.expect("a free port");
                told.send(server.address()).expect("somebody waits");
                let load = move || Ok(Box::new(fake) as Box<dyn TextModel>);
                server.run(load, std::future::pending()).await.expect("it runs until the end");
            });
        });
        let address = address.recv().expect("the server listens");
        while status(address, "GET", "/health", b"") != 200 {
            thread::yield_now();
        }
        Running { address, seen }
    })
}

/// The status of the answer, once all of it was read.
fn status(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut answer = Vec::new();
    // The server may answer before it has read all of the body, and close.
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
    let _ = stream.read_to_end(&mut answer);
    let words = String::from_utf8_lossy(&answer);
    let status = words.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("no answer to {method} {path}: {words:?}"))
}

fuzz_target!(|bytes: &[u8]| {
    let (first, body) = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (&[][..], bytes),
    };
    let sum = first.iter().fold(0, |sum, byte| sum + usize::from(*byte));
    let named = PATHS.into_iter().find(|path| path.as_bytes() == first);
    let path = named.unwrap_or(PATHS[sum % PATHS.len()]);
    let server = server();
    let status = status(server.address, "POST", path, body);
    assert_ne!(status, 500, "{path}");
    let seen = &server.seen;
    seen.prompts.lock().expect("no panic").clear();
    seen.options.lock().expect("no panic").clear();
    seen.chats.lock().expect("no panic").clear();
});
