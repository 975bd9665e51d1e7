//! Segments and words of tokens, and when they were said, by the places that tokens take.

use inference_core::{Error, Result, SpeechSegment, SpokenWord, WindowFacts};
use inference_text::{Detokenizer, SkipSpecial, Tokenizer};

use super::decoding::Emitted;
use crate::speech::session::compression_ratio;

/// Marks that are said with the token before them, as transformers and NeMo have them.
const BESIDE: [&str; 11] = ["?", "'", "¡", "¿", "-", ":", ",", "%", "/", ".", "!"];

/// A token's text, from where to where it is said, in places.
struct Piece {
    text: String,
    start: usize,
    end: usize,
}

/// A word, and its tokens.
struct Word {
    text: String,
    places: [usize; 2],
    tokens: Vec<Emitted>,
}

/// All text as one segment, none where nothing was said.
///
/// # Errors
/// Those of the tokenizer.
pub(super) fn whole(
    tokenizer: &Tokenizer,
    tokens: &[Emitted],
    seconds: f64,
) -> Result<Vec<SpeechSegment>> {
    let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
    let text = tokenizer.decode(&ids, SkipSpecial::Yes).map_err(Error::from)?;
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![segment(format!(" {text}"), [0.0, seconds], tokens)])
}

/// A segment of these tokens.
fn segment(text: String, [start, end]: [f64; 2], tokens: &[Emitted]) -> SpeechSegment {
    let sum: f32 = tokens.iter().map(|token| token.logprob).sum();
    let window = WindowFacts {
        mean_logprob: sum / tokens.len().max(1) as f32,
        compression_ratio: compression_ratio(text.as_bytes()),
        ..WindowFacts::default()
    };
    let tokens = tokens.iter().map(|token| token.id).collect();
    SpeechSegment { start, end, text, tokens, words: Vec::new(), window }
}

/// Segments that end where a sentence does, with `step` seconds a place; with their words where
/// these are asked for.
///
/// # Errors
/// Those of the tokenizer.
pub(super) fn segments(
    tokenizer: &Tokenizer,
    tokens: &[Emitted],
    step: f64,
    with_words: bool,
) -> Result<Vec<SpeechSegment>> {
    let mut segments = Vec::new();
    let words = words(tokenizer, tokens)?;
    let ends = |word: &Word| word.text.ends_with(['.', '?', '!']);
    for sentence in words.split_inclusive(ends) {
        let (Some(first), Some(last)) = (sentence.first(), sentence.last()) else { continue };
        let seconds = |place: usize| place as f64 * step;
        let text: String = sentence.iter().map(|word| word.text.as_str()).collect();
        let tokens: Vec<Emitted> =
            sentence.iter().flat_map(|word| word.tokens.iter().copied()).collect();
        let times = [seconds(first.places[0]), seconds(last.places[1])];
        let mut made = segment(text, times, &tokens);
        if with_words {
            made.words = sentence
                .iter()
                .map(|word| SpokenWord {
                    word: word.text.clone(),
                    start: seconds(word.places[0]),
                    end: seconds(word.places[1]),
                    probability: word.tokens.iter().map(|token| token.logprob.exp()).sum::<f32>()
                        / word.tokens.len() as f32,
                })
                .collect();
        }
        segments.push(made);
    }
    Ok(segments)
}

/// The words of tokens: each begins with a token that begins with a blank.
fn words(tokenizer: &Tokenizer, tokens: &[Emitted]) -> Result<Vec<Word>> {
    let mut text = Detokenizer::new(tokenizer, SkipSpecial::Yes).map_err(Error::from)?;
    let mut words: Vec<Word> = Vec::new();
    let mut before: Option<Piece> = None;
    for (at, token) in tokens.iter().enumerate() {
        let mut own = text.push(token.id);
        if at + 1 == tokens.len() {
            own += &text.finish();
        }
        let mut piece = Piece { text: own, start: token.first, end: token.first + token.places };
        if let (Some(before), true) = (&before, BESIDE.contains(&piece.text.as_str())) {
            (piece.start, piece.end) = (before.end, before.end);
        }
        match words.last_mut() {
            Some(word) if !piece.text.starts_with(' ') => {
                word.text += &piece.text;
                word.places[1] = piece.end;
                word.tokens.push(*token);
            }
            _ => {
                // The decoder leaves out the first blank of all.
                let blank = if piece.text.starts_with(' ') { "" } else { " " };
                words.push(Word {
                    text: format!("{blank}{}", piece.text),
                    places: [piece.start, piece.end],
                    tokens: vec![*token],
                });
            }
        }
        before = Some(piece);
    }
    Ok(words)
}
