//! The lines typed in earlier chats, in rustyline's file format.

use std::path::PathBuf;

use crate::failure::Result;
use crate::files::{self, Access};

/// Lines that are kept, the last ones.
pub const MAX_LINES: usize = 1000;

/// The first line of a file in which `\n` and `\\` stand for a line break and a backslash. One
/// without it has its lines as they were typed.
const ESCAPED: &str = "#V2";

/// A file with the lines typed.
pub struct History(PathBuf);

impl History {
    /// The history in the file at `path`, which need not be there yet.
    pub fn at(path: PathBuf) -> Self {
        History(path)
    }

    /// The lines, oldest first.
    ///
    /// # Errors
    /// A file that is there and cannot be read, or is no regular one.
    pub fn lines(&self) -> Result<Vec<String>> {
        if !self.0.try_exists().unwrap_or(true) {
            return Ok(Vec::new());
        }
        let text = files::read_regular(&self.0)?;
        let mut lines = text.lines().filter(|line| !line.is_empty()).peekable();
        let is_escaped = lines.next_if_eq(&ESCAPED).is_some();
        let line = |line: &str| if is_escaped { unescaped(line) } else { line.to_owned() };
        Ok(lines.map(line).collect())
    }

    /// Adds a line, also to what another chat has added meanwhile.
    ///
    /// # Errors
    /// A file that cannot be read or replaced; it stays as it was.
    pub fn add(&self, line: &str) -> Result<()> {
        let mut lines = self.lines()?;
        lines.push(line.to_owned());
        let kept = &lines[lines.len().saturating_sub(MAX_LINES)..];
        let escaped = kept.iter().map(|line| line.replace('\\', r"\\").replace('\n', r"\n") + "\n");
        let text = format!("{ESCAPED}\n{}", escaped.collect::<String>());
        files::replace(&self.0, text.as_bytes(), Access::Private)
    }
}

fn unescaped(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => text.push('\n'),
                Some(other) => text.push(other),
                None => text.push('\\'),
            },
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{History, MAX_LINES};

    #[test]
    fn lines_come_back_as_they_were_typed() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::at(folder.path().join("history"));
        assert!(history.lines().unwrap().is_empty());
        let typed = ["one", r"a \n that is none\", "#V2", "of\ntwo lines", " é "];
        typed.iter().for_each(|line| history.add(line).unwrap());
        assert_eq!(history.lines().unwrap(), typed);
        let text = fs::read_to_string(folder.path().join("history")).unwrap();
        assert!(text.starts_with("#V2\none\na \\\\n that is none\\\\\n"), "{text}");
    }

    #[test]
    fn a_file_without_the_first_line_has_its_lines_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        fs::write(&path, "a \\n b\n\nc\n").unwrap();
        let history = History::at(path);
        assert_eq!(history.lines().unwrap(), [r"a \n b", "c"]);
        history.add("d").unwrap();
        assert_eq!(history.lines().unwrap(), [r"a \n b", "c", "d"]);
    }

    #[test]
    fn the_last_lines_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let lines: Vec<String> = (0..MAX_LINES + 5).map(|line| line.to_string()).collect();
        fs::write(&path, lines.join("\n")).unwrap();
        let history = History::at(path);
        history.add("last").unwrap();
        let kept = history.lines().unwrap();
        assert_eq!((kept.len(), &*kept[0], &*kept[MAX_LINES - 1]), (MAX_LINES, "6", "last"));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::at(folder.path().to_owned());
        assert!(history.lines().unwrap_err().to_string().contains("is a folder"));
        assert!(history.add("x").unwrap_err().to_string().contains("is a folder"));
    }
}
