//! `ml chat`: a conversation at the terminal, or one turn a line from a pipe.

mod history;
mod lines;
mod reader;
mod session;
mod slash;

use std::time::Duration;

use inference_core::{CancelToken, ChatOptions, Error, LoadOptions, Message, Piece, TextModel};

use self::lines::Lines;
use self::reader::{Reader, Typed};
use self::session::{Answer, Session};
use self::slash::{HELP, Slash, said};
use crate::answer::AnswerPrinter;
use crate::args::ChatArgs;
use crate::failure::{Failure, Result};
use crate::files::{self, Access};
use crate::interrupt::{Interrupt, Then, with_timeout};
use crate::output::{counted, dim_note, note, report};
use crate::pictures;
use crate::source::{Source, tell_notices};

/// Bytes for earlier turns where nothing else is asked for.
const PREFIX_CACHE: u64 = 256 << 20;

/// Talks until the person leaves or the input ends; answers a prompt that is given, and leaves.
///
/// # Errors
/// Bad options and models; from a pipe, also the first turn that fails.
pub fn run(args: &ChatArgs) -> Result<()> {
    args.later.refuse()?;
    let load = args.load.options()?;
    args.sampling.options()?;
    let chat = args.template.options()?;
    let shown = args.images.read()?;

    let interrupt = Interrupt::install()?;
    let reader = match &args.prompt {
        Some(prompt) if prompt.trim().is_empty() => {
            return Err(Failure::Usage("the prompt is empty".to_owned()));
        }
        Some(_) => Reader::Pipe(files::Lines::stdin()),
        None => Reader::open(args.history.as_deref(), &interrupt)?,
    };
    let source = Source::of(args.model())?;
    let model = load_with_cache(&source, load, args)?;
    let tell = || {
        if !args.quiet {
            tell_notices(model.as_ref());
        }
    };
    tell();
    let chat = args.template.with_effort(chat, model.as_ref())?;
    // What there is to say of the chat format is said before the first turn.
    let _ = model.render_chat(&[Message::user("Hello")], &ChatOptions::default());
    tell();
    if reader.is_terminal() && !args.quiet {
        note(format_args!("{}: /help lists the commands, /bye leaves", source.name()));
    }
    let system = args.template.system.clone();
    let mut session = Session::new(model.as_ref(), chat, args.sampling.clone(), system);
    shown.into_iter().try_for_each(|picture| session.show(picture))?;
    let (timeout, hides_reasoning, quiet) = (args.timeout, args.hide_reasoning, args.quiet);
    let mut repl = Repl { session, reader, interrupt, timeout, hides_reasoning, quiet };
    let ended = match &args.prompt {
        Some(prompt) => repl.ask(Question::New(prompt)),
        None => repl.run(),
    };
    // What was computed is written to disk, where that was asked for, and may fail.
    model.close();
    tell();
    ended
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

struct Repl<'a> {
    session: Session<'a>,
    reader: Reader,
    interrupt: Interrupt,
    timeout: Option<Duration>,
    hides_reasoning: bool,
    quiet: bool,
}

/// The next step of the chat.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Turn,
    Leave,
}

/// The question to answer: a new one, or the last one again.
#[derive(Clone, Copy)]
enum Question<'a> {
    New(&'a str),
    Last,
}

