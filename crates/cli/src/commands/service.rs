//! `ml service`: `ml serve` in the background, by systemd or launchd.

mod systems;

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::thread;
use std::time::Duration;

use clap::Parser;

use self::systems::{ENDS, MARK, Place, Step, System};
use super::serve::sources;
use crate::args::{Cli, Command, Service, ServiceArgs};
use crate::failure::{self, Failure, Result, reason};
use crate::files::{self, Access};
use crate::output::note;

/// Installs, tells of, or removes the service.
///
/// # Errors
/// Arguments that `ml serve` does not take, a foreign file in the place, a step that the system
/// refuses.
pub fn run(args: &ServiceArgs) -> Result<()> {
    let place = place()?;
    match &args.what {
        Service::Install { arguments } => install(&place, arguments),
        Service::Status => status(&place),
        Service::Remove => remove(&place),
    }
}

/// The place of this user's service here.
fn place() -> Result<Place> {
    let system = if cfg!(target_os = "macos") { System::Launchd } else { System::Systemd };
    let home = std::env::home_dir();
    let home =
        home.ok_or_else(|| Failure::Other("there is no home folder: set HOME".to_owned()))?;
    let configs = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    Ok(Place { system, home, configs: configs.filter(|folder| folder.is_absolute()) })
}

fn install(place: &Place, arguments: &[OsString]) -> Result<()> {
    let texts = arguments.iter().map(|argument| argument.to_str().map(str::to_owned));
    let texts: Option<Vec<String>> = texts.collect();
    let texts = texts.ok_or_else(|| {
        Failure::Usage("an argument is not UTF-8: give the service paths that are".to_owned())
    })?;
    let given = ["ml", "serve"].into_iter().map(str::to_owned).chain(texts.iter().cloned());
    let served = Cli::try_parse_from(given).map_err(|error| {
        Failure::Usage(format!("ml serve: {}", failure::reason_of_arguments(&error)))
    })?;
    if let Some(Command::Serve(args)) = &served.command {
        // Nobody is asked, and nothing is fetched, once the service starts.
        sources::find_all(args)?;
    }
    let program = std::env::current_exe();
    let program = program.map_err(|error| Failure::Other(format!("ml: {}", reason(&error))))?;
    let path = place.file();
    check_own(&path)?;
    files::make_folder(path.parent().unwrap_or(Path::new("/")))?;
    let here = std::env::current_dir();
    let here = here.map_err(|error| Failure::Other(format!(".: {}", reason(&error))))?;
    let (program, here) = (program.display().to_string(), here.display().to_string());
    for word in texts.iter().chain([&program, &here]) {
        if word.contains(char::is_control) {
            return Err(Failure::Usage(format!(
                "{word:?} has a control character, which a service's file cannot hold: rename it"
            )));
        }
    }
    let text = place.text(&program, &texts, &here);
    let was_there = path.exists();
    files::replace(&path, text.as_bytes(), Access::Shared)?;
    // launchd takes no agent that it has already, and needs a while to let go of one.
    if was_there && place.system == System::Launchd && take(place, Step::Stop)? {
        let status = place.commands(Step::Status, uid());
        let mut tries = ENDS;
        while tries > 0 && status.iter().all(|command| succeeds(command)) {
            thread::sleep(Duration::from_secs(1));
            tries -= 1;
        }
    }
    note(format_args!("wrote {}", path.display()));
    if take(place, Step::Install)? {
        note("the server runs, and starts at login; `ml ps` tells what it has loaded");
    }
    note(place.advice());
    Ok(())
}

fn status(place: &Place) -> Result<()> {
    let path = place.file();
    if !path.exists() {
        return Err(Failure::Other(format!(
            "{} is not there: `ml service install` writes it",
            path.display()
        )));
    }
    note(format_args!("{}\n{}", path.display(), place.advice()));
    take(place, Step::Status).map(|_| ())
}

fn remove(place: &Place) -> Result<()> {
    let path = place.file();
    if !path.exists() {
        note(format_args!("{} is not there", path.display()));
        return Ok(());
    }
    check_own(&path)?;
    take(place, Step::Stop)?;
    fs::remove_file(&path)
        .map_err(|error| Failure::Other(format!("{}: {}", path.display(), reason(&error))))?;
    take(place, Step::Forget)?;
    note(format_args!("removed {}", path.display()));
    Ok(())
}

/// A file that somebody else wrote is not touched.
fn check_own(path: &Path) -> Result<()> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Ok(text) if text.contains(MARK) => Ok(()),
        Ok(_) | Err(_) => Err(Failure::Other(format!(
            "{} is not of `ml service`: move it away first",
            path.display()
        ))),
    }
}

/// Runs the commands of a step where the system has them, else tells what to type. Returns true
/// when they ran.
fn take(place: &Place, step: Step) -> Result<bool> {
    let commands = place.commands(step, uid());
    if !is_there(place) {
        for command in &commands {
            note(format_args!("type: {}", command.join(" ")));
        }
        return Ok(false);
    }
    for command in &commands {
        let Some((program, arguments)) = command.split_first() else { continue };
        let shown = command.join(" ");
        let failed = |why: String| Failure::Other(format!("`{shown}`: {why}"));
        let status = process::Command::new(program).args(arguments).stdin(Stdio::null()).status();
        let status = status.map_err(|error| failed(reason(&error)))?;
        // That a service does not run is told by its status, and no failure of being stopped.
        if !status.success() && step == Step::Install {
            return Err(failed(format!("it ended with {status}")));
        }
    }
    Ok(!commands.is_empty())
}

/// Returns true when the system's own program answers for this user, which it does not in a
/// container or behind `su`.
fn is_there(place: &Place) -> bool {
    succeeds(&place.probe(uid()))
}

/// Runs a command without showing what it says. Returns true when it succeeds.
fn succeeds(command: &[String]) -> bool {
    let Some((program, arguments)) = command.split_first() else { return false };
    let mut command = process::Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn uid() -> u32 {
    rustix::process::getuid().as_raw()
}
