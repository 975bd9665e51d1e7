//! A server of another make: it answers with what a test says, and closes each connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value as Json;

/// A server on a free port, which lives as long as the process.
pub struct Scripted {
    pub url: String,
    /// The bodies of all posts.
    pub seen: Arc<Mutex<Vec<Json>>>,
}

impl Scripted {
    /// A server that lists `models`, and answers a post with status and body of `answer`.
    pub fn start(
        models: &'static str,
        answer: impl Fn(&Json) -> (u16, String) + Send + Sync + 'static,
    ) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (posts, answer) = (Arc::clone(&seen), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (posts, answer) = (Arc::clone(&posts), Arc::clone(&answer));
                thread::spawn(move || serve(stream.unwrap(), models, &posts, answer.as_ref()));
            }
        });
        Scripted { url, seen }
    }

    /// The posts that asked for a stream.
    pub fn streams(&self) -> Vec<Json> {
        let posts = self.seen.lock().unwrap();
        posts.iter().filter(|post| post["stream"] == true).cloned().collect()
    }
}

fn serve(
    stream: TcpStream,
    models: &str,
    posts: &Mutex<Vec<Json>>,
    answer: &(dyn Fn(&Json) -> (u16, String) + Send + Sync),
) {
    let mut reader = BufReader::new(&stream);
    let (mut head, mut length) = (String::new(), 0);
    while reader.read_line(&mut head).unwrap() > 2 {
        let line = head.lines().last().unwrap().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let (code, text) = match head.starts_with("GET") {
        true => (200, models.to_owned()),
        false => {
            let post: Json = serde_json::from_slice(&body).unwrap();
            posts.lock().unwrap().push(post.clone());
            answer(&post)
        }
    };
    let media = if text.starts_with("data:") { "text/event-stream" } else { "application/json" };
    let head = format!("HTTP/1.0 {code} Said\r\ncontent-type: {media}\r\n\r\n");
    // The client may have gone.
    let _ = (&stream).write_all(format!("{head}{text}").as_bytes());
}

/// The answer to `GET path`, head and body.
pub fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
