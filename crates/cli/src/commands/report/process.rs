//! Processes that are bounded in time, of which one that fails is a finding.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use inference_core::CancelToken;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::private::Private;
use crate::failure::{Failure, Result};

/// Between two looks whether a process has ended.
const AGAIN: Duration = Duration::from_millis(10);
/// The wait for the end of the pipes of a process that has ended: one that left its group may hold
/// them for ever.
const PIPES: Duration = Duration::from_secs(2);
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

/// A process and those that it started, which do not outlive this.
struct Running(Child);

impl Running {
    /// Returns true once it has ended. It is not waited for, so that its group keeps its number.
    fn has_ended(&self) -> rustix::io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(Pid::from_child(&self.0)), options)?.is_some())
    }

    /// Kills what is left of the group, and waits for the process.
    fn end(&mut self) -> std::io::Result<ExitStatus> {
        // A group of which none is left takes no signal.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        self.0.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Where the end was seen, the number may be another's by now.
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            let _ = self.end();
        }
    }
}

/// The processes of a report.
pub struct Processes {
    /// Ends the one that runs.
    pub cancel: CancelToken,
    /// Taken out of what failed ones said.
    pub private: Private,
}

impl Processes {
    /// Runs `command` for `limit` at most, with what it starts in a group of their own.
    ///
    /// # Errors
    /// [`Failure::Interrupted`] alone: what fails in the process is told by what is returned.
    pub fn run(&self, mut command: Command, limit: Duration) -> Result<Ended> {
        let began = Instant::now();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = match command.process_group(0).spawn() {
            Ok(child) => Running(child),
            Err(error) => {
                let failure = Some(Why::Failed(format!("it cannot be started: {error}")));
                return Ok(Ended { stdout: String::new(), failure, seconds: 0.0 });
            }
        };
        let stdout = process.0.stdout.take().map(Reader::of);
        let stderr = process.0.stderr.take().map(Reader::of);
        let late = loop {
            if self.cancel.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            match process.has_ended() {
                Ok(false) if began.elapsed() >= limit => break Some(Why::Late(limit)),
                Ok(false) => thread::sleep(AGAIN),
                Ok(true) => break None,
                Err(error) => {
                    break Some(Why::Failed(format!("it cannot be waited for: {error}")));
                }
            }
        };
        let status = process.end();
        let [stdout, stderr] =
            [stdout, stderr].map(|pipe| pipe.map_or_else(String::new, Reader::text));
        let failure = late.or_else(|| match status {
            Ok(status) => self.why(status, &stderr),
            Err(error) => Some(Why::Failed(format!("it cannot be waited for: {error}"))),
        });
        Ok(Ended { stdout, failure, seconds: began.elapsed().as_secs_f64() })
    }

    /// Why a process that ended so failed; `None`: it did not.
    fn why(&self, status: ExitStatus, stderr: &str) -> Option<Why> {
        if status.success() {
            return None;
        }
        let how = match (status.signal(), status.code()) {
            (Some(signal), _) => format!("signal {signal} ended it"),
            (None, Some(code)) => format!("it ended with the code {code}"),
            (None, None) => "it failed".to_owned(),
        };
        // Before it is cut: half a path is not known as one.
        let stderr = self.private.without(stderr);
        let said: Vec<&str> = stderr.split_whitespace().collect();
        let said = said.join(" ");
        let cut = said.char_indices().rev().nth(LAST - 1).map_or(0, |(at, _)| at);
        Some(Why::Failed(match &said[cut..] {
            "" => how,
            last => format!("{how}: {last}"),
        }))
    }
}

/// A thread that reads a pipe.
struct Reader {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Its other side is dropped at the end of the pipe.
    end: Receiver<()>,
}

impl Reader {
    fn of(mut pipe: impl Read + Send + 'static) -> Reader {
        let bytes = Arc::<Mutex<Vec<u8>>>::default();
        let (is_open, end) = mpsc::channel();
        let all = Arc::clone(&bytes);
        thread::spawn(move || {
            let _is_open = is_open;
            let mut part = [0; 8192];
            // What came before the pipe failed is all there is.
            while let Ok(count @ 1..) = pipe.read(&mut part) {
                all.lock().unwrap_or_else(PoisonError::into_inner).extend(&part[..count]);
            }
        });
        Reader { bytes, end }
    }

    /// The text that came until the pipe ended, or until [`PIPES`] are over.
    fn text(self) -> String {
        let _ = self.end.recv_timeout(PIPES);
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use inference_core::CancelToken;

    use super::{Private, Processes, Why};
    use crate::failure::Failure;

    const LONG: Duration = Duration::from_secs(50);

    fn processes() -> Processes {
        let private = Private::of(None, ["quincey".to_owned()]);
        Processes { cancel: CancelToken::new(), private }
    }

    fn shell(script: &str, limit: Duration) -> super::Ended {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        processes().run(command, limit).unwrap()
    }

    #[test]
    fn what_a_process_prints_is_kept_and_how_it_fails_is_told() {
        let ended = shell("echo one; echo two", LONG);
        assert_eq!((ended.stdout.as_str(), ended.failure), ("one\ntwo\n", None));
        let told = |script: &str| shell(script, LONG).failure.unwrap().to_string();
        assert_eq!(told("echo 'no  room' >&2; exit 3"), "it ended with the code 3: no room");
        assert_eq!(told("kill -9 $$"), "signal 9 ended it");
        let ended = shell("echo half; exit 1", LONG);
        assert_eq!(ended.stdout, "half\n");
        assert!(ended.failure.is_some());
    }

    #[test]
    fn what_a_process_said_is_cleaned_before_it_is_cut() {
        // The cut falls into the folder's name.
        let script = "printf '/srv/acme/secret%0380d: gone for quincey' 0 >&2; exit 1";
        let told = shell(script, LONG).failure.unwrap().to_string();
        assert_eq!(told, "it ended with the code 1: …: gone for …");
        let long = shell("printf 'x%0500d' 1 >&2; exit 1", LONG).failure.unwrap().to_string();
        assert_eq!(long.len(), "it ended with the code 1: ".len() + super::LAST);
    }

    #[test]
    fn a_process_that_does_not_end_is_killed_with_those_that_it_started() {
        let limit = Duration::from_secs(3);
        for script in ["echo here; exec sleep 120", "sleep 120 & echo here; wait"] {
            let ended = shell(script, limit);
            assert_eq!((ended.stdout.as_str(), ended.failure), ("here\n", Some(Why::Late(limit))));
            assert!(ended.seconds < 60.0, "{script}");
        }
        // It holds the pipe of the one that ended.
        let ended = shell("sleep 120 & echo here", LONG);
        assert_eq!((ended.stdout.as_str(), ended.failure), ("here\n", None));
        assert!(ended.seconds < 60.0);
    }

    #[test]
    fn an_interrupted_run_ends_its_process() {
        let processes = processes();
        processes.cancel.cancel();
        let mut command = Command::new("sleep");
        command.arg("60");
        let ended = processes.run(command, Duration::from_secs(60));
        assert!(matches!(ended, Err(Failure::Interrupted)));
    }
}
