//! Files that name servers, in the form that other programs use too.

use serde_json::{Map, Value as Json};

use crate::error::Error;

/// The most servers of a file.
const MOST: usize = 64;

/// The servers of a file.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The servers, in the file's order; those that it disables are left out.
    pub servers: Vec<Launch>,
    /// Sentences about what the file says and nobody here knows.
    pub notes: Vec<String>,
}

/// A server and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Its name.
    pub name: String,
    /// Its place.
    pub place: Place,
}

/// The place of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A program that is started, and talks over its stdin and stdout.
    Program {
        /// The program.
        command: String,
        /// Its arguments.
        arguments: Vec<String>,
        /// Its variables, beside those that every program needs.
        variables: Vec<(String, String)>,
        /// The folder that it runs in, where that is another one.
        folder: Option<String>,
    },
    /// An address of HTTP.
    Address {
        /// The address.
        url: String,
        /// Headers of each request.
        headers: Vec<(String, String)>,
    },
}

impl Settings {
    /// The servers that `text` names; `file` is where it came from. `${NAME}` in a text stands for
    /// what `variable` gives, and `${NAME:-DEFAULT}` for the default where that gives nothing.
    ///
    /// # Errors
    /// The mistake, with the names of the file and of the server.
    pub fn parse(
        text: &str,
        file: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Settings, Error> {
        let wrong = |reason: String| Error::File { file: file.to_owned(), reason };
        let json: Json =
            serde_json::from_str(text).map_err(|error| wrong(format!("not JSON: {error}")))?;
        let named = json.get("mcpServers").or_else(|| json.get("servers"));
        let Some(Json::Object(servers)) = named else {
            let expected = r#"expected {"mcpServers": {"NAME": {"command": …} or {"url": …}}}"#;
            return Err(wrong(expected.to_owned()));
        };
        if servers.len() > MOST {
            return Err(wrong(format!("has {} servers, at most {MOST}", servers.len())));
        }
        let mut settings = Settings::default();
        for (name, server) in servers {
            let wrong = |reason: String| wrong(format!("server `{name}`: {reason}"));
            if name.is_empty() || name.chars().any(char::is_control) {
                return Err(wrong("its name is empty or has control characters".to_owned()));
            }
            let Json::Object(fields) = server else {
                return Err(wrong("expected an object".to_owned()));
            };
            let reader = Reader { fields, variable: &variable };
            if reader.is_off().map_err(wrong)? {
                continue;
            }
            let place = reader.place().map_err(wrong)?;
            settings.servers.push(Launch { name: name.clone(), place });
            settings.notes.extend(reader.unknown().map(|field| {
                format!("{file}: server `{name}`: `{field}` is not known here and changes nothing")
            }));
        }
        if settings.servers.is_empty() {
            return Err(wrong("names no server".to_owned()));
        }
        Ok(settings)
    }
}

/// Fields of a server that are read here.
const KNOWN: [&str; 9] =
    ["command", "args", "env", "cwd", "url", "headers", "type", "transport", "disabled"];

struct Reader<'a> {
    fields: &'a Map<String, Json>,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Reader<'_> {
    fn is_off(&self) -> Result<bool, String> {
        match self.fields.get("disabled") {
            None => Ok(false),
            Some(Json::Bool(off)) => Ok(*off),
            Some(_) => Err("`disabled` is neither true nor false".to_owned()),
        }
    }

    fn unknown(&self) -> impl Iterator<Item = &String> {
        self.fields.keys().filter(|name| !KNOWN.contains(&name.as_str()))
    }

    fn place(&self) -> Result<Place, String> {
        let kind = self.text("type")?.or(self.text("transport")?);
        let (command, url) = (self.text("command")?, self.text("url")?);
        match kind.as_deref() {
            None | Some("stdio" | "http" | "streamable-http" | "streamableHttp") => {}
            Some("sse") => {
                let reason = "`type` `sse` is the protocol's old form and not supported: name its \
                              address of streamable HTTP, with `type` `http`";
                return Err(reason.to_owned());
            }
            Some(other) => return Err(format!("`type` `{other}` is neither `stdio` nor `http`")),
        }
        let is_http = kind.as_deref().is_some_and(|kind| kind != "stdio");
        match (command, url) {
            (Some(_), Some(_)) => Err("has `command` and `url`: give one of them".to_owned()),
            (None, None) => Err("has neither `command` nor `url`".to_owned()),
            (Some(_), None) if is_http => Err("`type` wants a `url`".to_owned()),
            (None, Some(_)) if kind.as_deref() == Some("stdio") => {
                Err("`type` `stdio` wants a `command`".to_owned())
            }
            (Some(command), None) => {
                self.without(&["headers"], "command")?;
                if command.trim().is_empty() {
                    return Err("`command` is empty".to_owned());
                }
                Ok(Place::Program {
                    command,
                    arguments: self.texts("args")?,
                    variables: self.pairs("env")?,
                    folder: self.text("cwd")?,
                })
            }
            (None, Some(url)) => {
                self.without(&["args", "env", "cwd"], "url")?;
                if !url.starts_with("http://") && !url.starts_with("https://") {
                    return Err(format!("`url` `{url}` begins neither with http:// nor https://"));
                }
                Ok(Place::Address { url, headers: self.pairs("headers")? })
            }
        }
    }

    fn without(&self, fields: &[&str], beside: &str) -> Result<(), String> {
        match fields.iter().find(|field| self.fields.contains_key(**field)) {
            Some(field) => Err(format!("`{field}` says nothing beside `{beside}`")),
            None => Ok(()),
        }
    }

    fn text(&self, name: &str) -> Result<Option<String>, String> {
        match self.fields.get(name) {
            None | Some(Json::Null) => Ok(None),
            Some(Json::String(text)) => self.expanded(text, name).map(Some),
            Some(_) => Err(format!("`{name}` is no text")),
        }
    }

    fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        let wrong = || format!("`{name}` is no array of texts");
        match self.fields.get(name) {
            None | Some(Json::Null) => Ok(Vec::new()),
            Some(Json::Array(items)) => items
                .iter()
                .map(|item| self.expanded(item.as_str().ok_or_else(wrong)?, name))
                .collect(),
            Some(_) => Err(wrong()),
        }
    }

