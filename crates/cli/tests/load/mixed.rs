//! Many clients with all kinds of requests, for a while.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Client, Leaving, Reply, chat};
use crate::server::{Memory, Server};
use crate::{PATIENCE, alone, percentile};

const CLIENTS: usize = 32;

const TOPICS: [&str; 6] = ["fox", "ship", "king", "small house", "dragon", "girl and her dog"];

/// How often all clients pause.
const RESTS: u32 = 12;

/// glibc keeps what is freed, a share for each thread, and how much depends on which threads met
/// when. Told to give it back, what it holds is what the program holds.
const GIVE_BACK: [(&str, &str); 3] = [
    ("MALLOC_ARENA_MAX", "1"),
    ("MALLOC_MMAP_THRESHOLD_", "32768"),
    ("MALLOC_TRIM_THRESHOLD_", "0"),
];

/// Phases of the clients: they ask, pause or end.
const RUN: u8 = 0;
const REST: u8 = 1;
const END: u8 = 2;

/// How much more may be allocated at the end than earlier, as a share of what is resident. One
/// block that keeps the heap from shrinking is 4 % of so small a process; in a short time it tells.
const GROWTH: f64 = 0.03;
const GROWTH_IN_A_SHORT_TIME: f64 = 0.10;

#[derive(Default)]
struct Counts {
    answered: AtomicUsize,
    streamed: AtomicUsize,
    left: AtomicUsize,
    refused: AtomicUsize,
}

fn seconds() -> u64 {
    let set = std::env::var("ML_LOAD_SECONDS");
    set.map_or(60, |seconds| seconds.parse().expect("ML_LOAD_SECONDS is a number of seconds"))
}

#[test]
fn mixed_requests_are_all_answered_and_memory_does_not_grow() {
    let _alone = alone();
    // Without a prefix cache, whose budget fills up by design.
    let server = Server::with(&["--prefix-cache", "0", "--queue", "64"], &GIVE_BACK);
    let (phase, counts) = (AtomicU8::new(RUN), Counts::default());
    let (mut memory, mut health) = (Vec::new(), Vec::new());
    let limit = Duration::from_secs(seconds());
    let begun = Instant::now();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (server, phase, counts) = (&server, &phase, &counts);
            scope.spawn(move || {
                for round in client.. {
                    while phase.load(Ordering::SeqCst) == REST {
                        thread::sleep(Duration::from_millis(5));
                    }
                    if phase.load(Ordering::SeqCst) == END {
                        return;
                    }
                    request(server, counts, round);
                }
            });
        }
        for rest in 1..=RESTS {
            while begun.elapsed() < limit * rest / RESTS {
                let asked = Instant::now();
                assert_eq!(server.get("/health").status, 200);
                health.push(asked.elapsed());
                thread::sleep(Duration::from_millis(100));
            }
            // Under load, memory follows what happens to run together; at rest it does not.
            phase.store(REST, Ordering::SeqCst);
            server.wait_until_idle(PATIENCE);
            thread::sleep(Duration::from_millis(200));
            memory.extend(server.memory());
            phase.store(if rest == RESTS { END } else { RUN }, Ordering::SeqCst);
        }
    });
    server.wait_until_idle(Duration::from_secs(10));
    let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    println!(
        "{CLIENTS} clients for {limit:?}: {} answers, {} streams, {} clients left, {} bad requests; \
         {} tokens; /health p50 {:?}, p99 {:?}",
        of(&counts.answered),
        of(&counts.streamed),
        of(&counts.left),
        of(&counts.refused),
        server.metric("ml_generation_tokens_total"),
        percentile(&mut health, 0.5),
        percentile(&mut health, 0.99),
    );
    assert!(of(&counts.answered) > 0 && of(&counts.streamed) > 0 && of(&counts.left) > 0);
    check_memory(&memory);
}

