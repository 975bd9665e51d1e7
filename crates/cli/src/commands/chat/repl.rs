//! Turns and commands, until the person leaves or wants another model.

use inference_core::{CancelToken, Error, Feature, LoadOptions, Piece};

use super::lines::Lines;
use super::reader::{Reader, Typed, typed_as};
use super::session::{Answer, Session};
use super::slash::{HELP, Slash, said};
use super::tools::Tools;
use crate::answer::{AnswerPrinter, Form};
use crate::args::ChatArgs;
use crate::failure::{Failure, Result};
use crate::files::{self, Access};
use crate::interrupt::{Interrupt, Then, with_timeout};
use crate::output::{counted, dim_note, note, report};
use crate::pictures;
use crate::source::Source;

/// The remedies of a full context.
const FULL: &str = "/drop forgets the oldest turns and /clear all of them, then /retry asks again; \
                    --rolling-context drops them by itself";

/// So many answers in a row may call tools.
pub const ROUNDS: usize = 32;

/// A chat with one model.
pub struct Repl<'a> {
    pub session: Session<'a>,
    pub reader: &'a mut Reader,
    pub interrupt: &'a Interrupt,
    pub args: &'a ChatArgs,
    pub source: &'a Source,
    /// Tools that the model may call.
    pub tools: Option<&'a mut Tools>,
}

/// The end of a chat with a model.
pub enum Ended {
    /// The person leaves.
    Leave,
    /// It goes on with this model.
    Model(Source),
}

/// The next step of the chat.
enum Next {
    Turn,
    End(Ended),
}

/// The question to answer: a new one, or the last one again.
#[derive(Clone, Copy)]
pub enum Question<'a> {
    New(&'a str),
    Last,
    /// The last answer's calls, which have their results.
    Results,
}

