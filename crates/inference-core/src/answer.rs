//! Answers in parts: reasoning, content and tool calls, told apart as they come.

use std::collections::VecDeque;

use crate::{Error, Generation, Message, Result, Role, Token, Value};

/// A part of an answer, in the order in which the model wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The reasoning that precedes the answer.
    Reasoning(String),
    /// The answer.
    Content(String),
    /// A call begins.
    ToolCall {
        /// The call's position among the answer's calls, from 0.
        index: usize,
        /// The tool's name.
        name: String,
    },
    /// The arguments of the call `index`: pieces of one JSON object.
    Arguments {
        /// The call's position among the answer's calls, from 0.
        index: usize,
        /// JSON, as the model wrote it where it wrote JSON.
        text: String,
    },
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// The tool's name.
    pub name: String,
    /// The text of a JSON object.
    pub arguments: String,
}

/// An answer: the sum of its pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The text of the reasoning.
    pub reasoning: String,
    /// The text of the answer itself.
    pub content: String,
    /// The tool calls, in order.
    pub tool_calls: Vec<ToolCall>,
}

impl Answer {
    /// Adds the next piece.
    pub fn add(&mut self, piece: &Piece) {
        match piece {
            Piece::Reasoning(text) => self.reasoning.push_str(text),
            Piece::Content(text) => self.content.push_str(text),
            Piece::ToolCall { name, .. } => {
                self.tool_calls.push(ToolCall { name: name.clone(), ..ToolCall::default() });
            }
            Piece::Arguments { index, text } => {
                if let Some(call) = self.tool_calls.get_mut(*index) {
                    call.arguments.push_str(text);
                }
            }
        }
    }

    /// Returns true when there is neither content nor reasoning nor a call.
    pub fn is_empty(&self) -> bool {
        *self == Answer::default()
    }

    /// The answer as a message of the conversation: `content`, `reasoning_content` where there is
    /// some, and `tool_calls` where there are any. `read` makes a value of the text of a call's
    /// arguments, which most templates take as an object.
    pub fn to_message(&self, read: impl Fn(&str) -> Value) -> Message {
        let mut message = Message::new(Role::Assistant, self.content.as_str());
        if !self.reasoning.is_empty() {
            message.fields.push(("reasoning_content".into(), self.reasoning.as_str().into()));
        }
        if self.tool_calls.is_empty() {
            return message;
        }
        if self.content.is_empty() {
            message.content = Value::Null;
        }
        let call = |(index, call): (usize, &ToolCall)| {
            let function = Value::Object(vec![
                ("name".into(), call.name.as_str().into()),
                ("arguments".into(), read(&call.arguments)),
            ]);
            Value::Object(vec![
                ("id".into(), format!("call_{index}").into()),
                ("type".into(), "function".into()),
                ("function".into(), function),
            ])
        };
        let calls = self.tool_calls.iter().enumerate().map(call).collect();
        message.fields.push(("tool_calls".into(), Value::Array(calls)));
        message
    }
}

/// Tells the parts of one answer's text apart.
pub trait AnswerReader: Send {
    /// Takes the next text of the answer and returns the pieces that are now certain.
    fn push(&mut self, text: &str) -> Vec<Piece>;

    /// Ends the answer and returns the pieces held back until now.
    fn finish(&mut self) -> Vec<Piece>;

    /// Returns true when the text must show special tokens, because the marks are such ones.
    fn needs_special_tokens(&self) -> bool {
        false
    }
}

/// For models that only say what they say: all text is content.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainReader;

impl AnswerReader for PlainReader {
    fn push(&mut self, text: &str) -> Vec<Piece> {
        if text.is_empty() { Vec::new() } else { vec![Piece::Content(text.to_owned())] }
    }

    fn finish(&mut self) -> Vec<Piece> {
        Vec::new()
    }
}

/// An answer as it comes: an iterator of pieces. Dropping it cancels the generation.
pub struct Answering {
    generation: Generation,
    reader: Box<dyn AnswerReader>,
    ready: VecDeque<Piece>,
    answer: Answer,
    is_over: bool,
    /// The error that ended the generation, until it is reported.
    failure: Option<Error>,
}

