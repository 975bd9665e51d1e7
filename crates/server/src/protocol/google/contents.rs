//! Google's contents, made of parts, as the contract's messages.

use inference_core::{Message, Role};
use inference_text::json::to_value;
use serde_json::{Map, Value as Json};

use super::names::{one_or_many, reader};
use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;
use crate::fields::told::is_empty;
use crate::protocol::content::Content;
use crate::protocol::pictures::Pictures;
use crate::protocol::turns::Turns;

/// The kinds of parts, by the field that each has.
const KINDS: [&str; 5] = ["text", "inlineData", "fileData", "functionCall", "functionResponse"];

/// Parts of what a server of Google runs itself.
const FOREIGN: [&str; 4] = ["executableCode", "codeExecutionResult", "toolCall", "toolResponse"];

/// Fields beside a part's own one, for films, sounds and documents, and for other resolutions.
const BESIDE: [&str; 8] = [
    "videoMetadata",
    "mediaResolution",
    "mediaProcessing",
    "audioMetadata",
    "audioTranscription",
    "speechMetadata",
    "documentMetadata",
    "spreadsheetMetadata",
];

/// The messages of `systemInstruction`, and of the contents at `path`.
///
/// # Errors
/// A malformed part, named by its path.
pub fn messages(
    (system_path, system): (&str, Option<Json>),
    (path, contents): (&str, Json),
    pictures: &Pictures<'_>,
) -> Result<Vec<Message>> {
    let contents = one_or_many(path, contents)?;
    if contents.is_empty() {
        return Err(ApiError::value(path, "is empty"));
    }
    let mut parts = Parts::new(pictures);
    if let Some(system) = system {
        parts.instruct(system_path, system)?;
    }
    for (index, content) in contents.into_iter().enumerate() {
        let mut content = reader(format!("{path}[{index}]"), content)?;
        let role = content.text("role")?.filter(|role| !role.is_empty());
        let items = parts_of(&mut content)?;
        match role.as_deref() {
            None | Some("user" | "function") => parts.user(items)?,
            Some("model") => parts.model(index, items)?,
            Some(other) => {
                let reason = format!("`{other}` is not one of user, model, function");
                return Err(ApiError::value(content.path("role"), reason));
            }
        }
        content.finish()?;
    }
    parts.flush();
    Ok(parts.turns.into_messages())
}

/// A part.
struct Item {
    /// The field that says its kind.
    kind: &'static str,
    /// It is a thought of the model.
    is_thought: bool,
    part: Reader,
}

/// The parts of a content.
fn parts_of(content: &mut Reader) -> Result<Vec<Item>> {
    let path = content.path("parts");
    let parts = content.take("parts");
    let parts = one_or_many(&path, content.need("parts", parts)?)?;
    let one = |(index, part)| item(reader(format!("{path}[{index}]"), part)?);
    parts.into_iter().enumerate().map(one).collect()
}

fn item(mut part: Reader) -> Result<Item> {
    if let Some(kind) = FOREIGN.into_iter().find(|kind| part.has(kind)) {
        return Err(ApiError::unsupported(part.path(kind), "the server runs no tools of its own"));
    }
    let is_thought = part.bool("thought")?.unwrap_or(false);
    // Thoughts are taken as they are, whoever signed them.
    part.text("thoughtSignature")?;
    part.hints(&["partMetadata"], "it is a note")?;
    for name in BESIDE {
        if part.take(name).is_some_and(|value| !is_empty(&value)) {
            let reason = "the server takes text, and pictures and sounds as they are";
            return Err(ApiError::unsupported(part.path(name), reason));
        }
    }
    let mut kinds = KINDS.into_iter().filter(|kind| part.has(kind));
    let (Some(kind), None) = (kinds.next(), kinds.next()) else {
        let reason = format!("expected exactly one of {}", KINDS.join(", "));
        return Err(ApiError::value(part.own_path(), reason));
    };
    Ok(Item { kind, is_thought, part })
}

/// The turns so far, which parts are added to.
struct Parts<'a> {
    turns: Turns,
    pictures: &'a Pictures<'a>,
    /// The calls of the last turn of the model that have no result yet.
    open: Vec<(String, String)>,
    /// The last content was the model's.
    in_model: bool,
    /// The last text of the model. Clients send the pieces of a stream as so many parts.
    said: String,
    /// The last thought of the model.
    thought: String,
}

