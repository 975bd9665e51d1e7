//! Lines from a terminal, edited and remembered, or from a pipe.

use std::io::{self, IsTerminal};
use std::path::Path;

use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Config, Editor};

use super::history::{History, MAX_LINES};
use crate::failure::{Failure, Result};
use crate::files::Lines;
use crate::interrupt::Interrupt;
use crate::output::note;

/// The source of lines.
pub enum Reader {
    /// A person at a terminal, with the file that keeps the lines, if any.
    Terminal(Box<Editor<(), MemHistory>>, Option<History>),
    /// A pipe or a file.
    Pipe(Lines),
}

/// One event of the input.
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
            return Ok(Reader::Pipe(Lines::stdin()));
        }
        interrupt.keep_terminal();
        let config = Config::builder().auto_add_history(false).max_history_size(MAX_LINES);
        let config = config.map_err(|error| terminal(&error))?.build();
        let typed = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, typed).map_err(|error| terminal(&error))?;
        let history = history.map(|path| History::at(path.to_owned()));
        for line in history.as_ref().map_or(Ok(Vec::new()), History::lines)? {
            editor.add_history_entry(line).map_err(|error| terminal(&error))?;
        }
        Ok(Reader::Terminal(Box::new(editor), history))
    }

    /// Returns true when a person types the lines.
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
                    if let Err(error) = remember(editor, history.as_ref(), &line) {
                        // The conversation goes on.
                        note(format_args!("{error}; the lines of this chat are kept no more"));
                        *history = None;
                    }
                    Ok(Typed::Line(line))
                }
                Err(ReadlineError::Interrupted) => Ok(Typed::Interrupt),
                Err(ReadlineError::Eof) => Ok(Typed::End),
                Err(error) => Err(terminal(&error)),
            },
            Reader::Pipe(lines) => match lines.next_line()? {
                Some(line) => line.map(Typed::Line),
                None => Ok(Typed::End),
            },
        }
    }
}

fn remember(
    editor: &mut Editor<(), MemHistory>,
    history: Option<&History>,
    line: &str,
) -> Result<()> {
    if line.trim().is_empty() {
        return Ok(());
    }
    editor.add_history_entry(line).map_err(|error| terminal(&error))?;
    // At once: a signal may end the program before any other chance.
    history.map_or(Ok(()), |history| history.add(line))
}

fn terminal(error: &ReadlineError) -> Failure {
    Failure::Other(format!("terminal: {error}"))
}
