//! One command of this program in several processes, which compute its model together.

use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};
use crate::ranks::{HOST_FILE, HOSTS, RANK};
use crate::signals::{Signals, terminate};

/// The variable with the threads of a process, where `--threads` does not say.
const THREADS: &str = "ML_THREADS";
/// Between two looks at the processes.
const AGAIN: Duration = Duration::from_millis(20);
/// For the others to end once one has: those that wait for it notice at once.
const GRACE: Duration = Duration::from_secs(5);

/// Runs `arguments` in `count` processes on this host, and ends as the first of them that fails.
///
/// # Errors
/// Nothing to run; no free ports; what the system says.
pub fn run(count: usize, arguments: &[OsString]) -> Result<ExitStatus> {
    if arguments.is_empty() {
        let nothing = "nothing to run: name a command behind `--`, such as `ml launch -n 2 -- generate Hello`";
        return Err(Failure::Usage(nothing.to_owned()));
    }
    let failed = |what: &str, error: io::Error| Failure::Other(format!("{what}: {error}"));
    let program = std::env::current_exe().map_err(|error| failed("this program", error))?;
    let signals = Signals::install()?;
    let addresses = free_addresses(count).map_err(|error| failed("a free port", error))?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut ranks = Vec::with_capacity(count);
    for rank in 0..count {
        let mut command = Command::new(&program);
        command.args(arguments).env(RANK, rank.to_string()).env(HOSTS, &addresses);
        command.env_remove(HOST_FILE);
        if std::env::var_os(THREADS).is_none() {
            command.env(THREADS, (cores / count).max(1).to_string());
        }
        if rank > 0 {
            command.stdin(Stdio::null()).stdout(Stdio::null());
        }
        match command.spawn() {
            Ok(child) => ranks.push(child),
            Err(error) => {
                ranks.iter_mut().for_each(|rank| drop(rank.kill()));
                return Err(failed("a process", error));
            }
        }
    }
    // A server without one of its ranks stays, and says so to whoever asks.
    let stays = arguments.first().is_some_and(|command| command == "serve");
    wait(ranks, &signals, if stays { 1 } else { 0 }).map_err(|error| failed("a process", error))
}

/// Addresses of this host, a comma between two, that were free a moment ago.
fn free_addresses(count: usize) -> io::Result<String> {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<io::Result<_>>()?;
    let address = |listener: &TcpListener| Ok(listener.local_addr()?.to_string());
    Ok(listeners.iter().map(address).collect::<io::Result<Vec<_>>>()?.join(","))
}

/// Waits for all. Where one ends, the ranks from `late` on have a moment only, and all of them once the first one has
/// ended. How the first one ended that failed, else the first rank.
fn wait(mut ranks: Vec<Child>, signals: &Signals, late: usize) -> io::Result<ExitStatus> {
    let mut ends: Vec<Option<ExitStatus>> = vec![None; ranks.len()];
    let (mut failure, mut deadline) = (None, None::<Instant>);
    let (mut told, mut told_first) = (false, false);
    loop {
        for (rank, end) in ranks.iter_mut().zip(&mut ends).filter(|(_, end)| end.is_none()) {
            *end = rank.try_wait()?;
            if let Some(status) = *end {
                deadline = deadline.or(Some(Instant::now() + GRACE));
                failure = failure.or((!status.success()).then_some(status));
            }
        }
        if ends.iter().all(Option::is_some) {
            let first = ends.first().copied().flatten();
            // Where the first rank has done its work, the others have too.
            let first = first.ok_or_else(|| io::Error::other("there are no ranks"))?;
            return Ok(if first.success() { first } else { failure.unwrap_or(first) });
        }
        if signals.ends() && !told_first {
            // It ends what runs, and the others with it.
            ranks.first().filter(|_| ends[0].is_none()).into_iter().for_each(terminate);
            told_first = true;
        }
        let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let from = if ends[0].is_some() { 0 } else { late };
        let mut left: Vec<&mut Child> = ranks
            .iter_mut()
            .zip(&ends)
            .skip(from)
            .filter(|(_, end)| end.is_none())
            .map(|(rank, _)| rank)
            .collect();
        if is_over && !told {
            left.iter().for_each(|rank| terminate(rank));
            deadline = Some(Instant::now() + GRACE);
            told = true;
        } else if is_over && told {
            left.iter_mut().try_for_each(|rank| rank.kill())?;
        }
        thread::sleep(AGAIN);
    }
}
