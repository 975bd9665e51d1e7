//! Harmony (gpt-oss) and Muse: messages with headers, some of them addressed to a tool.

use std::ops::Range;

use super::call::{Call, Tools};
use super::candidate::Candidate;
use super::elements::Ends;
use super::format::FUNCTION_CALLS;
use super::json_scan::{JsonScan, Step};
use super::marks::{Found, Prefix, after_space, find, is_space, prefix};
use super::output::Output;
use super::piece::Piece;

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
const CONSTRAIN: &str = "<|constrain|>";

/// How messages are written.
#[derive(Debug)]
pub struct Dialect {
    /// Those that end a message, and those that begin the next one where its end is missing.
    pub ends: &'static [&'static str],
    /// Marks that end a header: that of the message's text, and those that no header has.
    header_ends: &'static [&'static str],
    /// Beginnings of an answer's header after `<|start|>assistant`.
    header_begins: &'static [&'static str],
    /// Reads the address in a header.
    address: fn(&str, &Tools) -> Address,
    /// The calls of the tool of this name that a message to it has.
    calls: fn(&str, &str, &Tools) -> Option<Vec<Call>>,
    /// The mark before a channel's name.
    channel: &'static str,
    /// The channels, of which a header that is cut off says nothing.
    channels: &'static [&'static str],
}

/// Headers with channels, and arguments in JSON.
pub const HARMONY: Dialect = Dialect {
    ends: &["<|end|>", "<|call|>", "<|return|>", START, CHANNEL],
    header_ends: &[MESSAGE, "<|end|>", "<|call|>", "<|return|>", START],
    header_begins: &[CHANNEL, MESSAGE, CONSTRAIN, " to="],
    address,
    calls: one_call,
    channel: CHANNEL,
    channels: &["analysis", "commentary", "final"],
};

/// Headers with a recipient alone, and calls as elements.
pub const MUSE: Dialect = Dialect {
    ends: &["<|eom|>", "<|eot|>", START],
    header_ends: &[MESSAGE, "<|eom|>", "<|eot|>", START],
    header_begins: &[MESSAGE, " to=", "to="],
    address: recipient,
    calls: invoked,
    channel: " to=",
    channels: &["self", "user", "commentary"],
};

/// The most bytes of a header.
const LIMIT: usize = 512;

/// Reads one answer.
#[derive(Debug)]
pub struct Harmony {
    dialect: &'static Dialect,
    tools: Tools,
    /// Text that was pushed; all before `cursor` is done with.
    text: String,
    cursor: usize,
    /// How much of the answer lies before `text`.
    base: usize,
    state: State,
    /// Set once a message of reasoning has ended: the next one begins on a line of its own.
    reasoned: bool,
    output: Output,
}

#[derive(Debug)]
enum State {
    /// From the cursor to `<|message|>`. `begun` is what the prompt has of it; `raw` is what
    /// precedes the cursor in the answer itself.
    Header {
        begun: String,
        raw: &'static str,
    },
    Body(Kind),
    /// A call's text from the cursor on, looked at up to `at`; `header` precedes it.
    Call {
        header: String,
        name: String,
        at: usize,
    },
    /// Between two messages.
    Between,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Content,
}

/// The address of a message, by its header.
enum Address {
    Channel(Kind),
    Tool(String),
    /// Neither a channel that is known nor a tool that is.
    Unknown,
}

/// The result of a step of the state machine.
enum Progress {
    Made,
    NeedsText,
}

