//! Instructions that are not the first message.

use inference_core::{Message, Role, Value};

use super::content::BETWEEN;

/// `messages` with a mark in place of each instruction that is not the first one, and the marks; `None` where there are none. A mark
/// that is not in what a template makes of them stands for an instruction that it leaves out.
pub fn marked(messages: &[Message]) -> Option<(Vec<Message>, Vec<String>)> {
    let mut marks = Vec::new();
    let mut marked = messages.to_vec();
    for (at, message) in marked.iter_mut().enumerate().skip(1) {
        if message.role == Role::System {
            let mark = format!("instruction{at}of{}", messages.len());
            message.content = Value::from(mark.clone());
            marks.push(mark);
        }
    }
    (!marks.is_empty()).then_some((marked, marks))
}

/// `messages` with their instructions in front, as one.
pub fn instructions_first(messages: Vec<Message>) -> Vec<Message> {
    let (system, rest): (Vec<_>, Vec<_>) =
        messages.into_iter().partition(|message| message.role == Role::System);
    let text: Vec<&str> = system.iter().filter_map(|one| one.content.as_str()).collect();
    let mut ordered = Vec::new();
    if !text.is_empty() {
        ordered.push(Message::new(Role::System, text.join(BETWEEN)));
    }
    ordered.extend(rest);
    ordered
}
