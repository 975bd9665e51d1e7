//! `ml launch`: an agent that others wrote, on a server of this program, or a command in several
//! processes.

mod agents;
mod gpus;
mod hosts;
mod ranks;
mod remote;
mod server;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use signal_hook::consts::SIGINT;

use crate::args::{Agent, LaunchArgs};
use crate::failure::{Failure, Result};
use crate::output::note;
use crate::signals::Signals;
use agents::Setup;
use server::{Served, Server};

/// The variable with the server's key. It is no flag, because other users of a machine see flags.
const API_KEY: &str = "ML_LAUNCH_API_KEY";

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
            "nothing to launch: name an agent (claude, codex or opencode), or give -n N or --hostfile FILE and a command \
             behind `--`"
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
    let (program, installing) = agents::program(agent);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = find(program, &path).ok_or_else(|| {
        let place = format!("`{program}` is not installed: {installing}");
        Failure::Other(place)
    })?;
    let key = std::env::var(API_KEY).ok().filter(|key| !key.is_empty());
    let Some(model) = &args.model else {
        let server = server::remote(&args.url, key.clone());
        let server = match &args.tls_ca {
            Some(file) => server.trusting(file)?,
            None => server,
        };
        let served = Served::of(server, args.model_name.as_deref())?;
        // Only where it fails does this return.
        return Err(not_started(&program, command(agent, args, &program, &served, key).exec()));
    };
    let signals = Signals::install()?;
    let server = Server::start(model, args.model_name.as_deref(), &signals)?;
    let served = Served::of(server::remote(server.url(), None), None)?;
    let agent = command(agent, args, &program, &served, None).spawn();
    let status = signals.wait(agent.map_err(|error| not_started(&program, error))?);
    drop(server);
    ended(status.map_err(|error| not_started(&program, error))?)
}

fn command(
    agent: Agent,
    args: &LaunchArgs,
    program: &Path,
    served: &Served,
    key: Option<String>,
) -> Command {
    if served.context > 0 && served.context < LITTLE {
        note(format_args!(
            "the context of {} holds {} tokens, and agents send more than {LITTLE} before long",
            served.model, served.context
        ));
    }
    let Setup { variables, removed, arguments } = agents::setup(agent, served, key.as_deref());
    let mut command = Command::new(program);
    command.env_remove(API_KEY).envs(variables);
    if let Some(file) = &args.tls_ca {
        command.env(agents::trust(agent), file);
    }
    for name in removed {
        command.env_remove(name);
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
