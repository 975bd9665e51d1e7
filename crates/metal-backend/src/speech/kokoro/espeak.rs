//! The program espeak-ng, which turns words into phonemes.

use std::env;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use inference_core::{Error, Result};

use super::phonemes::{Language, Part, parts};

/// The program's name.
const PROGRAM: &str = "espeak-ng";
/// The most time that it has for a piece. It takes some 10 ms.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two looks at it.
const LOOK: Duration = Duration::from_millis(2);

/// The program, for one language.
#[derive(Clone, Debug)]
pub(super) struct Espeak {
    program: PathBuf,
    language: Language,
}

impl Espeak {
    /// The program in one of the folders of `PATH`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the way to install it.
    pub fn find(language: Language) -> Result<Espeak> {
        let Some(program) = espeak_ng() else {
            return Err(Error::Unsupported {
                what: "text".into(),
                reason: format!(
                    "the program `{PROGRAM}`, which turns text into phonemes, is not on the PATH; \
                     install it (`apt install {PROGRAM}`, `dnf install {PROGRAM}`, `brew install \
                     {PROGRAM}`), or give phonemes"
                ),
            });
        };
        Ok(Espeak { program, language })
    }

    /// The phonemes of a piece of text, in Kokoro's symbols, with its marks. `goes_on` is asked now
    /// and then.
    ///
    /// # Errors
    /// A program that cannot be run, fails or hangs; [`Error::Cancelled`] once it does not go on.
    pub fn phonemes(&self, text: &str, goes_on: &dyn Fn() -> bool) -> Result<String> {
        let parts = parts(text);
        let words = parts.iter().filter_map(|part| match part {
            Part::Words(words) => Some(words.as_str()),
            Part::Marks(_) => None,
        });
        let words: Vec<&str> = words.collect();
        // Paragraphs of one call, where each makes a line; else one call for each.
        let lines = self.lines(&words.join("\n\n"), goes_on)?;
        let lines = match lines.len() == words.len() {
            true => lines,
            false => {
                let each = words.iter().map(|words| Ok(self.lines(words, goes_on)?.join(" ")));
                each.collect::<Result<_>>()?
            }
        };
        let (mut made, mut lines) = (String::new(), lines.into_iter());
        for part in &parts {
            match part {
                Part::Marks(marks) => made += marks,
                Part::Words(_) => {
                    made += &self.language.symbols(lines.next().unwrap_or_default().trim());
                }
            }
        }
        Ok(made)
    }

    /// The lines that the program writes for `text`.
    fn lines(&self, text: &str, goes_on: &dyn Fn() -> bool) -> Result<Vec<String>> {
        let failed =
            |reason: String| Error::Engine(format!("{}: {reason}", self.program.display()));
        // In a group of its own: an interruption is for us, who then end it.
        let mut child = Command::new(&self.program)
            .args(["-q", "--ipa", "--tie=^", "-b", "1", "-v", self.language.of_espeak(), "--stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        // A piece, and what is said of it, is shorter than what a pipe holds: nobody waits for the
        // other.
        let written = child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
        let Some(status) = ended(&mut child, goes_on).map_err(|error| failed(error.to_string()))?
        else {
            let _ = child.kill();
            let _ = child.wait();
            let late = || failed(format!("it did not end within {} s", PATIENCE.as_secs()));
            return Err(if goes_on() { late() } else { Error::Cancelled });
        };
        let (mut output, mut said) = (Vec::new(), Vec::new());
        let both = [
            child.stdout.take().map(|mut stdout| stdout.read_to_end(&mut output)),
            child.stderr.take().map(|mut stderr| stderr.read_to_end(&mut said)),
        ];
        for read in both.into_iter().flatten() {
            read.map_err(|error| failed(error.to_string()))?;
        }
        if !status.success() {
            let said = String::from_utf8_lossy(&said);
            let said = said.lines().next().unwrap_or("it failed").to_owned();
            return Err(failed(said));
        }
        if let Some(Err(error)) = written {
            return Err(failed(error.to_string()));
        }
        let text = String::from_utf8_lossy(&output);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        Ok(lines.map(str::to_owned).collect())
    }
}

/// The program espeak-ng, which turns text into phonemes, in one of the folders of `PATH`.
pub fn espeak_ng() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).filter(|folder| folder.is_absolute());
    folders.find_map(|folder| Some(folder.join(PROGRAM)).filter(|at| is_program(at)))
}

/// Returns true for a file that may be run.
fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// Waits for the end of `child`; `None` where it takes too long, or nobody waits any more.
fn ended(child: &mut Child, goes_on: &dyn Fn() -> bool) -> std::io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() > PATIENCE || !goes_on() {
            return Ok(None);
        }
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A program of that text in place of espeak-ng.
    fn program(folder: &Path, script: &str) -> Espeak {
        let program = folder.join(PROGRAM);
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("it is written");
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&program, all).expect("it may be run");
        Espeak { program, language: Language::Other("es") }
    }

    #[test]
    fn lines_stand_where_their_words_stood() {
        let folder = tempfile::tempdir().expect("a folder");
        let echo = program(folder.path(), "grep -v '^$'");
        let said = |espeak: &Espeak, text| espeak.phonemes(text, &|| true);
        assert_eq!(said(&echo, "one, two (three)!").as_deref(), Ok("one, two (three)!"));
        // A call for each where lines are not as many as words.
        let two = program(folder.path(), "cat; echo; echo more");
        assert_eq!(said(&two, "one, two").as_deref(), Ok("one more, two more"));
        let arguments = program(folder.path(), "cat >/dev/null; echo \"$7 $8\"");
        assert_eq!(said(&arguments, "--help").as_deref(), Ok("es stdin"));
    }

    #[test]
    fn a_program_that_fails_or_hangs_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let fails = program(folder.path(), "cat >/dev/null; echo no voice >&2; exit 1");
        let error = fails.phonemes("a", &|| true).expect_err("it fails").to_string();
        assert!(error.ends_with("espeak-ng: no voice"), "{error}");
        let hangs = program(folder.path(), "exec sleep 60");
        let begun = Instant::now();
        let goes_on = || begun.elapsed() < Duration::from_millis(100);
        assert_eq!(hangs.phonemes("a", &goes_on), Err(Error::Cancelled));
        assert!(begun.elapsed() < Duration::from_secs(20));
        assert!(!is_program(&folder.path().join("none")) && !is_program(folder.path()));
    }
}
