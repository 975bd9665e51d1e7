//! The parser on each family's texts, whole and in pieces.

mod formats;
mod grammars;
mod held;
mod laws;
mod properties;
mod slips;
mod spoken;
mod stops;
mod thoughts;
mod values;

use super::{AnswerParser, Family, Piece};

const FAMILIES: [Family; 24] = [
    Family::Plain,
    Family::Hermes,
    Family::Ernie,
    Family::Coder,
    Family::Glm,
    Family::Seed,
    Family::MiniMax,
    Family::Kimi,
    Family::DeepSeek,
    Family::DeepSeek31,
    Family::Granite,
    Family::Nemotron,
    Family::Hunyuan,
    Family::Apriel,
    Family::Cohere,
    Family::Lfm,
    Family::Olmo,
    Family::Llama3,
    Family::Mistral,
    Family::Gemma,
    Family::FunctionGemma,
    Family::Gemma4,
    Family::Harmony,
    Family::Muse,
];

/// Reasoning, content, and each call's name and arguments.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    reasoning: String,
    content: String,
    calls: Vec<(String, String)>,
}

fn collect(pieces: Vec<Piece>) -> Answer {
    let mut answer = Answer::default();
    for piece in pieces {
        match piece {
            Piece::Reasoning(text) => answer.reasoning += &text,
            Piece::Content(text) => answer.content += &text,
            Piece::ToolCall { index, name } => {
                assert_eq!(index, answer.calls.len());
                answer.calls.push((name, String::new()));
            }
            Piece::Arguments { index, text } => answer.calls[index].1 += &text,
        }
    }
    answer
}

fn tools() -> Vec<String> {
    ["weather", "time", "get_current_weather"].map(str::to_owned).to_vec()
}

/// The parts of a text pushed one after the other.
fn parse<'a>(family: Family, prompt: &str, parts: impl IntoIterator<Item = &'a str>) -> Answer {
    let mut parser = AnswerParser::new(family, prompt, &tools());
    let mut pieces: Vec<Piece> = parts.into_iter().flat_map(|part| parser.push(part)).collect();
    pieces.extend(parser.finish());
    collect(pieces)
}

fn whole(family: Family, text: &str) -> Answer {
    parse(family, "", [text])
}

/// The text of an answer character by character.
fn by_character(family: Family, prompt: &str, text: &str) -> Answer {
    parse(family, prompt, text.split_inclusive(|_| true))
}

/// The answer in a text, without reasoning.
fn answer(content: &str, calls: &[(&str, &str)]) -> Answer {
    let calls = calls.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
    Answer { reasoning: String::new(), content: content.to_owned(), calls }
}
