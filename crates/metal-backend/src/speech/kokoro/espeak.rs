//! The program espeak-ng, which turns words into phonemes.

use std::env;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use inference_core::{Error, Result};

use super::phonemes::{Language, Part, parts};

/// The program's name.
const PROGRAM: &str = "espeak-ng";

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
        let path = env::var_os("PATH").unwrap_or_default();
        let mut found = env::split_paths(&path).filter(|folder| folder.is_absolute());
        let program = found.find_map(|folder| Some(folder.join(PROGRAM)).filter(|at| at.is_file()));
        let Some(program) = program else {
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

    /// The phonemes of a piece of text, in Kokoro's symbols, with its marks.
    ///
    /// # Errors
    /// A program that cannot be run, or fails.
    pub fn phonemes(&self, text: &str) -> Result<String> {
        let parts = parts(text);
        let words = parts.iter().filter_map(|part| match part {
            Part::Words(words) => Some(words.as_str()),
            Part::Marks(_) => None,
        });
        let words: Vec<&str> = words.collect();
        // Paragraphs of one call, where each makes a line; else one call for each.
        let lines = self.lines(&words.join("\n\n"))?;
        let lines = match lines.len() == words.len() {
            true => lines,
            false => {
                let each = words.iter().map(|words| Ok(self.lines(words)?.join(" ")));
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
    fn lines(&self, text: &str) -> Result<Vec<String>> {
        let failed =
            |reason: String| Error::Engine(format!("{}: {reason}", self.program.display()));
        let mut child = Command::new(&self.program)
            .args(["-q", "--ipa", "--tie=^", "-b", "1", "-v", self.language.of_espeak(), "--stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        // A piece is shorter than what a pipe holds, so that nobody waits for the other.
        let written = child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
        let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().next().unwrap_or("it failed").to_owned();
            return Err(failed(said));
        }
        if let Some(Err(error)) = written {
            return Err(failed(error.to_string()));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        Ok(lines.map(str::to_owned).collect())
    }
}
