//! The program as a server, and what it says of itself.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::PATIENCE;
use crate::client::{self, Reply};

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub resident: u64,
    pub allocated: u64,
}

/// A server of its own process on a free port; killed when it is dropped.
pub struct Server {
    child: Child,
    /// The address on which it listens.
    pub address: String,
}

impl Server {
    /// A server with further arguments, ready to answer.
    pub fn start(arguments: &[&str]) -> Server {
        Server::with(arguments, &[])
    }

    /// Starts a server with these arguments and, beside the inherited ones, these variables.
    pub fn with(arguments: &[&str], variables: &[(&str, &str)]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ml"))
            .args(["serve", "--port", "0", "--log", "off", "--quiet"])
            .args(arguments)
            .env_remove("ML_MODEL")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stderr = child.stderr.as_mut().unwrap();
        BufReader::with_capacity(1, stderr).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap_or_else(|| panic!("{line}"));
        let server = Server { address: address.to_owned(), child };
        server.wait_until("the model is loaded", PATIENCE, |server| {
            server.get("/health").status == 200
        });
        server
    }

    pub fn get(&self, path: &str) -> Reply {
        client::exchange(&self.address, "GET", path, "")
    }

    pub fn post(&self, path: &str, body: &Json) -> Reply {
        client::exchange(&self.address, "POST", path, &body.to_string())
    }

    pub fn health(&self) -> Json {
        self.get("/health").json()
    }

    /// The value of a metric without labels.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").body;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
    }

    /// Memory that the process holds, where the system tells: all that is resident, and what it
    /// allocated itself, be it resident or in swap. Pages of files come and go as the system likes.
    pub fn memory(&self) -> Option<Memory> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
        };
        let allocated = bytes("RssAnon:")? + bytes("VmSwap:")?;
        Some(Memory { resident: bytes("VmRSS:")?, allocated })
    }

    /// Asks again and again; returns how long it took.
    pub fn wait_until(
        &self,
        what: &str,
        limit: Duration,
        done: impl Fn(&Server) -> bool,
    ) -> Duration {
        let begun = Instant::now();
        while !done(self) {
            assert!(begun.elapsed() < limit, "not within {limit:?}: {what}; {}", self.state());
            thread::sleep(Duration::from_millis(2));
        }
        begun.elapsed()
    }

    /// Nothing runs, waits, or takes memory for keys and values.
    pub fn wait_until_idle(&self, limit: Duration) -> Duration {
        self.wait_until("the server is idle", limit, |server| {
            let health = server.health();
            ["held", "running", "waiting"].iter().all(|name| health[*name] == 0)
                && server.metric("ml_kv_cache_usage_bytes") == 0.0
        })
    }

    fn state(&self) -> String {
        let kv = self.metric("ml_kv_cache_usage_bytes");
        format!("{}, {kv} bytes of keys and values", self.health())
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Waits for the end and returns the exit code and what came on stderr.
    pub fn end(mut self, limit: Duration) -> (Option<i32>, String) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < limit, "the server did not end within {limit:?}");
            thread::sleep(Duration::from_millis(5));
        };
        let mut error = String::new();
        let stderr = self.child.stderr.take().unwrap();
        std::io::Read::read_to_string(&mut { stderr }, &mut error).unwrap();
        (status.code(), error)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
