//! A conversation with a model, and the options that may change while it goes on.

mod answering;
mod settings;
mod turns;

use inference_core::{
    CancelToken, ChatOptions, Feature, Message, Outcome, Piece, PrefillProgress, Role, TextModel,
    ToolCall, Value,
};

pub use self::settings::Settings;
use crate::bytes;
use crate::cut::{self, Place};
use crate::failure::{Failure, Result};
use crate::output::counted;
use crate::pictures::Shown;
use crate::{json, pictures, streaming};

/// A conversation with a model.
pub struct Session<'a> {
    model: &'a dyn TextModel,
    chat: ChatOptions,
    state: Conversation,
    /// Calls of the last answer, which have no results yet.
    calls: Vec<ToolCall>,
    /// Forgets the oldest turns where the context has no room for more.
    rolls: bool,
    /// Shows no sign of life while a prompt is read.
    quiet: bool,
}

/// All of a conversation that another model can go on with.
#[derive(Default)]
pub struct Conversation {
    /// The options of answers.
    pub settings: Settings,
    system: Option<Message>,
    messages: Vec<Message>,
    /// Pictures and sounds that go with what is said next.
    waiting: Vec<Shown>,
    /// The last question, where it has no answer: it is no part of the messages.
    unanswered: Option<Message>,
    last: Option<Last>,
    /// The last note on options that changed nothing.
    noted: Option<String>,
}

impl Conversation {
    /// A conversation in which nothing was said.
    pub fn new(settings: Settings, system: Option<String>) -> Conversation {
        let system = system.map(Message::system);
        Conversation { settings, system, ..Conversation::default() }
    }
}

/// The last answer's end.
struct Last {
    outcome: Outcome,
    /// How far its prompt was computed.
    read: Option<PrefillProgress>,
    max_tokens: Option<usize>,
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
    /// Goes on with a conversation.
    pub fn new(model: &'a dyn TextModel, chat: ChatOptions, state: Conversation) -> Self {
        Session { model, chat, state, calls: Vec::new(), rolls: false, quiet: true }
    }

    /// This conversation, which forgets its oldest turns where the context has no room for more if
    /// it `rolls`, and shows how far a prompt is read unless it is `quiet`.
    pub fn with(self, rolls: bool, quiet: bool) -> Self {
        Session { rolls, quiet, ..self }
    }

    /// The conversation without its model.
    pub fn into_conversation(self) -> Conversation {
        self.state
    }

    /// The options of answers.
    pub fn settings(&mut self) -> &mut Settings {
        &mut self.state.settings
    }

    /// Shows a picture, or plays a sound, with what is said next.
    ///
    /// # Errors
    /// The model does not see or hear.
    pub fn show(&mut self, shown: impl Into<Shown>) -> Result<()> {
        let shown = shown.into();
        self.model.capabilities().require(shown.feature())?;
        self.state.waiting.push(shown);
        Ok(())
    }

    /// The names of the pictures or the sounds that wait, by the feature that takes them.
    pub fn waiting(&self, feature: Feature) -> impl Iterator<Item = &str> {
        let waiting = self.state.waiting.iter().filter(move |shown| shown.feature() == feature);
        waiting.map(Shown::name)
    }

    /// Takes back the pictures or the sounds that wait.
    pub fn take_back(&mut self, feature: Feature) {
        self.state.waiting.retain(|shown| shown.feature() != feature);
    }

    /// Says `text`, shows and plays what waits, and hands the answer to `sink`, piece by piece.
    /// An error, and an answer cancelled before its first word, leave the conversation as it was,
    /// and [`retry`](Self::retry) asks this question again.
    ///
    /// # Errors
    /// The model's and `sink`'s.
    pub fn say(
        &mut self,
        text: &str,
        cancel: CancelToken,
        sink: impl FnMut(&Piece) -> Result<()>,
    ) -> Result<Answer> {
        let question = pictures::message(&self.state.waiting, text);
        self.ask(question, cancel, sink)
    }

    fn ask(
        &mut self,
        question: Message,
        cancel: CancelToken,
        sink: impl FnMut(&Piece) -> Result<()>,
    ) -> Result<Answer> {
        self.state.unanswered = None;
        self.state.messages.push(question);
        let answer = self.answer(cancel, sink);
        let messages = &mut self.state.messages;
        if messages.last().is_some_and(|message| message.role == Role::User) {
            self.state.unanswered = messages.pop();
        } else {
            self.state.waiting.clear();
        }
        answer
    }

    /// Asks the last question again: one without an answer, else that of the last answer, which is
    /// dropped.
    ///
    /// # Errors
    /// Nothing to answer again, and as [`say`](Self::say); the old answer then stays.
    pub fn retry(
        &mut self,
        cancel: CancelToken,
        sink: impl FnMut(&Piece) -> Result<()>,
    ) -> Result<Answer> {
        if let Some(question) = self.state.unanswered.take() {
            return self.ask(question, cancel, sink);
        }
        let question = self.last_question()?;
        let before = self.state.messages.split_off(question + 1);
        let answer = self.answer(cancel, sink);
        // Turns that gave way stood in front.
        if self.state.messages.last().is_some_and(|message| message.role == Role::User) {
            self.state.messages.extend(before);
        }
        answer
    }

