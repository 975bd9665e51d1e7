//! A server of tools.

use serde_json::{Map, Value as Json, json};

use crate::error::Error;
use crate::http::Address;
use crate::link::{Link, Wait, Way};
use crate::process::Start;
use crate::result::Outcome;
use crate::settings::{Launch, Place};

/// The version of the protocol that is asked for, and those before it that are taken.
const VERSION: &str = "2025-11-25";
const OLDER: [&str; 3] = ["2025-06-18", "2025-03-26", "2024-11-05"];

/// Pages of a list of tools, its tools, and the bytes of all of them.
const PAGES: usize = 64;
const TOOLS: usize = 512;
const BYTES: usize = 4 << 20;

/// A tool of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its name at the server.
    pub name: String,
    /// Its use, in the server's words.
    pub description: Option<String>,
    /// The JSON schema of its arguments, an object.
    pub parameters: Json,
}

/// A server of tools. It ends when this is dropped.
pub struct Server {
    launch: Launch,
    link: Option<Link>,
    tools: Vec<Tool>,
}

impl Server {
    /// Starts or reaches the server that `launch` describes, and asks for its tools.
    ///
    /// # Errors
    /// It cannot be started or reached, does not keep to the protocol, or is late.
    pub fn start(launch: Launch, wait: &Wait<'_>) -> Result<Server, Error> {
        let mut server = Server { launch, link: None, tools: Vec::new() };
        server.connect(wait)?;
        Ok(server)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.launch.name
    }

    /// Its place.
    pub fn place(&self) -> &Place {
        &self.launch.place
    }

    /// Its tools.
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// Asks for its tools again where it said that they are others now; true where it did.
    ///
    /// # Errors
    /// As [`start`](Self::start); the tools then stay.
    pub fn refresh(&mut self, wait: &Wait<'_>) -> Result<bool, Error> {
        let Some(link) = &mut self.link else { return Ok(false) };
        if !link.take_changes() {
            return Ok(false);
        }
        self.tools = tools(link, &self.launch.name, wait)?;
        Ok(true)
    }

    /// Calls `tool` with `arguments`. A server that has ended is started again before.
    ///
    /// # Errors
    /// The server refuses, fails or is late; nobody waits any more.
    pub fn call(
        &mut self,
        tool: &str,
        arguments: &Map<String, Json>,
        wait: &Wait<'_>,
    ) -> Result<Outcome, Error> {
        if self.link.is_none() {
            self.connect(wait)?;
        }
        let Some(link) = &mut self.link else {
            let said = String::new();
            return Err(Error::Ended { server: self.launch.name.clone(), said });
        };
        let params = json!({"name": tool, "arguments": arguments});
        let server = self.launch.name.clone();
        let outcome = link.request("tools/call", &params, wait).and_then(|result| {
            Outcome::of(&result).map_err(|reason| Error::Nonsense { server, reason })
        });
        if outcome.as_ref().is_err_and(Error::ends_connection) {
            self.link = None;
        }
        outcome
    }

    fn connect(&mut self, wait: &Wait<'_>) -> Result<(), Error> {
        let server = &self.launch.name;
        let (way, events) = match &self.launch.place {
            Place::Program { command, arguments, variables, folder } => {
                let folder = folder.as_deref();
                let (program, events) =
                    Start { server, command, arguments, variables, folder }.run()?;
                (Way::Program(program), events)
            }
            Place::Address { url, headers } => {
                let (address, events) = Address::new(url, headers);
                (Way::Address(address), events)
            }
        };
        let mut link = Link::new(server, way, events);
        let client = json!({"name": "ml", "version": env!("CARGO_PKG_VERSION")});
        let hello = json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": client});
        let told = link.request("initialize", &hello, wait)?;
        let version = told.get("protocolVersion").and_then(Json::as_str).unwrap_or_default();
        if version != VERSION && !OLDER.contains(&version) {
            let version: String = version.chars().take(40).collect();
            let reason = format!("it speaks the version `{version}`, and {VERSION} is wanted");
            return Err(Error::Nonsense { server: server.clone(), reason });
        }
        link.speaks(version);
        link.tell("notifications/initialized", wait)?;
        let has_tools = told.get("capabilities").and_then(|can| can.get("tools")).is_some();
        self.tools = if has_tools { tools(&mut link, server, wait)? } else { Vec::new() };
        self.link = Some(link);
        Ok(())
    }
}

/// All tools of a server.
fn tools(link: &mut Link, server: &str, wait: &Wait<'_>) -> Result<Vec<Tool>, Error> {
    let nonsense = |reason: String| Error::Nonsense { server: server.to_owned(), reason };
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut params = json!({});
    for _ in 0..PAGES {
        let page = link.request("tools/list", &params, wait)?;
        let Some(Json::Array(listed)) = page.get("tools") else {
            return Err(nonsense("its list of tools is none".to_owned()));
        };
        for tool in listed {
            bytes += tool.to_string().len();
            found.push(read(tool).map_err(nonsense)?);
        }
        if found.len() > TOOLS || bytes > BYTES {
            let reason =
                format!("its tools are more than {TOOLS}, or take more than {BYTES} bytes");
            return Err(nonsense(reason));
        }
        match page.get("nextCursor") {
            Some(Json::String(cursor)) => params = json!({"cursor": cursor}),
            _ => return Ok(found),
        }
    }
    Err(nonsense(format!("its list of tools has more than {PAGES} pages")))
}

fn read(tool: &Json) -> Result<Tool, String> {
    let name = tool.get("name").and_then(Json::as_str).unwrap_or_default();
    if name.is_empty() || name.len() > 256 || name.chars().any(char::is_control) {
        return Err("a tool of it has no name that can be used".to_owned());
    }
    let parameters = match tool.get("inputSchema") {
        Some(schema @ Json::Object(_)) => schema.clone(),
        _ => return Err(format!("its tool `{name}` has no schema of its arguments")),
    };
    let description = tool.get("description").and_then(Json::as_str).map(str::to_owned);
    Ok(Tool { name: name.to_owned(), description, parameters })
}