    fn pairs(&self, name: &str) -> Result<Vec<(String, String)>, String> {
        let wrong = || format!("`{name}` is no object of texts");
        match self.fields.get(name) {
            None | Some(Json::Null) => Ok(Vec::new()),
            Some(Json::Object(fields)) => fields
                .iter()
                .map(|(key, value)| {
                    let value = self.expanded(value.as_str().ok_or_else(wrong)?, name)?;
                    Ok((key.clone(), value))
                })
                .collect(),
            Some(_) => Err(wrong()),
        }
    }

    /// `text` with the variables that it names.
    fn expanded(&self, text: &str, field: &str) -> Result<String, String> {
        let mut whole = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${") {
            let (named, behind) = behind
                .split_once('}')
                .ok_or_else(|| format!("`{field}`: `${{` has no `}}` behind it"))?;
            let (name, default) = match named.split_once(":-") {
                Some((name, default)) => (name, Some(default.to_owned())),
                None => (named, None),
            };
            let value = (self.variable)(name).or(default).ok_or_else(|| {
                format!("`{field}`: the variable {name} is not set: set it, or write ${{{name}:-DEFAULT}}")
            })?;
            whole.push_str(before);
            whole.push_str(&value);
            rest = behind;
        }
        Ok(whole + rest)
    }
}

#[cfg(test)]
mod tests {
    use super::{Launch, Place, Settings};

    fn parse(text: &str) -> Result<Settings, String> {
        let variable = |name: &str| (name == "TOKEN").then(|| "secret".to_owned());
        Settings::parse(text, "mcp.json", variable).map_err(|error| error.to_string())
    }

    #[test]
    fn programs_and_addresses_are_read_in_order() {
        let text = r#"{"mcpServers": {
            "b": {"command": "npx", "args": ["-y", "x"], "env": {"KEY": "${TOKEN}"}, "autoApprove": ["y"]},
            "off": {"command": "no", "disabled": true},
            "a": {"type": "http", "url": "https://h/${PATH_OF:-mcp}", "headers": {"Authorization": "Bearer ${TOKEN}"}}
        }, "other": 1}"#;
        let settings = parse(text).unwrap();
        let program = Place::Program {
            command: "npx".into(),
            arguments: vec!["-y".into(), "x".into()],
            variables: vec![("KEY".into(), "secret".into())],
            folder: None,
        };
        let address = Place::Address {
            url: "https://h/mcp".into(),
            headers: vec![("Authorization".into(), "Bearer secret".into())],
        };
        let expected = [
            Launch { name: "b".into(), place: program },
            Launch { name: "a".into(), place: address },
        ];
        assert_eq!(settings.servers, expected);
        assert_eq!(settings.notes.len(), 1);
        assert!(settings.notes[0].contains("`autoApprove`"));
    }

    #[test]
    fn mistakes_are_told_by_the_servers_name() {
        for (server, told) in [
            (r#"{}"#, "has neither `command` nor `url`"),
            (r#"{"command": "a", "url": "http://b"}"#, "has `command` and `url`"),
            (r#"{"command": ["a"]}"#, "`command` is no text"),
            (r#"{"command": ""}"#, "`command` is empty"),
            (r#"{"command": "a", "args": "b"}"#, "`args` is no array of texts"),
            (r#"{"command": "a", "env": {"B": 1}}"#, "`env` is no object of texts"),
            (r#"{"command": "a", "headers": {}}"#, "`headers` says nothing beside `command`"),
            (r#"{"url": "http://b", "args": []}"#, "`args` says nothing beside `url`"),
            (r#"{"url": "b"}"#, "begins neither with http://"),
            (r#"{"url": "http://b", "type": "sse"}"#, "streamable HTTP"),
            (r#"{"url": "http://b", "type": "stdio"}"#, "wants a `command`"),
            (r#"{"command": "b", "type": "ws"}"#, "neither `stdio` nor `http`"),
            (r#"{"command": "${NONE}"}"#, "the variable NONE is not set"),
            (r#"{"command": "${TOKEN"}"#, "has no `}`"),
            (r#"{"command": "a", "disabled": 1}"#, "neither true nor false"),
            ("1", "expected an object"),
        ] {
            let error = parse(&format!(r#"{{"mcpServers": {{"x": {server}}}}}"#)).unwrap_err();
            assert!(error.starts_with("mcp.json: server `x`: "), "{error}");
            assert!(error.contains(told), "{error}");
        }
        assert!(parse("[").unwrap_err().contains("not JSON"));
        assert!(parse("{}").unwrap_err().contains("expected {\"mcpServers\""));
        assert!(parse(r#"{"mcpServers": {}}"#).unwrap_err().contains("names no server"));
    }
}
