//! Clients that are killed, a thousand of them, while others listen.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::client::{Client, Leaving, chat};
use crate::server::Server;
use crate::{alone, percentile};

const PATH: &str = "/v1/chat/completions";

/// Clients that leave by themselves, so many at once, so often.
const TOGETHER: usize = 18;
const ROUNDS: usize = 50;

/// Processes that are killed, with so many clients each.
const PROCESSES: usize = 5;
const CLIENTS: usize = 20;

/// The test runs itself as such a process, and tells it the server's address in this variable.
const ADDRESS: &str = "ML_LOAD_KILLED_ADDRESS";

const THIS: &str = "killed::a_thousand_killed_clients_leave_nothing_behind_and_disturb_nobody";

/// The stage of a request when its client leaves.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// It has just been sent: it waits, or its prompt is being computed.
    Sent,
    /// Its long prompt is being computed.
    Prefill,
    /// It has so many tokens.
    Decode(usize),
}

/// Streams whose text must not depend on what happens around them.
fn witnesses() -> Vec<Json> {
    let more = |more: Json| {
        let mut all = json!({"stream": true, "max_tokens": 120, "ignore_eos": true});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    vec![
        chat("fox", more(json!({"temperature": 0}))),
        chat("king", more(json!({"temperature": 0, "repetition_penalty": 1.1}))),
        chat("ship", more(json!({"temperature": 0.9, "seed": 7}))),
        chat("dragon", more(json!({"temperature": 1.2, "top_p": 0.95, "seed": -3}))),
    ]
}

fn endless(topic: &str) -> String {
    chat(topic, json!({"stream": true, "ignore_eos": true})).to_string()
}

fn leave(server: &Server, number: usize) {
    let stage = match number % 5 {
        0 | 1 => Stage::Sent,
        2 => Stage::Prefill,
        more => Stage::Decode(more + number % 7),
    };
    let how = [Leaving::Close, Leaving::Reset, Leaving::Half][number % 3];
    let topic =
        if matches!(stage, Stage::Prefill) { "fox and a ".repeat(300) } else { "fox".into() };
    let mut client = Client::send(&server.address, "POST", PATH, &endless(&topic)).unwrap();
    match stage {
        Stage::Sent => thread::sleep(Duration::from_millis(number as u64 % 4)),
        Stage::Prefill => thread::sleep(Duration::from_millis(5 + number as u64 % 40)),
        Stage::Decode(count) => assert!(client.read_events(count)),
    }
    client.leave(how);
}

#[test]
fn a_thousand_killed_clients_leave_nothing_behind_and_disturb_nobody() {
    if let Ok(address) = std::env::var(ADDRESS) {
        return listen(&address);
    }
    let _alone = alone();
    let server = Server::start(&["--prefix-cache", "0", "--parallel", "8", "--queue", "128"]);
    let undisturbed: Vec<_> =
        witnesses().iter().map(|body| server.post(PATH, body).text()).collect();
    let (ends, heard) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for (body, expected) in witnesses().into_iter().zip(&undisturbed) {
            let (server, ends, heard) = (&server, &ends, &heard);
            scope.spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    assert_eq!(server.post(PATH, &body).text(), *expected, "{body}");
                    heard.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..ROUNDS {
            thread::scope(|scope| {
                let server = &server;
                for client in 0..TOGETHER {
                    scope.spawn(move || leave(server, round * TOGETHER + client));
                }
            });
        }
        for _ in 0..PROCESSES {
            kill_a_process(&server);
        }
        ends.store(true, Ordering::Relaxed);
    });
    let idle = server.wait_until_idle(Duration::from_secs(10));
    let killed = ROUNDS * TOGETHER + PROCESSES * CLIENTS;
    println!(
        "{killed} killed clients, {} of whose generations had begun; {} streams beside them, all as \
         if alone; idle {idle:?} after the last",
        server.metric("ml_cancelled_total"),
        heard.load(Ordering::Relaxed),
    );
    assert!(heard.load(Ordering::Relaxed) >= 4);
    assert_eq!(server.post(PATH, &witnesses()[0]).text(), undisturbed[0]);
}

fn kill_a_process(server: &Server) {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", THIS, "--nocapture"])
        .env(ADDRESS, &server.address)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let ready = lines.map_while(Result::ok).any(|line| line.contains("all have begun"));
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(ready);
}

/// Runs as the process that is killed: its clients listen until then.
fn listen(address: &str) {
    let send = |_| Client::send(address, "POST", PATH, &endless("fox")).unwrap();
    let mut clients: Vec<_> = (0..CLIENTS).map(send).collect();
    assert!(clients[0].read_events(2));
    println!("all have begun");
    thread::sleep(crate::PATIENCE);
}

#[test]
fn a_row_ends_with_the_step_in_which_its_client_leaves() {
    let _alone = alone();
    let server = Server::start(&["--prefix-cache", "0"]);
    let mut times = Vec::new();
    for number in 0..30 {
        let mut client = Client::send(&server.address, "POST", PATH, &endless("fox")).unwrap();
        assert!(client.read_events(3));
        client.leave([Leaving::Close, Leaving::Reset][number % 2]);
        times.push(server.wait_until_idle(Duration::from_secs(10)));
    }
    let median = percentile(&mut times, 0.5);
    println!("idle again after a client left: p50 {median:?}, longest {:?}", times.last());
    // A step of the demo model takes about 5 ms, and what asks takes a few.
    assert!(median < Duration::from_millis(250), "{times:?}");
}