impl<'a> Parts<'a> {
    fn new(pictures: &'a Pictures<'a>) -> Self {
        Parts {
            turns: Turns::default(),
            pictures,
            open: Vec::new(),
            in_model: false,
            said: String::new(),
            thought: String::new(),
        }
    }

    /// Adds instructions; empty ones are none.
    fn instruct(&mut self, path: &str, system: Json) -> Result<()> {
        let mut system = reader(path, system)?;
        system.text("role")?;
        for Item { kind, mut part, .. } in parts_of(&mut system)? {
            if kind != "text" {
                let reason = "instructions are made of text";
                return Err(ApiError::unsupported(part.path(kind), reason));
            }
            let text = part.text("text")?.unwrap_or_default();
            part.finish()?;
            if !text.is_empty() {
                self.turns.of(Role::System).say(&text);
            }
        }
        system.finish()
    }

    /// Ends the text and the thoughts of the model.
    fn flush(&mut self) {
        let (said, thought) = (std::mem::take(&mut self.said), std::mem::take(&mut self.thought));
        if !thought.is_empty() {
            self.turns.of(Role::Assistant).think(&thought);
        }
        if !said.is_empty() {
            self.turns.of(Role::Assistant).say(&said);
        }
    }

    fn user(&mut self, mut items: Vec<Item>) -> Result<()> {
        self.flush();
        self.in_model = false;
        // Results follow their calls, whatever else the user says.
        items.sort_by_key(|item| item.kind != "functionResponse");
        for Item { kind, mut part, .. } in items {
            match kind {
                "text" => {
                    let text = part.text("text")?.unwrap_or_default();
                    self.turns.of(Role::User).say(&text);
                }
                "functionResponse" => self.result(&mut part)?,
                "functionCall" => {
                    let reason = "calls are the model's, not the user's";
                    return Err(ApiError::value(part.path(kind), reason));
                }
                _ => {
                    let shown = self.shown(kind, &mut part)?;
                    self.turns.of(Role::User).add(shown);
                }
            }
            part.finish()?;
        }
        Ok(())
    }

    fn model(&mut self, content: usize, items: Vec<Item>) -> Result<()> {
        if !self.in_model {
            self.open.clear();
        }
        self.in_model = true;
        // A turn of the model is there even where it says nothing.
        self.turns.of(Role::Assistant);
        for (index, item) in items.into_iter().enumerate() {
            let Item { kind, is_thought, mut part } = item;
            match kind {
                "text" => {
                    let text = part.text("text")?.unwrap_or_default();
                    match is_thought {
                        true => self.thought.push_str(&text),
                        false => self.said.push_str(&text),
                    }
                }
                "functionCall" => {
                    self.flush();
                    self.call(format!("call_{content}_{index}"), &mut part)?;
                }
                _ => {
                    let reason = "this belongs to a turn of the user";
                    return Err(ApiError::unsupported(part.path(kind), reason));
                }
            }
            part.finish()?;
        }
        Ok(())
    }

    /// Adds a call, which is `own_id` where the client has no id for it.
    fn call(&mut self, own_id: String, part: &mut Reader) -> Result<()> {
        let call = part.take("functionCall").unwrap_or_default();
        let mut call = reader(part.path("functionCall"), call)?;
        let id = call.text("id")?.filter(|id| !id.is_empty()).unwrap_or(own_id);
        let name = call.text("name")?;
        let name = call.need("name", name)?;
        let arguments = call.object("args")?.unwrap_or_default();
        if call.bool("willContinue")? == Some(true) {
            let reason = "a call is whole; send it with all of its `args`";
            return Err(ApiError::unsupported(call.path("willContinue"), reason));
        }
        call.finish()?;
        self.open.push((id.clone(), name.clone()));
        self.turns.call(id, name, to_value(Json::Object(arguments)));
        Ok(())
    }

