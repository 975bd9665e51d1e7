//! A user who has nothing yet: models are pulled, answer, are served and quantised, and all that is
//! written lies where `ml doctor` says.
//!
//! `ML_UNPACKED` names the folder of an archive whose program is tried instead of the one that
//! cargo built, and `ML_NEWCOMER_PYTHON` and `ML_NEWCOMER_SCRIPT` a script that asks the server
//! (`cargo xtask dist --check`).

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fake_hub::{FakeHub, Fault, sha256};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::serve::{answered, serve_by, wait_until_ready};
use crate::{FOX, command, copy_parts, finish, interrupt, text};

const TEXT: &str = "org/tiny-qwen3";
const VECTORS: &str = "org/tiny-bert";
const BERT: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../metal-backend/tests/fixtures/embeddings/models/bert");

/// Variables kept of this machine's environment: folders of programs, and then of libraries.
const KEPT: [&str; 4] = ["PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LLVM_PROFILE_FILE"];

/// An empty home folder, a folder to work in, and the only hub that is asked.
struct Newcomer {
    root: TempDir,
    hub: FakeHub,
    /// The folder of the archive whose program is tried.
    unpacked: Option<PathBuf>,
}

impl Newcomer {
    fn new() -> Newcomer {
        let root = tempfile::tempdir().unwrap();
        for folder in ["home", "work", "tmp"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        let unpacked = env::var_os("ML_UNPACKED").map(PathBuf::from);
        Newcomer { root, hub: FakeHub::start(), unpacked }
    }

    fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// Adds the files of `folder` to the hub. The first time that a file comes, it is cut off. How
    /// many there are.
    fn publish(&self, name: &str, folder: &Path) -> usize {
        let files: Vec<_> = files_below(folder)
            .into_iter()
            .map(|path| {
                let bytes = fs::read(folder.join(&path)).unwrap();
                (path.to_str().unwrap().to_owned(), bytes)
            })
            .collect();
        let files: Vec<_> = files.iter().map(|(path, bytes)| (&**path, &**bytes)).collect();
        let commit = self.hub.add(name, &files);
        for (path, bytes) in &files {
            let at = match path.ends_with(".safetensors") {
                true => format!("/store/{}", sha256(bytes)),
                false => format!("/{name}/resolve/{commit}/{path}"),
            };
            self.hub.next(&at, Fault::Cut(bytes.len() / 2));
        }
        files.len()
    }

    /// The program with nothing of this machine's environment but where programs and, unless an
    /// archive has them, libraries are.
    fn command(&self, arguments: &[&str]) -> Command {
        let (mut command, kept) = match &self.unpacked {
            None => (command(arguments), &KEPT[..]),
            Some(folder) => {
                let mut command = Command::new(folder.join("bin/ml"));
                command.args(arguments).stdin(Stdio::null());
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
                (command, &KEPT[..1])
            }
        };
        command.env_clear().current_dir(self.root.path().join("work"));
        for name in kept {
            command.envs(env::var_os(name).map(|value| (name, value)));
        }
        command.env("HOME", self.home()).env("TMPDIR", self.root.path().join("tmp"));
        command.env("HF_ENDPOINT", self.hub.url());
        command
    }

    fn offline(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments);
        command.env("HF_HUB_OFFLINE", "1");
        command
    }

    /// Returns the answer to the only prompt of a piped chat.
    fn chat(&self, arguments: &[&str]) -> String {
        let mut child = self.offline(arguments).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(FOX.as_bytes()).unwrap();
        let (code, said, error) = finish(child);
        assert_eq!(code, Some(0), "{error}");
        said
    }

    /// The files under the home folder, by their paths in it.
    fn written(&self) -> BTreeSet<PathBuf> {
        files_below(&self.home())
    }
}

/// Returns the stdout of `command`, which must succeed.
fn done(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The paths of all files and links below `folder`, in it. Empty folders count too.
fn files_below(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let entries: Vec<_> = fs::read_dir(&next).unwrap().map(|entry| entry.unwrap()).collect();
        if entries.is_empty() && next != folder {
            found.insert(next.strip_prefix(folder).unwrap().to_owned());
        }
        for entry in entries {
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => _ = found.insert(entry.path().strip_prefix(folder).unwrap().to_owned()),
            }
        }
    }
    found
}

