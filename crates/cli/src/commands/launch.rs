//! `ml launch`: an agent that others wrote, on a server of this program, or a command in several
//! processes.

mod agents;
mod gpus;
mod hosts;
mod ranks;
mod remote;
mod server;
mod setup;
mod shown;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use signal_hook::consts::SIGINT;
use tempfile::TempDir;

use crate::args::{Agent, LaunchArgs};
use crate::failure::{Failure, Result};
use crate::output::note;
use crate::signals::Signals;
use server::{Served, Server};
use setup::{API_KEY, Folder, Setup};

/// Tokens of the context below which agents are of little use: so many they send before a question.
const LITTLE: u64 = 32 << 10;

/// Starts the agent, and becomes it or ends as it ends; or the processes that compute a model
/// together.
///
/// # Errors
/// The agent is not installed, or there is no such server or model.
pub fn run(args: &LaunchArgs) -> Result<()> {
    if let Some(file) = &args.hostfile {
        return ranks::run_on(file, &args.hosts, &args.arguments);
    }
    match (args.ranks, args.agent) {
        (Some(count), _) => in_processes(count, &args.arguments),
        (None, Some(agent)) => launch(agent, args),
        (None, None) => Err(Failure::Usage(
            "nothing to launch: name an agent (claude, codex, opencode and others that `ml launch --help` tells), or give \
             -n N or --hostfile FILE and a command behind `--`"
                .to_owned(),
        )),
    }
}

/// Runs `arguments` in `count` processes on this host, which compute a model together.
///
/// # Errors
/// The first of them that fails.
pub fn in_processes(count: usize, arguments: &[OsString]) -> Result<()> {
    ranks::run(count, arguments)
}

fn launch(agent: Agent, args: &LaunchArgs) -> Result<()> {
    let (name, installing) = agents::program(agent);
    let key = std::env::var(API_KEY).ok().filter(|key| !key.is_empty());
    if args.print {
        let (served, key) = match &args.model {
            Some(model) => (Served::to_come(model, args.model_name.as_deref()), None),
            // Nobody shall read it from a screen.
            None => (served(args, key.clone())?, key.map(|_| "KEY")),
        };
        let setup = agents::setup(agent, &served, key)?;
        return shown::print(args, name, &setup, agents::trust(agent));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = find(name, &path)
        .ok_or_else(|| Failure::Other(format!("`{name}` is not installed: {installing}")))?;
    let Some(model) = &args.model else {
        let served = served(args, key.clone())?;
        let setup = agents::setup(agent, &served, key.as_deref())?;
        warn_of_context(&served);
        // Before there is a folder that would stay.
        let signals = setup.folder.as_ref().map(|_| Signals::install()).transpose()?;
        let folder = setup.folder.as_ref().map(Folder::make).transpose()?;
        let mut command = command(agent, args, &program, setup, folder.as_ref());
        let (Some(folder), Some(signals)) = (folder, signals) else {
            // Only where it fails does this return.
            return Err(not_started(&program, command.exec()));
        };
        return waited_for(&program, command, &signals, folder);
    };
    let signals = Signals::install()?;
    let server = Server::start(model, args.model_name.as_deref(), &signals)?;
    let served = Served::of(server::remote(server.url(), None), None)?;
    let setup = agents::setup(agent, &served, None)?;
    warn_of_context(&served);
    let folder = setup.folder.as_ref().map(Folder::make).transpose()?;
    let command = command(agent, args, &program, setup, folder.as_ref());
    waited_for(&program, command, &signals, (server, folder))
}

/// The model of the server that `args` name.
fn served(args: &LaunchArgs, key: Option<String>) -> Result<Served> {
    let server = server::remote(&args.url, key);
    let server = match &args.tls_ca {
        Some(file) => server.trusting(file)?,
        None => server,
    };
    Served::of(server, args.model_name.as_deref())
}

/// Runs the agent, and ends as it ends. What it `needs` goes after it.
fn waited_for<T>(program: &Path, mut command: Command, signals: &Signals, needs: T) -> Result<()> {
    let agent = command.spawn().map_err(|error| not_started(program, error))?;
    let status = signals.wait(agent);
    drop(needs);
    ended(status.map_err(|error| not_started(program, error))?)
}

fn warn_of_context(served: &Served) {
    if served.context > 0 && served.context < LITTLE {
        note(format_args!(
            "the context of {} holds {} tokens, and agents send more than {LITTLE} before long",
            served.model, served.context
        ));
    }
}

fn command(
    agent: Agent,
    args: &LaunchArgs,
    program: &Path,
    setup: Setup,
    made: Option<&TempDir>,
) -> Command {
    let Setup { variables, removed, arguments, folder } = setup;
    let mut command = Command::new(program);
    command.env_remove(API_KEY).envs(variables);
    if let Some(file) = &args.tls_ca {
        command.env(agents::trust(agent), file);
    }
    for name in removed {
        command.env_remove(name);
    }
    if let (Some(folder), Some(made)) = (&folder, made) {
        command.envs(folder.variable().map(|name| (name, made.path())));
        command.args(folder.arguments(made.path()));
    }
    command.args(arguments).args(&args.arguments);
    command
}

fn not_started(program: &Path, error: io::Error) -> Failure {
    Failure::Other(format!("{}: {error}", program.display()))
}

/// The agent's end as this program's.
fn ended(status: ExitStatus) -> Result<()> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(Failure::Agent(u8::try_from(code).unwrap_or(1))),
        (None, Some(SIGINT)) => Err(Failure::Interrupted),
        (None, signal) => {
            let signal = signal.unwrap_or_default();
            Err(Failure::Other(format!("the agent was ended by the signal {signal}")))
        }
    }
}

/// The file `name` in the folders of `path`.
fn find(name: &str, path: &OsString) -> Option<PathBuf> {
    let files = std::env::split_paths(path).map(|folder| folder.join(name));
    files.into_iter().find(|file| file.is_file())
}
