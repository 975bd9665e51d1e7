//! One command of this program in several processes, which compute its model together.

use std::env;
use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::gpus::Gpus;
use super::hosts;
use super::remote::Remote;
use crate::args::HostArgs;
use crate::failure::{Failure, Result};
use crate::output::note;
use crate::ranks::{HOST_FILE, HOSTS, INSECURE, RANK};
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
    check_arguments(arguments)?;
    let program = env::current_exe().map_err(|error| failed("this program", error))?;
    let addresses = free_addresses(count).map_err(|error| failed("a free port", error))?;
    let gpus = Gpus::of_host(count);
    if let Some(told) = gpus.note(count) {
        note(format_args!("{told}"));
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let command = |rank: usize| {
        let mut command = Command::new(&program);
        command.args(arguments).env(RANK, rank.to_string()).env(HOSTS, &addresses);
        command.env_remove(HOST_FILE).envs(gpus.variables(rank));
        if env::var_os(THREADS).is_none() && !matches!(gpus, Gpus::Each(_)) {
            command.env(THREADS, (cores / count).max(1).to_string());
        }
        if rank > 0 {
            command.stdin(Stdio::null()).stdout(Stdio::null());
        }
        Ok(command)
    };
    all(count, arguments, command)
}

/// Runs `arguments` on the hosts of `--hostfile`, one rank on each, and ends as the first of them that fails.
///
/// # Errors
/// Nothing to run; a file of hosts that cannot be used; addresses that others reach, without leave; no `ssh`.
pub fn run_on(file: &Path, args: &HostArgs, arguments: &[OsString]) -> Result<ExitStatus> {
    check_arguments(arguments)?;
    let hosts = hosts::read(file, args.starting_port)?;
    let reached = hosts.iter().find(|host| !host.address.ip().is_loopback());
    if let (Some(host), false) = (reached, args.insecure_ranks) {
        return Err(Failure::Usage(format!(
            "the address {} is not of the loopback: the traffic of ranks is neither encrypted nor authenticated. \
             Fence the network, as docs/distributed.md says, and pass --insecure-ranks",
            host.address
        )));
    }
    let here = env::current_dir().map_err(|error| failed("this folder", error))?;
    let folder = args.cwd.as_ref().unwrap_or(&here);
    let no_text =
        || Failure::Usage("--cwd: the folder's name is no UTF-8, which ssh needs".to_owned());
    let folder = folder.to_str().ok_or_else(no_text)?;
    let program = match &args.program {
        Some(program) => program.clone(),
        None => env::current_exe().map_err(|error| failed("this program", error))?,
    };
    let addresses: Vec<_> = hosts.iter().map(|host| host.address.to_string()).collect();
    let addresses = addresses.join(",");
    let serves = is_serve(arguments);
    let command = |rank: usize| {
        let mut variables = vec![(RANK, rank.to_string()), (HOSTS, addresses.clone())];
        if args.insecure_ranks {
            variables.push((INSECURE, "1".to_owned()));
        }
        // The first rank may read what it is given; the others, and servers, read nothing.
        let is_watched = rank > 0 || serves;
        let mut command = match &hosts[rank].ssh {
            None => {
                let mut command = Command::new(&program);
                command.args(arguments).envs(variables).env_remove(HOST_FILE).current_dir(folder);
                if is_watched {
                    command.stdin(Stdio::null());
                }
                command
            }
            Some(host) => {
                let words = [program.as_os_str()].into_iter();
                let words = words.chain(arguments.iter().map(OsString::as_os_str)).collect();
                let mut command = Remote { folder, variables, words, is_watched }.command(host)?;
                if is_watched {
                    command.stdin(Stdio::piped());
                }
                command
            }
        };
        if rank > 0 {
            command.stdout(Stdio::null());
        }
        Ok(command)
    };
    all(hosts.len(), arguments, command)
}

fn check_arguments(arguments: &[OsString]) -> Result<()> {
    if arguments.is_empty() {
        let nothing = "nothing to run: name a command behind `--`, such as `ml launch -n 2 -- generate Hello`";
        return Err(Failure::Usage(nothing.to_owned()));
    }
    Ok(())
}

fn is_serve(arguments: &[OsString]) -> bool {
    arguments.first().is_some_and(|command| command == "serve")
}

fn failed(what: &str, error: io::Error) -> Failure {
    Failure::Other(format!("{what}: {error}"))
}

/// Starts all ranks, each by its command, and waits for them.
fn all(
    count: usize,
    arguments: &[OsString],
    command: impl Fn(usize) -> Result<Command>,
) -> Result<ExitStatus> {
    let signals = Signals::install()?;
    let mut ranks = Vec::with_capacity(count);
    for rank in 0..count {
        let started = command(rank).and_then(|mut command| {
            let program = command.get_program().to_string_lossy().into_owned();
            command.spawn().map_err(|error| failed(&program, error))
        });
        match started {
            Ok(child) => ranks.push(child),
            Err(error) => {
                ranks.iter_mut().for_each(|rank: &mut Child| drop(rank.kill()));
                return Err(error);
            }
        }
    }
    // A server without one of its ranks stays, and says so to whoever asks.
    let late = usize::from(is_serve(arguments));
    wait(ranks, &signals, late).map_err(|error| failed("a process", error))
}

/// Asks a rank to end. One behind `ssh` ends where its stdin does, and tells how.
fn end(rank: &mut Child) {
    if rank.stdin.take().is_none() {
        terminate(rank);
    }
}

/// Addresses of this host, a comma between two, that were free a moment ago.
fn free_addresses(count: usize) -> io::Result<String> {
    let bind = || TcpListener::bind("127.0.0.1:0");
    let listeners: Vec<TcpListener> = (0..count).map(|_| bind()).collect::<io::Result<_>>()?;
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
            ranks.first_mut().filter(|_| ends[0].is_none()).into_iter().for_each(end);
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
            left.iter_mut().for_each(|rank| end(rank));
            deadline = Some(Instant::now() + GRACE);
            told = true;
        } else if is_over && told {
            left.iter_mut().try_for_each(|rank| rank.kill())?;
        }
        thread::sleep(AGAIN);
    }
}
