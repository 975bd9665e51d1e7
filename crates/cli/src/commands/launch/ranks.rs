//! One command of this program in several processes, which compute its model together.

use std::env;
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::TcpListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use inference_server::hangup_is_ignored;
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::gpus::Gpus;
use super::hosts;
use super::remote::Remote;
use crate::args::{Cli, Command as Asked, HostArgs};
use crate::failure::{Failure, Result};
use crate::output::note;
use crate::ranks::{GROUP, HOST_FILE, HOSTS, INSECURE, LAUNCHER, RANK};
use crate::signals::{send, terminate};

/// The variable with the threads of a process, where `--threads` does not say.
const THREADS: &str = "ML_THREADS";
/// Between two looks at the processes.
const AGAIN: Duration = Duration::from_millis(20);
/// For the others to end once one has: those that wait for it notice at once. So much longer than
/// it may, one that is to end has before it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// For all to end once they were told twice, and for the others once the first one has ended as it
/// was told.
const SOON: Duration = Duration::from_secs(2);

/// Runs `arguments` in `count` processes on this host, and ends as the first of them that fails.
///
/// # Errors
/// Nothing to run; no free ports; what the system says.
pub fn run(count: usize, arguments: &[OsString]) -> Result<()> {
    let manner = Manner::of(arguments)?;
    let program = env::current_exe().map_err(|error| failed("this program", error))?;
    let addresses = free_addresses(count).map_err(|error| failed("a free port", error))?;
    let gpus = Gpus::of_host(count);
    if let Some(told) = gpus.note(count) {
        note(format_args!("{told}"));
    }
    let (group, cores) = (new_group(), thread::available_parallelism().map_or(1, usize::from));
    let command = |rank: usize| {
        let mut command = Command::new(&program);
        command.args(arguments).env(RANK, rank.to_string()).env(HOSTS, &addresses);
        command.env(GROUP, &group).env_remove(HOST_FILE).envs(gpus.variables(rank));
        if env::var_os(THREADS).is_none() && !matches!(gpus, Gpus::Each(_)) {
            command.env(THREADS, (cores / count).max(1).to_string());
        }
        if rank > 0 {
            command.stdin(Stdio::null()).stdout(Stdio::null());
        }
        Ok((command, Place::Here))
    };
    all(count, &manner, command)
}

/// Runs `arguments` on the hosts of `--hostfile`, one rank on each, and ends as the first of them
/// that fails.
///
/// # Errors
/// Nothing to run; a file of hosts that cannot be used; addresses that others reach, without leave;
/// no `ssh`.
pub fn run_on(file: &Path, args: &HostArgs, arguments: &[OsString]) -> Result<()> {
    let manner = Manner::of(arguments)?;
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
    if hosts.iter().any(|host| host.ssh.is_none()) && !Path::new(folder).is_dir() {
        return Err(Failure::Usage(format!("--cwd {folder}: this host has no such folder")));
    }
    let program = match &args.program {
        Some(program) => program.clone(),
        None => env::current_exe().map_err(|error| failed("this program", error))?,
    };
    let addresses: Vec<_> = hosts.iter().map(|host| host.address.to_string()).collect();
    let addresses = addresses.join(",");
    let group = new_group();
    let command = |rank: usize| {
        let mut variables =
            vec![(RANK, rank.to_string()), (HOSTS, addresses.clone()), (GROUP, group.clone())];
        if args.insecure_ranks {
            variables.push((INSECURE, "1".to_owned()));
        }
        // The first rank may read what it is given; the others, and servers, read nothing.
        let is_watched = rank > 0 || manner.serves;
        let (mut command, place) = match &hosts[rank].ssh {
            None => {
                let mut command = Command::new(&program);
                command.args(arguments).envs(variables).env_remove(HOST_FILE).current_dir(folder);
                if is_watched {
                    command.stdin(Stdio::null());
                }
                (command, Place::Here)
            }
            Some(host) => {
                let words = [program.as_os_str()].into_iter();
                let words = words.chain(arguments.iter().map(OsString::as_os_str)).collect();
                let mut command = Remote { folder, variables, words, is_watched }.command(host)?;
                if is_watched {
                    // A signal to this program's group is told by the stdin: `ssh` would end by it.
                    command.stdin(Stdio::piped()).process_group(0);
                }
                (command, Place::There)
            }
        };
        if rank > 0 {
            command.stdout(Stdio::null());
        }
        Ok((command, place))
    };
    all(hosts.len(), &manner, command)
}

