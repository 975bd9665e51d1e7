//! Conversations put together turn by turn: texts, thoughts, calls and their results.

use std::collections::BTreeMap;

use inference_core::{EncodedPicture, Message, Role, Value};

use super::content::{BETWEEN, Content};
use super::conversation::Conversation;
use super::instructions::instructions_first;
use crate::error::{Kind, Result};
use crate::pool::lease::Lease;
use crate::pool::loaded::Loaded;
use crate::run::state::State;

/// The turns so far.
#[derive(Debug, Default)]
pub struct Turns {
    list: Vec<Turn>,
    called: Called,
}

/// The calls so far, by their ids.
#[derive(Debug, Default)]
pub struct Called(BTreeMap<String, Vec<Call>>);

#[derive(Debug)]
struct Call {
    name: String,
    is_answered: bool,
}

/// Why no call takes a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCall {
    /// None has the id.
    Unknown,
    /// Each that has the id has a result already.
    Answered,
}

impl NoCall {
    /// The reason, in a protocol that calls its calls so.
    pub fn reason(self, call: &str, id: &str) -> String {
        match self {
            NoCall::Unknown => format!("no {call} before it has the id `{id}`"),
            NoCall::Answered => format!("the {call} with the id `{id}` has its result already"),
        }
    }
}

impl Called {
    /// The tool `name` is called.
    pub fn add(&mut self, id: &str, name: &str) {
        let call = Call { name: name.to_owned(), is_answered: false };
        self.0.entry(id.to_owned()).or_default().push(call);
    }

    /// Takes note of the result of the call `id`: of the last one of several. Tells the tool's
    /// name.
    ///
    /// # Errors
    /// There is no such call that has no result.
    pub fn answer(&mut self, id: &str) -> std::result::Result<String, NoCall> {
        let calls = self.0.get_mut(id).ok_or(NoCall::Unknown)?;
        let open = calls.iter_mut().rev().find(|call| !call.is_answered);
        let call = open.ok_or(NoCall::Answered)?;
        call.is_answered = true;
        Ok(call.name.clone())
    }
}

/// A turn of the conversation, which becomes one message.
#[derive(Debug)]
pub struct Turn {
    role: Role,
    /// Its texts, pictures and sounds.
    content: Content,
    /// Its thoughts.
    pub reasoning: String,
    calls: Vec<Value>,
    /// Of a tool's result: whose it is.
    result_of: Vec<(String, Value)>,
}

impl Turns {
    /// The turn of `role`: the last one where it has the role, else a new one.
    pub fn of(&mut self, role: Role) -> &mut Turn {
        if self.list.last().is_none_or(|last| last.role != role || role == Role::Tool) {
            return self.begin(role);
        }
        let last = self.list.len() - 1;
        &mut self.list[last]
    }

    /// A new turn of `role`.
    pub fn begin(&mut self, role: Role) -> &mut Turn {
        let (content, reasoning) = (Content::new(BETWEEN), String::new());
        let turn = Turn { role, content, reasoning, calls: Vec::new(), result_of: Vec::new() };
        self.list.push(turn);
        let last = self.list.len() - 1;
        &mut self.list[last]
    }

    /// The assistant calls the tool `name` with `arguments`.
    pub fn call(&mut self, id: String, name: String, arguments: Value) {
        self.called.add(&id, &name);
        let function =
            vec![("name".to_owned(), Value::from(name)), ("arguments".to_owned(), arguments)];
        let call = Value::Object(vec![
            ("id".to_owned(), Value::from(id)),
            ("type".to_owned(), Value::from("function")),
            ("function".to_owned(), Value::Object(function)),
        ]);
        self.of(Role::Assistant).calls.push(call);
    }

    /// The tool that the call `id` was of, which has a result now.
    ///
    /// # Errors
    /// There is no such call that has no result.
    pub fn answered(&mut self, id: &str) -> std::result::Result<String, NoCall> {
        self.called.answer(id)
    }

