//! Servers that are programs: lines of JSON over stdin and stdout.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde_json::Value as Json;

use crate::error::Error;
use crate::event::{Event, Fault, LONGEST, messages};

/// Messages that wait to be read. A server that sends more waits itself.
const WAITING: usize = 8;

/// Messages that wait for a server to read them.
const UNREAD: usize = 64;

/// Bytes that are kept of a server's stderr.
const KEPT: usize = 2048;

/// How long a server has to end by itself, and again after SIGTERM.
const ENDS: Duration = Duration::from_millis(700);

/// Variables that a server inherits. Others may hold keys that are none of its business.
const INHERITED: [&str; 14] = [
    "HOME",
    "LANG",
    "LC_ALL",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
];

/// A server's program.
pub struct Program {
    child: Child,
    /// Takes lines for its stdin, until it is closed.
    lines: Option<SyncSender<Vec<u8>>>,
    /// The end of its stderr.
    said: Arc<Mutex<VecDeque<u8>>>,
}

/// How a program is started.
pub struct Start<'a> {
    /// The server's name.
    pub server: &'a str,
    /// The program.
    pub command: &'a str,
    /// Its arguments.
    pub arguments: &'a [String],
    /// Its variables.
    pub variables: &'a [(String, String)],
    /// Its folder.
    pub folder: Option<&'a str>,
}

impl Start<'_> {
    /// Starts the program; what it sends comes as events.
    ///
    /// # Errors
    /// The system does not start it.
    pub fn run(&self) -> Result<(Program, Receiver<Event>), Error> {
        let failed = |error: std::io::Error| {
            let text = error.to_string();
            let reason = text.split(" (os error").next().unwrap_or(&text).to_lowercase();
            let (server, command) = (self.server.to_owned(), self.command.to_owned());
            Error::Start { server, command, reason }
        };
        let mut command = Command::new(self.command);
        command.args(self.arguments).env_clear();
        let inherited = INHERITED.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
        command.envs(inherited).envs(self.variables.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = self.folder {
            command.current_dir(folder);
        }
        // A group of its own, so that Ctrl-C at the terminal is not for it.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (send, events) = sync_channel(WAITING);
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || read(stdout, &send));
        }
        let said = Arc::<Mutex<VecDeque<u8>>>::default();
        if let Some(stderr) = child.stderr.take() {
            let said = Arc::clone(&said);
            thread::spawn(move || keep(stderr, &said));
        }
        let (lines, waiting) = sync_channel(UNREAD);
        if let Some(stdin) = child.stdin.take() {
            thread::spawn(move || write(stdin, &waiting));
        }
        Ok((Program { child, lines: Some(lines), said }, events))
    }
}

impl Program {
    /// Sends `message`.
    ///
    /// # Errors
    /// The program has ended, or reads nothing.
    pub fn send(&mut self, message: &Json) -> Result<(), Fault> {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        let Some(lines) = &self.lines else { return Err(Fault::Ended) };
        lines.try_send(line).map_err(|error| match error {
            TrySendError::Full(_) => Fault::Nonsense("it does not read what is sent to it".into()),
            TrySendError::Disconnected(_) => Fault::Ended,
        })
    }

    /// The last line on its stderr, behind a colon.
    pub fn said(&self) -> String {
        // Its last words may still be on their way.
        thread::sleep(Duration::from_millis(20));
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = said.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
        last.map_or_else(String::new, |line| format!("; its last words: {line}"))
    }

    /// Returns true when it ended within so long. It is not reaped, so that its group stays its
    /// own.
    fn ends_within(&self, pid: Pid, time: Duration) -> bool {
        let begun = Instant::now();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        loop {
            match waitid(WaitId::Pid(pid), options) {
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => return true,
            }
            if begun.elapsed() > time {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The end of its stdin asks a server to end.
        self.lines = None;
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return };
        let _ = self.ends_within(pid, ENDS);
        // Also for what it has started.
        let _ = kill_process_group(pid, Signal::TERM);
        let _ = self.ends_within(pid, ENDS);
        // What it has started may stay behind it.
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Reads messages until the program closes its stdout, or nobody wants them.
fn read(stdout: ChildStdout, events: &SyncSender<Event>) {
    let mut input = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        let taken = input.by_ref().take(LONGEST as u64 + 1).read_until(b'\n', &mut line);
        let event = match taken {
            Err(_) | Ok(0) => Err(Fault::Ended),
            Ok(count) if count > LONGEST => {
                Err(Fault::Nonsense(format!("it sent a message of more than {LONGEST} bytes")))
            }
            Ok(_) if line.trim_ascii().is_empty() => continue,
            Ok(_) => messages(line.trim_ascii()),
        };
        match event {
            Ok(messages) => {
                for message in messages {
                    if events.send(Event::Message(message)).is_err() {
                        return;
                    }
                }
            }
            Err(fault) => {
                let _ = events.send(Event::Failed(None, fault));
                return;
            }
        }
    }
}

/// Writes lines until there are no more, or the program takes none.
fn write(mut stdin: ChildStdin, lines: &Receiver<Vec<u8>>) {
    while let Ok(line) = lines.recv() {
        if stdin.write_all(&line).and_then(|()| stdin.flush()).is_err() {
            return;
        }
    }
}

/// Keeps the end of what is said on stderr.
fn keep(mut stderr: ChildStderr, said: &Mutex<VecDeque<u8>>) {
    let mut bytes = [0; 1024];
    while let Ok(count) = stderr.read(&mut bytes) {
        if count == 0 {
            return;
        }
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend(&bytes[..count]);
        let over = said.len().saturating_sub(KEPT);
        said.drain(..over);
    }
}
