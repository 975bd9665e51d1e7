//! Lines from a terminal, edited and remembered, or from a pipe.

use std::borrow::Cow;
use std::io::{self, IsTerminal};

use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{CompletionType, Config, Editor};

use super::completion::Completion;
use super::history::{History, MAX_ENTRIES};
use crate::failure::{Failure, Result};
use crate::files::Lines;
use crate::interrupt::Interrupt;
use crate::output::note;

/// The source of lines.
pub enum Reader {
    /// A person at a terminal, with the file that keeps the lines, if any.
    Terminal(Box<Editor<Completion, MemHistory>>, Option<History>),
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
    /// A line editor where both stdin and stdout are terminals, else plain lines. `history`, which
    /// comes with its entries, keeps what is typed at a terminal; without it that is forgotten.
    ///
    /// # Errors
    /// A terminal or a history file that cannot be used.
    pub fn open(
        history: impl FnOnce() -> Result<Option<(History, Vec<String>)>>,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(Reader::Pipe(Lines::stdin()));
        }
        interrupt.keep_terminal();
        let config = Config::builder().auto_add_history(false).max_history_size(MAX_ENTRIES);
        let config = config.map_err(|error| terminal(&error))?;
        let config = config.completion_type(CompletionType::List).build();
        let typed = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, typed).map_err(|error| terminal(&error))?;
        editor.set_helper(Some(Completion));
        let (history, entries) = history()?.unzip();
        for entry in entries.into_iter().flatten() {
            editor.add_history_entry(entry).map_err(|error| terminal(&error))?;
        }
        Ok(Reader::Terminal(Box::new(editor), history))
    }

    /// Returns true when a person types the lines.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Reader::Terminal(..))
    }

    /// Remembers a message or a command as one entry, however many lines it has; a pipe does not.
    pub fn remember(&mut self, entry: &str) {
        let Reader::Terminal(editor, history) = self else { return };
        if entry.trim().is_empty() {
            return;
        }
        // It is one more that is not there with the arrow keys.
        let _ = editor.add_history_entry(entry);
        // At once: a signal may end the program before any other chance.
        if let Some(Err(error)) = history.as_ref().map(|history| history.add(entry)) {
            note(format_args!("{error}; what is typed in this chat is kept no more"));
            *history = None;
        }
    }

    /// The next line; only a terminal shows `prompt`.
    ///
    /// # Errors
    /// Input that cannot be read or is not UTF-8, with its line.
    pub fn read(&mut self, prompt: &str) -> Result<Typed> {
        match self {
            Reader::Terminal(editor, _) => match editor.readline(prompt) {
                Ok(line) => Ok(Typed::Line(line)),
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

/// Returns what is typed to say `text`: one that begins with a slash would be a command.
pub fn typed_as(text: &str) -> Cow<'_, str> {
    match (text.trim_start().starts_with('/'), text.contains('\n')) {
        (true, true) => Cow::Owned(format!("\"\"\"\n{text}\n\"\"\"")),
        (true, false) => Cow::Owned(format!("/{}", text.trim_start())),
        (false, _) => Cow::Borrowed(text),
    }
}

fn terminal(error: &ReadlineError) -> Failure {
    Failure::Other(format!("terminal: {error}"))
}

#[cfg(test)]
mod tests {
    use super::typed_as;

    #[test]
    fn a_message_is_no_command_when_it_comes_back() {
        assert_eq!(typed_as("one\n/two"), "one\n/two");
        assert_eq!(typed_as("/one\ntwo"), "\"\"\"\n/one\ntwo\n\"\"\"");
        assert_eq!(typed_as("/etc is a folder"), "//etc is a folder");
    }
}
