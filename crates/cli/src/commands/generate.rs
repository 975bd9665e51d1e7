//! `ml generate`: one prompt, one answer; or many prompts together.

mod batch;
mod prompt;
mod report;

use inference_core::{
    Answering, CancelToken, ChatOptions, Error, FinishReason, GenerateOptions, Generation, Outcome,
    PlainReader, TextModel, Token,
};

use self::prompt::Input;
use self::report::{Parts, Report};
use crate::answer::{AnswerPrinter, Form};
use crate::args::GenerateArgs;
use crate::failure::{Failure, Result};
use crate::interrupt::{Interrupt, Then, ended_early, with_timeout};
use crate::output::{dim_note, note, print, print_json};
use crate::source::{Source, tell_notices};
use crate::{cut, reading, streaming};

/// Answers the prompt that `args` tell.
///
/// # Errors
/// Bad options, an unusable prompt or model, an interrupted or timed-out generation.
pub fn run(args: &GenerateArgs) -> Result<()> {
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
        Some(path) => Asked::Together(batch::Begun::open(path, args)?),
        None => Asked::One(Input::read(args)?),
    };
    let model = Source::choose(&args.load)?.load(&load, args.quiet || args.json)?;
    let tell = || {
        if !args.quiet {
            tell_notices(model.as_ref());
        }
    };
    tell();
    let chat = args.template.with_effort(chat, model.as_ref())?;

    let cancel = CancelToken::new();
    let watch = interrupt.watch(&cancel, Then::Leave);
    options.cancel = with_timeout(&cancel, args.timeout);
    let end = match input {
        Asked::One(input) => answer(model.as_ref(), &input, &chat, &options, args),
        Asked::Together(begun) => batch::run(model.as_ref(), begun, &chat, &options, args),
    };
    let interrupted = watch.fired();
    drop(watch);
    tell();
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

/// The input to answer: one prompt, or a batch.
enum Asked<'a> {
    One(Input),
    Together(batch::Begun<'a>),
}

fn answer(
    model: &dyn TextModel,
    input: &Input,
    chat: &ChatOptions,
    options: &GenerateOptions,
    args: &GenerateArgs,
) -> Result<FinishReason> {
    let whole = |generation: Generation| Answering::new(generation, Box::new(PlainReader));
    let mut answering = match input {
        Input::Raw(prompt) => whole(model.generate(prompt, options)?),
        Input::Messages(messages) if shows_marks(args) => {
            whole(model.chat(messages, chat, options)?)
        }
        Input::Messages(messages) => model.answer(messages, chat, options)?,
    };
    reading::wait(answering.generation(), args.quiet || args.json);
    if args.json {
        return collect(model, &mut answering, args);
    }
    let outcome = match args.logprobs {
        true => streaming::read(answering.generation(), |token| print(&token_line(&token)))?,
        false => stream(&mut answering, args)?,
    };
    if !args.quiet {
        dim_note(streaming::statistics(&outcome.metrics, answering.generation().prefill()));
        let (most, context) = (options.max_tokens, model.info().context_length);
        cut::note(&outcome, most, context, cut::Place::Once).into_iter().for_each(note);
        note_greedy(&outcome, args);
    }
    Ok(outcome.finish_reason)
}

/// Returns true when the text is wanted as the model wrote it, its parts not told apart.
fn shows_marks(args: &GenerateArgs) -> bool {
    args.logprobs || (args.special_tokens && !args.json)
}

/// Prints the answer as it comes, and a line end.
fn stream(answering: &mut Answering, args: &GenerateArgs) -> Result<Outcome> {
    // A continued text and a given form are no Markdown.
    let is_plain = args.plain || args.raw || args.sampling.holds_a_form();
    let form = if is_plain || shows_marks(args) { Form::Plain } else { Form::Markdown };
    let mut printer = AnswerPrinter::new(args.hide_reasoning, form);
    let outcome = streaming::read_answer(answering, |step| {
        step.pieces.iter().try_for_each(|piece| printer.add(piece))
    });
    printer.end(&outcome)?;
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
    answering: &mut Answering,
    args: &GenerateArgs,
) -> Result<FinishReason> {
    let mut tokens = Vec::new();
    let outcome = streaming::read_answer(answering, |step| {
        tokens.extend(step.token);
        Ok(())
    })?;
    let top = args.top_logprobs.map(|_| model);
    let prompt = answering.generation().take_prompt_logprobs();
    let ids = answering.generation().prompt_ids();
    let mut report = Report::new(ids, prompt.as_deref(), &tokens, &outcome, top);
    if answering.needs_special_tokens() && !args.special_tokens {
        report.text =
            without_marks(model, &report.token_ids, &outcome.finish_reason, &report.text)?;
    }
    report.answer = (!args.raw).then(|| Parts::from(answering.answer()));
    print_json(&report)?;
    if !args.quiet {
        note_greedy(&outcome, args);
    }
    Ok(outcome.finish_reason)
}

/// The text of `ids` without special tokens, to the stop text that ended it. `shown` is the text
/// with them.
fn without_marks(
    model: &dyn TextModel,
    ids: &[u32],
    end: &FinishReason,
    shown: &str,
) -> Result<String> {
    let mut text = model.decode(ids)?;
    if let FinishReason::StopText(stop) = end {
        text.truncate(stopped_at(&text, stop, shown));
    }
    Ok(text)
}

/// Returns the offset in `text` of the stop text that ended it. It may stand in the reasoning too,
/// where it ends nothing. `shown`, the text with its marks, ends where `text` does.
fn stopped_at(text: &str, stop: &str, shown: &str) -> usize {
    let alike = |at: &usize| {
        let pairs = text[..*at].bytes().rev().zip(shown.bytes().rev());
        pairs.take_while(|(one, other)| one == other).count()
    };
    // Of several that are alike, the first.
    let found: Vec<usize> = text.match_indices(stop).map(|(at, _)| at).collect();
    found.into_iter().rev().max_by_key(alike).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use inference_core::Token;

    use super::{stopped_at, token_line};

    #[test]
    fn a_stop_text_in_the_reasoning_ends_no_text() {
        let text = "Hm.\nSo.\n\nYes.\n\nNo";
        let shown = "<think>Hm.\nSo.</think>\n\nYes.";
        assert_eq!(&text[..stopped_at(text, "\n", shown)], "Hm.\nSo.\n\nYes.");
        assert_eq!(stopped_at("a\nb\n", "\n", "a"), 1);
        assert_eq!(stopped_at("a", "b", "a"), 1);
    }

    #[test]
    fn a_tokens_line_shows_its_spaces_and_line_ends() {
        let token = Token { text: " a\n".into(), logprob: Some(-0.5), ..Token::default() };
        assert_eq!(token_line(&token), "  -0.5000  \" a\\n\"\n");
    }
}
