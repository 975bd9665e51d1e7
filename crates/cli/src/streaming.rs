//! Reading a generation to its end, and what it cost.

use inference_core::{
    AnswerStep, Answering, Error, GenerateMetrics, Generation, Outcome, PrefillProgress, Token,
};

use crate::bytes;
use crate::failure::Result;

/// Hands every token to `sink` as it comes, and tells how the generation ended.
///
/// # Errors
/// The generation's own, and `sink`'s, which cancels the generation.
pub fn read(
    generation: &mut Generation,
    mut sink: impl FnMut(Token) -> Result<()>,
) -> Result<Outcome> {
    for token in generation.by_ref() {
        sink(token?)?;
    }
    outcome(generation)
}

/// Hands every step of an answer to `sink` as it comes, and tells how the generation ended.
///
/// # Errors
/// The generation's own, and `sink`'s, which cancels the generation.
pub fn read_answer(
    answering: &mut Answering,
    mut sink: impl FnMut(AnswerStep) -> Result<()>,
) -> Result<Outcome> {
    while let Some(step) = answering.step() {
        sink(step?)?;
    }
    outcome(answering.generation())
}

fn outcome(generation: &Generation) -> Result<Outcome> {
    let outcome = generation.outcome().cloned();
    Ok(outcome.ok_or_else(|| Error::Engine("the generation ended without an outcome".into()))?)
}

/// `prompt 14 tokens, 812.3 tok/s | decode 120 tokens, 90.1 tok/s | …` for people. Of a prompt that
/// was given up, `read` tells how much was computed.
pub fn statistics(metrics: &GenerateMetrics, read: Option<PrefillProgress>) -> String {
    let first = metrics
        .time_to_first_token
        .map_or_else(|| "none".to_owned(), |time| format!("{:.3} s", time.as_secs_f64()));
    let cached = match metrics.cached_prompt_tokens {
        0 => String::new(),
        count => format!(" ({count} cached)"),
    };
    let drafts = match metrics.draft_tokens {
        0 => String::new(),
        count => format!(" ({} of {count} draft tokens accepted)", metrics.accepted_draft_tokens),
    };
    // An answer of one token has no rate.
    let rate = |rate: f64| match rate > 0.0 {
        true => format!(", {rate:.1} tok/s"),
        false => String::new(),
    };
    let given_up = read.filter(|_| metrics.prefill_duration.is_zero());
    let (count, prompt_rate) = match given_up.filter(|read| read.processed < read.total) {
        Some(read) => (format!("{} of {}", read.processed, read.total), read.tokens_per_second()),
        None => (metrics.prompt_tokens.to_string(), metrics.prefill_tokens_per_second()),
    };
    format!(
        "prompt {count} tokens{cached}{} | decode {} tokens{drafts}{} | first token {first} | peak memory {}",
        rate(prompt_rate),
        metrics.generated_tokens,
        rate(metrics.decode_tokens_per_second()),
        bytes::human(metrics.peak_memory_bytes),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fake_model::{FakeModel, Line};
    use inference_core::{
        Error, FinishReason, GenerateMetrics, GenerateOptions, PrefillProgress, Prompt, TextModel,
    };

    use super::{read, statistics};
    use crate::failure::Failure;

    #[test]
    fn tokens_come_in_order_and_the_outcome_at_the_end() {
        let model = FakeModel::lines([Line::of(&["Once", " upon", " a time"])]);
        let mut generation =
            model.generate(&Prompt::from("x"), &GenerateOptions::default()).unwrap();
        let mut text = String::new();
        let outcome = read(&mut generation, |token| {
            text += &token.text;
            Ok(())
        });
        assert_eq!(text, "Once upon a time");
        assert_eq!(outcome.unwrap().finish_reason, FinishReason::EndOfSequence(2));
    }

    #[test]
    fn an_error_comes_after_the_text_before_it() {
        let end = Err(Error::Engine("decode step 2: lost".into()));
        let model = FakeModel::lines([Line { tokens: vec!["Once"], end }]);
        let mut generation =
            model.generate(&Prompt::from("x"), &GenerateOptions::default()).unwrap();
        let mut text = String::new();
        let error = read(&mut generation, |token| {
            text += &token.text;
            Ok(())
        });
        assert_eq!(text, "Once");
        assert_eq!(error.unwrap_err().to_string(), "decode step 2: lost");
    }

    #[test]
    fn a_sink_that_fails_ends_the_reading() {
        let model = FakeModel::lines([Line::of(&["a", "b"])]);
        let mut generation =
            model.generate(&Prompt::from("x"), &GenerateOptions::default()).unwrap();
        let error = read(&mut generation, |_| Err(Failure::ClosedPipe)).unwrap_err();
        assert!(matches!(error, Failure::ClosedPipe));
    }

    #[test]
    fn the_statistics_are_one_line_with_the_rates_that_were_measured() {
        let model = FakeModel::lines([Line::of(&["Hi", "!"])]);
        let generation = model.generate(&Prompt::from("abc"), &GenerateOptions::default()).unwrap();
        let (_, outcome) = generation.collect_text().unwrap();
        assert_eq!(
            statistics(&outcome.metrics, None),
            "prompt 3 tokens (1 cached), 4.0 tok/s | decode 2 tokens, 4.0 tok/s | first token 0.500 s | \
             peak memory 3.0 MiB"
        );
        let drafted = GenerateMetrics {
            draft_tokens: 5,
            accepted_draft_tokens: 1,
            ..outcome.metrics.clone()
        };
        let line = statistics(&drafted, None);
        assert!(line.contains("decode 2 tokens (1 of 5 draft tokens accepted), 4.0"), "{line}");
        let given_up = GenerateMetrics { prompt_tokens: 4265, ..GenerateMetrics::default() };
        assert_eq!(
            statistics(&given_up, None),
            "prompt 4265 tokens | decode 0 tokens | first token none | peak memory 0 B"
        );
        // Only what was computed counts.
        let elapsed = Duration::from_secs(2);
        let read = PrefillProgress { total: 4265, cached: 2112, processed: 2312, elapsed };
        let given_up = GenerateMetrics { cached_prompt_tokens: 2112, ..given_up };
        let line = statistics(&given_up, Some(read));
        assert!(
            line.starts_with("prompt 2312 of 4265 tokens (2112 cached), 100.0 tok/s |"),
            "{line}"
        );
    }
}
