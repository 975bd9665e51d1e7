//! Resources of ranks by the system's count, and those left where one is killed while it loads.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use super::{by_hand, served, texts_of_many, wait_until_idle};
use crate::{FOX, finish, interrupt, signal};

/// The resources of a process.
#[derive(Clone, Copy, Debug)]
struct Held {
    threads: usize,
    sockets: usize,
    /// Memory that it allocated itself.
    bytes: u64,
}

impl Held {
    /// `None`: the system does not tell.
    fn of(process: &Child) -> Option<Held> {
        let folder = format!("/proc/{}", process.id());
        let entries = |name: &str| fs::read_dir(format!("{folder}/{name}")).ok();
        let is_socket = |entry: &fs::DirEntry| {
            fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
        };
        let status = fs::read_to_string(format!("{folder}/status")).ok()?;
        let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        let kibibytes: u64 = anonymous.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(Held {
            threads: entries("task")?.count(),
            sockets: entries("fd")?.flatten().filter(is_socket).count(),
            bytes: kibibytes << 10,
        })
    }
}

/// Bytes that two hundred requests more may leave: an allocator's pieces, but no keys and values.
const LEFT: u64 = 16 << 20;

/// Clients that ask at once, for which a server may keep as many threads. Fifty requests are left,
/// each of which could leave one behind.
const AT_ONCE: usize = 16;

/// Descriptors of a rank of three that is connected: values of two, and orders of one at least,
/// each known twice.
const CONNECTED: usize = 6;

#[test]
fn ranks_hold_no_more_after_hundreds_of_requests_of_which_many_are_left() {
    let (_folder, ranks, address) = served(3);
    let held = || {
        texts_of_many(&address);
        wait_until_idle(&address);
        // Connections of clients close, and freed memory goes back a second later.
        thread::sleep(Duration::from_millis(2500));
        ranks.iter().map(Held::of).collect::<Vec<_>>()
    };
    let (before, after) = (held(), held());
    for (rank, (before, after)) in before.into_iter().zip(after).enumerate() {
        let (Some(before), Some(after)) = (before, after) else { continue };
        let told = format!("rank {rank}: {before:?}, then {after:?}");
        assert!(after.threads < before.threads + AT_ONCE, "{told}");
        assert!(after.sockets < before.sockets + AT_ONCE, "{told}");
        assert!(after.bytes < before.bytes + LEFT, "{told}");
        assert!(after.sockets >= CONNECTED, "{told}");
    }
    interrupt(&ranks[0]);
    for (rank, (code, _, told)) in ranks.into_iter().map(finish).enumerate() {
        assert_eq!((code, told.as_str()), (Some(0), ""), "rank {rank}");
    }
}

#[test]
fn a_rank_that_is_killed_while_it_loads_ends_the_others() {
    if !Path::new("/proc/self/fd").exists() {
        // The system does not tell when a rank is connected.
        return;
    }
    for delay in [0, 3, 10] {
        let (_folder, ranks) = by_hand(3, &["generate", FOX, "-n", "100000", "--ignore-eos"]);
        // All are connected, and load.
        let connected = || Held::of(&ranks[2]).is_some_and(|held| held.sockets >= CONNECTED);
        let started = Instant::now();
        while !connected() {
            assert!(started.elapsed() < Duration::from_secs(20), "it does not connect");
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(delay));
        signal(&ranks[2], "-KILL");
        let started = Instant::now();
        let ends: Vec<_> = ranks.into_iter().map(finish).collect();
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        for (rank, (code, _, told)) in ends[..2].iter().enumerate() {
            assert_eq!(*code, Some(1), "rank {rank}: {told}");
            assert!(told.contains("is lost"), "rank {rank}: {told}");
        }
    }
}
