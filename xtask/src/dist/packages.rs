//! The crates that others use, as packages: each can be packed, and is small enough for a registry.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::manifest::package_name;
use crate::repository::{root, target_folder};

/// The most bytes of a package that crates.io takes.
const MOST: u64 = 10 << 20;

/// Packs every crate that is published, and builds those of them that need no MLX from their
/// packages.
pub fn check() -> Result<()> {
    let names = published()?;
    ensure!(names.len() > 5, "only {names:?} are published");
    package(&names, &["--no-verify"])?;
    forget(&names)?;
    let folder = target_folder()?.join("package");
    for name in &names {
        let file = folder.join(format!("{name}-{}.crate", env!("CARGO_PKG_VERSION")));
        let bytes = fs::metadata(&file).with_context(|| format!("no {}", file.display()))?.len();
        ensure!(bytes <= MOST, "the package {name} has {bytes} bytes, at most {MOST} are taken");
    }
    let (with_mlx, without): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| needs_mlx(name));
    package(&without, &[])?;
    eprintln!(
        "{} crates are packed, and {} of them built from their packages",
        with_mlx.len() + without.len(),
        without.len()
    );
    Ok(())
}

/// Returns true for a package that is built against MLX.
fn needs_mlx(name: &str) -> bool {
    ["mlx-ffi", "metal-backend"].contains(&name)
}

/// The names of the crates that may be published.
fn published() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root().join("crates"))? {
        let file = entry?.path().join("Cargo.toml");
        let text = fs::read_to_string(&file).with_context(|| format!("no {}", file.display()))?;
        if !text.lines().any(|line| line.trim() == "publish = false") {
            names.extend(package_name(&text).map(str::to_owned));
        }
    }
    names.sort();
    Ok(names)
}

/// Removes what cargo unpacked and built of these crates from registries that an earlier check
/// made, whose names begin with a dash: it would take that again, though packages of the same
/// version are others by now.
fn forget(names: &[String]) -> Result<()> {
    let home = match env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => PathBuf::from(env::var_os("HOME").context("HOME is not set")?).join(".cargo"),
    };
    let sources = home.join("registry/src");
    let remove = |folder: PathBuf| match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    };
    for registry in entries(&sources)? {
        if registry.file_name().is_some_and(|name| name.to_string_lossy().starts_with('-')) {
            for name in names {
                remove(registry.join(format!("{name}-{}", env!("CARGO_PKG_VERSION"))))?;
            }
        }
    }
    let built = target_folder()?.join("debug");
    for file in entries(&built.join("deps"))? {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let Some((library, hash)) = stem.rsplit_once('-') else { continue };
        let of = names.iter().find(|name| name.replace('-', "_") == library);
        let (Some(name), true) = (of, file.extension().is_some_and(|kind| kind == "d")) else {
            continue;
        };
        // Which files it was built from.
        let text = fs::read_to_string(&file).with_context(|| format!("no {}", file.display()))?;
        if text.contains(&format!("{}/-", sources.display())) {
            remove(built.join(".fingerprint").join(format!("{name}-{hash}")))?;
        }
    }
    Ok(())
}

/// The entries of a folder, which may be missing.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", folder.display())),
    }
}

fn package(names: &[String], more: &[&str]) -> Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root()).args(["package", "--quiet", "--allow-dirty"]).args(more);
    command.args(names.iter().flat_map(|name| ["--package", name]));
    let output = command.output().context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo package: {text}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::Path;
    use std::process::{Command, Output, Stdio};

    use super::published;
    use crate::repository::root;

    #[test]
    fn what_is_made_for_tests_is_not_published() {
        let names = published().unwrap();
        for name in ["inference-core", "inference-server", "metal-backend", "mlx-ffi", "ml"] {
            assert!(names.iter().any(|other| other == name), "{name}: {names:?}");
        }
        assert!(
            !names.iter().any(|name| name.starts_with("fake-") || name == "ml-on-mlx"),
            "{names:?}"
        );
    }

    const TARGETS: [&str; 4] = [
        "aarch64-apple-darwin-macos26",
        "aarch64-apple-darwin-macos15",
        "aarch64-unknown-linux-gnu",
        "x86_64-unknown-linux-gnu",
    ];

    /// The end of `formula.sh` for the hashes in a folder.
    fn formula(folder: &Path) -> Output {
        let mut script = Command::new("sh");
        script.arg(root().join("packaging/formula.sh"));
        script.args(["1.2.3", "https://example.org/v1.2.3"]).arg(folder).output().unwrap()
    }

    fn whole_formula() -> String {
        let folder = tempfile::tempdir().unwrap();
        for (hash, target) in TARGETS.iter().enumerate() {
            let failed = formula(folder.path());
            assert!(!failed.status.success() && failed.stdout.is_empty(), "without {target}");
            let name = format!("ml-1.2.3-{target}.tar.gz");
            let text = format!("{hash:064}  {name}\n");
            fs::write(folder.path().join(format!("{name}.sha256")), text).unwrap();
        }
        String::from_utf8(formula(folder.path()).stdout).unwrap()
    }

    #[test]
    fn the_formula_has_the_hash_of_each_archive() {
        let text = whole_formula();
        for (hash, target) in TARGETS.iter().enumerate() {
            let url = format!(
                "https://example.org/v1.2.3/ml-1.2.3-{target}.tar.gz\"\n      sha256 \"{hash:064}\""
            );
            assert_eq!(text.matches(&url).count(), 1, "{text}");
        }
        // A Mac gets the archive that install.sh chooses for it.
        let [newer, older] = [TARGETS[0], TARGETS[1]].map(|target| text.find(target).unwrap());
        let choice = text.find("MacOS.full_version >= \"26.2\"").unwrap();
        assert!(choice < newer && newer < older, "{text}");
    }

    #[test]
    fn the_formula_is_ruby_with_a_service_and_all_blocks_ended() {
        let text = whole_formula();
        let mut open = Vec::new();
        let mut texts = None;
        for line in text.lines() {
            let word = line.trim();
            if let Some(end) = texts {
                texts = (word != end).then_some(end);
                continue;
            }
            texts = ["SH", "EOS"].into_iter().find(|end| word.ends_with(&format!("<<~{end}")));
            let begins = ["class ", "def ", "if "].iter().any(|start| word.starts_with(start));
            if begins || word.ends_with(" do") {
                open.push(line.len() - word.len());
            } else if word == "end" {
                assert_eq!(open.pop(), Some(line.len() - word.len()), "{line}");
            }
        }
        assert!(open.is_empty() && texts.is_none(), "{text}");
        for block in
            ["  service do\n    run opt_libexec/\"serve\"\n", "  on_macos do\n", "  test do\n"]
        {
            assert_eq!(text.matches(block).count(), 1, "{block}: {text}");
        }
        // Where there is a Ruby, it has the last word.
        let ruby =
            Command::new("ruby").arg("-c").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        if let Ok(mut ruby) = ruby {
            ruby.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
            assert!(ruby.wait().unwrap().success(), "{text}");
        }
    }
}
