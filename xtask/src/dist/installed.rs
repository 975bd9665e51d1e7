//! An archive, tried: where nothing else is, and through its installer.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::archive::unpack;
use super::files::copy;
use crate::repository::root;

/// Commands that must succeed from any folder.
const TRIALS: [&[&str]; 3] =
    [&["--version"], &["doctor"], &["generate", "Tell me a story", "--max-tokens", "8"]];

/// Writes `install.sh`, which downloads from there.
pub fn write_installer(out: &Path, downloads: &str) -> Result<PathBuf> {
    let source = root().join("packaging/install.sh");
    let text = fs::read_to_string(&source)
        .with_context(|| format!("cannot read {}", source.display()))?
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        .replace("@DOWNLOADS@", downloads);
    let file = out.join("install.sh");
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    Ok(file)
}

/// Tries the archive `file`, in which everything is below `name`.
pub fn check(file: &Path, name: &str) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    // A place that nobody built for, with a name that is split where it is not quoted.
    let place = folder.path().join("any place");
    unpack(file, &place)?;
    if cfg!(target_os = "linux") {
        alone(&folder.path().join("system"), &place.join(name))?;
    } else {
        each_trial(|args| command(&place.join(name).join("bin/ml"), args))?;
    }
    installer(&folder.path().join("a home"), file)
}

/// Runs the program in a root folder that has nothing but it and the system's C and C++ libraries.
fn alone(system: &Path, unpacked: &Path) -> Result<()> {
    let ml = unpacked.join("bin/ml");
    for library in system_libraries(&ml)? {
        let place = system.join(library.strip_prefix("/")?);
        fs::create_dir_all(place.parent().unwrap_or(system))?;
        copy(&library, &place)?;
    }
    for folder in ["proc", "tmp", "home", "opt"] {
        fs::create_dir_all(system.join(folder))?;
    }
    fs::rename(unpacked, system.join("opt/ml"))?;
    let before = files(system)?;
    let Some(enter) = enter(system) else {
        eprintln!("not tried in a root folder of its own: this user may not make one here");
        return each_trial(|args| command(&system.join("opt/ml/bin/ml"), args));
    };
    each_trial(|args| {
        let mut command = command(Path::new(enter[0].as_str()), &[]);
        command.args(&enter[1..]).arg("/opt/ml/bin/ml").args(args);
        command
    })?;
    let written: Vec<PathBuf> = files(system)?.difference(&before).cloned().collect();
    ensure!(written.is_empty(), "the program wrote {written:?}");
    eprintln!("runs where nothing is but glibc and libstdc++, and writes nothing");
    Ok(())
}

/// The words before a command that runs it with `system` as its root folder; `None` where that is
/// not allowed.
fn enter(system: &Path) -> Option<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let namespaces = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork"];
    let is_allowed = Command::new(namespaces[0])
        .args(&namespaces[1..])
        .args(["--mount-proc", "true"])
        .output()
        .is_ok_and(|output| output.status.success());
    let root = system.to_str()?;
    if is_allowed {
        let mut words = words(&namespaces);
        words.extend([format!("--root={root}"), "--mount-proc".to_owned()]);
        return Some(words);
    }
    let chroot = Command::new("chroot").args([root, "/opt/ml/bin/ml", "--version"]).output();
    let is_allowed = chroot.is_ok_and(|output| output.status.success());
    is_allowed.then(|| words(&["chroot", root]))
}

fn each_trial(command: impl Fn(&[&str]) -> Command) -> Result<()> {
    for args in TRIALS {
        let output = command(args).output().context("cannot start the program")?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            bail!("ml {}: {}", args.join(" "), text.trim());
        }
        ensure!(!output.stdout.is_empty(), "ml {} says nothing", args.join(" "));
    }
    Ok(())
}

/// The command without this process's environment.
fn command(program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .env("HOME", "/home")
        .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    command
}

/// The system's libraries that a program and what it links need, as `ldd` tells them.
fn system_libraries(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let output = Command::new("ldd").arg(program).env_remove("LD_LIBRARY_PATH").output();
    let output = output.context("cannot start ldd")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success() && !text.contains("not found"), "{text}");
    let own = program.ancestors().nth(2).context("the program lies in bin")?;
    // `name => /path (address)`, or `/path (address)` for what loads all others.
    let paths = text.lines().filter_map(|line| line.split(" (").next());
    let paths = paths.map(|line| line.rsplit("=> ").next().unwrap_or(line).trim());
    let paths = paths.map(PathBuf::from).filter(|path| path.is_absolute());
    Ok(paths.filter(|path| !path.starts_with(own)).collect())
}

/// All files below a folder, other than those that the system makes up.
fn files(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            match path.is_dir() {
                true => open.push(path),
                false => drop(found.insert(path)),
            }
        }
    }
    Ok(found)
}

