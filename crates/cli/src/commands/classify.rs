//! `ml classify`: which label, or which token, follows each of many prompts.

mod report;

use std::time::Instant;

use inference_core::{
    CancelToken, ChatOptions, ClassifyOptions, ClassifyResult, Error, GenerateOptions, Message,
    Prompt, TextModel,
};

use self::report::{Classified, Columns};
use crate::args::ClassifyArgs;
use crate::bytes;
use crate::failure::{Failure, Result};
use crate::interrupt::{Interrupt, Then, ended_early, with_timeout};
use crate::output::{dim_note, note, print, print_json};
use crate::pictures::{self, Shown};
use crate::source::{Source, tell_notices};

/// Prompts that are handed to the model together; their results are printed together.
const GROUP: usize = 128;
/// Tokens that are shown where there are no labels.
const DEFAULT_TOP: usize = 5;

/// Classifies the prompts that `args` tell.
///
/// # Errors
/// Bad options, an unusable model, an interrupted run; at the end, prompts that failed.
pub fn run(args: &ClassifyArgs) -> Result<()> {
    let load = args.load.options()?;
    let labels = args.labels()?;
    let chat = args.template.options()?;

    let interrupt = Interrupt::install()?;
    let prompts = args.prompts()?;
    let shown = args.images.read()?;
    let model = Source::choose(&args.load)?.load(&load, args.quiet || args.json)?;
    if !args.quiet {
        tell_notices(model.as_ref());
    }
    let chat = args.template.with_effort(chat, model.as_ref())?;

    let cancel = CancelToken::new();
    let watch = interrupt.watch(&cancel, Then::Leave);
    let top = if labels.is_empty() { args.top.unwrap_or(DEFAULT_TOP) } else { 0 };
    let cancel = with_timeout(&cancel, args.timeout);
    let generate = GenerateOptions { logits: top > 0, cancel, ..GenerateOptions::default() };
    let options = ClassifyOptions { labels, generate };
    let (model, shown) = (model.as_ref(), shown.as_slice());
    let job = Job { model, args, chat: &chat, options: &options, shown, top };
    let end = job.run(&prompts);
    let interrupted = watch.fired();
    drop(watch);
    match end {
        Err(Failure::Model(Error::Cancelled)) => {
            Err(ended_early(interrupted, args.timeout, "all prompts were classified"))
        }
        Ok(0) => Ok(()),
        Ok(failed) => Err(Failure::Other(format!("{failed} of {} prompts failed", prompts.len()))),
        Err(failure) => Err(failure),
    }
}

struct Job<'a> {
    model: &'a dyn TextModel,
    args: &'a ClassifyArgs,
    chat: &'a ChatOptions,
    options: &'a ClassifyOptions,
    /// Pictures and sounds in front of each prompt.
    shown: &'a [Shown],
    /// Tokens to show, where there are no labels.
    top: usize,
}

impl Job<'_> {
    /// Prints each prompt's result; how many failed.
    fn run(&self, prompts: &[String]) -> Result<usize> {
        let started = Instant::now();
        let columns = Columns::new(&self.options.labels);
        if !self.args.json {
            print(&columns.header())?;
        }
        let (mut failed, mut tokens) = (0, 0);
        for (group, texts) in prompts.chunks(GROUP).enumerate() {
            for (at, (ids, result)) in self.classify(texts)?.into_iter().enumerate() {
                let (index, text) = (group * GROUP + at, &texts[at]);
                match result {
                    Ok(result) => {
                        tokens += ids;
                        let labels = &self.options.labels;
                        let found = Classified::new(
                            index,
                            text,
                            ids,
                            &result,
                            labels,
                            (self.model, self.top),
                        );
                        if self.args.json {
                            print_json(&found)?;
                        } else {
                            print(&columns.row(&found))?;
                        }
                    }
                    Err(failure) => {
                        failed += 1;
                        if self.args.json {
                            print_json(&Classified::failed(index, text, &failure))?;
                        }
                        note(format_args!("error: prompt {}: {failure}", index + 1));
                    }
                }
            }
        }
        if !self.args.quiet && !self.args.json {
            let seconds = started.elapsed().as_secs_f64();
            let metrics = self.model.metrics().unwrap_or_default();
            let count = match prompts.len() - failed {
                1 => "1 prompt".to_owned(),
                count => format!("{count} prompts"),
            };
            dim_note(format_args!(
                "{count}, {tokens} tokens, {:.1} tok/s | peak memory {}",
                tokens as f64 / seconds,
                bytes::human(metrics.peak_memory_bytes),
            ));
        }
        Ok(failed)
    }

    /// Each text's number of ids and result.
    fn classify(&self, texts: &[String]) -> Result<Vec<(usize, Result<ClassifyResult>)>> {
        let read: Vec<Result<(usize, Prompt)>> =
            texts.iter().map(|text| self.prompt(text)).collect();
        let good = read.iter().filter_map(|read| read.as_ref().ok());
        let prompts: Vec<Prompt> = good.map(|(_, prompt)| prompt.clone()).collect();
        let mut results = classify_each(self.model, &prompts, self.options)?.into_iter();
        let with_result = |read: Result<(usize, Prompt)>| match read {
            Err(failure) => (0, Err(failure)),
            Ok((ids, _)) => {
                let result = results.next().unwrap_or(Err(Error::Closed));
                (ids, result.map_err(Failure::from))
            }
        };
        Ok(read.into_iter().map(with_result).collect())
    }

    /// A text as the model is to see it, after the number of its ids.
    fn prompt(&self, text: &str) -> Result<(usize, Prompt)> {
        if self.args.raw {
            let prompt = pictures::prompt(self.shown, text.to_owned());
            return Ok((self.model.prompt_ids(&prompt)?.len(), prompt));
        }
        if text.trim().is_empty() {
            return Err(Failure::Other("the prompt is empty".into()));
        }
        let system = self.args.template.system.clone().map(Message::system);
        let question = pictures::message(self.shown, text);
        let messages: Vec<Message> = system.into_iter().chain([question]).collect();
        let rendered = self.model.render_chat(&messages, self.chat)?;
        Ok((rendered.ids.len(), rendered.prompt()))
    }
}

/// Classifies all prompts at once; where one refuses the call, the others without it.
fn classify_each(
    model: &dyn TextModel,
    prompts: &[Prompt],
    options: &ClassifyOptions,
) -> Result<Vec<Result<ClassifyResult, Error>>> {
    let error = match model.classify(prompts, options) {
        Ok(results) => return Ok(results.into_iter().map(Ok).collect()),
        Err(error) => error,
    };
    match error {
        Error::EmptyPrompt
        | Error::PromptTooLong { .. }
        | Error::Prompt(_)
        | Error::Memory { .. } => {}
        _ => return Err(error.into()),
    }
    if prompts.len() == 1 {
        return Ok(vec![Err(error)]);
    }
    let (one, other) = prompts.split_at(prompts.len() / 2);
    let mut results = classify_each(model, one, options)?;
    results.extend(classify_each(model, other, options)?);
    Ok(results)
}
