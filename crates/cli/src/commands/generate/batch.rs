//! Many prompts together: one JSON object a line, in the order of the prompts.

use inference_core::{
    BatchResult, ChatOptions, Error, FinishReason, GenerateMetrics, GenerateOptions, Outcome,
    Prompt, TextModel,
};
use serde::Serialize;
use serde_json::json;

use super::prompt::Input;
use super::report::Report;
use crate::args::GenerateArgs;
use crate::failure::{Failure, Result};
use crate::output::{dim_note, note, print_json};
use crate::streaming;

/// Prompts that are handed to the model together; their results are printed together.
const GROUP: usize = 128;

/// The line of a prompt that was answered.
#[derive(Serialize)]
struct Line {
    /// Which prompt it is, from 0 on.
    index: usize,
    #[serde(flatten)]
    report: Report,
}

/// Answers the prompts and prints a line for each.
///
/// # Errors
/// What concerns all prompts; at the end, that some failed.
pub fn run(
    model: &dyn TextModel,
    inputs: &[Input],
    chat: &ChatOptions,
    options: &GenerateOptions,
    args: &GenerateArgs,
) -> Result<FinishReason> {
    let (mut failed, mut costs) = (0, Vec::new());
    let top = args.top_logprobs.map(|_| model);
    for (group, inputs) in inputs.chunks(GROUP).enumerate() {
        let ids: Vec<_> = inputs.iter().map(|input| ids(model, input, chat)).collect();
        let prompts: Vec<Prompt> = ids.iter().flatten().map(|(_, prompt)| prompt.clone()).collect();
        let mut results = model.batch_generate(&prompts, options)?.into_iter();
        for (at, ids) in ids.into_iter().enumerate() {
            let index = group * GROUP + at;
            let answered = ids.and_then(|(ids, _)| {
                let result = results.next().ok_or(Error::Closed)?;
                ended(&result).map(|outcome| (ids, outcome, result))
            });
            match answered {
                Ok((_, outcome, _)) if outcome.finish_reason == FinishReason::Cancelled => {
                    return Ok(FinishReason::Cancelled);
                }
                Ok((ids, outcome, result)) => {
                    let prompt = result.prompt_logprobs.as_deref();
                    let report = Report::new(&ids, prompt, &result.tokens, &outcome, top);
                    print_json(&Line { index, report })?;
                    costs.push(outcome.metrics);
                }
                Err(error) => {
                    failed += 1;
                    print_json(&json!({"index": index, "error": error.to_string()}))?;
                    note(format_args!("error: prompt {}: {error}", index + 1));
                }
            }
        }
    }
    if !args.quiet {
        dim_note(streaming::statistics(&GenerateMetrics::sum(&costs)));
    }
    match failed {
        0 => Ok(FinishReason::Length),
        _ => Err(Failure::Other(format!("{failed} of {} prompts failed", inputs.len()))),
    }
}

/// The ids of a prompt, and the prompt as the model is to see it.
fn ids(
    model: &dyn TextModel,
    input: &Input,
    chat: &ChatOptions,
) -> Result<(Vec<u32>, Prompt), Error> {
    match input {
        Input::Raw(prompt) => {
            let ids = model.prompt_ids(prompt)?;
            let is_plain = prompt.pictures().next().is_none();
            let prompt = if is_plain { Prompt::Ids(ids.clone()) } else { prompt.clone() };
            Ok((ids, prompt))
        }
        Input::Messages(messages) => {
            let rendered = model.render_chat(messages, chat)?;
            let prompt = rendered.prompt();
            Ok((rendered.ids, prompt))
        }
    }
}

/// How a prompt's generation ended.
fn ended(result: &BatchResult) -> Result<Outcome, Error> {
    let without = || Error::Engine("the generation ended without an outcome".into());
    match &result.error {
        Some(error) => Err(error.clone()),
        None => result.outcome.clone().ok_or_else(without),
    }
}
