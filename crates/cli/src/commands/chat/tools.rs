//! Tools of MCP servers, as a chat's model gets them.

use std::collections::BTreeSet;

use inference_core::Value;
use inference_text::json::to_value;
use mcp::{Error, Place, Server, Settings, Wait};
use serde_json::{Map, Value as Json, json};

use crate::args::McpArgs;
use crate::failure::{Failure, Result};
use crate::files;
use crate::output::{Spinner, counted, note, one_line, report};

/// Characters of a tool's name that models' interfaces take.
const LONGEST: usize = 64;

/// Characters of a description in a list.
const SHOWN: usize = 100;

/// The servers of a chat, and their tools.
pub struct Tools {
    servers: Vec<Server>,
    named: Vec<Named>,
    /// Names of tools that may be called without a question.
    allowed: BTreeSet<String>,
    args: McpArgs,
    is_quiet: bool,
}

/// A tool under the name that the model knows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    name: String,
    server: usize,
    tool: usize,
}

/// The failure of a server at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It is told, and the chat goes on.
    Told,
    /// The chat does not begin.
    Fatal,
}

impl Tools {
    /// Starts the servers that `args` name; none: no tools are asked for.
    ///
    /// # Errors
    /// A file that says nothing useful, and servers that do not start where that is fatal.
    pub fn open(args: &McpArgs, missing: Missing, is_quiet: bool) -> Result<Option<Tools>> {
        let Some(path) = &args.mcp else { return Ok(None) };
        let name = path.display().to_string();
        let settings = Settings::parse(&files::read(path)?, &name, |name| std::env::var(name).ok());
        let settings = settings.map_err(|error| Failure::Usage(error.to_string()))?;
        settings.notes.iter().for_each(note);
        let mut tools = Tools {
            servers: Vec::new(),
            named: Vec::new(),
            allowed: BTreeSet::new(),
            args: args.clone(),
            is_quiet,
        };
        let wait = tools.wait(&|| false);
        for launch in settings.servers {
            let text = format!("starting the MCP server {}", launch.name);
            let spinner = (!is_quiet).then(|| Spinner::new(text));
            let started = Server::start(launch, &wait);
            drop(spinner);
            match started.map_err(failure) {
                Ok(server) => tools.servers.push(server),
                Err(failure) if missing == Missing::Told => report(&failure),
                Err(failure) => return Err(failure),
            }
        }
        tools.name();
        if !is_quiet {
            for server in &tools.servers {
                let count = counted(server.tools().len(), "tool");
                note(format_args!("MCP server {}: {count}", one_line(server.name())));
            }
        }
        Ok(Some(tools))
    }

