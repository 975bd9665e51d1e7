//! Instructions that are not the first message.

use std::collections::BTreeSet;

use inference_core::{Message, Role, Value};

use super::content::BETWEEN;

/// The beginning of all marks.
const MARK: &str = "instruction";

/// Marks in place of instructions.
pub struct Marks {
    /// The places of the messages that have one.
    places: BTreeSet<usize>,
    /// Their common end.
    end: String,
}

impl Marks {
    /// Tells whether all of them are in what a template made of the messages. One that is not
    /// stands for an instruction that it leaves out.
    pub fn are_in(&self, text: &str) -> bool {
        let place = |(at, _): (usize, &str)| {
            let rest = &text[at + MARK.len()..];
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let is_whole = rest[digits..].starts_with(self.end.as_str());
            is_whole.then(|| rest[..digits].parse::<usize>().ok()).flatten()
        };
        let found: BTreeSet<usize> = text.match_indices(MARK).filter_map(place).collect();
        self.places.is_subset(&found)
    }
}

/// `messages` with a mark in place of each instruction that is not the first one; `None` where
/// there are none.
pub fn marked(messages: &[Message]) -> Option<(Vec<Message>, Marks)> {
    let mut marks = Marks { places: BTreeSet::new(), end: format!("of{}.", messages.len()) };
    let mut marked = messages.to_vec();
    for (at, message) in marked.iter_mut().enumerate().skip(1) {
        if message.role == Role::System {
            message.content = Value::from(format!("{MARK}{at}{}", marks.end));
            marks.places.insert(at);
        }
    }
    (!marks.places.is_empty()).then_some((marked, marks))
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

#[cfg(test)]
mod tests {
    use inference_core::{Message, Role};

    use super::marked;

    #[test]
    fn each_mark_is_looked_for_however_many_there_are() {
        let messages: Vec<_> = (0..12).map(|_| Message::new(Role::System, "a")).collect();
        let (marked, marks) = marked(&messages).unwrap();
        let text = |left_out: usize| {
            let kept = marked.iter().enumerate().filter(|(at, _)| *at != left_out);
            kept.map(|(_, one)| one.content.as_str().unwrap()).collect::<String>()
        };
        assert!(marks.are_in(&text(0)));
        assert!(!marks.are_in(&text(1)) && !marks.are_in(&text(11)));
    }
}
