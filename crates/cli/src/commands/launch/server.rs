//! The server that an agent talks to: one that runs, or one that runs as long as the agent.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value as Json;

use crate::failure::{Failure, Result};
use crate::output::note;
use crate::remote::Remote;
use crate::signals::{Signals, terminate};

/// Between two looks whether a server is ready.
const AGAIN: Duration = Duration::from_millis(100);

/// A model on a server.
#[derive(Clone, Debug)]
pub struct Served {
    /// Its address, without a path.
    pub url: String,
    /// Its model's name.
    pub model: String,
    /// Tokens of the model's context; 0 where the server does not tell.
    pub context: u64,
}

impl Served {
    /// Returns the model `name` of the server `remote`. Without a name it is the first that is
    /// loaded, or the first of all.
    ///
    /// # Errors
    /// No server answers there, it wants another key, or has no such model.
    pub fn of(remote: Remote, name: Option<&str>) -> Result<Served> {
        let list = remote.get("/v1/models")?;
        let url = remote.url;
        let makes_pictures = |model: &Json| {
            let made = model["output_modalities"].as_array();
            made.is_some_and(|made| made.iter().all(|kind| kind == "image"))
        };
        let models = list["data"].as_array().into_iter().flatten();
        let models = models.filter(|model| !makes_pictures(model));
        let named: Vec<(&str, &Json)> =
            models.filter_map(|model| Some((model["id"].as_str()?, model))).collect();
        let found = match name {
            // One that is loaded answers at once.
            None => named.iter().find(|(_, model)| model["state"] == "loaded").or(named.first()),
            Some(wanted) => {
                let found = named.iter().find(|(name, _)| *name == wanted);
                Some(found.ok_or_else(|| {
                    let known: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
                    let known = known.join(", ");
                    Failure::Usage(format!("--model-name: {url} has {known}, and no `{wanted}`"))
                })?)
            }
        };
        let Some((name, model)) = found else {
            return Err(Failure::Other(format!("{url} has no models")));
        };
        let context = model["max_model_len"].as_u64().unwrap_or(0);
        Ok(Served { model: (*name).to_owned(), url, context })
    }

    /// The `model` that a server would have, which is not started yet.
    pub fn to_come(model: &Path, name: Option<&str>) -> Served {
        let last = model.file_name().map_or_else(Default::default, |name| name.to_string_lossy());
        let model = name.map_or_else(|| last.into_owned(), str::to_owned);
        Served { url: "http://127.0.0.1:PORT".to_owned(), model, context: 0 }
    }

    /// Returns the URL where OpenAI's protocol begins.
    pub fn base(&self) -> String {
        format!("{}/v1", self.url)
    }
}

/// The server at `url`, with the key that it may want.
pub fn remote(url: &str, key: Option<String>) -> Remote {
    let absent = "start one with `ml serve`, or give --model";
    Remote::new(url, key, absent, "set ML_LAUNCH_API_KEY")
}

/// `ml serve`, which ends when this is dropped.
pub struct Server {
    process: Child,
    url: String,
}

impl Server {
    /// Serves `model` on a free port, and waits until it answers.
    ///
    /// # Errors
    /// It does not start, or the model cannot be loaded.
    pub fn start(model: &Path, name: Option<&str>, signals: &Signals) -> Result<Server> {
        let failed = |error: std::io::Error| Failure::Other(format!("ml serve: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("serve").arg("--model").arg(model).args(["--port", "0", "--log", "off"]);
        if let Some(name) = name {
            command.args(["--model-name", name]);
        }
        // The server is for this agent and this model alone, and wants no key of it.
        for name in [
            "ML_SERVE_API_KEY",
            "ML_SERVE_API_KEY_FILE",
            "ML_SERVE_BATCH_DIR",
            "ML_SERVE_MAX_BATCH_FILE",
            "ML_SERVE_MAX_BATCH_BYTES",
            "ML_SERVE_MAX_BATCH_REQUESTS",
            "ML_SERVE_HOST",
            // A manager of services is not told of it.
            "NOTIFY_SOCKET",
            "LISTEN_PID",
            "ML_SERVE_TLS_CERT",
            "ML_SERVE_TLS_KEY",
            "ML_SERVE_MODELS_DIR",
            "ML_SERVE_PIN",
            "ML_SERVE_LOAD",
        ] {
            command.env_remove(name);
        }
        // A group of its own, so that Ctrl-C at the terminal is not for it.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null());
        let mut process = command.stderr(Stdio::piped()).spawn().map_err(failed)?;
        let stderr = process.stderr.take();
        let mut server = Server { process, url: String::new() };
        let (send, lines) = mpsc::channel();
        // Read to its end, so that the server never waits for us.
        thread::spawn(move || {
            for line in
                stderr.into_iter().flat_map(|e| BufReader::new(e).lines()).map_while(Result::ok)
            {
                let _ = send.send(line);
            }
        });
        let mut said = Vec::new();
        // It says where it listens before it does anything else.
        while let Ok(line) = lines.recv() {
            if line.starts_with("http://") {
                server.url = line;
                break;
            }
            said.push(line);
        }
        if server.url.is_empty() {
            return Err(Failure::Other(reason(&said)));
        }
        note(format_args!("serving {} at {}", model.display(), server.url));
        let remote = Remote::new(&server.url, None, "", "");
        while server.process.try_wait().map_err(failed)?.is_none() {
            // It answers 503 as long as the model is loaded.
            if remote.get("/health").is_ok() {
                return Ok(server);
            }
            if signals.came() {
                return Err(Failure::Interrupted);
            }
            thread::sleep(AGAIN);
        }
        said.extend(lines.iter());
        Err(Failure::Other(reason(&said)))
    }

    /// Returns the URL on which it listens.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Why a server ended, from what it said.
fn reason(said: &[String]) -> String {
    let last = said.iter().rev().find_map(|line| line.strip_prefix("error: "));
    format!("ml serve: {}", last.unwrap_or("it ended without a reason"))
}

impl Drop for Server {
    fn drop(&mut self) {
        terminate(&self.process);
        let _ = self.process.wait();
    }
}