    /// Adds the result of a call: of the one that it names by id, else of the first one of its name
    /// that has none.
    fn result(&mut self, part: &mut Reader) -> Result<()> {
        let result = part.take("functionResponse").unwrap_or_default();
        let mut result = reader(part.path("functionResponse"), result)?;
        let id = result.text("id")?.filter(|id| !id.is_empty());
        let name = result.text("name")?.filter(|name| !name.is_empty());
        let id = match (id, &name) {
            (Some(id), _) => id,
            (None, Some(name)) => {
                let call = self.open.iter().find(|(_, own)| own == name).ok_or_else(|| {
                    let reason =
                        format!("no functionCall of `{name}` before it waits for a result");
                    ApiError::value(result.path("name"), reason)
                })?;
                call.0.clone()
            }
            (None, None) => return Err(ApiError::value(result.path("name"), "is missing")),
        };
        let called = self
            .turns
            .answered(&id)
            .map_err(|none| ApiError::value(result.path("id"), none.reason("functionCall", &id)))?;
        if let Some(at) = self.open.iter().position(|(own, _)| *own == id) {
            self.open.remove(at);
        }
        let response = result.object("response")?.unwrap_or_default();
        let mut content = Content::new("\n\n");
        content.text(&told(response));
        if let Some(parts) = result.take("parts") {
            let path = result.path("parts");
            for (index, part) in one_or_many(&path, parts)?.into_iter().enumerate() {
                let Item { kind, mut part, .. } = item(reader(format!("{path}[{index}]"), part)?)?;
                content.append(self.shown(kind, &mut part)?);
                part.finish()?;
            }
        }
        if result.bool("willContinue")? == Some(true) {
            let reason = "a result is whole; send it once all of it is there";
            return Err(ApiError::unsupported(result.path("willContinue"), reason));
        }
        result.hints(&["scheduling"], "the answer begins when the request has come")?;
        result.finish()?;
        self.turns.result(id, called, content);
        Ok(())
    }

    /// The picture of a part, in base64 or at a URL, or its sound, in base64.
    fn shown(&self, kind: &str, part: &mut Reader) -> Result<Content> {
        let path = part.path(kind);
        let mut data = match kind {
            "inlineData" | "fileData" => reader(&path, part.take(kind).unwrap_or_default())?,
            _ => {
                return Err(ApiError::unsupported(
                    path,
                    "expected a picture or a sound: `inlineData`",
                ));
            }
        };
        data.text("displayName")?;
        let media_type = data.text("mimeType")?;
        let is = |family: &str| media_type.as_ref().is_some_and(|kind| kind.starts_with(family));
        let mut content = Content::new("");
        if is("audio/") {
            let sounds = self.pictures.sounds();
            sounds.check_hears(&data.path("mimeType"))?;
            if kind == "fileData" {
                let reason = "the server fetches no sounds; send it as `inlineData`";
                return Err(ApiError::unsupported(path, reason));
            }
            let base64 = data.text("data")?;
            let base64 = in_standard_letters(data.need("data", base64)?);
            content.sound(sounds.of_base64(&path, &data.path("data"), &base64)?);
            data.finish()?;
            return Ok(content);
        }
        self.pictures.check_sees(&path)?;
        if media_type.is_some() && !is("image/") {
            let reason = "the server takes text, pictures (`image/…`) and sounds (`audio/…`)";
            return Err(ApiError::unsupported(data.path("mimeType"), reason));
        }
        content.picture(match kind {
            "inlineData" => {
                let base64 = data.text("data")?;
                let base64 = in_standard_letters(data.need("data", base64)?);
                self.pictures.of_plain_base64(&path, &base64)?
            }
            _ => {
                let url = data.text("fileUri")?;
                let url = data.need("fileUri", url)?;
                self.pictures.of_url(&path, &data.path("fileUri"), &url)?
            }
        });
        data.finish()?;
        Ok(content)
    }
}

/// Base64 with the standard letters: Google's packages also write that of URLs.
fn in_standard_letters(data: String) -> String {
    match data.contains(['-', '_']) {
        true => data.replace('-', "+").replace('_', "/"),
        false => data,
    }
}

/// The text of a result. `output` and `result` alone are what a call brought, and `error` is why it
/// failed.
fn told(response: Map<String, Json>) -> String {
    let text = |value: &Json| match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut fields = response.iter();
    match (fields.next(), fields.next()) {
        (Some((name, value)), None) if name == "output" || name == "result" => text(value),
        (Some((name, value)), None) if name == "error" => format!("Error: {}", text(value)),
        _ => Json::Object(response).to_string(),
    }
}
