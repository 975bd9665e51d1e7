//! The marks between which the reasoning of an answer is bounded.

use inference_core::ReasoningMarks;

use super::family::Family;
use super::format::{begun_reasoning, reasoning_marks};
use super::grammar::MarkIds;
use crate::reasoning::Begun;

/// The channel in which Harmony's models reason, and the way from there to the answer.
const CHANNELS: (&str, &str) =
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>");

/// The marks of the reasoning in an answer of `family` to a prompt that ends like `prompt_text`;
/// `None` where the model has no token that begins them. `id` finds the token of a text.
pub fn bounded_reasoning(
    family: Family,
    prompt_text: &str,
    id: MarkIds<'_>,
) -> Option<ReasoningMarks> {
    let pairs = match family {
        Family::Harmony => &[CHANNELS][..],
        // Its messages to itself end as all others do.
        Family::Muse => return None,
        family => reasoning_marks(family),
    };
    let opened = match begun_reasoning(family, prompt_text) {
        Begun::Open(close) => Some(close),
        Begun::Over | Begun::Not => None,
    };
    // The first of several tokens ends like all marks do.
    let first = |mark: &str| mark.find(['>', ']']).map(|end| id(&mark[..=end]).is_some());
    let is_token = |mark: &str| id(mark).is_some() || first(mark) == Some(true);
    let fits = |pair: &&(&str, &str)| {
        opened.is_none_or(|close| close == pair.1) && is_token(pair.0) && is_token(pair.1)
    };
    let (open, close) = pairs.iter().find(fits)?;
    Some(ReasoningMarks { open: (*open).to_owned(), close: (*close).to_owned() })
}

#[cfg(test)]
mod tests {
    use super::bounded_reasoning;
    use crate::answer::Family;

    #[test]
    fn the_marks_are_those_that_the_prompt_opened_or_that_the_model_has() {
        let marks = |family, prompt: &str, tokens: &[&str]| {
            let id = |text: &str| tokens.contains(&text).then_some(7);
            bounded_reasoning(family, prompt, &id).map(|marks| marks.close)
        };
        let think = ["<think>", "</think>"];
        assert_eq!(marks(Family::Hermes, "<think>\n", &think).as_deref(), Some("</think>"));
        assert_eq!(marks(Family::Mistral, "", &think).as_deref(), Some("</think>"));
        let own = ["[THINK]", "[/THINK]", "<think>", "</think>"];
        assert_eq!(marks(Family::Mistral, "", &own).as_deref(), Some("[/THINK]"));
        assert_eq!(marks(Family::Mistral, "<think>", &own).as_deref(), Some("</think>"));
        let gemma = ["<|channel>", "<channel|>"];
        assert_eq!(marks(Family::Gemma4, "", &gemma).as_deref(), Some("<channel|>"));
        let harmony = ["<|channel|>", "<|end|>"];
        let close = marks(Family::Harmony, "<|start|>assistant", &harmony).unwrap();
        assert!(close.ends_with("final<|message|>"));
        assert_eq!(marks(Family::Hermes, "", &[]), None);
        assert_eq!(marks(Family::Apriel, "", &think), None);
    }
}
