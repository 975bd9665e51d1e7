//! Anthropic's turns, made of blocks, as the contract's messages.

use inference_core::{EncodedPicture, Message, Role};
use inference_text::json::to_value;
use serde_json::Value as Json;

use super::tables::CACHE;
use crate::error::{ApiError, Result};
use crate::fields::reader::{Reader, expected};
use crate::fields::table::take_object;
use crate::fields::told::tell;
use crate::protocol::content::Content;
use crate::protocol::pictures::Pictures;
use crate::protocol::turns::{Turns, join};

/// The beginning of the block in which Claude Code counts its sessions.
const BILLING: &str = "x-anthropic-billing-header:";

/// The messages of the fields `system` and `messages`. Turns of one role that follow each other are
/// one message.
///
/// # Errors
/// A malformed block, named by its path.
pub fn messages(
    system: Option<Json>,
    items: Vec<Json>,
    pictures: &Pictures<'_>,
) -> Result<Vec<Message>> {
    if items.is_empty() {
        return Err(ApiError::value("messages", "is empty"));
    }
    let mut turns = Blocks { turns: Turns::default(), pictures };
    if let Some(system) = system {
        let text = texts("system", without_billing(system))?;
        turns.instruct(&text);
    }
    for (index, item) in items.into_iter().enumerate() {
        let mut reader = Reader::new(format!("messages[{index}]"), item)?;
        let role = reader.text("role")?;
        let role = reader.need("role", role)?;
        let content = reader.take("content");
        let content = reader.need("content", content)?;
        let path = reader.path("content");
        match role.as_str() {
            "system" => {
                let text = texts(&path, content)?;
                turns.instruct(&text);
            }
            "user" => turns.user(&path, content)?,
            "assistant" => turns.assistant(&path, content)?,
            other => {
                let reason = format!("`{other}` is not one of user, assistant, system");
                return Err(ApiError::value(reader.path("role"), reason));
            }
        }
        reader.finish()?;
    }
    Ok(turns.turns.into_messages())
}

/// The turns so far, which blocks are added to.
struct Blocks<'a> {
    turns: Turns,
    pictures: &'a Pictures<'a>,
}

impl Blocks<'_> {
    /// Adds instructions; empty ones are none.
    fn instruct(&mut self, text: &str) {
        if !text.is_empty() {
            self.turns.of(Role::System).say(text);
        }
    }

    fn user(&mut self, path: &str, content: Json) -> Result<()> {
        let with_kind =
            |mut block: Reader| -> Result<(String, Reader)> { Ok((kind(&mut block)?, block)) };
        let mut blocks =
            blocks(path, content)?.into_iter().map(with_kind).collect::<Result<Vec<_>>>()?;
        // Results follow their calls, whatever else the user says.
        blocks.sort_by_key(|(kind, _)| kind != "tool_result");
        for (kind, block) in blocks {
            match kind.as_str() {
                "text" => {
                    let text = text(block)?;
                    self.turns.of(Role::User).say(&text);
                }
                "image" => {
                    let picture = self.image(block)?;
                    self.turns.of(Role::User).show(picture);
                }
                "tool_result" => self.tool_result(block)?,
                other => return Err(no_such_block(&block, other)),
            }
        }
        Ok(())
    }

    fn tool_result(&mut self, mut block: Reader) -> Result<()> {
        let id = block.text("tool_use_id")?;
        let id = block.need("tool_use_id", id)?;
        let name = self.turns.answered(&id).map_err(|none| {
            ApiError::value(block.path("tool_use_id"), none.reason("`tool_use`", &id))
        })?;
        let path = block.path("content");
        let mut result = Content::new("\n\n");
        let content = block.take("content").map(|content| blocks(&path, content)).transpose()?;
        for mut part in content.unwrap_or_default() {
            match kind(&mut part)?.as_str() {
                "text" => result.text(&text(part)?),
                "image" => result.picture(self.image(part)?),
                other => return Err(no_such_block(&part, other)),
            }
        }
        // Templates have no other place for it.
        if block.bool("is_error")? == Some(true) {
            let mut failed = Content::new("");
            failed.text("Error: ");
            failed.append(result);
            result = failed;
        }
        hints(&mut block)?;
        block.finish()?;
        self.turns.result(id, name, result);
        Ok(())
    }

    /// The picture of a block: base64 with its type, or a URL.
    fn image(&self, mut block: Reader) -> Result<EncodedPicture> {
        let path = block.own_path().to_owned();
        self.pictures.check_sees(&path)?;
        let source = block.take("source");
        let mut source = Reader::new(block.path("source"), block.need("source", source)?)?;
        let picture = match kind(&mut source)?.as_str() {
            "base64" => {
                let media_type = source.text("media_type")?;
                let media_type = source.need("media_type", media_type)?;
                let data = source.text("data")?;
                self.pictures.of_base64(&path, &media_type, &source.need("data", data)?)?
            }
            "url" => {
                let url = source.text("url")?;
                let url = source.need("url", url)?;
                self.pictures.of_url(&path, &source.path("url"), &url)?
            }
            other => {
                let reason = format!("`{other}` is not one of base64, url");
                return Err(ApiError::unsupported(source.path("type"), reason));
            }
        };
        source.finish()?;
        hints(&mut block)?;
        block.finish()?;
        Ok(picture)
    }

    fn assistant(&mut self, path: &str, content: Json) -> Result<()> {
        for mut block in blocks(path, content)? {
            match kind(&mut block)?.as_str() {
                "text" => {
                    let text = text(block)?;
                    self.turns.of(Role::Assistant).say(&text);
                }
                "thinking" => {
                    let thought = block.text("thinking")?;
                    let thought = block.need("thinking", thought)?;
                    // Thoughts are taken as they are, whoever signed them.
                    block.text("signature")?;
                    block.finish()?;
                    self.turns.of(Role::Assistant).think(&thought);
                }
                "tool_use" => self.tool_use(block)?,
                other => return Err(no_such_block(&block, other)),
            }
        }
        Ok(())
    }

    fn tool_use(&mut self, mut block: Reader) -> Result<()> {
        let id = block.text("id")?;
        let id = block.need("id", id)?;
        let name = block.text("name")?;
        let name = block.need("name", name)?;
        let input = block.object("input")?;
        let input = block.need("input", input)?;
        if let Some(caller) = block.take("caller")
            && caller.get("type").and_then(Json::as_str) != Some("direct")
        {
            let reason = "the server runs no code that could call tools";
            return Err(ApiError::unsupported(block.path("caller"), reason));
        }
        hints(&mut block)?;
        block.finish()?;
        self.turns.call(id, name, to_value(Json::Object(input)));
        Ok(())
    }
}

