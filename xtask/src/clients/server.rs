//! A server of the built-in model, on a port of its own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::repository::root;

/// How long a server may take to say where it listens.
const START: Duration = Duration::from_secs(60);

/// `ml serve`; ended when this is dropped.
pub struct Server {
    process: Child,
    /// The address on which it listens, such as `http://127.0.0.1:8080`.
    pub url: String,
}

impl Server {
    /// Starts `program`, which wants `key`, and waits until it listens.
    pub fn start(program: &Path, key: &str) -> Result<Server> {
        let mut command = Server::command(program);
        command.env("ML_SERVE_API_KEY", key);
        Server::of(command, program)
    }

    /// Starts `program`, which keeps files and batches in a fresh folder below `folder`.
    pub fn start_keeping(program: &Path, folder: &Path) -> Result<Server> {
        let kept = folder.join("batches");
        if kept.exists() {
            std::fs::remove_dir_all(&kept)?;
        }
        let mut command = Server::command(program);
        command.arg("--batch-dir").arg(kept);
        Server::of(command, program)
    }

    /// Starts `program` with a model that embeds, `bert`, and a reranker, `qwen3_reranker`, beside
    /// its own, and with tiny ones that transcribe, `multilingual`, and speak, `kokoro`.
    pub fn start_embedding(program: &Path) -> Result<Server> {
        let models = root().join("crates/metal-backend/tests/fixtures/embeddings/models");
        let mut command = Server::command(program);
        for name in ["bert", "qwen3_reranker"] {
            command.arg("--embedding-model").arg(models.join(name));
        }
        let ears = root().join("crates/metal-backend/tests/fixtures/speech/multilingual");
        command.arg("--transcription-model").arg(ears);
        let mouth = root().join("crates/metal-backend/tests/fixtures/speech/kokoro");
        command.arg("--speech-model").arg(mouth);
        Server::of(command, program)
    }

    /// Starts `program` with the tiny models of the tests that make pictures, and `demo`.
    pub fn start_painting(program: &Path) -> Result<Server> {
        let mut command = Server::command(program);
        let images = root().join("crates/metal-backend/tests/fixtures/images");
        command.arg("--models-dir").arg(images);
        command
            .arg("--model")
            .arg(format!("demo={}", root().join("crates/cli/demo-model").display()));
        Server::of(command, program)
    }

    fn command(program: &Path) -> Command {
        let mut command = Command::new(program);
        command.args(["serve", "--port", "0"]).stdin(Stdio::null()).stdout(Stdio::null());
        // What the caller has set for servers of his own is not for this one.
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("ML_")) {
                command.env_remove(name);
            }
        }
        command.env("ML_SERVE_LOG", "off");
        command
    }

    /// Starts `scripted` without a script, for clients that show it pictures: its model sees. A
    /// file of no steps is written below `folder`.
    pub fn start_seeing(scripted: &Path, folder: &Path) -> Result<Server> {
        std::fs::create_dir_all(folder)?;
        let script = folder.join("no-steps.json");
        std::fs::write(&script, "[]")?;
        let mut command = Command::new(scripted);
        command.arg(&script).stdin(Stdio::null()).stdout(Stdio::null());
        Server::of(command, scripted)
    }

    /// The server that `command` starts, once it listens.
    fn of(mut command: Command, program: &Path) -> Result<Server> {
        command.stderr(Stdio::piped());
        let mut process =
            command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let stderr = process.stderr.take().context("the server's stderr is piped")?;
        let (send, lines) = mpsc::channel();
        // The pipe is read to its end, so that the server never waits for us.
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        let mut server = Server { process, url: String::new() };
        let mut said = Vec::new();
        while let Ok(line) = lines.recv_timeout(START) {
            if let Some(url) = line.split_whitespace().find(|word| word.starts_with("http://")) {
                server.url = url.trim_end_matches(['/', '.', ',']).to_owned();
                return Ok(server);
            }
            said.push(line);
        }
        bail!("the server did not say where it listens:\n{}", said.join("\n"))
    }

    /// # Errors
    /// The server has ended, which no client may bring about.
    pub fn still_runs(&mut self) -> Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the server at {} ended: {status}", self.url),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program `ml`: the newest that was built, after having it built where there is none.
pub fn program(target: &Path) -> Result<PathBuf> {
    let name = format!("ml{}", std::env::consts::EXE_SUFFIX);
    let built = || {
        let programs = ["release", "debug"].map(|profile| target.join(profile).join(&name));
        let age = |path: &PathBuf| path.metadata().and_then(|file| file.modified()).ok();
        programs.into_iter().filter(|path| path.is_file()).max_by_key(age)
    };
    if let Some(program) = built() {
        return Ok(program);
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status =
        Command::new(cargo).args(["build", "-p", "ml-on-mlx"]).current_dir(root()).status()?;
    if !status.success() {
        bail!("cargo build -p ml-on-mlx failed");
    }
    built().context("cargo build -p ml-on-mlx made no program")
}

/// The example `scripted` of the crate `server`: a server whose model follows a script.
pub fn scripted(target: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    // The whole workspace's features, so that nothing is compiled anew for it.
    build.args(["build", "--workspace", "--example", "scripted"]).current_dir(root());
    if !build.status()?.success() {
        bail!("cargo build --example scripted failed");
    }
    let program =
        target.join("debug/examples").join(format!("scripted{}", std::env::consts::EXE_SUFFIX));
    match program.is_file() {
        true => Ok(program),
        false => bail!("{} is not there", program.display()),
    }
}
