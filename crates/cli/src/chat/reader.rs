//! Lines from a terminal, edited and remembered, or from a pipe.

use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};

use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;

/// Where lines come from.
pub enum Reader {
    /// A person at a terminal, with the file that keeps the lines, if any.
    Terminal(Box<Editor<(), FileHistory>>, Option<PathBuf>),
    /// A pipe or a file, with the number of the line read last.
    Pipe(usize),
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub enum Typed {
    /// A line, without its end.
    Line(String),
    /// Ctrl-C at the prompt.
    Interrupt,
    /// The end of the input.
    End,
}

impl Reader {
    /// A line editor where both stdin and stdout are terminals, else plain lines. `history` keeps
    /// the lines of a terminal; without it they are forgotten.
    ///
    /// # Errors
    /// A terminal or a history file that cannot be used.
    pub fn open(history: Option<&Path>, interrupt: &Interrupt) -> Result<Self> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(Reader::Pipe(0));
        }
        interrupt.keep_terminal();
        let config = Config::builder().auto_add_history(false).build();
        let lines = FileHistory::with_config(&config);
        let mut editor = Editor::with_history(config, lines)
            .map_err(|error| Failure::Other(format!("terminal: {error}")))?;
        if let Some(path) = history {
            match editor.load_history(path) {
                Ok(()) => {}
                Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(history_failure(path, &error)),
            }
        }
        Ok(Reader::Terminal(Box::new(editor), history.map(Path::to_owned)))
    }

    /// Whether a person sits there.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Reader::Terminal(..))
    }

    /// The next line; only a terminal shows `prompt`.
    ///
    /// # Errors
    /// Input that cannot be read or is not UTF-8, with its line.
    pub fn read(&mut self, prompt: &str) -> Result<Typed> {
        match self {
            Reader::Terminal(editor, history) => match editor.readline(prompt) {
                Ok(line) => {
                    remember(editor, history.as_deref(), &line)?;
                    Ok(Typed::Line(line))
                }
                Err(ReadlineError::Interrupted) => Ok(Typed::Interrupt),
                Err(ReadlineError::Eof) => Ok(Typed::End),
                Err(error) => Err(Failure::Other(format!("terminal: {error}"))),
            },
            Reader::Pipe(number) => {
                *number += 1;
                let mut bytes = Vec::new();
                let read = io::stdin().lock().read_until(b'\n', &mut bytes);
                match read {
                    Ok(0) => Ok(Typed::End),
                    Ok(_) => line(bytes, *number).map(Typed::Line),
                    Err(error) => Err(Failure::Other(format!("stdin: {error}"))),
                }
            }
        }
    }
}

fn line(bytes: Vec<u8>, number: usize) -> Result<String> {
    let mut text = String::from_utf8(bytes)
        .map_err(|_| Failure::Other(format!("stdin: line {number} is not valid UTF-8")))?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

fn remember(
    editor: &mut Editor<(), FileHistory>,
    history: Option<&Path>,
    line: &str,
) -> Result<()> {
    if line.trim().is_empty() {
        return Ok(());
    }
    let added = editor.add_history_entry(line);
    let Some(path) = history else { return Ok(()) };
    // At once: a signal may end the program before any other chance.
    added.and_then(|_| editor.append_history(path)).map_err(|error| history_failure(path, &error))
}

fn history_failure(path: &Path, error: &ReadlineError) -> Failure {
    Failure::Other(format!("history {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn a_line_loses_its_end_only() {
        assert_eq!(line(b" a \r\n".to_vec(), 1).unwrap(), " a ");
        assert_eq!(line(b"b".to_vec(), 1).unwrap(), "b");
        let error = line(b"\xff\n".to_vec(), 3).unwrap_err();
        assert_eq!(error.to_string(), "stdin: line 3 is not valid UTF-8");
    }
}
