//! Messages and commands of earlier chats, in rustyline's file format: an entry a line.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use crate::failure::{Failure, Result, reason};
use crate::files::{self, Access};

/// Entries that are kept, the last ones.
pub const MAX_ENTRIES: usize = 1000;

/// The first line of a file in which `\n` and `\\` stand for a line break and a backslash. One
/// without it has its lines as they were typed.
const ESCAPED: &str = "#V2";

/// A file with what was typed.
pub struct History(PathBuf);

impl History {
    /// The history in the file at `path`, which need not be there yet.
    pub fn at(path: PathBuf) -> Self {
        History(path)
    }

    /// The history in this user's folder for what programs remember, with its entries; `None`
    /// without a home folder. Its folder is made, for this user alone.
    ///
    /// # Errors
    /// A folder that cannot be made, or a file in it that cannot be read.
    pub fn of_user() -> Result<Option<(Self, Vec<String>)>> {
        let Some(path) = file_of_user() else { return Ok(None) };
        let folder = path.parent().map(PathBuf::from).unwrap_or_default();
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(|error| {
            let (folder, reason) = (folder.display(), reason(&error));
            Failure::Other(format!("{folder}: {reason}: --no-history keeps nothing"))
        })?;
        History::at(path).read().map(Some)
    }

    /// It with its entries.
    ///
    /// # Errors
    /// As [`entries`](Self::entries).
    pub fn read(self) -> Result<(Self, Vec<String>)> {
        let entries = self.entries()?;
        Ok((self, entries))
    }

    /// The entries, oldest first.
    ///
    /// # Errors
    /// A file that is there and cannot be read, or is no regular one.
    pub fn entries(&self) -> Result<Vec<String>> {
        if !self.0.try_exists().unwrap_or(true) {
            return Ok(Vec::new());
        }
        let text = files::read_regular(&self.0)?;
        let mut lines = text.lines().filter(|line| !line.is_empty()).peekable();
        let is_escaped = lines.next_if_eq(&ESCAPED).is_some();
        let line = |line: &str| if is_escaped { unescaped(line) } else { line.to_owned() };
        Ok(lines.map(line).collect())
    }

    /// Adds an entry, also to what another chat has added meanwhile.
    ///
    /// # Errors
    /// A file that cannot be read or replaced; it stays as it was.
    pub fn add(&self, line: &str) -> Result<()> {
        let mut lines = self.entries()?;
        lines.push(line.to_owned());
        let kept = &lines[lines.len().saturating_sub(MAX_ENTRIES)..];
        let escaped = kept.iter().map(|line| line.replace('\\', r"\\").replace('\n', r"\n") + "\n");
        let text = format!("{ESCAPED}\n{}", escaped.collect::<String>());
        files::replace(&self.0, text.as_bytes(), Access::Private)
    }
}

/// The file of this user's history, there or not; `None` without a home folder.
pub fn file_of_user() -> Option<PathBuf> {
    place(std::env::var_os("XDG_STATE_HOME"), std::env::home_dir())
}

/// The file in `state`, which `XDG_STATE_HOME` names by its whole path, else below `home`.
fn place(state: Option<OsString>, home: Option<PathBuf>) -> Option<PathBuf> {
    let named = state.map(PathBuf::from).filter(|folder| folder.is_absolute());
    let folder = named.or_else(|| home.map(|home| home.join(".local/state")))?;
    Some(folder.join("ml-on-mlx/history"))
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

    use std::path::PathBuf;

    use super::{History, MAX_ENTRIES, place};

    #[test]
    fn the_file_lies_in_the_folder_for_what_programs_remember() {
        let home = Some(PathBuf::from("/home/ada"));
        let below_home = Some(PathBuf::from("/home/ada/.local/state/ml-on-mlx/history"));
        assert_eq!(place(None, home.clone()), below_home);
        assert_eq!(place(Some("relative".into()), home.clone()), below_home);
        let named = Some(PathBuf::from("/state/ml-on-mlx/history"));
        assert_eq!(place(Some("/state".into()), home), named);
        assert_eq!(place(None, None), None);
    }

    #[test]
    fn lines_come_back_as_they_were_typed() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::at(folder.path().join("history"));
        assert!(history.entries().unwrap().is_empty());
        let typed = ["one", r"a \n that is none\", "#V2", "of\ntwo lines", " é "];
        typed.iter().for_each(|line| history.add(line).unwrap());
        assert_eq!(history.entries().unwrap(), typed);
        let text = fs::read_to_string(folder.path().join("history")).unwrap();
        assert!(text.starts_with("#V2\none\na \\\\n that is none\\\\\n"), "{text}");
    }

    #[test]
    fn a_file_without_the_first_line_has_its_lines_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        fs::write(&path, "a \\n b\n\nc\n").unwrap();
        let history = History::at(path);
        assert_eq!(history.entries().unwrap(), [r"a \n b", "c"]);
        history.add("d").unwrap();
        assert_eq!(history.entries().unwrap(), [r"a \n b", "c", "d"]);
    }

    #[test]
    fn the_last_lines_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let lines: Vec<String> = (0..MAX_ENTRIES + 5).map(|line| line.to_string()).collect();
        fs::write(&path, lines.join("\n")).unwrap();
        let history = History::at(path);
        history.add("last").unwrap();
        let kept = history.entries().unwrap();
        assert_eq!((kept.len(), &*kept[0], &*kept[MAX_ENTRIES - 1]), (MAX_ENTRIES, "6", "last"));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::at(folder.path().to_owned());
        assert!(history.entries().unwrap_err().to_string().contains("is a folder"));
        assert!(history.add("x").unwrap_err().to_string().contains("is a folder"));
    }
}