impl Harmony {
    pub fn new(dialect: &'static Dialect, prompt_text: &str, tools: Tools) -> Harmony {
        let begun = prompt_text.rsplit_once(START).map_or("", |(_, begun)| begun);
        let state = match begun.split_once(MESSAGE) {
            None => State::Header { begun: begun.to_owned(), raw: "" },
            Some((_, body)) if matches!(find(body, dialect.ends), Found::Mark(..)) => {
                State::Between
            }
            Some((header, _)) => match (dialect.address)(header, &tools) {
                Address::Channel(kind) => State::Body(kind),
                _ => State::Body(Kind::Content),
            },
        };
        let (text, output) = (String::new(), Output::default());
        Harmony { dialect, tools, text, cursor: 0, base: 0, state, reasoned: false, output }
    }

    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        self.text.push_str(text);
        while let Progress::Made = self.advance() {}
        self.base += self.cursor;
        self.text.drain(..std::mem::take(&mut self.cursor));
        self.output.take()
    }

    /// Returns the ranges of content found since the last call.
    pub fn take_content(&mut self) -> Vec<Range<usize>> {
        self.output.take_content()
    }

    /// How much of the answer it is certain of what it is.
    pub fn certain(&self) -> usize {
        let held = match &self.state {
            State::Header { raw, .. } => raw.len(),
            State::Call { header, .. } => header.len(),
            State::Body(_) | State::Between => 0,
        };
        self.base + self.cursor - held
    }

    pub fn finish(&mut self) -> Vec<Piece> {
        let rest = std::mem::take(&mut self.text);
        match std::mem::replace(&mut self.state, State::Between) {
            // A channel's header that is cut off says nothing; a call's would be lost. A mark is
            // one token, so a part of one is text.
            State::Header { begun, .. } if self.is_cut_header(&format!("{begun}{rest}")) => {}
            State::Header { raw, .. } => {
                self.content(raw, 0);
                self.content(&rest, rest.len());
            }
            State::Body(kind) => self.emit(kind, &rest),
            State::Call { header, name, .. } => self.call(&header, &name, &rest),
            State::Between => self.content(&rest, rest.len()),
        }
        self.base += rest.len();
        self.output.take()
    }

    fn advance(&mut self) -> Progress {
        match std::mem::replace(&mut self.state, State::Between) {
            State::Header { begun, raw } => self.header(begun, raw),
            State::Body(kind) => self.body(kind),
            State::Call { header, name, at } => {
                let text = &self.text[self.cursor..];
                match find(&text[at..], self.dialect.ends) {
                    Found::Mark(more, mark) => {
                        let arguments = text[..at + more].to_owned();
                        self.call(&header, &name, &arguments);
                        self.end(arguments.len(), mark)
                    }
                    Found::Nothing(more) => self.wait(State::Call { header, name, at: at + more }),
                }
            }
            State::Between => self.between(),
        }
    }

    fn wait(&mut self, state: State) -> Progress {
        self.state = state;
        Progress::NeedsText
    }

    fn go(&mut self, state: State) -> Progress {
        self.state = state;
        Progress::Made
    }

    fn header(&mut self, begun: String, raw: &'static str) -> Progress {
        let rest = &self.text[self.cursor..];
        if rest.is_empty() {
            return self.wait(State::Header { begun, raw });
        }
        // The answer itself begins after the role; one that is no header is content at once.
        if raw.is_empty() && !begun.contains(CHANNEL) {
            let starts = || self.dialect.header_begins.iter().map(|mark| prefix(rest, mark));
            if starts().all(|start| start == Prefix::No) {
                return self.go(State::Body(Kind::Content));
            }
            if !starts().any(|start| start == Prefix::Whole) {
                return self.wait(State::Header { begun, raw });
            }
        }
        let window = &rest[..rest.floor_char_boundary(LIMIT)];
        match find(window, self.dialect.header_ends) {
            Found::Mark(at, MESSAGE) => {
                let header = window[..at].to_owned();
                let shown = format!("{raw}{header}{MESSAGE}");
                self.cursor += at + MESSAGE.len();
                match (self.dialect.address)(&format!("{begun}{header}"), &self.tools) {
                    Address::Tool(name) => self.go(State::Call { header: shown, name, at: 0 }),
                    Address::Channel(kind) => {
                        if kind == Kind::Reasoning && self.reasoned {
                            self.output.reasoning("\n");
                        }
                        self.go(State::Body(kind))
                    }
                    Address::Unknown => {
                        self.content(&shown, 0);
                        self.go(State::Body(Kind::Content))
                    }
                }
            }
            Found::Mark(..) => self.give_up(raw),
            Found::Nothing(_) if rest.len() > LIMIT => self.give_up(raw),
            Found::Nothing(_) => self.wait(State::Header { begun, raw }),
        }
    }

    /// Takes a seeming header as content, up to the mark that no header has.
    fn give_up(&mut self, raw: &'static str) -> Progress {
        self.content(raw, 0);
        // Past a channel mark, which would begin a header again.
        let rest = &self.text[self.cursor..];
        if rest.starts_with(CHANNEL) {
            self.content(CHANNEL, CHANNEL.len());
            self.cursor += CHANNEL.len();
        }
        self.go(State::Body(Kind::Content))
    }

    fn body(&mut self, kind: Kind) -> Progress {
        let rest = &self.text[self.cursor..];
        let (end, mark) = match find(rest, self.dialect.ends) {
            Found::Mark(at, mark) => (at, Some(mark)),
            Found::Nothing(at) => (at, None),
        };
        let text = rest[..end].to_owned();
        self.emit(kind, &text);
        match mark {
            Some(mark) => {
                self.reasoned |= kind == Kind::Reasoning;
                self.end(end, mark)
            }
            None => {
                self.cursor += end;
                self.wait(State::Body(kind))
            }
        }
    }

    /// Ends a message of `len` bytes at a mark, which may belong to the next one.
    fn end(&mut self, len: usize, mark: &str) -> Progress {
        self.cursor += len;
        if mark != START && mark != CHANNEL {
            self.cursor += mark.len();
        }
        self.go(State::Between)
    }

    fn between(&mut self) -> Progress {
        let rest = &self.text[self.cursor..];
        let channel = match self.dialect.ends.contains(&CHANNEL) {
            true => prefix(rest, CHANNEL),
            false => Prefix::No,
        };
        match (prefix(rest, START), channel) {
            (Prefix::Part, _) | (_, Prefix::Part) => self.wait(State::Between),
            (Prefix::Whole, _) => {
                self.cursor += START.len();
                self.go(State::Header { begun: String::new(), raw: START })
            }
            (_, Prefix::Whole) => self.go(State::Header { begun: String::new(), raw: "" }),
            _ => self.go(State::Body(Kind::Content)),
        }
    }

    fn emit(&mut self, kind: Kind, text: &str) {
        match kind {
            Kind::Reasoning => self.output.reasoning(text),
            Kind::Content => self.content(text, text.len()),
        }
    }

    /// Adds content that ends so many bytes behind the cursor.
    fn content(&mut self, text: &str, behind: usize) {
        self.output.content(text, self.base + self.cursor + behind);
    }

    fn call(&mut self, header: &str, name: &str, arguments: &str) {
        match (self.dialect.calls)(name, arguments, &self.tools) {
            Some(calls) => calls.into_iter().for_each(|call| self.output.call(call)),
            None => {
                self.content(header, 0);
                self.content(arguments, arguments.len());
            }
        }
    }

    /// Returns true when `text` is the beginning of a header that only names a channel.
    fn is_cut_header(&self, text: &str) -> bool {
        (text.contains(self.dialect.channel) || "assistant".starts_with(text))
            && self.dialect.channels.iter().any(|channel| {
                let header = format!("assistant{}{channel}", self.dialect.channel);
                header.starts_with(text) || header["assistant".len()..].starts_with(text)
            })
    }
}

