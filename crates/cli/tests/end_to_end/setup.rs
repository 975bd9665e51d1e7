//! `ml setup cuda` with a pip that the tests write: what is fetched, kept and taken away.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::{PATIENCE, command, finish, interrupt, text};

/// Folders of the real packages, as far as they are looked at.
const PACKAGES: [&str; 4] =
    ["mlx/lib", "mlx_cuda_13.libs", "nvidia/cu13/lib", "mlx_cuda_13-0.32.2.dist-info"];

/// These packages are empty, so they need no room.
const FORCE: &str = "--force";

struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Home {
        Home { folder: tempfile::tempdir().unwrap() }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data/ml")
    }

    /// Returns the names in the user's folder, without the lock.
    fn kept(&self) -> Vec<String> {
        let entries = fs::read_dir(self.data()).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "cuda.lock").collect()
    }

    /// A Python whose pip writes down its arguments and does `then`, in which `$target` is the
    /// folder.
    fn python(&self, then: &str) -> PathBuf {
        let program = self.folder.path().join("python3");
        let script = format!(
            "#!/bin/sh\nprintf '%s\\n' \"$@\" > '{}'\n\
             while [ $# -gt 0 ]; do [ \"$1\" = --target ] && target=$2; shift; done\n{then}\n",
            self.folder.path().join("arguments").display()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    fn setup(&self, arguments: &[&str]) -> Command {
        let mut command = command(&["setup", "cuda"]);
        command.args(arguments).env("XDG_DATA_HOME", self.folder.path().join("data"));
        command
    }

    fn fetched(&self, then: &str) -> Output {
        let python = self.python(then);
        let python = python.to_str().unwrap();
        self.setup(&[FORCE, "--without-gpu", "--python", python]).output().unwrap()
    }
}

/// Returns the script of a pip that installs.
fn installs() -> String {
    let folders = PACKAGES.map(|folder| format!("mkdir -p \"$target/{folder}\""));
    format!("{}\ntouch \"$target/mlx/lib/libmlx.so\"\necho installed", folders.join("\n"))
}

#[test]
fn packages_are_fetched_with_their_hashes_kept_once_and_removed() {
    let home = Home::new();
    let output = home.fetched(&installs());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty(), "pip's output belongs on stderr");
    assert_eq!(home.kept(), ["cuda-0.32.2"]);
    let arguments = fs::read_to_string(home.folder.path().join("arguments")).unwrap();
    for wanted in ["--require-hashes", "--only-binary=:all:", "--no-deps"] {
        assert!(arguments.lines().any(|argument| argument == wanted), "{arguments}");
    }
    // A second time fetches nothing.
    let again = home.fetched("exit 1");
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert!(text(&again.stderr).contains("--remove"));
    // Without a GPU the packages, which are empty here, are not used.
    let mut version = command(&["--version"]);
    let version = version.env("XDG_DATA_HOME", home.folder.path().join("data")).output().unwrap();
    assert!(version.status.success(), "{}", text(&version.stderr));

    assert!(home.setup(&["--remove"]).output().unwrap().status.success());
    assert!(home.kept().is_empty());
    let nothing = home.setup(&["--remove"]).output().unwrap();
    assert_eq!(nothing.status.code(), Some(1));
    assert!(text(&nothing.stderr).contains("nothing is set up"));
}

#[test]
fn what_fails_leaves_nothing() {
    for (then, reason) in [
        ("exit 3", "pip` failed"),
        ("mkdir -p \"$target/mlx\"", "mlx-cuda-13==0.32.2"),
        ("rm -r \"$target\"", "no such file"),
    ] {
        let home = Home::new();
        let output = home.fetched(then);
        assert_eq!(output.status.code(), Some(1));
        let error = text(&output.stderr);
        assert!(error.contains(reason), "{error}");
        assert!(home.kept().is_empty(), "{:?}", home.kept());
    }
    let home = Home::new();
    let output = home.setup(&[FORCE, "--without-gpu", "--python", "/no/python"]).output().unwrap();
    assert!(text(&output.stderr).contains("--python"), "{}", text(&output.stderr));
    assert!(home.kept().is_empty());
}

#[test]
fn two_at_once_are_told_apart_and_an_interrupted_one_leaves_nothing() {
    let home = Home::new();
    // The terminal sends Ctrl-C to both; the test sends it to pip through `ended`.
    let ended = home.folder.path().join("ended");
    let wait = format!("until [ -e '{}' ]; do sleep 0.05; done; exit 1", ended.display());
    let python = home.python(&wait);
    let arguments = [FORCE, "--without-gpu", "--python", python.to_str().unwrap()];
    let first = home.setup(&arguments).spawn().unwrap();
    let written = home.folder.path().join("arguments");
    let start = Instant::now();
    while !written.exists() {
        assert!(start.elapsed() < PATIENCE, "pip was not started");
        std::thread::sleep(Duration::from_millis(10));
    }
    let second = home.setup(&arguments).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("another"), "{}", text(&second.stderr));
    interrupt(&first);
    fs::write(&ended, "").unwrap();
    let (code, _, error) = finish(first);
    assert_eq!(code, Some(130), "{error}");
    assert!(home.kept().is_empty(), "{:?}", home.kept());
}

#[test]
fn packages_that_python_has_are_used_where_they_lie() {
    let home = Home::new();
    let installed = home.folder.path().join("site-packages");
    for folder in PACKAGES {
        fs::create_dir_all(installed.join(folder)).unwrap();
    }
    let from = ["--without-gpu", "--from", installed.to_str().unwrap()];
    let refused = home.setup(&from).output().unwrap();
    assert!(text(&refused.stderr).contains("libmlx.so"), "{}", text(&refused.stderr));
    assert!(home.kept().is_empty());
    fs::write(installed.join("mlx/lib/libmlx.so"), "").unwrap();
    assert!(home.setup(&from).output().unwrap().status.success());
    assert!(is_link(&home.data().join("cuda-0.32.2/nvidia")));
    assert!(home.setup(&["--remove"]).output().unwrap().status.success());
    assert!(installed.join("mlx/lib/libmlx.so").exists(), "what was linked stays");
}

fn is_link(path: &Path) -> bool {
    path.symlink_metadata().unwrap().is_symlink()
}
