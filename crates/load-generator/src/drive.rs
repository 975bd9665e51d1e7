//! Clients: each sends its next request when its answer has ended, or requests come by the clock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::answer::Usage;
use crate::error::Result;
use crate::form::Answer;
use crate::http::Connection;
use crate::options::{Extent, Load};
use crate::probe::Known;

/// A client that met an error waits, so that a server that refuses is not asked without end.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// How often the measurement looks whether its own threads are late.
const BEAT: Duration = Duration::from_millis(10);

/// Times and outcome of one request.
#[derive(Debug)]
pub struct Record {
    /// When it was sent, or was to be sent by the clock.
    pub began: Instant,
    /// When its answer, or its error, was whole.
    pub ended: Instant,
    /// The answer, or the error in its place.
    pub outcome: Result<Answered>,
}

/// An answer.
#[derive(Debug)]
pub struct Answered {
    /// When each frame with text was read.
    pub texts: Vec<Instant>,
    /// Usage as the server counted it; `None` where it reports none.
    pub usage: Option<Usage>,
}

/// All requests of one load.
#[derive(Debug)]
pub struct Records {
    /// In any order.
    pub requests: Vec<Record>,
    /// How late the measurement's own threads were, each time that they looked.
    pub late: Vec<Duration>,
}

/// Gives requests their numbers, over all loads of a call.
#[derive(Debug)]
pub struct Numbers {
    next: AtomicUsize,
    seed: u64,
}

impl Numbers {
    /// Numbers from 0 on, for prompts and arrivals of `seed`.
    pub fn new(seed: u64) -> Numbers {
        Numbers { next: AtomicUsize::new(0), seed }
    }
}

/// One load.
struct Run {
    known: Arc<Known>,
    numbers: Arc<Numbers>,
    /// How many requests were begun.
    begun: AtomicUsize,
    extent: Extent,
    start: Instant,
    /// Connections that wait for a request, where requests come by the clock.
    idle: Mutex<Vec<Connection>>,
}

/// Puts `load` on the server.
pub async fn run(
    known: &Arc<Known>,
    numbers: &Arc<Numbers>,
    load: Load,
    extent: Extent,
) -> Records {
    let late = Arc::new(Mutex::new(Vec::new()));
    let beating = tokio::spawn(beat(Arc::clone(&late)));
    let run = Arc::new(Run {
        known: Arc::clone(known),
        numbers: Arc::clone(numbers),
        begun: AtomicUsize::new(0),
        extent,
        start: Instant::now(),
        idle: Mutex::default(),
    });
    let requests = match load {
        Load::Clients(count) => closed(&run, count).await,
        Load::Rate(rate) => open(&run, rate).await,
    };
    beating.abort();
    let late = std::mem::take(&mut *lock(&late));
    Records { requests, late }
}

async fn closed(run: &Arc<Run>, clients: usize) -> Vec<Record> {
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let run = Arc::clone(run);
        tasks.spawn(async move {
            let (mut slot, mut records) = (None, Vec::new());
            while let Some(number) = run.next() {
                let record = run.one(&mut slot, number, None).await;
                let failed = record.outcome.is_err();
                records.push(record);
                if failed {
                    sleep(AFTER_ERROR).await;
                }
            }
            records
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

async fn open(run: &Arc<Run>, rate: f64) -> Vec<Record> {
    let mut tasks = JoinSet::new();
    let mut gaps = Rng::with_seed(run.numbers.seed);
    let mut due = run.start;
    while let Some(number) = run.next() {
        let run = Arc::clone(run);
        tasks.spawn(async move {
            let mut slot = lock(&run.idle).pop();
            let record = run.one(&mut slot, number, Some(due)).await;
            lock(&run.idle).extend(slot);
            record
        });
        // Times between independent arrivals are exponential.
        due += Duration::from_secs_f64(-(1.0 - gaps.f64()).ln() / rate);
        tokio::time::sleep_until(due.into()).await;
    }
    tasks.join_all().await
}

impl Run {
    /// The number of the next request; `None` when no more are to begin.
    fn next(&self) -> Option<usize> {
        let begun = self.begun.fetch_add(1, Ordering::Relaxed);
        let more = match self.extent {
            Extent::Requests(count) => begun < count,
            Extent::Time(time) => self.start.elapsed() < time,
        };
        more.then(|| self.numbers.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends a request, which was `due` by the clock or has its time from now on.
    async fn one(
        &self,
        slot: &mut Option<Connection>,
        number: usize,
        due: Option<Instant>,
    ) -> Record {
        // Making a prompt is no time of the server's.
        let known = &self.known;
        let line = known.source.of_lengths(self.numbers.seed, number, known.lengths);
        let began = due.unwrap_or_else(Instant::now);
        let streamed = self.known.asker.stream(slot, &line, Answer::Streamed).await;
        let ended = streamed.as_ref().map_or_else(|_| Instant::now(), |streamed| streamed.done);
        let answered =
            streamed.map(|streamed| Answered { texts: streamed.texts, usage: streamed.usage });
        Record { began, ended, outcome: answered }
    }
}

/// Looks again and again how late these threads are.
async fn beat(late: Arc<Mutex<Vec<Duration>>>) {
    loop {
        let before = Instant::now();
        sleep(BEAT).await;
        lock(&late).push(before.elapsed().saturating_sub(BEAT));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
