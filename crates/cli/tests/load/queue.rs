//! More clients than may wait: the excess is told at once.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Client, Leaving, chat};
use crate::server::Server;
use crate::{alone, percentile};

const CLIENTS: usize = 256;

/// Requests that run, and those that wait.
const ROOM: usize = 16 + 64;

/// 50 ms on an idle machine; here, the clients themselves and other tests take the same cores.
const AT_ONCE: Duration = Duration::from_secs(1);

#[test]
fn what_does_not_fit_in_the_queue_is_told_at_once() {
    let _alone = alone();
    let server = Server::start(&["--prefix-cache", "0", "--parallel", "16", "--queue", "64"]);
    let body = chat("fox", json!({"stream": true, "ignore_eos": true})).to_string();
    let path = "/v1/chat/completions";
    let mut filling: Vec<_> =
        (0..ROOM).map(|_| Client::send(&server.address, "POST", path, &body).unwrap()).collect();
    let full = |server: &Server| server.health()["held"] == ROOM;
    server.wait_until("the queue is full", Duration::from_secs(20), full);
    filling.iter_mut().take(1).for_each(|client| assert!(client.read_events(1)));

    let barrier = Barrier::new(CLIENTS - ROOM);
    let one = || {
        let mut client = Client::connect(&server.address).unwrap();
        barrier.wait();
        let begun = Instant::now();
        client.request(&server.address, "POST", path, &body).unwrap();
        let reply = client.reply();
        (begun.elapsed(), reply)
    };
    let (replies, mut health) = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS - ROOM).map(|_| scope.spawn(one)).collect();
        let health: Vec<_> = (0..50)
            .map(|_| {
                let begun = Instant::now();
                assert_eq!(server.get("/health").status, 200);
                begun.elapsed()
            })
            .collect();
        let replies: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        (replies, health)
    });
    for (_, reply) in &replies {
        assert_eq!(reply.status, 429, "{}", reply.body);
        assert_eq!(reply.json()["error"]["code"], "queue_full");
        let seconds = reply.head.lines().find_map(|line| line.strip_prefix("retry-after: "));
        assert!((1..=60).contains(&seconds.unwrap().parse::<u64>().unwrap()), "{}", reply.head);
    }
    let mut times: Vec<_> = replies.iter().map(|(time, _)| *time).collect();
    let p99 = percentile(&mut times, 0.99);
    println!(
        "{} of {CLIENTS} clients refused: p50 {:?}, p99 {p99:?}; /health p50 {:?}, longest {:?}",
        replies.len(),
        percentile(&mut times, 0.5),
        percentile(&mut health, 0.5),
        percentile(&mut health, 1.0),
    );
    assert!(p99 < AT_ONCE, "{p99:?}");
    assert!(percentile(&mut health, 1.0) < AT_ONCE, "{health:?}");
    assert_eq!(server.health()["held"], ROOM, "those that were there before still are");

    for (index, client) in filling.into_iter().enumerate() {
        client.leave(if index % 2 == 0 { Leaving::Close } else { Leaving::Reset });
    }
    server.wait_until_idle(Duration::from_secs(10));
    let again = server.post(path, &chat("fox", json!({"max_tokens": 4})));
    assert_eq!(again.status, 200, "{}", again.body);
}
