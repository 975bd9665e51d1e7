//! The steps of a tokenizer's decoder as state machines.
//!
//! A decoder is a chain of steps over the list of all tokens. Each kind of step
//! is given here so that it takes one token at a time, and hands on what can no
//! longer change.

use crate::byte_spelling::spelled_bytes;
use crate::tokenizer::guarded;
use serde_json::Value as Json;
use std::collections::VecDeque;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::tokenizer::Decoder;

/// One step of a decoder. Before a `Fuse` it sees tokens; after it, pieces of the one fused token.
pub(crate) enum Step {
    /// Looks at each token alone.
    Each(Box<DecoderWrapper>),
    /// Treats the first token differently (WordPiece, Metaspace).
    First { decoder: Box<DecoderWrapper>, first: bool },
    /// Treats the last token differently (BPE with a suffix).
    Last { decoder: Box<DecoderWrapper>, waiting: Option<String> },
    /// Drops repeated tokens (CTC).
    Repeats { decoder: Box<DecoderWrapper>, last: Option<String> },
    /// `<0xE4>` to bytes; a run that is not UTF-8 becomes one U+FFFD a byte.
    ByteFallback { run: Vec<u8> },
    /// GPT-2's spelling of bytes; invalid UTF-8 becomes U+FFFD as in `String::from_utf8_lossy`.
    ByteLevel { bytes: Vec<u8> },
    /// Up to `start` characters `content` off the front of the fused text, up to `stop` off its
    /// end.
    Strip { content: char, start: usize, stop: usize, tail: VecDeque<char> },
    /// A decoder that must see the whole fused text.
    Whole { decoder: Box<DecoderWrapper>, text: String },
    /// No decoder: tokens with spaces between them.
    Spaces { first: bool },
}

/// Any token that is not the one looked at.
const OTHER: &str = "x";

pub(crate) fn steps_of(json: &Json, steps: &mut Vec<Step>, fused: &mut bool) -> Result<(), String> {
    let kind = json.get("type").and_then(Json::as_str).unwrap_or_default();
    let decoder =
        || serde_json::from_value(json.clone()).map(Box::new).map_err(|err| err.to_string());
    let count = |name| json.get(name).and_then(Json::as_u64).unwrap_or(0) as usize;
    let content =
        || json.get("content").and_then(Json::as_str).and_then(|s| s.chars().next()).unwrap_or(' ');
    // Replacing one character by something does not care how the text is cut.
    let one_char = json
        .pointer("/pattern/String")
        .and_then(Json::as_str)
        .is_some_and(|p| p.chars().count() == 1);
    steps.push(match (kind, *fused) {
        ("Sequence", _) => {
            for decoder in json.get("decoders").and_then(Json::as_array).into_iter().flatten() {
                steps_of(decoder, steps, fused)?;
            }
            return Ok(());
        }
        ("Fuse", _) => {
            *fused = true;
            return Ok(());
        }
        ("Strip", true) => Step::Strip {
            content: content(),
            start: count("start"),
            stop: count("stop"),
            tail: VecDeque::new(),
        },
        ("Replace", true) if one_char => Step::Each(decoder()?),
        (_, true) => Step::Whole { decoder: decoder()?, text: String::new() },
        ("ByteLevel", false) => {
            *fused = true;
            Step::ByteLevel { bytes: Vec::new() }
        }
        ("ByteFallback", false) => Step::ByteFallback { run: Vec::new() },
        ("Replace" | "Strip", false) => Step::Each(decoder()?),
        ("Metaspace" | "WordPiece", false) => Step::First { decoder: decoder()?, first: true },
        ("BPEDecoder", false) => Step::Last { decoder: decoder()?, waiting: None },
        ("CTC", false) => Step::Repeats { decoder: decoder()?, last: None },
        (other, false) => return Err(format!("unknown decoder `{other}`")),
    });
    Ok(())
}