impl Repl<'_> {
    /// Tells the names of what waits and `feature` takes.
    fn tell_waiting(&self, feature: Feature, nothing: &str) {
        let waiting: Vec<&str> = self.session.waiting(feature).collect();
        note(if waiting.is_empty() { nothing.to_owned() } else { waiting.join("\n") });
    }

    /// Talks until the person leaves, or wants another model, which `load` fits.
    ///
    /// # Errors
    /// From a pipe, the first turn that fails; at a terminal, what ends the program.
    pub fn run(&mut self, load: &LoadOptions) -> Result<Ended> {
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
                        self.reader.remember(&line);
                        let done = command.map_err(Failure::Usage);
                        let done = done.and_then(|command| self.obey(command, load));
                        match self.settle(done)? {
                            Next::Turn => continue,
                            Next::End(ended) => return Ok(ended),
                        }
                    }
                    let line = if lines.is_open() { &line } else { said(&line) };
                    lines.push(line)
                }
                Typed::End => match lines.finish() {
                    Some(rest) => Some(rest),
                    None => return Ok(Ended::Leave),
                },
            };
            if let Some(text) = turn.filter(|text| !text.trim().is_empty()) {
                self.reader.remember(&typed_as(&text));
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
                if let Failure::Model(Error::PromptTooLong { .. }) = failure {
                    note(FULL);
                }
                Ok(Next::Turn)
            }
            done => done,
        }
    }

    /// Asks and prints the answer; calls of tools are answered until the model makes no more.
    ///
    /// # Errors
    /// The model's; a signal that asks the program to end; nobody reads stdout any more.
    pub fn ask(&mut self, question: Question<'_>) -> Result<()> {
        self.renew_tools();
        self.answer(question)?;
        for _ in 0..ROUNDS {
            let calls = self.session.take_calls();
            if self.tools.is_none() || calls.is_empty() || !self.answer_calls(&calls)? {
                return Ok(());
            }
            self.renew_tools();
            self.answer(Question::Results)?;
        }
        note(format_args!("{ROUNDS} answers in a row called tools: say something to go on"));
        Ok(())
    }

    /// Tells the model of tools that are others now.
    fn renew_tools(&mut self) {
        if let Some(tools) = self.tools.as_mut().filter(|_| self.session.has_tools())
            && tools.refresh()
        {
            self.session.set_tools(tools.definitions());
        }
    }

    fn answer(&mut self, question: Question<'_>) -> Result<()> {
        let cancel = CancelToken::new();
        let then = if self.reader.is_terminal() { Then::Stay } else { Then::Leave };
        let watch = self.interrupt.watch(&cancel, then);
        let token = with_timeout(&cancel, self.args.timeout);
        let is_plain = self.args.plain || self.session.settings().sampling.holds_a_form();
        let form = if is_plain { Form::Plain } else { Form::Markdown };
        let mut printer = AnswerPrinter::new(self.args.hide_reasoning, form);
        let sink = |piece: &Piece| printer.add(piece);
        let answer = match question {
            Question::New(text) => self.session.say(text, token, sink),
            Question::Last => self.session.retry(token, sink),
            Question::Results => self.session.go_on(token, sink),
        };
        let interrupted = watch.fired();
        drop(watch);
        printer.end(&answer)?;
        let answer = answer?;
        if interrupted && (self.interrupt.leaving() || !self.reader.is_terminal()) {
            return Err(Failure::Interrupted);
        }
        if answer == Answer::Cancelled {
            let why = if interrupted { "stopped" } else { "stopped: --timeout" };
            match self.session.is_unanswered() {
                true => dim_note(format_args!("{why}; the question is kept: /retry asks it again")),
                false => dim_note(why),
            }
        }
        let quiet = self.args.quiet;
        if let Some(statistics) = self.session.statistics().filter(|_| !quiet) {
            dim_note(statistics);
        }
        let cut = self.session.cut_note();
        cut.into_iter().chain(self.session.greedy_note()).filter(|_| !quiet).for_each(note);
        Ok(())
    }

    fn obey(&mut self, command: Slash, load: &LoadOptions) -> Result<Next> {
        match command {
            Slash::Help => note(HELP),
            Slash::Clear => {
                let count = counted(self.session.clear(), "message");
                note(format_args!("the conversation is empty: {count} forgotten"));
            }
            Slash::Drop(turns) => {
                let count = counted(self.session.drop_oldest(turns)?, "message");
                let left = counted(self.session.size().0, "message");
                note(format_args!("{count} forgotten, {left} left"));
            }
            Slash::Model(None) => note(self.source.name()),
            Slash::Model(Some(path)) => {
                let source = Source::of(Some(&path))?;
                // One that cannot be loaded does not cost the present one.
                source.describe(load)?;
                return Ok(Next::End(Ended::Model(source)));
            }
            Slash::Show => note(self.session.facts(&self.source.name()).join("\n")),
            Slash::System(None) => note(self.session.system().unwrap_or("no system message")),
            Slash::System(Some(text)) => {
                let is_none = text == "none";
                self.session.set_system((!is_none).then_some(text));
                note(if is_none {
                    "there is no system message now"
                } else {
                    "the system message is changed"
                });
            }
            Slash::Set(None) => note(self.session.settings().lines().join("\n")),
            Slash::Set(Some((name, value))) => {
                note(self.session.settings().set(&name, value.as_deref())?);
            }
            Slash::Mcp => match &self.tools {
                Some(tools) => note(tools.lines().join("\n")),
                None => note("no MCP servers: start `ml chat` with --mcp FILE"),
            },
            Slash::Retry => self.ask(Question::Last)?,
            Slash::Undo => {
                self.session.undo()?;
                note("the last question is forgotten");
            }
            Slash::Image(None) => self.tell_waiting(Feature::Images, "no picture waits"),
            Slash::Audio(None) => self.tell_waiting(Feature::Audio, "no sound waits"),
            Slash::Image(Some(path)) if path.as_os_str() == "none" => {
                self.session.take_back(Feature::Images);
            }
            Slash::Audio(Some(path)) if path.as_os_str() == "none" => {
                self.session.take_back(Feature::Audio);
            }
            Slash::Image(Some(path)) => {
                self.session.show(pictures::read(&path)?)?;
                if !self.args.quiet {
                    note(format_args!("{} is shown with what you say next", path.display()));
                }
            }
            Slash::Audio(Some(path)) => {
                self.session.show(pictures::read_sound(&path)?)?;
                if !self.args.quiet {
                    note(format_args!("{} is played with what you say next", path.display()));
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
            Slash::Bye => return Ok(Next::End(Ended::Leave)),
        }
        Ok(Next::Turn)
    }
}