    /// The call `id` of the tool `name` has brought `content`.
    pub fn result(&mut self, id: String, name: String, content: Content) {
        let turn = self.begin(Role::Tool);
        turn.content = content;
        turn.result_of =
            vec![("tool_call_id".into(), Value::from(id)), ("name".into(), Value::from(name))];
    }

    /// The turns as messages.
    pub fn into_messages(self) -> Vec<Message> {
        self.list.into_iter().map(Turn::message).collect()
    }
}

impl Turn {
    /// Says `text` beside what was said.
    pub fn say(&mut self, text: &str) {
        self.content.text(text);
    }

    /// Shows `picture` after what was said.
    pub fn show(&mut self, picture: EncodedPicture) {
        self.content.picture(picture);
    }

    /// Says and shows `content` after what was said.
    pub fn add(&mut self, content: Content) {
        self.content.append(content);
    }

    /// Thinks `text` beside what was thought.
    pub fn think(&mut self, text: &str) {
        join(&mut self.reasoning, text);
    }

    fn message(self) -> Message {
        let mut fields = self.result_of;
        if !self.reasoning.is_empty() {
            fields.push(("reasoning_content".to_owned(), Value::from(self.reasoning)));
        }
        // Who only thought has an empty text: templates add to it.
        let silent = self.content.is_empty() && !self.calls.is_empty();
        let is_result = self.role == Role::Tool;
        if !self.calls.is_empty() {
            fields.push(("tool_calls".to_owned(), Value::Array(self.calls)));
        }
        let content = if silent && !is_result { Value::Null } else { self.content.into_value() };
        Message { role: self.role, content, fields }
    }
}

/// Adds `text` to `whole`, with a blank line between.
pub fn join(whole: &mut String, text: &str) {
    if !whole.is_empty() && !text.is_empty() {
        whole.push_str(BETWEEN);
    }
    whole.push_str(text);
}

/// Renders `conversation` by `render`. Where the template refuses it, all instructions are moved to
/// the beginning, and the user's turns that follow each other become one, if that changes anything.
///
/// # Errors
/// Those of `render`.
pub fn with_turns_as_taken<T>(
    mut conversation: Conversation,
    render: impl Fn(&Conversation) -> Result<T>,
) -> Result<T> {
    match render(&conversation) {
        // What is wrong with a picture is no matter of turns.
        Err(error)
            if error.kind == Kind::Prompt
                && error.param.is_none()
                && is_free(&conversation.messages) =>
        {
            conversation.messages = in_order(conversation.messages);
            render(&conversation)
        }
        rendered => rendered,
    }
}

/// How many tokens a conversation has, whose request is of so many bytes.
///
/// # Errors
/// Those of the model's chat template.
pub async fn conversation_tokens(
    state: &State,
    loaded: Lease<Loaded>,
    conversation: Conversation,
    bytes: usize,
) -> Result<usize> {
    let work = move || {
        with_turns_as_taken(conversation, |conversation| {
            Ok(conversation.rendered(loaded.model.as_ref())?.ids.len())
        })
    };
    state.text_work(bytes, work).await
}

/// Returns true for instructions after the first message, or two turns of the user in a row.
fn is_free(messages: &[Message]) -> bool {
    let later = messages.iter().skip(1).any(|message| message.role == Role::System);
    let user = |message: &Message| message.role == Role::User;
    later || messages.windows(2).any(|pair| pair.iter().all(user))
}

/// `messages` with their instructions in front, and without two turns of the user in a row.
fn in_order(messages: Vec<Message>) -> Vec<Message> {
    let mut ordered: Vec<Message> = Vec::new();
    let mut messages = instructions_first(messages).into_iter().peekable();
    while let Some(mut message) = messages.next() {
        let follows = |next: &Message| next.role == Role::User && message.role == Role::User;
        if messages.peek().is_some_and(follows) {
            let mut whole = Content::of_value(BETWEEN, &message.content);
            while let Some(next) = messages.next_if(|next| next.role == Role::User) {
                whole.append(Content::of_value(BETWEEN, &next.content));
            }
            message.content = whole.into_value();
        }
        ordered.push(message);
    }
    ordered
}
