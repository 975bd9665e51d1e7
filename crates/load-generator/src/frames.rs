//! The data of server-sent events, cut out of bytes as they come.

use crate::error::{Error, Result};

/// A longer line is no event of OpenAI's protocol.
const LONGEST: usize = 16 << 20;

/// Takes bytes in any pieces and gives the data of each event.
///
/// OpenAI's protocol has one line of data in each event, so that a line is an event.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    /// Offset in `bytes` of the first line not yet returned.
    at: usize,
}

impl Frames {
    /// Takes in `bytes`.
    ///
    /// # Errors
    /// [`Error::Answer`] for a line without an end.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.drain(..self.at);
        self.at = 0;
        if self.bytes.len() + bytes.len() > LONGEST {
            return Err(Error::Answer(format!("a line of the stream has over {LONGEST} bytes")));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// The next event's data; `None` until more bytes come.
    pub fn next(&mut self) -> Option<&[u8]> {
        loop {
            let begin = self.at;
            let length = self.bytes[begin..].iter().position(|byte| *byte == b'\n')?;
            self.at = begin + length + 1;
            // Looked at twice, because a borrow that is returned would last for the whole loop.
            if self.bytes[begin..begin + length].starts_with(b"data:") {
                return Some(self.bytes[begin + 5..begin + length].trim_ascii());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Frames;

    #[test]
    fn events_are_found_however_the_bytes_are_cut() {
        let stream = b": waiting\n\ndata: {\"a\": 1}\r\n\r\nevent: x\ndata:b\n\ndata: [DONE]\n\n";
        for size in 1..stream.len() {
            let (mut frames, mut seen) = (Frames::default(), Vec::new());
            for piece in stream.chunks(size) {
                frames.feed(piece).unwrap();
                while let Some(data) = frames.next() {
                    seen.push(String::from_utf8(data.to_vec()).unwrap());
                }
            }
            assert_eq!(seen, ["{\"a\": 1}", "b", "[DONE]"], "pieces of {size}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_refused() {
        let mut frames = Frames::default();
        frames.feed(&vec![b'x'; 16 << 20]).unwrap();
        assert!(frames.next().is_none());
        assert!(frames.feed(b"x").is_err());
    }
}