/// Runs a decoder on a few tokens; what it fails on stays as it is.
fn decode(decoder: &DecoderWrapper, tokens: Vec<String>) -> Vec<String> {
    let given = tokens.clone();
    guarded(|| decoder.decode_chain(tokens).map_err(|err| err.to_string())).unwrap_or(given)
}

/// The output of [`decode`] for the `first` token or a later one.
pub(crate) fn decode_at(decoder: &DecoderWrapper, token: String, first: bool) -> Vec<String> {
    if first {
        return decode(decoder, vec![token]);
    }
    decode(decoder, vec![OTHER.into(), token]).into_iter().skip(1).collect()
}

impl Step {
    pub fn push(&mut self, token: String, out: &mut Vec<String>) {
        match self {
            Step::Each(decoder) => out.extend(decode(decoder, vec![token])),
            Step::First { decoder, first } => {
                out.extend(decode_at(decoder, token, std::mem::take(first)));
            }
            Step::Last { decoder, waiting } => {
                if let Some(before) = waiting.replace(token) {
                    out.extend(decode(decoder, vec![before, OTHER.into()]).into_iter().take(1));
                }
            }
            Step::Repeats { decoder, last } => {
                if last.as_ref() != Some(&token) {
                    out.extend(decode(decoder, vec![token.clone()]));
                    *last = Some(token);
                }
            }
            Step::ByteFallback { run } => match fallback_byte(&token) {
                Some(byte) => run.push(byte),
                None => {
                    end_run(run, out);
                    out.push(token);
                }
            },
            Step::ByteLevel { bytes } => {
                bytes.extend(spelled_bytes(&token));
                let whole = bytes.len() - incomplete_tail(bytes);
                let rest = bytes.split_off(whole);
                out.push(String::from_utf8_lossy(&std::mem::replace(bytes, rest)).into_owned());
            }
            Step::Strip { content, start, stop, tail } => {
                let mut text = String::new();
                for c in token.chars() {
                    if *start > 0 && c == *content {
                        *start -= 1;
                        continue;
                    }
                    *start = 0;
                    if c != *content {
                        text.extend(tail.drain(..));
                        text.push(c);
                    } else {
                        tail.push_back(c);
                        if tail.len() > *stop {
                            text.extend(tail.pop_front());
                        }
                    }
                }
                out.push(text);
            }
            Step::Whole { text, .. } => text.push_str(&token),
            Step::Spaces { first } => {
                out.push(if std::mem::take(first) { token } else { format!(" {token}") });
            }
        }
    }

    pub fn finish(&mut self, out: &mut Vec<String>) {
        match self {
            Step::Last { decoder, waiting } => {
                out.extend(waiting.take().into_iter().flat_map(|t| decode(decoder, vec![t])))
            }
            Step::ByteFallback { run } => end_run(run, out),
            Step::ByteLevel { bytes } => {
                out.push(String::from_utf8_lossy(&std::mem::take(bytes)).into_owned())
            }
            Step::Whole { decoder, text } => {
                out.extend(decode(decoder, vec![std::mem::take(text)]))
            }
            Step::Strip { tail, .. } => tail.clear(),
            Step::Each(_) | Step::First { .. } | Step::Repeats { .. } | Step::Spaces { .. } => {}
        }
    }
}

pub(crate) fn fallback_byte(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>').filter(|hex| hex.len() == 2)?;
    u8::from_str_radix(hex, 16).ok()
}

fn end_run(run: &mut Vec<u8>, out: &mut Vec<String>) {
    match String::from_utf8(std::mem::take(run)) {
        Ok(text) => out.push(text),
        Err(err) => out.push("\u{fffd}".repeat(err.as_bytes().len())),
    }
}

/// How many bytes at the end begin a character that may still be completed.
fn incomplete_tail(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    // `error_len` is `None` where the input ends inside a character.
    let incomplete = |at: &usize| matches!(std::str::from_utf8(&bytes[*at..]), Err(e) if e.valid_up_to() == 0 && e.error_len().is_none());
    (from..bytes.len()).find(incomplete).map_or(0, |at| bytes.len() - at)
}
