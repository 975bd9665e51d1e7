//! `ml chat`: a conversation at the terminal, or one turn a line from a pipe.

mod calls;
mod completion;
mod history;
mod lines;
mod reader;
mod repl;
mod session;
mod slash;
mod tools;

use inference_core::{ChatOptions, Error, LoadOptions, Message, TextModel};

use self::history::History;
pub use self::history::file_of_user as history_of_user;
use self::reader::Reader;
use self::repl::{Ended, Question, Repl};
use self::session::{Conversation, Session, Settings};
use self::tools::{Missing, Tools};
use crate::args::ChatArgs;
use crate::failure::{Failure, Result};
use crate::files;
use crate::interrupt::Interrupt;
use crate::output::{note, report};
use crate::source::{Source, tell_notices};

/// Bytes for earlier turns where nothing else is asked for.
const PREFIX_CACHE: u64 = 256 << 20;

/// Talks until the person leaves or the input ends; answers a prompt that is given, and leaves.
///
/// # Errors
/// Bad options and models; from a pipe, also the first turn that fails.
pub fn run(args: &ChatArgs) -> Result<()> {
    let load = args.load.options()?;
    args.sampling.options()?;
    args.template.options()?;
    let mut shown = args.images.read()?;

    let interrupt = Interrupt::install()?;
    let mut reader = match &args.prompt {
        Some(prompt) if prompt.trim().is_empty() => {
            return Err(Failure::Usage("the prompt is empty".to_owned()));
        }
        Some(_) => Reader::Pipe(files::Lines::stdin()),
        None => Reader::open(|| history(args), &interrupt)?,
    };
    let mut source = Source::of(args.model())?;
    let settings = Settings::new(args.sampling.clone());
    let mut conversation = Conversation::new(settings, args.template.system.clone());
    let mut model = load_with_cache(&source, load.clone(), args)?;
    // Behind the load, which of several ranks the first one alone leaves.
    let missing = if reader.is_terminal() { Missing::Told } else { Missing::Fatal };
    let mut tools = Tools::open(&args.mcp, missing, args.quiet)?;
    loop {
        let mut chat = begin(model.as_ref(), args)?;
        if let Some(tools) = &tools {
            chat.tools = tools.definitions();
            if let Err(error) = model.render_chat(&[Message::user("Hello")], &chat) {
                // A model that was changed to may know none.
                if !reader.is_terminal() {
                    return Err(error.into());
                }
                report(&Failure::Model(error));
                note("this model is told of no tools");
                chat.tools.clear();
            }
        }
        if reader.is_terminal() && !args.quiet {
            note(format_args!("{}: /help lists the commands, /bye leaves", source.name()));
        }
        let session = Session::new(model.as_ref(), chat, conversation);
        let mut session = session.with(args.rolling_context, args.quiet);
        std::mem::take(&mut shown).into_iter().try_for_each(|picture| session.show(picture))?;
        let tools = tools.as_mut();
        let (reader_of, interrupt) = (&mut reader, &interrupt);
        let mut repl = Repl { session, reader: reader_of, interrupt, args, source: &source, tools };
        let ended = match &args.prompt {
            Some(prompt) => repl.ask(Question::New(prompt)).map(|()| Ended::Leave),
            None => repl.run(&load),
        };
        conversation = repl.session.into_conversation();
        // What was computed is written to disk, where that was asked for, and may fail.
        model.close();
        tell(model.as_ref(), args);
        match ended? {
            Ended::Leave => return Ok(()),
            Ended::Model(next) => {
                // Both may not fit.
                drop(model);
                model = match load_with_cache(&next, load.clone(), args) {
                    Ok(model) => {
                        source = next;
                        model
                    }
                    Err(failure) if reader.is_terminal() => {
                        report(&failure);
                        load_with_cache(&source, load.clone(), args)?
                    }
                    Err(failure) => return Err(failure),
                };
            }
        }
    }
}

/// The history that `args` ask for, of a chat at a terminal, with its entries.
fn history(args: &ChatArgs) -> Result<Option<(History, Vec<String>)>> {
    match &args.history {
        _ if args.no_history => Ok(None),
        Some(path) => History::at(path.clone()).read().map(Some),
        // Nobody asked for it, so a chat goes on without.
        None => Ok(History::of_user().unwrap_or_else(|failure| {
            note(failure);
            None
        })),
    }
}

/// The chat's options for `model`. What there is to say of it is said before the first turn.
fn begin(model: &dyn TextModel, args: &ChatArgs) -> Result<ChatOptions> {
    tell(model, args);
    let chat = args.template.with_effort(args.template.options()?, model)?;
    let _ = model.render_chat(&[Message::user("Hello")], &ChatOptions::default());
    tell(model, args);
    Ok(chat)
}

fn tell(model: &dyn TextModel, args: &ChatArgs) {
    if !args.quiet {
        tell_notices(model);
    }
}

/// Loads the model with a prefix cache, so that a turn is computed from where the last one ended.
/// A backend may have none, unless one was asked for.
pub fn load_with_cache(
    source: &Source,
    load: LoadOptions,
    args: &ChatArgs,
) -> Result<Box<dyn TextModel>> {
    let bytes = args.prefix_cache.unwrap_or(PREFIX_CACHE);
    let (prefix_cache_dir, prefix_cache_disk) =
        (args.prefix_cache_dir.clone(), args.prefix_cache_disk);
    let is_asked_for =
        args.prefix_cache.is_some() || prefix_cache_dir.is_some() || prefix_cache_disk.is_some();
    let prefix_cache = Some(bytes);
    let with_cache =
        LoadOptions { prefix_cache, prefix_cache_dir, prefix_cache_disk, ..load.clone() };
    match source.load(&with_cache, args.quiet) {
        Err(Failure::Model(Error::Unsupported { what, .. }))
            if what == "prefix_cache" && !is_asked_for =>
        {
            source.load(&load, args.quiet)
        }
        loaded => loaded,
    }
}