/// Refuses to replace a foreign file, installs, runs, installs again, refuses another archive, and
/// takes all away.
fn installer(home: &Path, file: &Path) -> Result<()> {
    let served = home.join("served");
    fs::create_dir_all(&served)?;
    let name = file.file_name().context("an archive has a name")?;
    let archive = served.join(name);
    copy(file, &archive)?;
    let hash = PathBuf::from(format!("{}.sha256", file.display()));
    copy(&hash, &served.join(hash.file_name().unwrap_or_default()))?;
    let address = format!("file://{}", served.display().to_string().replace(' ', "%20"));
    let script = write_installer(home, &address)?;
    let prefix = home.join("prefix");
    let run = |args: &[&str]| {
        let mut command = command(Path::new("sh"), &[]);
        command.arg(&script).args(args).env("ML_PREFIX", &prefix);
        command.output().context("cannot start sh")
    };
    let installed = |args: &[&str]| -> Result<()> {
        let output = run(args)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "install.sh {}: {text}", args.join(" "));
        Ok(())
    };
    let ml = prefix.join("bin/ml");
    let aside = prefix.join("bin/ml.before-ml");
    fs::create_dir_all(prefix.join("bin"))?;
    fs::write(&ml, "of somebody else")?;
    let refused = run(&[])?;
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(!refused.status.success() && text.contains("not of ml"), "not refused: {text}");
    ensure!(fs::read_to_string(&ml)? == "of somebody else", "a foreign file was replaced");
    installed(&["--move-aside"])?;
    ensure!(fs::read_to_string(&aside)? == "of somebody else", "a foreign file is gone");
    fs::remove_file(&aside)?;
    installed(&[])?;
    each_trial(|args| command(&ml, args))?;
    ensure!(prefix.join("share/man/man1/ml.1").is_file(), "the manual is not installed");
    fs::write(&archive, "another")?;
    let refused = run(&[])?;
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(!refused.status.success() && text.contains("SHA-256"), "not refused: {text}");
    each_trial(|args| command(&ml, args))?;
    installed(&["--uninstall"])?;
    let left = files(&prefix)?;
    ensure!(left.is_empty(), "left behind: {left:?}");
    eprintln!("install.sh installs, refuses another archive, and takes all away");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(folder: &Path, name: &str, body: &str) {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The archive that `install.sh` asks for on such a machine, or what it says.
    fn asked(system: &str, machine: &str, macos: &str) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let tools = folder.path().join("tools");
        fs::create_dir(&tools).unwrap();
        let uname = format!("case $1 in -s) echo {system};; -m) echo {machine};; esac");
        program(&tools, "uname", &uname);
        program(&tools, "sw_vers", &format!("echo '{macos}'"));
        program(&tools, "curl", "for last; do :; done; echo \"asked for $last\" >&2; exit 22");
        let script = write_installer(folder.path(), "https://example.org").unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("sh")
            .arg(script)
            .env_clear()
            .env("PATH", format!("{}:{path}", tools.display()))
            .env("ML_PREFIX", folder.path().join("prefix"))
            .output()
            .unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8(output.stderr).unwrap();
        let start = format!("asked for https://example.org/ml-{}-", env!("CARGO_PKG_VERSION"));
        let archive =
            said.trim().strip_prefix(&start).and_then(|name| name.strip_suffix(".tar.gz"));
        archive.map(str::to_owned).ok_or(said)
    }

    #[test]
    fn install_sh_takes_the_archive_for_the_machine() {
        for (system, machine, macos, archive) in [
            ("Linux", "x86_64", "", "x86_64-unknown-linux-gnu"),
            ("Linux", "aarch64", "", "aarch64-unknown-linux-gnu"),
            ("Darwin", "arm64", "15", "aarch64-apple-darwin-macos15"),
            ("Darwin", "arm64", "15.7.1", "aarch64-apple-darwin-macos15"),
            ("Darwin", "arm64", "26.0", "aarch64-apple-darwin-macos15"),
            ("Darwin", "arm64", "26.1.1", "aarch64-apple-darwin-macos15"),
            ("Darwin", "arm64", "26.2", "aarch64-apple-darwin-macos26"),
            ("Darwin", "arm64", "26.10", "aarch64-apple-darwin-macos26"),
            ("Darwin", "arm64", "27.0", "aarch64-apple-darwin-macos26"),
        ] {
            let asked = asked(system, machine, macos);
            assert_eq!(asked.as_deref(), Ok(archive), "{system} {machine} {macos}");
        }
    }

    #[test]
    fn install_sh_names_a_machine_that_has_no_archive() {
        for (system, machine, macos, named) in [
            ("Darwin", "arm64", "14.7", "no archive for macOS 14.7"),
            ("Darwin", "arm64", "tahoe", "no release of macOS: tahoe"),
            ("Darwin", "x86_64", "15.0", "no archive for Darwin on x86_64"),
            ("FreeBSD", "amd64", "", "no archive for FreeBSD on amd64"),
        ] {
            let said = asked(system, machine, macos).unwrap_err();
            assert!(said.starts_with("install.sh: ") && said.contains(named), "{said}");
        }
    }
}
