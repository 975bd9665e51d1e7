//! `ml generate`: one prompt, one answer; or many prompts together.

mod batch;
mod prompt;
mod report;

use inference_core::{
    CancelToken, ChatOptions, Error, FinishReason, GenerateOptions, Generation, Outcome, TextModel,
    Token,
};

use self::prompt::Input;
use self::report::Report;
use crate::args::GenerateArgs;
use crate::failure::{Failure, Result};
use crate::interrupt::{Interrupt, Then, ended_early, with_timeout};
use crate::output::{dim_note, note, print, print_json};
use crate::source::Source;
use crate::streaming;

/// Answers the prompt that `args` tell.
///
/// # Errors
/// Bad options, an unusable prompt or model, an interrupted or timed-out generation.
pub fn run(args: &GenerateArgs) -> Result<()> {
    args.later.refuse()?;
    let load = args.load.options()?;
    let mut options = args.sampling.options()?;
    let chat = args.template.options()?;
    options.logprobs = args.json || args.logprobs;
    options.logits = args.logits;
    options.special_tokens = args.special_tokens;
    options.prompt_logprobs = args.prompt_logprobs;
    options.top_logprobs = args.top_logprobs.unwrap_or(0);

    let interrupt = Interrupt::install()?;
    let input = match &args.batch {
        Some(path) => Asked::Together(Input::read_batch(path, args)?),
        None => Asked::One(Input::read(args)?),
    };
    let model = Source::choose(&args.load).load(&load, args.quiet || args.json)?;

    let cancel = CancelToken::new();
    let watch = interrupt.watch(&cancel, Then::Leave);
    options.cancel = with_timeout(&cancel, args.timeout);
    let end = match &input {
        Asked::One(input) => answer(model.as_ref(), input, &chat, &options, args),
        Asked::Together(inputs) => batch::run(model.as_ref(), inputs, &chat, &options, args),
    };
    let interrupted = watch.fired();
    drop(watch);
    match end {
        Ok(FinishReason::Cancelled) | Err(Failure::Model(Error::Cancelled)) => {
            Err(ended_early(interrupted, args.timeout, "the text was complete"))
        }
        Ok(_) => {
            if args.prompt.is_some() && !args.quiet && prompt::bytes_left_in_stdin() > 0 {
                note(
                    "note: stdin was not read, because PROMPT is given; `--prompt-file -` adds it",
                );
            }
            Ok(())
        }
        Err(failure) => Err(failure),
    }
}

/// What is to be answered.
enum Asked {
    One(Input),
    Together(Vec<Input>),
}

fn answer(
    model: &dyn TextModel,
    input: &Input,
    chat: &ChatOptions,
    options: &GenerateOptions,
    args: &GenerateArgs,
) -> Result<FinishReason> {
    let mut generation = match input {
        Input::Raw(prompt) => model.generate(prompt, options)?,
        Input::Messages(messages) => model.chat(messages, chat, options)?,
    };
    if args.json {
        return collect(model, &mut generation, args);
    }
    let outcome = match args.logprobs {
        true => streaming::read(&mut generation, |token| print(&token_line(&token)))?,
        false => stream(&mut generation)?,
    };
    if !args.quiet {
        dim_note(streaming::statistics(&outcome.metrics));
        note_greedy(&outcome, args);
    }
    Ok(outcome.finish_reason)
}

/// Prints the text as it comes, and a line end.
fn stream(generation: &mut Generation) -> Result<Outcome> {
    let mut begun = false;
    let outcome = streaming::read(generation, |token| {
        begun |= !token.text.is_empty();
        if token.text.is_empty() { Ok(()) } else { print(&token.text) }
    });
    // The line is ended also after an error, so that the error stands on its own line.
    if begun || outcome.is_ok() {
        print("\n")?;
    }
    outcome
}

/// A token's log probability and its text as a JSON string, so that line ends and spaces show.
fn token_line(token: &Token) -> String {
    let text = serde_json::Value::from(token.text.as_str());
    format!("{:>9.4}  {text}\n", token.logprob.unwrap_or(f32::NAN))
}

/// Says that flags were given that changed nothing, where that is so.
fn note_greedy(outcome: &Outcome, args: &GenerateArgs) {
    if let Some(text) = args.sampling.greedy_note().filter(|_| outcome.greedy) {
        note(text);
    }
}

fn collect(
    model: &dyn TextModel,
    generation: &mut Generation,
    args: &GenerateArgs,
) -> Result<FinishReason> {
    let mut tokens = Vec::new();
    let outcome = streaming::read(generation, |token| {
        tokens.push(token);
        Ok(())
    })?;
    let top = args.top_logprobs.map(|_| model);
    let prompt = generation.take_prompt_logprobs();
    let ids = generation.prompt_ids();
    print_json(&Report::new(ids, prompt.as_deref(), &tokens, &outcome, top))?;
    if !args.quiet {
        note_greedy(&outcome, args);
    }
    Ok(outcome.finish_reason)
}

#[cfg(test)]
mod tests {
    use inference_core::Token;

    use super::token_line;

    #[test]
    fn a_tokens_line_shows_its_spaces_and_line_ends() {
        let token = Token { text: " a\n".into(), logprob: Some(-0.5), ..Token::default() };
        assert_eq!(token_line(&token), "  -0.5000  \" a\\n\"\n");
    }
}