/// A step of an answer: a token, and the pieces that it made certain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnswerStep {
    /// The token; `None` for the last step, behind all tokens.
    pub token: Option<Token>,
    /// The pieces that are certain now; often none, since a mark may be coming.
    pub pieces: Vec<Piece>,
}

impl Answering {
    /// Reads what `generation` writes with `reader`.
    pub fn new(generation: Generation, reader: Box<dyn AnswerReader>) -> Answering {
        let (ready, answer) = (VecDeque::new(), Answer::default());
        Answering { generation, reader, ready, answer, is_over: false, failure: None }
    }

    /// The next token with its pieces, for programs that want both; behind the last token one step
    /// without a token, then the error that ended the generation, if one did, and `None`.
    pub fn step(&mut self) -> Option<Result<AnswerStep>> {
        if self.is_over {
            return self.failure.take().map(Err);
        }
        let token = match self.generation.next() {
            Some(Ok(token)) => Some(token),
            Some(Err(error)) => {
                self.failure = Some(error);
                None
            }
            None => None,
        };
        self.is_over = token.is_none();
        let pieces = match &token {
            Some(token) => self.reader.push(&token.text),
            None => self.reader.finish(),
        };
        pieces.iter().for_each(|piece| self.answer.add(piece));
        Some(Ok(AnswerStep { token, pieces }))
    }

    /// Returns true when the tokens' text shows special tokens for the reader, where the model can.
    pub fn needs_special_tokens(&self) -> bool {
        self.reader.needs_special_tokens()
    }

    /// The sum of the pieces so far.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    /// The generation, for its outcome and its prompt.
    pub fn generation(&mut self) -> &mut Generation {
        &mut self.generation
    }
}

impl Iterator for Answering {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Result<Piece>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(Ok(piece));
            }
            match self.step()? {
                Ok(step) => self.ready.extend(step.pieces),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, AnswerReader, Answering, Piece};
    use crate::{CancelToken, Error, Generation, Token, Value};

    /// Holds everything back.
    #[derive(Default)]
    struct Holding(String);

    impl AnswerReader for Holding {
        fn push(&mut self, text: &str) -> Vec<Piece> {
            self.0.push_str(text);
            Vec::new()
        }

        fn finish(&mut self) -> Vec<Piece> {
            vec![Piece::Content(std::mem::take(&mut self.0))]
        }
    }

    #[test]
    fn what_was_held_back_comes_before_the_error() {
        let (sender, generation) = Generation::channel(vec![1], CancelToken::new());
        sender.send(Token { text: "Hal".into(), ..Token::default() });
        sender.fail(Error::Engine("lost".into()));
        let mut answering = Answering::new(generation, Box::new(Holding::default()));
        assert_eq!(answering.next().unwrap().unwrap(), Piece::Content("Hal".into()));
        assert!(matches!(answering.next(), Some(Err(Error::Engine(_)))));
        assert!(answering.next().is_none());
        assert_eq!(answering.answer().content, "Hal");
    }

    #[test]
    fn an_answer_is_the_sum_of_its_pieces() {
        let mut answer = Answer::default();
        assert!(answer.is_empty());
        for piece in [
            Piece::Reasoning("a ".into()),
            Piece::Reasoning("b".into()),
            Piece::ToolCall { index: 0, name: "time".into() },
            Piece::Arguments { index: 0, text: "{\"zone\":".into() },
            Piece::Arguments { index: 0, text: "1}".into() },
        ] {
            answer.add(&piece);
        }
        assert_eq!(answer.reasoning, "a b");
        assert_eq!(answer.tool_calls[0].arguments, "{\"zone\":1}");
        let message = answer.to_message(|text| Value::from(text));
        assert_eq!(message.content, Value::Null);
        let names: Vec<&str> = message.fields.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["reasoning_content", "tool_calls"]);
        answer.add(&Piece::Content("It is".into()));
        assert_eq!(answer.to_message(|text| Value::from(text)).content.as_str(), Some("It is"));
    }
}
