//! Why an answer was cut off, and the remedy.

use inference_core::{FinishReason, Outcome};

/// The place that tells, which decides what can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A conversation.
    Chat,
    /// One answer.
    Once,
}

/// Returns why an answer ended before the model ended it, in a context of so many tokens (0: not
/// known); `None` where it did not, or where nothing but the prompt was to be read.
pub fn note(
    outcome: &Outcome,
    max_tokens: Option<usize>,
    context: usize,
    place: Place,
) -> Option<String> {
    if outcome.finish_reason != FinishReason::Length || max_tokens == Some(0) {
        return None;
    }
    let metrics = &outcome.metrics;
    let used = metrics.prompt_tokens + metrics.generated_tokens;
    let (why, remedy) = match (max_tokens, place) {
        // The same command line says so.
        (Some(most), Place::Once) if metrics.generated_tokens >= most => return None,
        (Some(most), Place::Chat) if metrics.generated_tokens >= most => (
            format!("--max-tokens allows {most} tokens"),
            "/set max-tokens N changes it, then /retry answers again",
        ),
        _ if context > 0 && used >= context => (
            format!("the context of {context} tokens is full"),
            match place {
                Place::Chat => "/drop forgets the oldest turns, /clear all of them",
                Place::Once => "shorten the prompt",
            },
        ),
        _ => (
            "the memory has room for no more tokens".to_owned(),
            "--kv-bits and --context-length take less, --memory-limit allows more",
        ),
    };
    Some(format!("cut off (length): {why}; {remedy}"))
}

#[cfg(test)]
mod tests {
    use inference_core::{FinishReason, GenerateMetrics, Outcome};

    use super::{Place, note};

    fn ended(finish_reason: FinishReason, prompt: usize, generated: usize) -> Outcome {
        let metrics = GenerateMetrics {
            prompt_tokens: prompt,
            generated_tokens: generated,
            ..GenerateMetrics::default()
        };
        Outcome { finish_reason, metrics, seed: 0, greedy: true }
    }

    #[test]
    fn the_limit_that_cut_an_answer_is_named_with_its_remedy() {
        let told = |outcome: &Outcome, most| note(outcome, most, 100, Place::Chat).unwrap();
        let cut = ended(FinishReason::Length, 20, 6);
        assert!(
            told(&cut, Some(6)).starts_with("cut off (length): --max-tokens allows 6 tokens; /set")
        );
        assert!(told(&cut, None).contains("the memory has room for no more"));
        let full = ended(FinishReason::Length, 20, 80);
        assert!(told(&full, None).contains("the context of 100 tokens is full; /drop"));
        assert!(told(&full, Some(90)).contains("the context of 100"));
        assert_eq!(note(&cut, Some(6), 100, Place::Once), None);
        let once = note(&full, None, 100, Place::Once).unwrap();
        assert!(once.ends_with("is full; shorten the prompt"), "{once}");
    }

    #[test]
    fn an_answer_that_ended_by_itself_was_not_cut() {
        for reason in [FinishReason::EndOfSequence(1), FinishReason::Cancelled] {
            assert_eq!(note(&ended(reason, 20, 80), None, 100, Place::Chat), None);
        }
        assert_eq!(note(&ended(FinishReason::Length, 20, 0), Some(0), 100, Place::Once), None);
    }
}