/// The recipient and the channel of a header, which may stand in either order. How the message is
/// written says nothing, whatever it is called.
fn address(header: &str, tools: &Tools) -> Address {
    let words = header.replace(CHANNEL, " ").replace(CONSTRAIN, " <|constrain|> ");
    let mut recipient = None;
    let mut kind = Kind::Content;
    let mut constrained = false;
    for word in words.split_whitespace() {
        let is_format = std::mem::replace(&mut constrained, word == CONSTRAIN);
        match word {
            "analysis" => kind = Kind::Reasoning,
            "assistant" | "commentary" | "final" | CONSTRAIN => {}
            _ if recipient.is_none() && word.starts_with("to=") => {
                let name = word.strip_prefix("to=").unwrap_or_default();
                recipient = Some(name.strip_prefix("functions.").unwrap_or(name));
            }
            _ if is_format => {}
            _ if ["json", "code"].iter().any(|format| word.eq_ignore_ascii_case(format)) => {}
            _ => return Address::Unknown,
        }
    }
    match recipient {
        Some(name) if tools.has(name) => Address::Tool(name.to_owned()),
        Some(_) => Address::Unknown,
        None => Address::Channel(kind),
    }
}

/// The recipient of a header, which is all that it has.
fn recipient(header: &str, tools: &Tools) -> Address {
    let mut words = header.split_whitespace().filter(|word| *word != "assistant");
    let to = words.next();
    if words.next().is_some() {
        return Address::Unknown;
    }
    match to.map(|to| to.strip_prefix("to=")) {
        None | Some(Some("user" | "commentary")) => Address::Channel(Kind::Content),
        Some(Some("self")) => Address::Channel(Kind::Reasoning),
        Some(Some(name)) => match tools.resolve(name) {
            Some(name) => Address::Tool(name.to_owned()),
            None => Address::Unknown,
        },
        Some(None) => Address::Unknown,
    }
}

/// The call whose arguments a message to a tool has. One without any may say nothing at all, and
/// one may have brackets too many behind them.
fn one_call(name: &str, text: &str, tools: &Tools) -> Option<Vec<Call>> {
    let text = after_space(text);
    if text.is_empty() {
        return tools.call(name, "{}").map(|call| vec![call]);
    }
    let end = match JsonScan::new(0, None).scan(text) {
        Step::Done(end) => end,
        _ => text.len(),
    };
    let is_stray = text[end..].chars().all(|c| is_space(c) || "}]".contains(c));
    let arguments = if is_stray { &text[..end] } else { text };
    tools.call(name, arguments).map(|call| vec![call])
}

/// The calls of Muse's message to a tool, which are all that it has.
fn invoked(_: &str, text: &str, tools: &Tools) -> Option<Vec<Call>> {
    let block = after_space(text);
    if !block.starts_with(FUNCTION_CALLS.mark) {
        return None;
    }
    let mut candidate = Candidate::new(FUNCTION_CALLS, Ends::Weighed);
    let end = match candidate.scan(block, tools) {
        Step::Done(end) => end,
        _ => match candidate.finish(block, tools) {
            Step::Done(end) => end,
            _ => return None,
        },
    };
    if !after_space(&block[end..]).is_empty() {
        return None;
    }
    candidate.calls()
}
