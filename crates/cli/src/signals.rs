//! Signals while programs run that this one started.

use std::io;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use inference_server::hangup_is_ignored;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::failure::{Failure, Result};

/// Between two looks whether a program has ended.
const AGAIN: Duration = Duration::from_millis(50);

/// The signals that end this process where nothing else does: what it started shall not outlive it.
pub struct Signals {
    /// Ctrl-C, which is the other program's while it runs: the terminal sends it to both.
    interrupt: Arc<AtomicBool>,
    /// SIGTERM, SIGQUIT and SIGHUP.
    end: Arc<AtomicBool>,
}

impl Signals {
    /// Takes them over.
    ///
    /// # Errors
    /// The system's.
    pub fn install() -> Result<Signals> {
        let signals = Signals { interrupt: Arc::default(), end: Arc::default() };
        let failed = |error: io::Error| Failure::Other(format!("signals: {error}"));
        for (signal, flag) in [
            (SIGINT, &signals.interrupt),
            (SIGTERM, &signals.end),
            (SIGQUIT, &signals.end),
            (SIGHUP, &signals.end),
        ] {
            if signal == SIGHUP && hangup_is_ignored() {
                continue;
            }
            signal_hook::flag::register(signal, Arc::clone(flag)).map_err(failed)?;
        }
        Ok(signals)
    }

    /// Returns true when any of them came.
    pub fn came(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed) || self.end.load(Ordering::Relaxed)
    }

    /// Returns true when this process is to end.
    pub fn ends(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    /// Waits for `process`, which is ended where this one is to end.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&self, mut process: Child) -> io::Result<ExitStatus> {
        let mut told = false;
        loop {
            if let Some(status) = process.try_wait()? {
                return Ok(status);
            }
            if self.ends() && !told {
                terminate(&process);
                told = true;
            }
            thread::sleep(AGAIN);
        }
    }
}

/// Asks `process` to end.
pub fn terminate(process: &Child) {
    send(process, Signal::TERM);
}

/// Sends `signal` to `process`.
pub fn send(process: &Child, signal: Signal) {
    let id = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
    if let Some(id) = id {
        // One that has ended needs none.
        let _ = kill_process(id, signal);
    }
}