/// How a command that runs in ranks ends.
#[derive(Default)]
struct Manner {
    /// A server without one of its ranks stays, and says so to whoever asks.
    serves: bool,
    /// Ctrl-C ends an answer, not the command.
    stays: bool,
    /// How long it may take to end once it is told.
    drains: Duration,
}

impl Manner {
    /// That of `arguments`.
    ///
    /// # Errors
    /// Nothing to run; a command that starts processes itself.
    fn of(arguments: &[OsString]) -> Result<Manner> {
        let Some(first) = arguments.first() else {
            let nothing = "nothing to run: name a command behind `--`, such as `ml launch -n 2 -- generate Hello`";
            return Err(Failure::Usage(nothing.to_owned()));
        };
        if first == "launch" || first == "setup" {
            let name = first.display();
            return Err(Failure::Usage(format!(
                "`ml {name}` does not run in several ranks; `ml generate`, `chat`, `classify`, `serve`, `bench` and `doctor --links` do"
            )));
        }
        let words = [OsString::from("ml")].into_iter().chain(arguments.iter().cloned());
        // What cannot be read, the ranks say themselves.
        Ok(match Cli::read(words).ok().and_then(|cli| cli.command) {
            Some(Asked::Serve(args)) => {
                Manner { serves: true, drains: args.limits.drain_timeout, ..Manner::default() }
            }
            Some(Asked::Chat(args)) => Manner { stays: args.prompt.is_none(), ..Manner::default() },
            _ => Manner::default(),
        })
    }
}

/// The place of a rank's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Here,
    /// Behind `ssh`.
    There,
}

/// A number that no other group has.
fn new_group() -> String {
    // The system's random numbers are the keys.
    RandomState::new().hash_one(process::id()).max(1).to_string()
}

fn failed(what: &str, error: io::Error) -> Failure {
    Failure::Other(format!("{what}: {error}"))
}

/// Starts all ranks, each by its command, and waits for them.
fn all(
    count: usize,
    manner: &Manner,
    command: impl Fn(usize) -> Result<(Command, Place)>,
) -> Result<()> {
    let ends = [SIGINT, SIGTERM, SIGHUP];
    // Those who start it with `nohup` want it to stay.
    let ends = if hangup_is_ignored() { &ends[..2] } else { &ends[..] };
    let mut signals = Signals::new(ends).map_err(|error| failed("signals", error))?;
    let mut ranks = Vec::with_capacity(count);
    for number in 0..count {
        let started = command(number).and_then(|(mut command, place)| {
            let program = command.get_program().to_string_lossy().into_owned();
            if place == Place::Here {
                command.env(LAUNCHER, process::id().to_string());
            }
            let process = command.spawn().map_err(|error| failed(&program, error))?;
            Ok(Rank { number, place, process, end: None })
        });
        match started {
            Ok(rank) => ranks.push(rank),
            Err(error) => {
                ranks.iter_mut().for_each(|rank: &mut Rank| drop(rank.process.kill()));
                return Err(error);
            }
        }
    }
    let ended = wait(&mut ranks, &mut signals, manner);
    let (number, status) = ended.map_err(|error| failed("a process", error))?;
    told(number, status)
}

/// How a rank ended, as this program's end.
fn told(number: usize, status: ExitStatus) -> Result<()> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(Failure::Agent(u8::try_from(code).unwrap_or(1))),
        // It was told to end before it listened.
        (None, Some(SIGINT | SIGTERM | SIGUSR1 | SIGUSR2)) if number == 0 => {
            Err(Failure::Interrupted)
        }
        (None, signal) => {
            let signal = signal.unwrap_or_default();
            let told = format!("rank {number} was ended by the signal {signal}");
            Err(Failure::Other(told))
        }
    }
}

/// A rank that was started.
struct Rank {
    number: usize,
    place: Place,
    process: Child,
    end: Option<ExitStatus>,
}

