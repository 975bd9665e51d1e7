//! SIGTERM, while all kinds of requests run.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::alone;
use crate::client::{Client, chat};
use crate::server::Server;

const TIMES: u64 = 20;

/// How long the server may go on after the signal.
const DRAIN: Duration = Duration::from_millis(500);

#[test]
fn sigterm_under_load_ends_every_stream_and_then_the_process() {
    let _alone = alone();
    let mut times = Vec::new();
    for round in 0..TIMES {
        let server =
            Server::start(&["--prefix-cache", "0", "--parallel", "4", "--drain-timeout", "0.5"]);
        let path = "/v1/chat/completions";
        let mut begun = Vec::new();
        // More than run together, so that some still wait.
        for index in 0..12 {
            let more = match index % 3 {
                0 => json!({"stream": true, "ignore_eos": true}),
                1 => json!({"stream": true, "max_tokens": 8}),
                _ => json!({"ignore_eos": true}),
            };
            let body = chat("fox", more).to_string();
            begun.push((index, Client::send(&server.address, "POST", path, &body).unwrap()));
        }
        thread::sleep(Duration::from_millis(20 * round));
        server.wait_until("all are held or answered", DRAIN * 20, |server| {
            server.metric("ml_num_connections") >= 2.0
        });
        server.signal("-TERM");
        let told = Instant::now();
        let readers: Vec<_> = begun
            .into_iter()
            .map(|(index, client)| thread::spawn(move || (index, client.reply())))
            .collect();
        for reader in readers {
            let (index, reply) = reader.join().unwrap();
            // What had not been read when the signal came is refused.
            let refused = reply.status == 503 && reply.body.contains("draining");
            assert!(reply.status == 200 || refused, "{}", reply.body);
            if reply.status == 200 && index % 3 < 2 {
                let events = reply.events();
                let reason = &events.last().unwrap()["choices"][0]["finish_reason"];
                assert!(reason == "length" || reason == "stop", "{}", reply.body);
            } else if reply.status == 200 {
                assert_eq!(reply.json()["choices"][0]["finish_reason"], "length");
            }
        }
        let (code, error) = server.end(DRAIN + Duration::from_secs(5));
        times.push(told.elapsed());
        assert_eq!((code, error.as_str()), (Some(0), ""), "round {round}");
    }
    println!("{TIMES} times SIGTERM under load: ended after {:?} at most", times.iter().max());
    assert!(times.iter().all(|time| *time < DRAIN + Duration::from_secs(2)), "{times:?}");
}
