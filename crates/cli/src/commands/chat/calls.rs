//! Calls of tools that a model makes in a chat: shown, asked for, and answered.

use std::io::{self, BufRead, IsTerminal, Write};

use inference_core::{CancelToken, ToolCall};
use mcp::Error;
use serde_json::{Map, Value as Json};

use super::reader::Typed;
use super::repl::Repl;
use super::tools::failure;
use crate::failure::{Failure, Result};
use crate::interrupt::Then;
use crate::output::{dim_note, note, one_line, printable, report};

/// Characters of a call's arguments and of its result that are shown.
const SHOWN: usize = 2000;
const RESULT: usize = 160;

/// The end of one call.
enum Done {
    /// It has this result, for the model.
    Result(String),
    /// The person stopped at it.
    Stopped(&'static str),
}

/// The person's answer to the question whether a tool may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Yes,
    Always,
    No,
    Stop,
}

impl Repl<'_> {
    /// Answers `calls`, so that the conversation can go on; false where the person stopped it.
    ///
    /// # Errors
    /// Nobody can be asked; the program is to end.
    pub fn answer_calls(&mut self, calls: &[ToolCall]) -> Result<bool> {
        let mut results = Vec::new();
        let mut stopped = None;
        for call in calls {
            let done = match stopped {
                Some(reason) => Done::Stopped(reason),
                None => self.result_of(call)?,
            };
            match done {
                Done::Result(text) => results.push(text),
                Done::Stopped(reason) => {
                    stopped = Some(reason);
                    results.push(reason.to_owned());
                }
            }
        }
        self.session.add_results(calls, results);
        match stopped {
            None => Ok(true),
            Some(_) if self.interrupt.leaving() || !self.reader.is_terminal() => {
                Err(Failure::Interrupted)
            }
            Some(_) => {
                dim_note("stopped");
                Ok(false)
            }
        }
    }

    fn result_of(&mut self, call: &ToolCall) -> Result<Done> {
        let ToolCall { name, arguments } = call;
        let Some(tools) = &mut self.tools else { return Ok(Done::Result(String::new())) };
        let Some(server) = tools.server_of(name).map(one_line) else {
            note(format_args!("there is no tool `{name}`, which the model is told"));
            let known = tools.known();
            return Ok(Done::Result(format!("Error: there is no tool `{name}`, but: {known}")));
        };
        let Some(arguments) = object(arguments) else {
            note(format_args!(
                "the arguments of `{name}` are no JSON object, which the model is told"
            ));
            return Ok(Done::Result("Error: the arguments are no JSON object".to_owned()));
        };
        if !tools.may_call(name) {
            match self.asked(name, &server, &arguments)? {
                Asked::Yes => {}
                Asked::Always => {
                    if let Some(tools) = &mut self.tools {
                        tools.allow(name);
                    }
                }
                Asked::No => {
                    return Ok(Done::Result("Error: the user did not allow this call".to_owned()));
                }
                Asked::Stop => {
                    return Ok(Done::Stopped("Error: the user stopped before this call"));
                }
            }
        }
        self.run_tool(name, &arguments)
    }

    fn run_tool(&mut self, name: &str, arguments: &Map<String, Json>) -> Result<Done> {
        let Some(tools) = &mut self.tools else { return Ok(Done::Result(String::new())) };
        let cancel = CancelToken::new();
        let then = if self.reader.is_terminal() { Then::Stay } else { Then::Leave };
        let watch = self.interrupt.watch(&cancel, then);
        let outcome = tools.call(name, arguments, &|| cancel.is_cancelled());
        drop(watch);
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(Error::Cancelled(_)) => {
                return Ok(Done::Stopped("Error: the user cancelled this call"));
            }
            Err(error) => {
                // The model may know another way.
                let text = format!("Error: {error}");
                report(&failure(error));
                return Ok(Done::Result(text));
            }
        };
        if !self.args.quiet {
            let text = one_line(outcome.text.trim());
            let shown: String = text.chars().take(RESULT).collect();
            let rest = match text.chars().count().saturating_sub(RESULT) {
                0 => String::new(),
                more => format!(" … {more} more characters"),
            };
            let cut = match outcome.cut {
                0 => String::new(),
                bytes => format!("; {bytes} bytes of it were cut off"),
            };
            let failed = if outcome.is_error { "failed: " } else { "" };
            dim_note(format_args!("{name}: {failed}{shown}{rest}{cut}"));
        }
        let failed = if outcome.is_error { "Error: " } else { "" };
        Ok(Done::Result(format!("{failed}{}", outcome.text)))
    }

    /// Asks the person whether the tool `name` of `server` may be called.
    fn asked(&mut self, name: &str, server: &str, arguments: &Map<String, Json>) -> Result<Asked> {
        let text = visible(&Json::Object(arguments.clone()).to_string());
        let shown: String = text.chars().take(SHOWN).collect();
        let rest = match text.chars().count().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" … {more} more characters"),
        };
        let has_terminal = self.reader.is_terminal();
        let can_ask = has_terminal || io::stdin().is_terminal() && io::stderr().is_terminal();
        if !can_ask {
            return Err(Failure::Usage(format!(
                "the model wants to call {name} of the MCP server {server}, and nobody can be asked here: --mcp-yes \
                 lets it"
            )));
        }
        note(format_args!("{server} wants to run {name} {shown}{rest}"));
        loop {
            let question = format!("call {name}? [y]es, [n]o, [a]lways: ");
            let answer = match has_terminal {
                true => match self.reader.read(&question)? {
                    Typed::Line(line) => line,
                    Typed::Interrupt | Typed::End => return Ok(Asked::Stop),
                },
                false => match line_of_stdin(&question)? {
                    Some(line) => line,
                    None => return Ok(Asked::Stop),
                },
            };
            if let Some(asked) = meant(&answer) {
                return Ok(asked);
            }
        }
    }
}

/// The arguments of a call, of which a model may write none.
fn object(arguments: &str) -> Option<Map<String, Json>> {
    match serde_json::from_str(arguments) {
        Ok(Json::Object(arguments)) => Some(arguments),
        _ => arguments.trim().is_empty().then(Map::new),
    }
}

/// The meaning of what a person typed; none where it means nothing.
fn meant(answer: &str) -> Option<Asked> {
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Some(Asked::Yes),
        "n" | "no" => Some(Asked::No),
        "a" | "always" => Some(Asked::Always),
        _ => None,
    }
}

/// `text` with the characters spelled out that show nothing, or turn others around.
fn visible(text: &str) -> String {
    let is_hidden = |c: char| {
        matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
    };
    let spelled = |c: char| match is_hidden(c) {
        true => c.escape_unicode().to_string(),
        false => c.to_string(),
    };
    text.chars().map(spelled).collect()
}

/// A line that a person types where there is no line editor; none at the end.
fn line_of_stdin(question: &str) -> Result<Option<String>> {
    let cannot = |error: io::Error| Failure::Other(format!("terminal: {error}"));
    let mut terminal = io::stderr().lock();
    write!(terminal, "{}", printable(question)).and_then(|()| terminal.flush()).map_err(cannot)?;
    let mut answer = String::new();
    let count = io::stdin().lock().read_line(&mut answer).map_err(cannot)?;
    Ok((count > 0).then_some(answer))
}

#[cfg(test)]
mod tests;
