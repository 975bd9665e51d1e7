//! Processes that are bounded in time, of which one that fails is a finding.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use inference_core::CancelToken;

use crate::failure::{Failure, Result};

/// Between two looks whether a process has ended.
const AGAIN: Duration = Duration::from_millis(10);
/// Letters of what a failed process said last.
const LAST: usize = 400;

/// The end of a process.
#[derive(Clone, Debug)]
pub struct Ended {
    /// All that it printed.
    pub stdout: String,
    /// Why it did not do what was asked.
    pub failure: Option<Why>,
    /// The time that it took.
    pub seconds: f64,
}

/// Why a process did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It had not ended after so long, and was killed.
    Late(Duration),
    /// It failed, or could not be started.
    Failed(String),
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Why::Late(limit) => write!(f, "it had not ended after {} s", limit.as_secs()),
            Why::Failed(reason) => f.write_str(reason),
        }
    }
}

/// A process that does not outlive this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended is only waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `command` for `limit` at most.
///
/// # Errors
/// [`Failure::Interrupted`] alone: what fails in the process is told by what is returned.
pub fn run(mut command: Command, limit: Duration, cancel: &CancelToken) -> Result<Ended> {
    let began = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = match command.spawn() {
        Ok(child) => Running(child),
        Err(error) => {
            let failure = Some(Why::Failed(format!("it cannot be started: {error}")));
            return Ok(Ended { stdout: String::new(), failure, seconds: 0.0 });
        }
    };
    let stdout = process.0.stdout.take().map(all_of);
    let stderr = process.0.stderr.take().map(all_of);
    let status = loop {
        if cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        match process.0.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if began.elapsed() >= limit => break Err(Why::Late(limit)),
            Ok(None) => thread::sleep(AGAIN),
            Err(error) => break Err(Why::Failed(format!("it cannot be waited for: {error}"))),
        }
    };
    drop(process);
    let [stdout, stderr] = [stdout, stderr].map(text_of);
    let failure = status.map_or_else(Some, |status| why(status, &stderr));
    Ok(Ended { stdout, failure, seconds: began.elapsed().as_secs_f64() })
}

/// All that comes out of a pipe.
fn all_of(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before the pipe failed is all there is.
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

fn text_of(reader: Option<JoinHandle<Vec<u8>>>) -> String {
    let bytes = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Why a process that ended so failed; `None`: it did not.
fn why(status: ExitStatus, stderr: &str) -> Option<Why> {
    if status.success() {
        return None;
    }
    let how = match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal} ended it"),
        (None, Some(code)) => format!("it ended with the code {code}"),
        (None, None) => "it failed".to_owned(),
    };
    let said: Vec<&str> = stderr.split_whitespace().collect();
    let said = said.join(" ");
    let cut = said.char_indices().rev().nth(LAST - 1).map_or(0, |(at, _)| at);
    Some(Why::Failed(match &said[cut..] {
        "" => how,
        last => format!("{how}: {last}"),
    }))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use inference_core::CancelToken;

    use super::{Why, run};
    use crate::failure::Failure;

    fn shell(script: &str, limit: Duration) -> super::Ended {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(command, limit, &CancelToken::new()).unwrap()
    }

    #[test]
    fn what_a_process_prints_is_kept_and_how_it_fails_is_told() {
        let long = Duration::from_secs(20);
        let ended = shell("echo one; echo two", long);
        assert_eq!((ended.stdout.as_str(), ended.failure), ("one\ntwo\n", None));
        let told = |script: &str| shell(script, long).failure.unwrap().to_string();
        assert_eq!(told("echo 'no  room' >&2; exit 3"), "it ended with the code 3: no room");
        assert_eq!(told("kill -9 $$"), "signal 9 ended it");
        let ended = shell("echo half; exit 1", long);
        assert_eq!(ended.stdout, "half\n");
        assert!(ended.failure.is_some());
    }

    #[test]
    fn a_process_that_does_not_end_is_killed() {
        let limit = Duration::from_millis(100);
        let ended = shell("echo here; exec sleep 60", limit);
        assert_eq!((ended.stdout.as_str(), ended.failure), ("here\n", Some(Why::Late(limit))));
        assert!(ended.seconds < 30.0);
    }

    #[test]
    fn an_interrupted_run_ends_its_process() {
        let cancel = CancelToken::new();
        cancel.cancel();
        let mut command = Command::new("sleep");
        command.arg("60");
        let ended = run(command, Duration::from_secs(60), &cancel);
        assert!(matches!(ended, Err(Failure::Interrupted)));
    }
}
