//! `ml inspect`: what each head of a prompt's layers looks at.

mod attention;
mod heat_map;

use inference_core::{CancelToken, Error, Feature, InspectOptions, Message, Prompt, TextModel};

use self::attention::{Attention, table};
use crate::args::InspectArgs;
use crate::bytes;
use crate::failure::{Failure, Result};
use crate::files::{self, Access};
use crate::interrupt::{Interrupt, Then, ended_early, with_timeout};
use crate::output::{dim_note, print, print_json};
use crate::pictures::{self, Shown};
use crate::source::Source;

/// Shows the attention of the prompt that `args` tell.
///
/// # Errors
/// Bad options, an unusable prompt, model or file, an interrupted run.
pub fn run(args: &InspectArgs) -> Result<()> {
    let load = args.load.options()?;
    let layers = args.layers.clone();
    let mut options = InspectOptions { layers, weights: true, ..InspectOptions::default() };
    options.validate()?;
    heat_map::check_heads(&args.head)?;

    let interrupt = Interrupt::install()?;
    let text = args.text()?;
    let shown = args.images.read()?;
    let model = Source::choose(&args.load)?.load(&load, args.quiet || args.json)?;
    let (ids, prompt) = prompt(model.as_ref(), args, text, &shown)?;
    if args.svg.is_some() {
        heat_map::check_size(ids.len())?;
    }

    let cancel = CancelToken::new();
    let watch = interrupt.watch(&cancel, Then::Leave);
    options.cancel = with_timeout(&cancel, args.timeout);
    let end = inspect(model.as_ref(), (&ids, &prompt), &options);
    let interrupted = watch.fired();
    drop(watch);
    match end {
        Err(Failure::Model(Error::Cancelled)) => {
            Err(ended_early(interrupted, args.timeout, "the prompt was computed"))
        }
        Err(failure) => Err(failure),
        Ok(attention) => report(&attention, model.as_ref(), args),
    }
}

/// The prompt's ids, and the prompt as the model is to see it.
fn prompt(
    model: &dyn TextModel,
    args: &InspectArgs,
    text: String,
    shown: &[Shown],
) -> Result<(Vec<u32>, Prompt)> {
    if args.raw {
        let prompt = pictures::prompt(shown, text);
        return Ok((model.prompt_ids(&prompt)?, prompt));
    }
    let system = args.template.system.clone().map(Message::system);
    let messages: Vec<Message> =
        system.into_iter().chain([pictures::message(shown, text)]).collect();
    let chat = args.template.with_effort(args.template.options()?, model)?;
    let rendered = model.render_chat(&messages, &chat)?;
    let prompt = rendered.prompt();
    Ok((rendered.ids, prompt))
}

fn inspect(
    model: &dyn TextModel,
    (ids, prompt): (&[u32], &Prompt),
    options: &InspectOptions,
) -> Result<Attention> {
    model.capabilities().require(Feature::InspectAttention)?;
    let inspector = model
        .attention_inspector()
        .ok_or_else(|| Failure::Other("the model's attention cannot be looked at".into()))?;
    let snapshot = inspector.inspect_attention(prompt, options)?;
    Attention::new(snapshot, ids, model)
}

fn report(attention: &Attention, model: &dyn TextModel, args: &InspectArgs) -> Result<()> {
    if let Some(path) = &args.svg {
        let svg = heat_map::draw(attention, &args.head)?;
        files::replace(path, svg.as_bytes(), Access::Shared)?;
    }
    if let Some(path) = &args.safetensors {
        files::replace(path, &attention.safetensors()?, Access::Shared)?;
    }
    if args.json {
        return print_json(&attention.report(args.values));
    }
    if args.quiet {
        return Ok(());
    }
    print(&table(attention))?;
    let metrics = model.metrics().unwrap_or_default();
    dim_note(format_args!(
        "{} tokens, {:.2} s | peak memory {}",
        attention.tokens.len(),
        metrics.prefill_duration.as_secs_f64(),
        bytes::human(metrics.peak_memory_bytes),
    ));
    Ok(())
}
