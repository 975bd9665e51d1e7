//! A server that only writes frames, as fast as it is told: how much can the load generator read?
//!
//! ```sh
//! cargo run --release -p load-generator --example frames -- 12.5      # milliseconds between frames
//! ml bench --url http://127.0.0.1:8099 --prompt-ids=32000 --clients 256 -n 1000 --requests 512
//! ```
//!
//! 256 streams with a frame each 12.5 ms are 20,480 frames a second.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "an example tells where it listens")]

use std::error::Error;
use std::time::Duration;

use serde_json::Value as Json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep_until};

const MODELS: &str = r#"{"data":[{"id":"frames","info":{"vocab_size":32000}}]}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let gap = std::env::args().nth(1).map_or(Ok(10.0), |text| text.parse())?;
    let gap = Duration::from_secs_f64(gap / 1e3);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:8099").await?;
        println!("http://{}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            // A client that leaves is no error.
            tokio::spawn(async move { drop(serve(stream, gap).await) });
        }
    })
}

async fn serve(stream: TcpStream, gap: Duration) -> Result<(), Box<dyn Error + Send + Sync>> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    loop {
        let (mut line, mut length, mut posts) = (String::new(), 0, false);
        while stream.read_line(&mut line).await? > 2 {
            posts |= line.starts_with("POST");
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse()?;
            }
            line.clear();
        }
        if line.is_empty() {
            return Ok(());
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        if !posts {
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{MODELS}", MODELS.len());
            stream.write_all(head.as_bytes()).await?;
            continue;
        }
        let body: Json = serde_json::from_slice(&body)?;
        let count = body["max_tokens"].as_u64().unwrap_or(1);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                    transfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        let mut due = Instant::now();
        for _ in 0..count {
            due += gap;
            sleep_until(due).await;
            let text =
                r#"{"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":" a"}]}"#;
            chunk(&mut stream, text).await?;
        }
        let usage = format!(r#"{{"prompt_tokens":512,"completion_tokens":{count}}}"#);
        chunk(&mut stream, &format!(r#"{{"choices":[],"usage":{usage}}}"#)).await?;
        chunk(&mut stream, "[DONE]").await?;
        stream.write_all(b"0\r\n\r\n").await?;
    }
}

async fn chunk(stream: &mut BufReader<TcpStream>, data: &str) -> std::io::Result<()> {
    let event = format!("data: {data}\n\n");
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    stream.write_all(chunk.as_bytes()).await
}
