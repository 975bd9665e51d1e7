//! `cargo xtask clients`: runs programs that others wrote against `ml serve`.
//!
//! Each folder of `clients/` with a `requirements*.txt` or a `package.json` is a client: what it
//! lists is installed into an environment of its own below `target/clients`, and the folder's
//! `check.py` or `check.mjs` is run there with the address of a server, the address of one that
//! wants a key, and the key.

pub mod environment;
mod server;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::repository::{root, target_folder};
use environment::{Environment, Prepared, Script};
use server::Server;
pub use server::program;

/// The key that the second server demands.
const KEY: &str = "a-key-of-the-clients-test";

/// A program that others wrote, and our script that uses it.
#[derive(Debug, PartialEq, Eq)]
struct Client {
    name: String,
    /// `clients/FOLDER`.
    folder: PathBuf,
    environment: Environment,
}

/// How a client fared.
enum Outcome {
    Passed(String),
    Failed(String),
    Skipped(String),
}

/// Runs the clients called `names`, or all of them.
pub fn run(names: &[String]) -> Result<()> {
    let mut clients = clients(&root().join("clients"))?;
    if let Some(unknown) = names.iter().find(|name| clients.iter().all(|c| c.name != **name)) {
        let known: Vec<_> = clients.iter().map(|client| client.name.as_str()).collect();
        bail!("there is no client `{unknown}`; there are {}", known.join(", "));
    }
    clients.retain(|client| names.is_empty() || names.contains(&client.name));

    let target = target_folder()?;
    let program = program(&target)?;
    eprintln!("the server is {}", program.display());
    let folder = target.join("clients");
    let mut servers =
        vec![Server::start_keeping(&program, &folder)?, Server::start(&program, KEY)?];
    let urls = [servers[0].url.clone(), servers[1].url.clone()];
    let scripted = clients.iter().any(follows_a_script).then(|| server::scripted(&target));
    let scripted = scripted.transpose()?;
    let shown = clients.iter().any(|client| mentions(client, "ML_SEEING"));
    let seeing = match &scripted {
        Some(scripted) if shown => {
            servers.push(Server::start_seeing(scripted, &folder)?);
            servers.last().map(|server| server.url.clone())
        }
        _ => None,
    };
    let embeds = clients.iter().any(|client| mentions(client, "ML_EMBEDDING"));
    let embedding = match embeds {
        true => {
            servers.push(Server::start_embedding(&program)?);
            servers.last().map(|server| server.url.clone())
        }
        false => None,
    };
    let painting = match clients.iter().any(|client| mentions(client, "ML_PAINTING")) {
        true => {
            servers.push(Server::start_painting(&program)?);
            servers.last().map(|server| server.url.clone())
        }
        false => None,
    };
    let programs = Programs { ml: program, scripted, seeing, embedding, painting };
    let faults = in_turns(&clients, |client| check(client, &folder, &urls, &programs))?;
    for server in &mut servers {
        server.still_runs()?;
    }
    match faults {
        0 => Ok(()),
        count => bail!("{count} of {} clients failed", clients.len()),
    }
}

/// Checks the clients, two at a time, and tells how each fared; how many failed.
fn in_turns(
    clients: &[Client],
    check: impl Fn(&Client) -> Result<Outcome> + Sync,
) -> Result<usize> {
    let next = AtomicUsize::new(0);
    let (send, outcomes) = mpsc::channel();
    thread::scope(|scope| {
        for send in [send.clone(), send] {
            let (next, check) = (&next, &check);
            scope.spawn(move || {
                while let Some(client) = clients.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let started = Instant::now();
                    let _ = send.send((client, check(client), started.elapsed()));
                }
            });
        }
        let mut faults = 0;
        for (client, outcome, time) in outcomes {
            let (name, seconds) = (&client.name, time.as_secs());
            match outcome.with_context(|| format!("the client {name}"))? {
                Outcome::Passed(said) => {
                    eprintln!("{name}: passed ({seconds} s)\n{}", indented(&said));
                }
                Outcome::Failed(said) => {
                    eprintln!("{name}: FAILED ({seconds} s)\n{}", indented(&said));
                    faults += 1;
                }
                Outcome::Skipped(reason) => eprintln!("{name}: skipped, {}", reason.trim()),
            }
        }
        Ok(faults)
    })
}

fn indented(text: &str) -> String {
    text.trim_end().lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

/// The clients of `folder`, by name. One whose requirements come in several versions
/// (`requirements-2.txt`) is a client for each.
fn clients(folder: &Path) -> Result<Vec<Client>> {
    let mut clients = Vec::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let folder = entry?.path();
        let base = folder.file_name().and_then(OsStr::to_str).context("a path is not UTF-8")?;
        if !folder.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&folder)? {
            let file = entry?.path();
            let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let version = name.strip_prefix("requirements").and_then(|n| n.strip_suffix(".txt"));
            let (name, environment) = match version {
                Some(version) => (format!("{base}{version}"), Environment::Python(file)),
                None if name == "package.json" => (base.to_owned(), Environment::Node(file)),
                None => continue,
            };
            clients.push(Client { name, folder: folder.clone(), environment });
        }
    }
    clients.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(clients)
}