    fn wait<'a>(&self, is_cancelled: &'a dyn Fn() -> bool) -> Wait<'a> {
        Wait { limit: self.args.mcp_timeout, is_cancelled }
    }

    /// Gives each tool a name that no other one has.
    fn name(&mut self) {
        let lists = self.servers.iter().map(|server| {
            let names = server.tools().iter().map(|tool| tool.name.as_str()).collect();
            (server.name(), names)
        });
        self.named = names(&lists.collect::<Vec<_>>());
    }

    /// Definitions of the tools, as chat templates take them.
    pub fn definitions(&self) -> Vec<Value> {
        let definition = |named: &Named| {
            let tool = &self.servers[named.server].tools()[named.tool];
            let description = tool.description.as_deref().unwrap_or_default();
            to_value(json!({"type": "function", "function": {
                "name": named.name, "description": description, "parameters": tool.parameters,
            }}))
        };
        self.named.iter().map(definition).collect()
    }

    /// Lines about the servers and their tools.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (at, server) in self.servers.iter().enumerate() {
            let place = match server.place() {
                Place::Program { command, arguments, .. } => {
                    [std::slice::from_ref(command), arguments.as_slice()].concat().join(" ")
                }
                Place::Address { url, .. } => url.clone(),
            };
            let count = counted(server.tools().len(), "tool");
            lines.push(one_line(&format!("{} ({place}): {count}", server.name())));
            for named in self.named.iter().filter(|named| named.server == at) {
                let tool = &server.tools()[named.tool];
                let about = tool.description.as_deref().unwrap_or_default();
                let about = about.trim().lines().next().unwrap_or_default();
                let about: String = about.chars().take(SHOWN).collect();
                let allowed = if self.may_call(&named.name) { " [allowed]" } else { "" };
                let line = format!("  {}{allowed}  {about}", named.name);
                lines.push(one_line(line.trim_end()));
            }
        }
        if lines.is_empty() {
            lines.push("no MCP server runs".to_owned());
        }
        lines
    }

    /// The server that has the tool `name`.
    pub fn server_of(&self, name: &str) -> Option<&str> {
        Some(self.servers[self.named(name)?.server].name())
    }

    /// Returns true when the tool `name` may be called without a question.
    pub fn may_call(&self, name: &str) -> bool {
        self.args.mcp_yes || self.allowed.contains(name)
    }

    /// Lets the tool `name` be called without a question from now on.
    pub fn allow(&mut self, name: &str) {
        self.allowed.insert(name.to_owned());
    }

    /// Names of all tools, for who asked for one that there is not.
    pub fn known(&self) -> String {
        self.named.iter().map(|named| named.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Asks servers again that said that their tools are others now; true where one did. One that
    /// fails is told.
    pub fn refresh(&mut self) -> bool {
        let wait = self.wait(&|| false);
        let mut has_changed = false;
        for server in &mut self.servers {
            match server.refresh(&wait) {
                Ok(changed) => has_changed |= changed,
                Err(error) => report(&failure(error)),
            }
        }
        if has_changed {
            // A tool that was allowed may be another one of that name now.
            self.allowed.clear();
            self.name();
        }
        has_changed
    }

    /// Calls the tool `name` with `arguments`, until nobody waits any more.
    ///
    /// # Errors
    /// The server's; there is no such tool.
    pub fn call(
        &mut self,
        name: &str,
        arguments: &Map<String, Json>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> std::result::Result<mcp::Outcome, Error> {
        let wait = self.wait(is_cancelled);
        let Some(Named { server, tool, .. }) = self.named(name).cloned() else {
            let reason = format!("it has no tool `{name}`");
            return Err(Error::Nonsense { server: "?".to_owned(), reason });
        };
        let server = &mut self.servers[server];
        let before = server.tools().to_vec();
        let Some(tool) = before.get(tool).map(|tool| tool.name.clone()) else {
            let reason = format!("it has no tool `{name}` any more");
            return Err(Error::Nonsense { server: server.name().to_owned(), reason });
        };
        let text = format!("{}: {name}", server.name());
        let spinner = (!self.is_quiet).then(|| Spinner::new(text));
        let outcome = server.call(&tool, arguments, &wait);
        drop(spinner);
        // One that was started anew may have others.
        if server.tools() != before {
            self.allowed.clear();
            self.name();
        }
        outcome
    }

    fn named(&self, name: &str) -> Option<&Named> {
        self.named.iter().find(|named| named.name == name)
    }
}

/// An error of a server as one of the program.
pub fn failure(error: Error) -> Failure {
    Failure::Other(error.to_string())
}

/// Names for the tools of servers, each with its own name and those of its tools: a tool's own,
/// behind its server's where several have it.
fn names(servers: &[(&str, Vec<&str>)]) -> Vec<Named> {
    let mut named: Vec<Named> = Vec::new();
    let of_all = || servers.iter().flat_map(|(_, tools)| tools);
    for (server, (owner, tools)) in servers.iter().enumerate() {
        for (tool, own) in tools.iter().enumerate() {
            let wanted = match of_all().filter(|other| *other == own).count() {
                1 => plain(own),
                _ => plain(&format!("{owner}__{own}")),
            };
            let is_taken = |name: &str| named.iter().any(|other| other.name == name);
            let mut name = wanted.clone();
            let mut number = 2;
            while is_taken(&name) {
                let end = format!("_{number}");
                name = wanted.chars().take(LONGEST - end.len()).collect::<String>() + &end;
                number += 1;
            }
            named.push(Named { name, server, tool });
        }
    }
    named
}

/// `name` in the characters that interfaces of models take.
fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' };
    name.chars().take(LONGEST).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn tools_keep_their_names_where_no_other_has_them() {
        let long = "l".repeat(80);
        let servers = [
            ("a", vec!["read", "only/here"]),
            ("b b", vec!["read", "only.here", &long]),
            ("c", vec!["read", "read"]),
        ];
        let named = names(&servers);
        let names: Vec<&str> = named.iter().map(|named| named.name.as_str()).collect();
        let expected = [
            "a__read",
            "only_here",
            "b_b__read",
            "only_here_2",
            &long[..64],
            "c__read",
            "c__read_2",
        ];
        assert_eq!(names, expected);
        assert_eq!((named[4].server, named[4].tool), (1, 2));
    }
}