    /// Returns true when the model is told of tools.
    pub fn has_tools(&self) -> bool {
        !self.chat.tools.is_empty()
    }

    /// Tells the model of these tools from now on.
    pub fn set_tools(&mut self, tools: Vec<Value>) {
        self.chat.tools = tools;
    }

    /// Returns the calls of the last answer that have no results yet.
    pub fn take_calls(&mut self) -> Vec<ToolCall> {
        std::mem::take(&mut self.calls)
    }

    /// Adds the results of `calls`, in their order.
    pub fn add_results(&mut self, calls: &[ToolCall], results: Vec<String>) {
        for (index, (call, text)) in calls.iter().zip(results).enumerate() {
            let mut message = Message::new(Role::Tool, text.as_str());
            // As the answer counts its calls.
            message.fields.push(("tool_call_id".into(), format!("call_{index}").into()));
            message.fields.push(("name".into(), call.name.as_str().into()));
            self.state.messages.push(message);
        }
    }

    /// Answers again behind the results of calls.
    ///
    /// # Errors
    /// The model's and `sink`'s.
    pub fn go_on(
        &mut self,
        cancel: CancelToken,
        sink: impl FnMut(&Piece) -> Result<()>,
    ) -> Result<Answer> {
        self.answer(cancel, sink)
    }

    /// Returns true when the last question has no answer.
    pub fn is_unanswered(&self) -> bool {
        self.state.unanswered.is_some()
    }

    /// Forgets all but the system message; how many messages that were.
    pub fn clear(&mut self) -> usize {
        self.state.waiting.clear();
        self.state.unanswered = None;
        self.state.last = None;
        std::mem::take(&mut self.state.messages).len()
    }

    /// The system message's text.
    pub fn system(&self) -> Option<&str> {
        self.state.system.as_ref().and_then(|message| message.content.as_str())
    }

    /// Changes the system message.
    pub fn set_system(&mut self, text: Option<String>) {
        self.state.system = text.map(Message::system);
    }

    /// The conversation as JSON, the system message first.
    pub fn to_json(&self) -> String {
        json::messages_text(self.state.system.iter().chain(&self.state.messages))
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
        self.state.system = messages.first().is_some_and(plain).then(|| messages.remove(0));
        self.state.messages = messages;
        self.state.unanswered = None;
        self.state.last = None;
        Ok(count)
    }

    /// Returns the statistics of the last answer, if there is one.
    pub fn statistics(&self) -> Option<String> {
        let last = self.state.last.as_ref()?;
        Some(streaming::statistics(&last.outcome.metrics, last.read))
    }

    /// Returns why the last answer was cut off, where it was.
    pub fn cut_note(&self) -> Option<String> {
        let last = self.state.last.as_ref()?;
        cut::note(&last.outcome, last.max_tokens, self.context(), Place::Chat)
    }

    /// Returns a note on options that changed nothing in the last answer, once until they change.
    pub fn greedy_note(&mut self) -> Option<String> {
        let greedy = self.state.last.as_ref().is_some_and(|last| last.outcome.greedy);
        let note = self.state.settings.sampling.greedy_note().filter(|_| greedy);
        let is_new = note != self.state.noted;
        self.state.noted.clone_from(&note);
        note.filter(|_| is_new)
    }

    /// How many messages there are, the system message not counted, and how many tokens of
    /// context they took at the last answer.
    pub fn size(&self) -> (usize, usize) {
        let metrics = self.state.last.as_ref().map(|last| &last.outcome.metrics);
        let tokens = metrics.map_or(0, |of| of.prompt_tokens + of.generated_tokens);
        (self.state.messages.len(), tokens)
    }

    /// Tokens that the model's context takes; 0 where that is not known.
    pub fn context(&self) -> usize {
        self.model.info().context_length
    }

    /// Lines about the model, the context and the options.
    pub fn facts(&self, name: &str) -> Vec<String> {
        let info = self.model.info();
        let messages = self.state.messages.len();
        let tokens = if messages == 0 { 0 } else { self.tokens().unwrap_or(0) };
        let bits = match info.quant_bits {
            0 => String::new(),
            bits => format!(", {bits} bits"),
        };
        let changed = self.state.settings.changed();
        vec![
            format!("model    {name}"),
            format!(
                "         {}, {} parameters, {} of weights{bits}, {} on {}",
                info.architecture,
                bytes::parameters(info.num_parameters),
                bytes::human(info.weight_bytes),
                info.dtype,
                info.device
            ),
            format!(
                "context  {tokens} of {} tokens in {}",
                self.context(),
                counted(messages, "message")
            ),
            format!("system   {}", self.system().unwrap_or("none")),
            format!(
                "changed  {}",
                if changed.is_empty() { "nothing".into() } else { changed.join(" ") }
            ),
        ]
    }

    fn last_question(&self) -> Result<usize> {
        let mut messages = self.state.messages.iter();
        messages
            .rposition(|message| message.role == Role::User)
            .ok_or_else(|| Failure::Usage("nothing was asked yet".into()))
    }
}

#[cfg(test)]
mod tests;
