//! Lines of an input that may have no end, one after the other.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use inference_core::{NotUtf8, utf8_text};

use super::{MAX_BYTES, failed, is_stdin, name, too_long};
use crate::failure::{Failure, Result, reason};

/// The lines of a file, a pipe or stdin, read as they are asked for.
pub struct Lines {
    input: Box<dyn BufRead>,
    name: String,
    number: usize,
}

impl Lines {
    /// The lines of the file at `path`; `-` is stdin.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub fn open(path: &Path) -> Result<Lines> {
        if is_stdin(path) {
            return Ok(Lines::stdin());
        }
        let file = File::open(path).map_err(|error| failed(path, &error))?;
        Ok(Lines::of(file, name(path)))
    }

    /// The lines of stdin.
    pub fn stdin() -> Lines {
        Lines::of(io::stdin(), "stdin".to_owned())
    }

    fn of(input: impl Read + 'static, name: String) -> Lines {
        Lines { input: Box::new(BufReader::new(input)), name, number: 0 }
    }

    /// The name of the input, for errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The input and the line that was read last, for errors.
    pub fn place(&self) -> String {
        format!("{}, line {}", self.name, self.number)
    }

    /// The next line without its end, and the first one without a byte order mark; `None` at the
    /// end of the input. A line that is not UTF-8 is an error of its own, and the next ones can be
    /// read.
    ///
    /// # Errors
    /// A failure that ends the reading: the system's, another encoding, a line without an end.
    pub fn next_line(&mut self) -> Result<Option<Result<String>>> {
        let mut bytes = Vec::new();
        let mut input = (&mut self.input).take(MAX_BYTES + 1);
        let read = input.read_until(b'\n', &mut bytes);
        let read =
            read.map_err(|error| Failure::Other(format!("{}: {}", self.name, reason(&error))));
        if read? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(too_long(&self.place(), MAX_BYTES));
        }
        if self.number == 1
            && let Err(error @ NotUtf8::Encoding(_)) = utf8_text(&bytes)
        {
            return Err(Failure::Other(format!("{}: {error}", self.name)));
        }
        Ok(Some(self.text(&bytes)))
    }

    fn text(&self, bytes: &[u8]) -> Result<String> {
        let text = match self.number {
            1 => utf8_text(bytes),
            _ => std::str::from_utf8(bytes)
                .map_err(|error| NotUtf8::Invalid { at: error.valid_up_to() }),
        };
        let text = text.map_err(|error| Failure::Other(format!("{}: {error}", self.place())))?;
        let text = text.strip_suffix('\n').unwrap_or(text);
        Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, repeat};

    use super::Lines;

    fn lines(bytes: &[u8]) -> Lines {
        Lines::of(Cursor::new(bytes.to_vec()), "stdin".to_owned())
    }

    #[test]
    fn a_line_loses_its_end_and_the_first_one_its_byte_order_mark() {
        let mut lines = lines("\u{feff} a \r\n\n\u{feff}b".as_bytes());
        let mut next = || lines.next_line().unwrap().map(Result::unwrap);
        assert_eq!(next().as_deref(), Some(" a "));
        assert_eq!(next().as_deref(), Some(""));
        assert_eq!(next().as_deref(), Some("\u{feff}b"));
        assert_eq!(next(), None);
    }

    #[test]
    fn a_line_that_is_not_utf8_leaves_the_next_ones_alone() {
        let mut lines = lines(b"a\n\xff\nb\n");
        assert!(lines.next_line().unwrap().unwrap().is_ok());
        let error = lines.next_line().unwrap().unwrap().unwrap_err().to_string();
        assert_eq!(error, "stdin, line 2: not valid UTF-8 at byte 0; convert it to UTF-8 first");
        assert_eq!(lines.next_line().unwrap().unwrap().unwrap(), "b");
    }

    #[test]
    fn another_encoding_and_a_line_without_an_end_end_the_reading() {
        let error = lines(b"\xff\xfea\0\n\0").next_line().unwrap_err().to_string();
        assert_eq!(error, "stdin: is UTF-16, not UTF-8; convert it to UTF-8 first");
        let mut endless = Lines::of(repeat(0), "/dev/zero".to_owned());
        let error = endless.next_line().unwrap_err().to_string();
        assert_eq!(error, "/dev/zero, line 1: over 64 MiB, at most that are read");
    }
}
