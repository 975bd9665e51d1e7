//! Many prompts together: one JSON object a line, in the order of the prompts.

use std::path::Path;
use std::time::{Duration, Instant};

use inference_core::{
    BatchResult, ChatOptions, Error, FinishReason, GenerateMetrics, GenerateOptions, Outcome,
    Prompt, RenderedPrompt, TextModel,
};
use serde::Serialize;
use serde_json::json;

use super::prompt::{Batch, Input};
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

/// A batch of which the first group was read, so that one without prompts is refused before a model
/// is loaded.
pub struct Begun<'a> {
    group: Vec<Result<Input>>,
    rest: Batch<'a>,
}

impl<'a> Begun<'a> {
    /// Opens the batch in the file at `path` and reads its first prompts.
    ///
    /// # Errors
    /// A file that cannot be used, or that has no prompts.
    pub fn open(path: &Path, args: &'a GenerateArgs) -> Result<Self> {
        let mut rest = Batch::open(path, args)?;
        let group = rest.next(GROUP)?;
        if group.is_empty() {
            return Err(Failure::Usage(format!("{}: there are no prompts", rest.name())));
        }
        Ok(Begun { group, rest })
    }
}

/// Answers the prompts and prints a line for each.
///
/// # Errors
/// A failure of all prompts; at the end, that some failed.
pub fn run(
    model: &dyn TextModel,
    begun: Begun<'_>,
    chat: &ChatOptions,
    options: &GenerateOptions,
    args: &GenerateArgs,
) -> Result<FinishReason> {
    let Begun { mut group, mut rest } = begun;
    let mut done = Done::default();
    while !group.is_empty() {
        let inputs = std::mem::take(&mut group).into_iter();
        let ids: Vec<_> = inputs.map(|input| ids(model, &input?, chat)).collect();
        let started = Instant::now();
        let given = ids.iter().flatten().map(|(_, given)| given);
        let results = generated(model, given, chat, options)?;
        done.took += started.elapsed();
        if report(model, ids, results, args, &mut done)? == FinishReason::Cancelled {
            return Ok(FinishReason::Cancelled);
        }
        group = rest.next(GROUP)?;
    }
    if !args.quiet {
        let metrics = GenerateMetrics::sum(&done.costs);
        let seconds = done.took.as_secs_f64();
        dim_note(format_args!("{} | total {seconds:.3} s", streaming::statistics(&metrics, None)));
    }
    match done.failed {
        0 => Ok(FinishReason::Length),
        failed => Err(Failure::Other(format!("{failed} of {} prompts failed", done.prompts))),
    }
}

/// Counts and costs of a batch until now.
#[derive(Default)]
struct Done {
    prompts: usize,
    failed: usize,
    /// The sum of those that ended well, where there are any.
    costs: Option<GenerateMetrics>,
    /// The time of the model's calls.
    took: Duration,
}

/// Prints a line for each of a group of prompts, of which some are the errors of their lines.
fn report(
    model: &dyn TextModel,
    group: Vec<Result<(Vec<u32>, Given)>>,
    mut results: std::vec::IntoIter<BatchResult>,
    args: &GenerateArgs,
    done: &mut Done,
) -> Result<FinishReason> {
    let top = args.top_logprobs.map(|_| model);
    for ids in group {
        let index = done.prompts;
        done.prompts += 1;
        let answered = ids.and_then(|(ids, _)| {
            let result = results.next().ok_or(Error::Closed)?;
            Ok(ended(&result).map(|outcome| (ids, outcome, result))?)
        });
        match answered {
            Ok((_, outcome, _)) if outcome.finish_reason == FinishReason::Cancelled => {
                return Ok(FinishReason::Cancelled);
            }
            Ok((ids, outcome, result)) => {
                let prompt = result.prompt_logprobs.as_deref();
                let report = Report::new(&ids, prompt, &result.tokens, &outcome, top);
                print_json(&Line { index, report })?;
                let costs = done.costs.iter().chain([&outcome.metrics]);
                done.costs = Some(GenerateMetrics::sum(costs));
            }
            Err(error) => {
                done.failed += 1;
                print_json(&json!({"index": index, "error": error.to_string()}))?;
                note(format_args!("error: prompt {}: {error}", index + 1));
            }
        }
    }
    Ok(FinishReason::Length)
}

/// The model's input.
enum Given {
    Raw(Prompt),
    Chat(RenderedPrompt),
}

/// The results of all that is given. A batch has either prompts or conversations.
fn generated<'a>(
    model: &dyn TextModel,
    given: impl Iterator<Item = &'a Given>,
    chat: &ChatOptions,
    options: &GenerateOptions,
) -> Result<std::vec::IntoIter<BatchResult>> {
    let (mut prompts, mut chats) = (Vec::new(), Vec::new());
    for one in given {
        match one {
            Given::Raw(prompt) => prompts.push(prompt.clone()),
            Given::Chat(prompt) => chats.push(prompt.clone()),
        }
    }
    let results = match chats.is_empty() {
        true => model.batch_generate(&prompts, options)?,
        false => model.batch_answer(&chats, chat, options)?,
    };
    Ok(results.into_iter())
}

/// The ids of a prompt, and the prompt as the model is to see it.
fn ids(model: &dyn TextModel, input: &Input, chat: &ChatOptions) -> Result<(Vec<u32>, Given)> {
    match input {
        Input::Raw(prompt) => {
            let ids = model.prompt_ids(prompt)?;
            let prompt = if prompt.is_plain() { Prompt::Ids(ids.clone()) } else { prompt.clone() };
            Ok((ids, Given::Raw(prompt)))
        }
        Input::Messages(messages) => {
            let rendered = model.render_chat(messages, chat)?;
            Ok((rendered.ids.clone(), Given::Chat(rendered)))
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