/// Programs and further servers for clients' scripts, each in a variable of the environment.
struct Programs {
    /// `ML_PROGRAM`: the program.
    ml: PathBuf,
    /// `ML_SCRIPTED`: a server whose model follows a script; `None` where no client wants it.
    scripted: Option<PathBuf>,
    /// `ML_SEEING`: the address of a server whose model sees, and answers `ok`.
    seeing: Option<String>,
    /// `ML_EMBEDDING`: the address of a server with a model that embeds and a reranker.
    embedding: Option<String>,
    /// `ML_PAINTING`: the address of a server with models that make and edit pictures.
    painting: Option<String>,
}

/// Returns true when `client` wants a server whose model follows a script.
///
/// It starts that server itself, or wants it for pictures.
fn follows_a_script(client: &Client) -> bool {
    mentions(client, "ML_SCRIPTED") || mentions(client, "ML_SEEING")
}

/// Returns true when the script of `client` has the word `name`.
fn mentions(client: &Client, name: &str) -> bool {
    let check = ["check.mjs", "check.py"].map(|name| fs::read_to_string(client.folder.join(name)));
    check.into_iter().flatten().any(|text| text.contains(name))
}

/// The script of the client `name` with its packages, installed below `target/clients`; `None`
/// where this machine cannot have them.
///
/// # Errors
/// Packages that CI cannot install; an unknown client.
pub fn script(name: &str) -> Result<Option<Script>> {
    let mut clients = clients(&root().join("clients"))?.into_iter();
    let client = clients.find(|client| client.name == name);
    let client = client.with_context(|| format!("there is no client `{name}`"))?;
    let home = target_folder()?.join("clients").join(name);
    match client.environment.prepare(&client.folder, &home)? {
        Prepared::Ready(script) => Ok(Some(script)),
        Prepared::Missing { what, forgivable } if must_be_there(forgivable) => bail!("{what}"),
        Prepared::Missing { what, .. } => {
            eprintln!("{name}: skipped, {}", what.trim());
            Ok(None)
        }
    }
}

/// Returns true when a client that cannot be installed is a failure.
fn must_be_there(forgivable: bool) -> bool {
    !forgivable && std::env::var_os("CI").is_some_and(|ci| ci == "true")
}

/// Installs `client` below `folder` and runs its script.
fn check(
    client: &Client,
    folder: &Path,
    urls: &[String; 2],
    programs: &Programs,
) -> Result<Outcome> {
    let home = folder.join(&client.name);
    let script = match client.environment.prepare(&client.folder, &home)? {
        Prepared::Ready(script) => script,
        Prepared::Missing { what, forgivable } => {
            return Ok(match must_be_there(forgivable) {
                true => Outcome::Failed(what),
                false => Outcome::Skipped(what),
            });
        }
    };
    // What a client leaves behind shall lie here and not in the sources.
    let work = home.join("work");
    fs::create_dir_all(&work)?;
    let mut command = Command::new(&script.program);
    command.args(&script.args).args(urls).arg(KEY).current_dir(&work);
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("ML_PROGRAM", &programs.ml);
    if let Some(scripted) = &programs.scripted {
        command.env("ML_SCRIPTED", scripted);
    }
    if let Some(seeing) = &programs.seeing {
        command.env("ML_SEEING", seeing);
    }
    if let Some(embedding) = &programs.embedding {
        command.env("ML_EMBEDDING", embedding);
    }
    if let Some(painting) = &programs.painting {
        command.env("ML_PAINTING", painting);
    }
    command.env_remove("OPENAI_API_KEY");
    let (success, said) = environment::output(&mut command)?;
    Ok(if success { Outcome::Passed(said) } else { Outcome::Failed(said) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_folder_is_a_client_or_several() {
        let clients = clients(&root().join("clients")).unwrap();
        let names: Vec<_> = clients.iter().map(|client| client.name.as_str()).collect();
        for name in ["openai-2", "openai-3", "openai-node", "schemathesis"] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert!(!names.contains(&"mlx_lm"), "it is run by hand");
    }

    #[test]
    fn one_that_fails_does_not_keep_the_others_from_their_turn() {
        let client = |name: &str| Client {
            name: name.to_owned(),
            folder: PathBuf::new(),
            environment: Environment::Node(PathBuf::new()),
        };
        let clients = ["a", "b", "c", "d"].map(client);
        let faults = in_turns(&clients, |client| {
            let said = String::new();
            Ok(match client.name.as_str() {
                "a" | "c" => Outcome::Failed(said),
                "b" => Outcome::Skipped(said),
                _ => Outcome::Passed(said),
            })
        });
        assert_eq!(faults.unwrap(), 2);
        assert!(in_turns(&clients, |_| bail!("no disk")).is_err());
    }

    #[test]
    fn an_unknown_client_is_named_with_those_that_there_are() {
        let text = run(&["netscape".to_owned()]).unwrap_err().to_string();
        assert!(text.contains("`netscape`") && text.contains("openai-3"), "{text}");
    }
}
