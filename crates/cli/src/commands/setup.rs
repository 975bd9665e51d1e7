//! `ml setup`: what a machine's devices need besides the program.

mod packages;

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};

use crate::args::{CudaArgs, Setup, SetupArgs};
use crate::cuda::{self, Driver};
use crate::failure::{Failure, Result, at, reason};
use crate::output::note;
use crate::signals::Signals;

/// Sets up what is asked for.
///
/// # Errors
/// There is no GPU or its driver is old, packages cannot be fetched, or MLX does not run with them.
pub fn run(args: &SetupArgs) -> Result<()> {
    let Setup::Cuda(args) = &args.what;
    if !cfg!(target_os = "linux") {
        return Err(Failure::Usage("MLX runs on NVIDIA GPUs under Linux alone".into()));
    }
    let place = cuda::place()?;
    let parent = place.parent().unwrap_or(&place);
    if args.remove {
        return remove(&place);
    }
    if !args.without_gpu {
        check(Driver::here())?;
    }
    fs::create_dir_all(parent).map_err(at(parent))?;
    let lock = File::create(parent.join("cuda.lock")).map_err(at(parent))?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(Failure::Other("another `ml setup cuda` runs: wait for its end".into()));
    }
    if cuda::found().is_some() {
        note(format_args!(
            "{} is set up already; `ml setup cuda --remove` takes it away",
            place.display()
        ));
        return Ok(());
    }
    let staging = parent.join(format!("cuda-{}.partial", cuda::MLX));
    clear(&staging)?;
    let made = fill(args, &staging);
    if let Err(failure) = made {
        clear(&staging)?;
        return Err(failure);
    }
    fs::rename(&staging, &place).map_err(at(&place))?;
    note(format_args!(
        "{} is set up: every `ml` of yours that sees a GPU uses it",
        place.display()
    ));
    Ok(())
}

/// Puts the packages into `folder`, and lets the program run with them.
fn fill(args: &CudaArgs, folder: &Path) -> Result<()> {
    fs::create_dir(folder).map_err(at(folder))?;
    let signals = Signals::install()?;
    match &args.from {
        Some(installed) => packages::link(installed, folder)?,
        None => {
            if !args.force {
                packages::room(folder, packages::ROOM)?;
            }
            packages::fetch(&args.python, args.wheels.as_deref(), folder, &signals)?;
        }
    }
    if args.without_gpu { Ok(()) } else { attempt(folder, &signals) }
}

/// Tries to compute with the packages, in a process of its own.
fn attempt(folder: &Path, signals: &Signals) -> Result<()> {
    note("trying it: the first run compiles kernels");
    let program = env::current_exe().map_err(|error| Failure::Other(reason(&error)))?;
    let mut command = Command::new(program);
    cuda::with(&mut command, folder);
    command.args(["generate", "Tell me a story", "--backend", "cuda", "-n", "4", "--quiet"]);
    let errors = tempfile::tempfile().map_err(at(folder))?;
    let handle = errors.try_clone().map_err(at(folder))?;
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(handle).spawn();
    let status = child.and_then(|child| signals.wait(child)).map_err(at(folder))?;
    if status.success() {
        return Ok(());
    }
    if signals.came() {
        return Err(Failure::Interrupted);
    }
    let text = text_of(errors).map_err(at(folder))?;
    Err(Failure::Other(format!("MLX does not run with these packages: {}", text.trim())))
}

fn text_of(mut file: File) -> io::Result<String> {
    use std::io::{Read, Seek};
    let mut text = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Refuses a machine that has no GPU with a driver that is new enough.
fn check(driver: Option<Driver>) -> Result<()> {
    match driver {
        None => Err(Failure::Other(
            "there is no NVIDIA GPU with its driver here; --without-gpu sets up all the same"
                .into(),
        )),
        Some(driver) if driver.is_old() => Err(Failure::Other(format!(
            "{driver} is too old: CUDA 13 wants {} or newer",
            cuda::LEAST_DRIVER
        ))),
        Some(_) => Ok(()),
    }
}

fn remove(place: &Path) -> Result<()> {
    if !place.exists() {
        return Err(Failure::Other(format!("nothing is set up: there is no {}", place.display())));
    }
    clear(place)?;
    note(format_args!("{} is removed: `ml` computes on the CPU", place.display()));
    Ok(())
}

/// Removes a folder, where it is there.
fn clear(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(folder)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_is_missing_or_old_is_told_with_the_remedy() {
        let text = check(None).unwrap_err().to_string();
        assert!(text.contains("--without-gpu"), "{text}");
        let text = check(Some(Driver { release: Some("535.1".into()) })).unwrap_err().to_string();
        assert!(text.contains("535.1") && text.contains("580"), "{text}");
        assert!(check(Some(Driver { release: None })).is_ok());
    }
}