impl Rank {
    /// Tells the first rank of a signal that came here. It may have got the same one, so it is told
    /// by another.
    fn hear(&mut self, signal: i32) {
        match self.place {
            Place::There => self.ask_to_end(),
            Place::Here if signal == SIGINT => send(&self.process, Signal::USR1),
            Place::Here => send(&self.process, Signal::USR2),
        }
    }

    /// Asks a rank to end. One behind `ssh` ends where its stdin does, and tells how. Those of this
    /// host listen to the first rank alone.
    fn ask_to_end(&mut self) {
        if self.process.stdin.take().is_some() {
            return;
        }
        if self.place == Place::Here && self.number > 0 {
            // One that has ended needs no signal.
            let _ = self.process.kill();
        } else {
            terminate(&self.process);
        }
    }
}

/// Addresses of this host, a comma between two, that were free a moment ago.
fn free_addresses(count: usize) -> io::Result<String> {
    let bind = || TcpListener::bind("127.0.0.1:0");
    let listeners: Vec<TcpListener> = (0..count).map(|_| bind()).collect::<io::Result<_>>()?;
    let address = |listener: &TcpListener| Ok(listener.local_addr()?.to_string());
    Ok(listeners.iter().map(address).collect::<io::Result<Vec<_>>>()?.join(","))
}

/// Waits for all. Where one ends, the others have a moment only: those of a server, once the first
/// one has ended. Where this program is to end, the first rank ends what runs, for as long as that
/// may take. The rank that failed first and how it ended, else the first one.
fn wait(
    ranks: &mut [Rank],
    signals: &mut Signals,
    manner: &Manner,
) -> io::Result<(usize, ExitStatus)> {
    let (mut failure, mut deadline) = (None::<(usize, ExitStatus)>, None::<Instant>);
    let (mut asked, mut last, mut is_last) = (false, None::<Instant>, false);
    loop {
        let first = ranks.first_mut().ok_or_else(|| io::Error::other("there are no ranks"))?;
        for signal in signals.pending() {
            if first.end.is_none() {
                first.hear(signal);
            }
            if signal != SIGINT || !manner.stays {
                let limit = if last.is_none() { manner.drains + GRACE } else { SOON };
                let until = Instant::now() + limit;
                last = Some(last.map_or(until, |last| last.min(until)));
            }
        }
        for rank in ranks.iter_mut().filter(|rank| rank.end.is_none()) {
            rank.end = rank.process.try_wait()?;
            if let Some(status) = rank.end {
                // Once the first rank has ended what it was told to end, the others have nothing to
                // do.
                let is_done = rank.number == 0 && last.is_some();
                let until = Instant::now() + if is_done { SOON } else { GRACE };
                deadline = if is_done { Some(until) } else { deadline.or(Some(until)) };
                // One that somebody killed is why others fail, whichever is seen first.
                let is_killed = status.signal().is_some() && !asked && !is_last;
                if !status.success() && (failure.is_none() || is_killed) {
                    failure = Some((rank.number, status));
                }
            }
        }
        let ended = ranks.first().and_then(|first| first.end).map(|status| (0, status));
        if let (Some(ended), true) = (ended, ranks.iter().all(|rank| rank.end.is_some())) {
            // Where the first rank has done its work, the others have too; where it was to end, it
            // tells how.
            let counts = ended.1.success() || last.is_some();
            return Ok(if counts { ended } else { failure.unwrap_or(ended) });
        }
        let has_come = |at: Option<Instant>| at.is_some_and(|at| Instant::now() >= at);
        let (is_over, is_late) = (has_come(deadline), has_come(last));
        let from = usize::from(manner.serves && ended.is_none() && !is_late);
        let left = ranks.iter_mut().skip(from).filter(|rank| rank.end.is_none());
        if is_late && !is_last {
            for rank in left {
                note(format_args!("rank {} does not end: it is killed", rank.number));
                rank.process.kill()?;
            }
            is_last = true;
        } else if is_over && !asked {
            left.for_each(Rank::ask_to_end);
            deadline = Some(Instant::now() + GRACE);
            asked = true;
        } else if is_over {
            for rank in left {
                rank.process.kill()?;
            }
        }
        thread::sleep(AGAIN);
    }
}