#[test]
fn from_an_empty_home_models_are_pulled_used_and_quantised_and_nothing_else_is_written() {
    let newcomer = Newcomer::new();
    let source = tempfile::tempdir().unwrap();
    copy_parts(["models/qwen3", "tokenizers/qwen"], source.path());
    let published =
        newcomer.publish(TEXT, source.path()) + newcomer.publish(VECTORS, Path::new(BERT));

    let unpacked = newcomer.unpacked.as_deref().map(files_below);

    let told: Value = serde_json::from_str(&done(newcomer.command(&["doctor", "--json"]))).unwrap();
    let models = PathBuf::from(told["models_folder"].as_str().unwrap());
    let models = models.strip_prefix(newcomer.home()).unwrap();
    assert!(done(newcomer.command(&["doctor"])).contains(models.to_str().unwrap()));
    assert_eq!(newcomer.written(), BTreeSet::new(), "to look changes nothing");

    for name in [TEXT, VECTORS] {
        done(newcomer.command(&["pull", name]));
    }
    // A large file is asked for again at the hub, and then at its store.
    let again = newcomer.hub.seen().into_iter().filter(|request| request.from.is_some());
    let again = again.filter(|request| !request.path.starts_with("/store/")).count();
    assert_eq!(again, published, "each file was cut off, and went on where it was");
    let pulled = newcomer.written();
    newcomer.hub.forget();

    let generate =
        ["generate", "--model", TEXT, "-t", "0", "-n", "8", "--ignore-eos", "--raw", FOX];
    assert!(!done(newcomer.offline(&generate)).is_empty());
    assert!(!newcomer.chat(&["chat", "--model", TEXT, "-q", "-t", "0", "-n", "8"]).is_empty());

    let models_served = ["--model", TEXT, "--embedding-model", VECTORS];
    let (child, address) = serve_by(newcomer.offline(&[]), &models_served);
    wait_until_ready(&address);
    let messages = json!([{"role": "user", "content": FOX}]);
    let chat = json!({"messages": messages, "max_tokens": 4, "ignore_eos": true});
    let said = answered(&address, "/v1/chat/completions", &chat);
    assert_eq!(said["usage"]["completion_tokens"], 4, "{said}");
    let made = answered(&address, "/v1/embeddings", &json!({"input": "a fox"}));
    assert_eq!(made["data"][0]["embedding"].as_array().map(Vec::len), Some(32), "{made}");
    if let Some(python) = env::var_os("ML_NEWCOMER_PYTHON") {
        let mut script = Command::new(python);
        script.arg(env::var_os("ML_NEWCOMER_SCRIPT").unwrap());
        script.env("ML_EMBEDDING", format!("http://{address}"));
        println!("{}", done(script));
    }
    interrupt(&child);
    assert_eq!(finish(child).0, Some(0));

    done(newcomer.offline(&["quantise", TEXT, "packed", "-b", "8", "-g", "32"]));
    let smaller = [&["generate", "--model", "packed"], &generate[3..]].concat();
    assert!(!done(newcomer.offline(&smaller)).is_empty());

    assert_eq!(newcomer.hub.seen(), [], "nothing is asked after the pulls");
    let elsewhere: Vec<_> = pulled.iter().filter(|path| !path.starts_with(models)).collect();
    assert!(elsewhere.is_empty(), "not in {}: {elsewhere:?}", models.display());
    assert_eq!(newcomer.written(), pulled, "only a pull writes to the home folder");
    let names = |folder: &str| {
        let entries = fs::read_dir(newcomer.root.path().join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    assert_eq!(names("work"), ["packed"]);
    assert_eq!(newcomer.unpacked.as_deref().map(files_below), unpacked, "the program's own folder");
    // MLX keeps kernels there that it compiles for a GPU.
    assert!(names("tmp").iter().all(|name| name == "mlx"), "{:?}", names("tmp"));
}
