//! Ollama's messages as the contract's.

use std::collections::VecDeque;

use inference_core::{EncodedPicture, Message, Role, TextModel};
use inference_text::json::to_value;
use serde_json::Value as Json;

use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;
use crate::protocol::content::Content;
use crate::protocol::pictures::{Pictures, sight};
use crate::protocol::turns::Turns;

/// The conversation of the field `messages`, for `model`.
///
/// # Errors
/// A malformed message, named by its path.
pub fn messages(
    items: Vec<Json>,
    model: &dyn TextModel,
    pictures: &Pictures<'_>,
) -> Result<Vec<Message>> {
    let mut turns = Turns::default();
    // The calls that have no result yet.
    let mut open: VecDeque<(String, String)> = VecDeque::new();
    for (index, item) in items.into_iter().enumerate() {
        let mut reader = Reader::new(format!("messages[{index}]"), item)?;
        let role = reader.text("role")?;
        let role = reader.need("role", role)?;
        let mut content = Content::new("");
        content.text(&reader.text("content")?.unwrap_or_default());
        for picture in images(&mut reader, model, pictures)? {
            content.picture(picture);
        }
        let own = match role.as_str() {
            "system" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => {
                let (id, name) = answered(&mut reader, &mut open, &mut turns)?;
                turns.result(id, name, content);
                reader.finish()?;
                continue;
            }
            other => {
                let reason = format!("`{other}` is not one of system, user, assistant, tool");
                return Err(ApiError::value(reader.path("role"), reason));
            }
        };
        if content.has_pictures() && own != Role::User {
            let reason = format!("pictures belong to `user` and `tool`, not to `{role}`");
            return Err(ApiError::value(reader.path("images"), reason));
        }
        if own == Role::System && content.is_empty() {
            // Ollama's templates have no turn for it.
            reader.finish()?;
            continue;
        }
        let turn = turns.begin(own.clone());
        turn.add(content);
        if own == Role::Assistant {
            if let Some(thought) = reader.text("thinking")? {
                turn.think(&thought);
            }
            open.clear();
            let path = reader.path("tool_calls");
            for (at, call) in reader.list("tool_calls")?.unwrap_or_default().into_iter().enumerate()
            {
                let (id, name, arguments) = tool_call(Reader::new(format!("{path}[{at}]"), call)?)?;
                let id = id.unwrap_or_else(|| format!("call_{index}_{at}"));
                open.push_back((id.clone(), name.clone()));
                turns.call(id, name, to_value(arguments));
            }
        }
        reader.finish()?;
    }
    Ok(turns.into_messages())
}

/// The pictures of the field `images` of a message, or of the request itself.
///
/// # Errors
/// The model does not see, or what is wrong with which picture.
pub fn images(
    reader: &mut Reader,
    model: &dyn TextModel,
    pictures: &Pictures<'_>,
) -> Result<Vec<EncodedPicture>> {
    let path = reader.path("images");
    let texts = reader.texts("images")?.unwrap_or_default();
    if !texts.is_empty() {
        sight(model.capabilities()).map_err(|reason| ApiError::unsupported(&path, reason))?;
    }
    let one = |(index, text): (usize, &String)| {
        pictures.of_plain_base64(&format!("{path}[{index}]"), text)
    };
    texts.iter().enumerate().map(one).collect()
}

/// The call that a message of a tool answers: the one that it names, else the first that is open.
fn answered(
    reader: &mut Reader,
    open: &mut VecDeque<(String, String)>,
    turns: &mut Turns,
) -> Result<(String, String)> {
    let (id, name) = (reader.text("tool_call_id")?, reader.text("tool_name")?);
    if let Some(id) = id {
        let name = turns.answered(&id).map_err(|none| {
            ApiError::value(reader.path("tool_call_id"), none.reason("call", &id))
        })?;
        if let Some(at) = open.iter().position(|(own, _)| *own == id) {
            open.remove(at);
        }
        return Ok((id, name));
    }
    let fits = |(_, own): &(String, String)| name.as_ref().is_none_or(|name| name == own);
    match (open.iter().position(fits).and_then(|at| open.remove(at)), name) {
        (Some(call), _) => {
            let _ = turns.answered(&call.0);
            Ok(call)
        }
        (None, Some(name)) => Ok((format!("call_{name}"), name)),
        (None, None) => {
            let reason = "is missing, and no call before it waits for a result";
            Err(ApiError::value(reader.path("tool_name"), reason))
        }
    }
}

fn tool_call(mut call: Reader) -> Result<(Option<String>, String, Json)> {
    let id = call.text("id")?;
    if call.text("type")?.is_some_and(|kind| kind != "function") {
        return Err(ApiError::unsupported(call.path("type"), "calls are of functions"));
    }
    let function = call.take("function");
    let mut function = Reader::new(call.path("function"), call.need("function", function)?)?;
    call.finish()?;
    let name = function.text("name")?;
    let name = function.need("name", name)?;
    // Clients send the place among the calls back.
    function.count("index")?;
    let arguments = function.object("arguments")?.unwrap_or_default();
    function.finish()?;
    Ok((id, name, Json::Object(arguments)))
}