/// The last third of the time is compared with the one before it: a server is not warm before.
fn check_memory(memory: &[Memory]) {
    if memory.len() < RESTS as usize {
        return println!("this system does not tell how much memory a process holds");
    }
    let all = |of: fn(&Memory) -> u64| {
        let megabytes = memory.iter().map(|memory| format!("{:.1}", of(memory) as f64 / 1e6));
        megabytes.collect::<Vec<_>>().join(" ")
    };
    let third = memory.len() / 3;
    // Of the freed, some is kept now and then; what is never given back is there at every rest.
    let least = |of: &[Memory], bytes: fn(&Memory) -> u64| {
        of.iter().map(bytes).min().unwrap_or_default() as f64
    };
    let (before, after) = (&memory[third..2 * third], &memory[2 * third..]);
    let grown = least(after, |m| m.allocated) - least(before, |m| m.allocated);
    let share = grown / least(before, |m| m.resident);
    println!(
        "at rest, resident: {} MB; allocated: {} MB, in the last third {:+.2} % of what was resident",
        all(|memory| memory.resident),
        all(|memory| memory.allocated),
        share * 100.0
    );
    let most = if seconds() < 180 { GROWTH_IN_A_SHORT_TIME } else { GROWTH };
    assert!(share <= most, "memory grows");
}

fn check(reply: &Reply, status: u16) {
    assert_eq!(reply.status, status, "{}", reply.body);
}

/// One request; which one follows from the `round`.
fn request(server: &Server, counts: &Counts, round: usize) {
    let topic = TOPICS[round / 7 % TOPICS.len()];
    let most = 4 + round * 5 % 29;
    let seen = match round % 8 {
        0 => {
            let body = chat(topic, json!({"max_tokens": most, "temperature": 0}));
            let reply = server.post("/v1/chat/completions", &body);
            check(&reply, 200);
            assert!(reply.json()["usage"]["completion_tokens"].as_u64().unwrap() <= most as u64);
            &counts.answered
        }
        1 | 2 => {
            let more = json!({"max_tokens": most, "stream": true, "temperature": 0.8, "seed": round,
                              "stream_options": {"include_usage": true}});
            let events = server.post("/v1/chat/completions", &chat(topic, more)).events();
            let last = events.last().unwrap();
            assert!(last["usage"]["completion_tokens"].as_u64().unwrap() > 0, "{last}");
            &counts.streamed
        }
        3 => {
            let more = json!({"max_tokens": most, "n": 2, "temperature": 1, "logprobs": true,
                              "top_logprobs": 5});
            let reply = server.post("/v1/chat/completions", &chat(topic, more));
            check(&reply, 200);
            assert_eq!(reply.json()["choices"].as_array().unwrap().len(), 2);
            &counts.answered
        }
        4 => {
            let long = format!("{topic} ").repeat(40 + round % 200);
            let body =
                json!({"prompt": [topic, long], "max_tokens": most, "echo": true, "top_k": 40});
            let reply = server.post("/v1/completions", &body);
            check(&reply, 200);
            assert_eq!(reply.json()["choices"].as_array().unwrap().len(), 2);
            &counts.answered
        }
        5 | 6 => {
            let body = chat(topic, json!({"stream": true, "ignore_eos": true, "n": 1 + round % 2}));
            let body = body.to_string();
            let path = "/v1/chat/completions";
            let mut client = Client::send(&server.address, "POST", path, &body).unwrap();
            if round % 8 == 5 {
                assert!(client.read_events(1 + most));
            }
            client.leave(if round.is_multiple_of(3) { Leaving::Reset } else { Leaving::Close });
            &counts.left
        }
        _ => {
            let body = chat(topic, json!({"temperature": "hot"}));
            check(&server.post("/v1/chat/completions", &body), 400);
            check(&server.post("/tokenize", &json!({"prompt": topic})), 200);
            &counts.refused
        }
    };
    seen.fetch_add(1, Ordering::Relaxed);
}
