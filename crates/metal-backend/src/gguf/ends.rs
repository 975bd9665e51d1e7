//! The tokens that end an answer.

use std::collections::BTreeSet;

use super::reader::{Header, Value};

/// Texts of tokens that end an answer wherever a vocabulary has them. Files often name one of them
/// alone.
const ENDS: [&str; 17] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<turn|>",
    "<|tool_response>",
    "<eos>",
    "[EOS]",
    "[EOT]",
    "[e~[",
    "<｜end▁of▁sentence｜>",
];

/// The ids of all tokens that end an answer, those first that the file names.
pub(super) fn of(header: &Header) -> Vec<u64> {
    let get = |key: &str| header.metadata.get(&format!("tokenizer.ggml.{key}"));
    let mut ends = Vec::new();
    for key in ["eos_token_id", "eot_token_id", "eom_token_id"] {
        ends.extend(get(key).and_then(Value::whole));
    }
    if let Some(Value::List(listed)) = get("eos_token_ids") {
        ends.extend(listed.iter().filter_map(Value::whole));
    }
    let named: &[Value] = match get("tokens") {
        Some(Value::List(tokens)) => tokens,
        _ => &[],
    };
    let id_of = |wanted: &str| {
        let is_it = |token: &Value| matches!(token, Value::Text(text) if text == wanted);
        named.iter().position(is_it).map(|id| id as u64)
    };
    // Where calls and the whole answer have marks of their own, this one ends a part of the answer.
    let has_parts = ["<|return|>", "<|call|>"].iter().all(|mark| id_of(mark).is_some());
    let by_text = ENDS.iter().filter(|text| !(has_parts && **text == "<|end|>"));
    ends.extend(by_text.filter_map(|text| id_of(text)));
    let mut seen = BTreeSet::new();
    ends.retain(|id| seen.insert(*id));
    ends
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn ends(tokens: &[&str], eos: u64) -> Vec<u64> {
        let tokens = tokens.iter().map(|text| Value::Text((*text).to_owned())).collect();
        let metadata = BTreeMap::from([
            ("tokenizer.ggml.tokens".to_owned(), Value::List(tokens)),
            ("tokenizer.ggml.eos_token_id".to_owned(), Value::Unsigned(eos)),
        ]);
        of(&Header { metadata, tensors: BTreeMap::new() })
    }

    #[test]
    fn the_end_of_a_turn_is_found_by_its_text() {
        assert_eq!(ends(&["a", "<eos>", "<turn|>", "b"], 1), [1, 2]);
        assert_eq!(ends(&["[EOS]", "<|im_end|>"], 0), [0, 1]);
        assert_eq!(ends(&["a", "b"], 1), [1]);
    }

    #[test]
    fn a_part_of_an_answer_does_not_end_it() {
        assert_eq!(ends(&["<|end|>", "<|endoftext|>"], 1), [1, 0]);
        assert_eq!(ends(&["<|end|>", "<|return|>", "<|call|>"], 1), [1, 2]);
    }
}
