//! A conversation with a model, and the options that may change while it goes on.

use clap::Parser;
use inference_core::{
    CancelToken, ChatOptions, EncodedPicture, Error, Feature, FinishReason, Message, Outcome,
    Piece, Role, TextModel, Value,
};

use crate::args::SamplingArgs;
use crate::failure::{Failure, Result};
use crate::{json, pictures, streaming};

/// A conversation.
pub struct Session<'a> {
    model: &'a dyn TextModel,
    chat: ChatOptions,
    /// The options at the start, for `/set reset`.
    first: SamplingArgs,
    sampling: Settings,
    /// Options that `/set` changed, as typed.
    changed: Vec<String>,
    system: Option<Message>,
    messages: Vec<Message>,
    /// Pictures that are shown with what is said next.
    waiting: Vec<EncodedPicture>,
    last: Option<Outcome>,
    /// The last note on options that changed nothing.
    noted: Option<String>,
}

/// The options of a `/set` line, parsed as those of the command line are.
#[derive(Clone, Debug, Parser)]
#[command(name = "/set", no_binary_name = true, disable_help_flag = true)]
struct Settings {
    #[command(flatten)]
    sampling: SamplingArgs,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// By itself.
    Complete,
    /// By the cancel token; what was said stays in the conversation.
    Cancelled,
}

impl<'a> Session<'a> {
    /// A conversation in which nothing was said.
    pub fn new(
        model: &'a dyn TextModel,
        chat: ChatOptions,
        sampling: SamplingArgs,
        system: Option<String>,
    ) -> Self {
        Session {
            model,
            chat,
            first: sampling.clone(),
            sampling: Settings { sampling },
            changed: Vec::new(),
            system: system.map(Message::system),
            messages: Vec::new(),
            waiting: Vec::new(),
            last: None,
            noted: None,
        }
    }

    /// Shows `picture` with what is said next.
    ///
    /// # Errors
    /// The model does not see.
    pub fn show(&mut self, picture: EncodedPicture) -> Result<()> {
        self.model.capabilities().require(Feature::Images)?;
        self.waiting.push(picture);
        Ok(())
    }

    /// The names of the pictures that wait.
    pub fn waiting(&self) -> impl Iterator<Item = &str> {
        self.waiting.iter().map(|picture| &*picture.name)
    }

    /// Takes back the pictures that wait.
    pub fn show_nothing(&mut self) {
        self.waiting.clear();
    }

    /// Says `text`, shows the pictures that wait, and hands the answer to `sink`, piece by piece.
    /// An error, and an answer cancelled before its first word, leave the conversation as it was.
    ///
    /// # Errors
    /// The model's and `sink`'s.
    pub fn say(
        &mut self,
        text: &str,
        cancel: CancelToken,
        sink: impl FnMut(&Piece) -> Result<()>,
    ) -> Result<Answer> {
        self.messages.push(pictures::message(&self.waiting, text));
        let answer = self.answer(cancel, sink);
        if self.messages.last().is_some_and(|message| message.role == Role::User) {
            self.messages.pop();
        } else {
            self.waiting.clear();
        }
        answer
    }

    /// Drops the last answer and asks its question again.
    ///
    /// # Errors
    /// Nothing to answer again, and as [`say`](Self::say); the old answer then stays.
    pub fn retry(
        &mut self,
        cancel: CancelToken,
        sink: impl FnMut(&Piece) -> Result<()>,
    ) -> Result<Answer> {
        let question = self.last_question()?;
        let before = self.messages.split_off(question + 1);
        let answer = self.answer(cancel, sink);
        if self.messages.len() == question + 1 {
            self.messages.extend(before);
        }
        answer
    }

    /// Forgets the last question and all that followed.
    ///
    /// # Errors
    /// Nothing was asked.
    pub fn undo(&mut self) -> Result<()> {
        let question = self.last_question()?;
        self.messages.truncate(question);
        Ok(())
    }

