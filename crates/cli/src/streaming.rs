//! Reading a generation to its end.

use inference_core::{Error, Generation, Outcome, Token};

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
    let outcome = generation.outcome().cloned();
    Ok(outcome.ok_or_else(|| Error::Engine("the generation ended without an outcome".into()))?)
}

#[cfg(test)]
mod tests {
    use fake_model::{FakeModel, Line};
    use inference_core::{Error, FinishReason, GenerateOptions, Prompt, TextModel};

    use super::read;
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
}
