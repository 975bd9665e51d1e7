//! From ids to text that is settled: whole characters, and nothing of a stop string.

use std::collections::VecDeque;

use inference_core::Token;

use crate::corpus::EOS;

/// Bytes that wait for the rest of their character.
#[derive(Default)]
pub struct Utf8 {
    bytes: Vec<u8>,
}

impl Utf8 {
    /// The text that becomes whole with `id`; bytes that no character can have become U+FFFD.
    pub fn push(&mut self, id: u32) -> String {
        // Only a byte has text; the end-of-sequence id has none.
        self.bytes.extend(u8::try_from(id));
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.bytes) {
                Ok(rest) => {
                    text.push_str(rest);
                    self.bytes.clear();
                    return text;
                }
                Err(error) => {
                    let valid = error.valid_up_to();
                    text.push_str(&String::from_utf8_lossy(&self.bytes[..valid]));
                    let bad = error.error_len();
                    self.bytes.drain(..valid + bad.unwrap_or(0));
                    if bad.is_none() {
                        return text;
                    }
                    text.push('\u{fffd}');
                }
            }
        }
    }

    /// Returns the text of the bytes left at the end: U+FFFD for a character cut off, else none.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.bytes)).into_owned()
    }
}

/// The text of `ids`, without the end-of-sequence ids.
pub fn decode(ids: &[u32]) -> String {
    let mut utf8 = Utf8::default();
    let mut text: String = ids.iter().filter(|id| **id != EOS).map(|id| utf8.push(*id)).collect();
    text.push_str(&utf8.finish());
    text
}

/// The tokens of one generation on their way to the consumer.
pub struct Stream {
    utf8: Utf8,
    stop: Vec<String>,
    held: VecDeque<Token>,
}

impl Stream {
    /// A stream that ends at any of the `stop` strings.
    pub fn new(stop: Vec<String>) -> Self {
        Stream { utf8: Utf8::default(), stop, held: VecDeque::new() }
    }

    /// Takes a token whose text is still to be found. Returns the tokens that are settled now,
    /// and the stop string that the text has reached, where it has.
    pub fn push(&mut self, mut token: Token) -> (Vec<Token>, Option<String>) {
        token.text = self.utf8.push(token.id);
        self.held.push_back(token);
        let text: String = self.held.iter().map(|token| token.text.as_str()).collect();
        let matches = self.stop.iter().filter_map(|stop| Some((text.find(stop.as_str())?, stop)));
        match matches.min() {
            Some((at, stop)) => {
                let stop = stop.clone();
                (self.release_cut(at), Some(stop))
            }
            None => {
                let mut ends = text.char_indices().map(|(at, _)| (at, &text[at..]));
                let begins_stop = |end: &str| self.stop.iter().any(|stop| stop.starts_with(end));
                let settled = ends.find(|(_, end)| begins_stop(end)).map_or(text.len(), |e| e.0);
                (self.release(settled), None)
            }
        }
    }

    /// The tokens that are still held when the generation ends without a stop string.
    pub fn finish(&mut self) -> Vec<Token> {
        // Bytes that wait belong to tokens that wait, so there is a last one to take them.
        let rest = self.utf8.finish();
        if let Some(last) = self.held.back_mut() {
            last.text.push_str(&rest);
        }
        self.held.drain(..).collect()
    }

    /// The tokens of the first `length` bytes of the held text. A token without text belongs to
    /// the character that a later one completes, and waits for it.
    fn release(&mut self, mut length: usize) -> Vec<Token> {
        let mut released = Vec::new();
        while length > 0
            && let Some(token) = self.held.pop_front_if(|token| token.text.len() <= length)
        {
            length -= token.text.len();
            released.push(token);
        }
        released
    }

    /// The tokens of the first `length` bytes of the held text; the one in which these end is cut.
    fn release_cut(&mut self, length: usize) -> Vec<Token> {
        let mut released = self.release(length);
        let rest = length - released.iter().map(|token| token.text.len()).sum::<usize>();
        if rest > 0
            && let Some(mut token) = self.held.pop_front()
        {
            token.text.truncate(rest);
            released.push(token);
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::encode;

    /// Streams the bytes; returns the pieces with text, and the stop string.
    fn stream(bytes: &[u8], stop: &[&str]) -> (Vec<String>, Option<String>) {
        let mut stream = Stream::new(stop.iter().map(|stop| stop.to_string()).collect());
        let mut tokens = Vec::new();
        let mut found = None;
        for &byte in bytes {
            let (settled, stop) = stream.push(Token { id: byte.into(), ..Default::default() });
            tokens.extend(settled);
            if stop.is_some() {
                found = stop;
                break;
            }
        }
        if found.is_none() {
            tokens.extend(stream.finish());
            assert_eq!(tokens.len(), bytes.len(), "no token is lost");
        }
        let pieces = tokens.into_iter().map(|token| token.text).filter(|text| !text.is_empty());
        (pieces.collect(), found)
    }

    #[test]
    fn a_character_of_several_bytes_comes_out_whole() {
        let (pieces, _) = stream("a🍮é".as_bytes(), &[]);
        assert_eq!(pieces, ["a", "🍮", "é"]);
    }

    #[test]
    fn bytes_that_are_no_text_become_replacement_characters_as_in_one_piece() {
        for bytes in [&b"a\xff\xe2\x82b\xf0\x9f"[..], b"\xf0", b"\x80\x80", b"ok\xe2"] {
            let ids: Vec<u32> = bytes.iter().map(|byte| u32::from(*byte)).collect();
            assert_eq!(stream(bytes, &[]).0.concat(), String::from_utf8_lossy(bytes));
            assert_eq!(decode(&ids), String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn nothing_of_a_stop_string_is_handed_over() {
        let (pieces, stop) = stream("one two three".as_bytes(), &["two"]);
        assert_eq!((pieces.concat().as_str(), stop.as_deref()), ("one ", Some("two")));
    }

    #[test]
    fn the_earliest_match_counts_whatever_the_order_of_the_stop_strings() {
        for stop in [["cd", "abcde"], ["abcde", "cd"]] {
            let (pieces, found) = stream(b"xabcde", &stop);
            assert_eq!((pieces.concat().as_str(), found.as_deref()), ("xab", Some("cd")));
        }
    }

    #[test]
    fn what_only_began_like_a_stop_string_comes_out_in_the_end() {
        assert_eq!(stream(b"tt two tw", &["twx"]).0.concat(), "tt two tw");
        assert_eq!(stream(b"aab", &["ab!"]).0.concat(), "aab");
    }

    #[test]
    fn a_stop_string_within_a_broken_character_cuts_after_it() {
        let (pieces, stop) = stream(b"\xe2x", &["x"]);
        assert_eq!((pieces.concat().as_str(), stop.as_deref()), ("\u{fffd}", Some("x")));
    }

    #[test]
    fn the_end_of_sequence_id_has_no_text() {
        let ids: Vec<u32> = encode("a").chain([EOS]).chain(encode("b")).collect();
        assert_eq!(decode(&ids), "ab");
    }
}