/// `system` without the block in which Claude Code counts its sessions. That is no instruction, and
/// another one in each session would keep prompts from being found in the cache.
fn without_billing(mut system: Json) -> Json {
    let is_billing = |block: &Json| {
        let text = block.get("text").and_then(Json::as_str);
        text.is_some_and(|text| text.starts_with(BILLING) && !text.trim_end().contains('\n'))
    };
    if let Some(blocks) = system.as_array_mut()
        && blocks.len() > 1
        && is_billing(&blocks[0])
    {
        blocks.remove(0);
        tell("system[].x-anthropic-billing-header");
    }
    system
}

/// The blocks of `content`, which may be one text.
fn blocks(path: &str, content: Json) -> Result<Vec<Reader>> {
    match content {
        Json::String(text) => {
            let block = serde_json::json!({"type": "text", "text": text});
            Ok(vec![Reader::new(path, block)?])
        }
        Json::Array(items) => {
            let one = |(index, item)| Reader::new(format!("{path}[{index}]"), item);
            items.into_iter().enumerate().map(one).collect()
        }
        other => Err(expected(path, "a string or an array of blocks", &other)),
    }
}

fn kind(block: &mut Reader) -> Result<String> {
    let kind = block.text("type")?;
    block.need("type", kind)
}

fn no_such_block(block: &Reader, kind: &str) -> ApiError {
    let reason = match kind {
        "image" => "pictures belong to a user's turn and to tools' results".to_owned(),
        "document" | "search_result" => "this server takes text and pictures".to_owned(),
        other => format!("there are no `{other}` blocks here"),
    };
    ApiError::unsupported(block.path("type"), reason)
}

/// The text of `content`, of which all blocks are texts.
fn texts(path: &str, content: Json) -> Result<String> {
    let mut whole = String::new();
    for mut block in blocks(path, content)? {
        match kind(&mut block)?.as_str() {
            "text" => join(&mut whole, &text(block)?),
            other => return Err(no_such_block(&block, other)),
        }
    }
    Ok(whole)
}

fn text(mut block: Reader) -> Result<String> {
    let text = block.text("text")?;
    let text = block.need("text", text)?;
    if block.list("citations")?.is_some_and(|citations| !citations.is_empty()) {
        let reason = "there are no documents to cite";
        return Err(ApiError::unsupported(block.path("citations"), reason));
    }
    hints(&mut block)?;
    block.finish()?;
    Ok(text)
}

/// Takes what asks for nothing: what is cached is found by its tokens.
fn hints(block: &mut Reader) -> Result<()> {
    take_object(block, "cache_control", CACHE)
}
