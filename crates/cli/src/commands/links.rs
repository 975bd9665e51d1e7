//! `ml doctor --links`: how long messages take between the ranks of a group, and how many bytes go
//! through.
//!
//! Of two ranks, the one with the higher number listens and the other measures. What was measured
//! goes to rank 0, which prints it.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use inference_core::Ranks;
use serde::{Deserialize, Serialize};

use crate::bytes;
use crate::failure::{Failure, Result};
use crate::output::{print, print_json};
use crate::ranks;

/// How long ranks wait until all are there.
const MEET: Duration = Duration::from_secs(120);
/// How long one waits for an answer of another.
const ANSWER: Duration = Duration::from_secs(30);
/// Between two calls of a rank that is not there yet.
const AGAIN: Duration = Duration::from_millis(50);
/// Bytes of a small message: the hidden values of a token of a model with 4096 of them, in bf16.
const SMALL: usize = 8 << 10;
/// Messages there and back, and how many of them come before, unmeasured.
const ROUNDS: usize = 200;
const BEFORE: usize = 20;
/// Bytes of a large message, which goes through for about so long.
const LARGE: usize = 4 << 20;
const LONG: Duration = Duration::from_millis(500);
/// The first bytes of a rank, which tell it from a stranger.
const HELLO: &[u8; 8] = b"ml-links";

/// The measurements between two ranks.
#[derive(Debug, Deserialize, Serialize)]
struct Link {
    from: usize,
    to: usize,
    /// Half the time of a message there and back, the median.
    latency_microseconds: f64,
    bytes_per_second: f64,
}

/// The object of `--json`.
#[derive(Serialize)]
struct Report {
    ranks: Vec<SocketAddr>,
    message_bytes: usize,
    links: Vec<Link>,
}

/// Measures as one of the ranks that the environment names. Rank 0 prints what all measured.
///
/// # Errors
/// No ranks; one that does not come or hangs, by its number.
pub fn run(json: bool) -> Result<()> {
    let Some(ranks) = ranks::from_environment()? else {
        let reason = "--links measures between ranks: run `ml launch -n 2 -- doctor --links`, or with --hostfile";
        return Err(Failure::Usage(reason.to_owned()));
    };
    let Ranks { rank, addresses, .. } = &ranks;
    let own = addresses.get(*rank).ok_or_else(|| {
        Failure::Usage(format!("rank {rank} is none of {} ranks", addresses.len()))
    })?;
    let listener = TcpListener::bind(own)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|error| Failure::Other(format!("cannot listen on {own}: {error}")))?;
    // Those before it call, one after the other; then it calls those behind it.
    for _ in 0..*rank {
        let (other, socket) = accept(&listener)?;
        answer(socket).map_err(|error| lost(other, &error))?;
    }
    let mut links = Vec::new();
    for (other, address) in addresses.iter().enumerate().skip(rank + 1) {
        let measured = call(*address, *rank).and_then(|socket| measure(socket, *rank, other));
        links.push(measured.map_err(|error| lost(other, &error))?);
    }
    if *rank > 0 {
        let told = serde_json::to_string(&links).map_err(io::Error::other);
        let told = told.and_then(|text| writeln!(call(addresses[0], *rank)?, "{text}"));
        return told.map_err(|error| lost(0, &error));
    }
    for _ in 1..addresses.len() {
        let (other, socket) = accept(&listener)?;
        let mut line = String::new();
        let read = BufReader::new(socket).read_line(&mut line);
        let more = read.and_then(|_| Ok(serde_json::from_str::<Vec<Link>>(&line)?));
        links.extend(more.map_err(|error| lost(other, &error))?);
    }
    links.sort_by_key(|link| (link.from, link.to));
    let report = Report { ranks: addresses.clone(), message_bytes: SMALL, links };
    if json { print_json(&report) } else { print(&text(&report)) }
}

fn lost(rank: usize, error: &io::Error) -> Failure {
    Failure::Other(format!("rank {rank} is lost: {error}"))
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for (rank, address) in report.ranks.iter().enumerate() {
        let _ = writeln!(text, "rank {rank}  {address}");
    }
    let size = bytes::human(report.message_bytes as u64);
    for Link { from, to, latency_microseconds, bytes_per_second } in &report.links {
        let rate = bytes::human(*bytes_per_second as u64);
        let _ = writeln!(text, "{from} to {to}  {latency_microseconds:.0} µs for {size}, {rate}/s");
    }
    text
}

/// A connection to another rank, once it is there.
fn call(address: SocketAddr, rank: usize) -> io::Result<TcpStream> {
    let begun = Instant::now();
    let mut socket = loop {
        match TcpStream::connect_timeout(&address, MEET) {
            Ok(socket) => break socket,
            Err(error) if begun.elapsed() > MEET => return Err(error),
            Err(_) => thread::sleep(AGAIN),
        }
    };
    prepare(&socket)?;
    socket.write_all(HELLO)?;
    socket.write_all(&[u8::try_from(rank).unwrap_or(u8::MAX)])?;
    Ok(socket)
}

/// The next rank that calls, and the connection. Strangers are left.
fn accept(listener: &TcpListener) -> Result<(usize, TcpStream)> {
    let begun = Instant::now();
    while begun.elapsed() < MEET {
        let Ok((mut socket, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        let mut hello = [0; HELLO.len() + 1];
        let heard = socket.set_nonblocking(false).and_then(|()| prepare(&socket));
        if heard.and_then(|()| socket.read_exact(&mut hello)).is_ok()
            && let [told @ .., rank] = &hello
            && told == HELLO
        {
            return Ok((usize::from(*rank), socket));
        }
    }
    Err(Failure::Other(format!("no other rank called within {} s", MEET.as_secs())))
}

fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(ANSWER))?;
    socket.set_write_timeout(Some(ANSWER))
}

/// Sends messages back: first the small ones as they are, then a byte for each large one, until the
/// other ends.
fn answer(mut socket: TcpStream) -> io::Result<()> {
    let mut message = vec![0; SMALL];
    for _ in 0..BEFORE + ROUNDS {
        socket.read_exact(&mut message)?;
        socket.write_all(&message)?;
    }
    message.resize(LARGE, 0);
    loop {
        match socket.read(&mut message[..1])? {
            0 => return Ok(()),
            _ => socket.read_exact(&mut message[1..])?,
        }
        socket.write_all(&[1])?;
    }
}

fn measure(mut socket: TcpStream, from: usize, to: usize) -> io::Result<Link> {
    let mut message = vec![0; SMALL];
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..BEFORE + ROUNDS {
        let begun = Instant::now();
        socket.write_all(&message)?;
        socket.read_exact(&mut message)?;
        if round >= BEFORE {
            times.push(begun.elapsed());
        }
    }
    times.sort();
    message.resize(LARGE, 0);
    let (begun, mut sent) = (Instant::now(), 0);
    while begun.elapsed() < LONG {
        socket.write_all(&message)?;
        socket.read_exact(&mut [0])?;
        sent += LARGE;
    }
    Ok(Link {
        from,
        to,
        latency_microseconds: times[ROUNDS / 2].as_secs_f64() * 1e6 / 2.0,
        bytes_per_second: sent as f64 / begun.elapsed().as_secs_f64(),
    })
}