impl Repl<'_> {
    fn run(mut self) -> Result<()> {
        let mut lines = Lines::default();
        // Ctrl-C came last, so that another one leaves.
        let mut interrupted = false;
        loop {
            let prompt = if lines.is_open() { "... " } else { ">>> " };
            let typed = self.reader.read(prompt)?;
            let turn = match typed {
                Typed::Interrupt if interrupted => return Err(Failure::Interrupted),
                Typed::Interrupt => {
                    interrupted = true;
                    lines.clear();
                    note("Ctrl-C again, Ctrl-D or /bye leaves");
                    continue;
                }
                Typed::Line(line) => {
                    interrupted = false;
                    let command = if lines.is_open() { None } else { Slash::parse(&line) };
                    if let Some(command) = command {
                        let done =
                            command.map_err(Failure::Usage).and_then(|command| self.obey(command));
                        if self.settle(done)? == Next::Leave {
                            return Ok(());
                        }
                        continue;
                    }
                    let line = if lines.is_open() { &line } else { said(&line) };
                    lines.push(line)
                }
                Typed::End => match lines.finish() {
                    Some(rest) => Some(rest),
                    None => return Ok(()),
                },
            };
            if let Some(text) = turn.filter(|text| !text.trim().is_empty()) {
                let answered = self.ask(Question::New(&text)).map(|()| Next::Turn);
                self.settle(answered)?;
            }
        }
    }

    /// At a terminal, a failed turn is told and the next one may come. A pipe ends with it, and
    /// so does everything when the reader of stdout or the program itself is to leave.
    fn settle(&self, done: Result<Next>) -> Result<Next> {
        match done {
            Err(failure)
                if self.reader.is_terminal()
                    && !matches!(failure, Failure::ClosedPipe | Failure::Interrupted) =>
            {
                report(&failure);
                Ok(Next::Turn)
            }
            done => done,
        }
    }

    fn ask(&mut self, question: Question<'_>) -> Result<()> {
        let cancel = CancelToken::new();
        let then = if self.reader.is_terminal() { Then::Stay } else { Then::Leave };
        let watch = self.interrupt.watch(&cancel, then);
        let token = with_timeout(&cancel, self.timeout);
        let mut printer = AnswerPrinter::new(self.hides_reasoning);
        let sink = |piece: &Piece| printer.add(piece);
        let answer = match question {
            Question::New(text) => self.session.say(text, token, sink),
            Question::Last => self.session.retry(token, sink),
        };
        let interrupted = watch.fired();
        drop(watch);
        printer.end(&answer)?;
        let answer = answer?;
        if interrupted && (self.interrupt.leaving() || !self.reader.is_terminal()) {
            return Err(Failure::Interrupted);
        }
        if answer == Answer::Cancelled {
            dim_note(if interrupted { "stopped" } else { "stopped: --timeout" });
        }
        if let Some(statistics) = self.session.statistics().filter(|_| !self.quiet) {
            dim_note(statistics);
        }
        if let Some(text) = self.session.greedy_note().filter(|_| !self.quiet) {
            note(text);
        }
        Ok(())
    }

    fn obey(&mut self, command: Slash) -> Result<Next> {
        match command {
            Slash::Help => note(HELP),
            Slash::Clear => self.session.clear(),
            Slash::System(None) => note(self.session.system().unwrap_or("no system message")),
            Slash::System(Some(text)) => {
                self.session.set_system((text != "none").then_some(text));
            }
            Slash::Set(None) if self.session.changed().is_empty() => note("nothing was changed"),
            Slash::Set(None) => note(self.session.changed().join(" ")),
            Slash::Set(Some((name, value))) => self.session.set(&name, value.as_deref())?,
            Slash::Retry => self.ask(Question::Last)?,
            Slash::Undo => self.session.undo()?,
            Slash::Image(None) => {
                let waiting: Vec<&str> = self.session.waiting().collect();
                note(if waiting.is_empty() {
                    "no picture waits".into()
                } else {
                    waiting.join("\n")
                });
            }
            Slash::Image(Some(path)) if path.as_os_str() == "none" => self.session.show_nothing(),
            Slash::Image(Some(path)) => {
                self.session.show(pictures::read(&path)?)?;
                if !self.quiet {
                    note(format_args!("{} is shown with what you say next", path.display()));
                }
            }
            Slash::Save(path) => {
                files::replace(&path, self.session.to_json().as_bytes(), Access::Shared)?;
                note(format_args!("saved to {}", path.display()));
            }
            Slash::Load(path) => {
                let text = files::read_regular(&path)?;
                let count = self.session.load(&text, &path.display().to_string())?;
                note(format_args!("{} from {}", counted(count, "message"), path.display()));
            }
            Slash::Stats => {
                let (messages, tokens) = self.session.size();
                let messages = counted(messages, "message");
                note(format_args!("{messages}, {tokens} tokens at the last answer"));
                if let Some(statistics) = self.session.statistics() {
                    note(statistics);
                }
            }
            Slash::Bye => return Ok(Next::Leave),
        }
        Ok(Next::Turn)
    }
}
