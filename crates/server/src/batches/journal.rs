//! Answers of a batch that goes on: lines that are written one by one.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::Value as Json;

/// A file of lines, each of which has a request's own id.
pub struct Journal {
    file: File,
    /// Ids of requests that have a line.
    pub done: HashSet<String>,
}

impl Journal {
    /// The journal at `path`, which may not be there yet. A last line that was not written to its
    /// end is taken off: its request is answered again.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> io::Result<Journal> {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut done = HashSet::new();
        let mut end = 0;
        let mut input = BufReader::new(Read::by_ref(&mut file));
        let mut line = Vec::new();
        loop {
            line.clear();
            let count = input.read_until(b'\n', &mut line)?;
            let id = serde_json::from_slice::<Json>(&line).ok();
            let id = id.and_then(|json| json.get("custom_id")?.as_str().map(str::to_owned));
            match id.filter(|_| line.ends_with(b"\n")) {
                Some(id) => done.insert(id),
                None => break,
            };
            end += count as u64;
        }
        drop(input);
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
        Ok(Journal { file, done })
    }

    /// Adds the line of the request `id`.
    ///
    /// # Errors
    /// The system's.
    pub fn add(&mut self, id: String, line: &str) -> io::Result<()> {
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.done.insert(id);
        Ok(())
    }
}

/// The lines of a journal that is at its end.
///
/// # Errors
/// The system's.
pub fn lines(path: &Path) -> io::Result<impl Iterator<Item = Json>> {
    let lines = BufReader::new(File::open(path)?).lines().map_while(Result::ok);
    Ok(lines.filter_map(|line| serde_json::from_str(&line).ok()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Journal;

    #[test]
    fn a_line_that_was_cut_off_is_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::open(&path).unwrap();
        journal.add("a".into(), r#"{"custom_id": "a"}"#).unwrap();
        drop(journal);
        let whole = fs::read(&path).unwrap();
        for cut in [&br#"{"custom_id": "b"}"#[..], b"{\"custom", b"\xff\n", b"\n"] {
            fs::write(&path, [&whole, cut].concat()).unwrap();
            let journal = Journal::open(&path).unwrap();
            assert_eq!(journal.done.iter().collect::<Vec<_>>(), ["a"]);
            assert_eq!(fs::read(&path).unwrap(), whole);
        }
    }
}