    /// Forgets all but the system message.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.waiting.clear();
        self.last = None;
    }

    /// The system message's text.
    pub fn system(&self) -> Option<&str> {
        self.system.as_ref().and_then(|message| message.content.as_str())
    }

    /// Changes the system message.
    pub fn set_system(&mut self, text: Option<String>) {
        self.system = text.map(Message::system);
    }

    /// Sets the option `name` as the command line's `--name value` would; `reset` undoes all of
    /// these.
    ///
    /// # Errors
    /// An unknown name or a bad value; nothing changes then.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        if name == "reset" && value.is_none() {
            self.sampling.sampling = self.first.clone();
            self.changed.clear();
            return Ok(());
        }
        let argument = match value {
            Some(value) => format!("--{name}={value}"),
            None => format!("--{name}"),
        };
        let mut settings = self.sampling.clone();
        settings.try_update_from([&argument]).map_err(|error| {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            Failure::Usage(line.trim_start_matches("error: ").to_owned())
        })?;
        settings.sampling.options()?;
        self.sampling = settings;
        self.changed.retain(|old| old.split('=').next() != argument.split('=').next());
        self.changed.push(argument);
        Ok(())
    }

    /// Returns the options that [`set`](Self::set) changed, as flags.
    pub fn changed(&self) -> &[String] {
        &self.changed
    }

    /// The conversation as JSON, the system message first.
    pub fn to_json(&self) -> String {
        json::messages_text(self.system.iter().chain(&self.messages))
    }

    /// Goes on with the conversation in `text`, which came from the file `name`; how many
    /// messages it has.
    ///
    /// # Errors
    /// No such conversation; the present one then stays.
    pub fn load(&mut self, text: &str, name: &str) -> Result<usize> {
        let mut messages = json::parse_messages(text, name)?;
        let count = messages.len();
        let plain = |message: &Message| {
            message.role == Role::System
                && message.fields.is_empty()
                && matches!(message.content, Value::String(_))
        };
        self.system = messages.first().is_some_and(plain).then(|| messages.remove(0));
        self.messages = messages;
        self.last = None;
        Ok(count)
    }

    /// Returns the statistics of the last answer, if there is one.
    pub fn statistics(&self) -> Option<String> {
        self.last.as_ref().map(|outcome| streaming::statistics(&outcome.metrics))
    }

    /// Returns a note on options that changed nothing in the last answer, once until they change.
    pub fn greedy_note(&mut self) -> Option<String> {
        let greedy = self.last.as_ref().is_some_and(|outcome| outcome.greedy);
        let note = self.sampling.sampling.greedy_note().filter(|_| greedy);
        let is_new = note != self.noted;
        self.noted.clone_from(&note);
        note.filter(|_| is_new)
    }

    /// How many messages there are, the system message not counted, and how many tokens of
    /// context they took at the last answer.
    pub fn size(&self) -> (usize, usize) {
        let tokens = self
            .last
            .as_ref()
            .map_or(0, |outcome| outcome.metrics.prompt_tokens + outcome.metrics.generated_tokens);
        (self.messages.len(), tokens)
    }

    fn last_question(&self) -> Result<usize> {
        self.messages
            .iter()
            .rposition(|message| message.role == Role::User)
            .ok_or_else(|| Failure::Usage("nothing was asked yet".into()))
    }

    /// Answers the last message; what was said becomes a message, its reasoning and calls in fields
    /// of their own.
    fn answer(
        &mut self,
        cancel: CancelToken,
        mut sink: impl FnMut(&Piece) -> Result<()>,
    ) -> Result<Answer> {
        let mut options = self.sampling.sampling.options()?;
        options.cancel = cancel;
        self.last = None;
        let messages: Vec<Message> = self.system.iter().chain(&self.messages).cloned().collect();
        let mut said = inference_core::Answer::default();
        let answering = self.model.answer(&messages, &self.chat, &options).map_err(Failure::from);
        let outcome = answering.and_then(|mut answering| {
            let outcome = streaming::read_answer(&mut answering, |step| {
                step.pieces.iter().try_for_each(&mut sink)
            });
            said = answering.answer().clone();
            outcome
        });
        let answer = match outcome {
            Ok(outcome) => {
                let cancelled = outcome.finish_reason == FinishReason::Cancelled;
                self.last = Some(outcome);
                if cancelled { Answer::Cancelled } else { Answer::Complete }
            }
            Err(Failure::Model(Error::Cancelled)) => Answer::Cancelled,
            Err(failure) => return Err(failure),
        };
        // Reasoning alone is no answer yet.
        let is_begun = !said.content.is_empty() || !said.tool_calls.is_empty();
        if answer == Answer::Complete || is_begun {
            self.messages.push(said.to_message(json::arguments));
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests;
