//! `text`, `reasoning` and `include`: what an answer holds to, and how thoughts and tokens are
//! told.

use inference_core::{Constraint, Value};

use crate::config::Limits;
use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;
use crate::fields::told::take_hint;
use crate::pool::loaded::Loaded;
use crate::protocol::conversation::Conversation;
use crate::protocol::openai::response_format::schema;
use crate::protocol::thinking;

/// How thoughts are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thoughts {
    /// As they are.
    Whole,
    /// As their own summary, for clients that show nothing else.
    Summary,
}

/// The additions to the output that `include` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Include {
    /// Log probabilities.
    pub logprobs: bool,
    /// Thoughts in a form to send back.
    pub thoughts: bool,
}

/// Takes `reasoning`, and tells the template of `conversation` how much to think.
///
/// # Errors
/// A value means nothing, or the template does not know it.
pub fn reasoning(
    reader: &mut Reader,
    loaded: &Loaded,
    conversation: &mut Conversation,
) -> Result<Thoughts> {
    let Some(asked) = reader.take("reasoning") else { return Ok(Thoughts::Whole) };
    let mut asked = Reader::new("reasoning", asked)?;
    if let Some(level) = asked.text("effort")? {
        let thinking = thinking::level(loaded.effort, &level, "reasoning.effort")?;
        conversation.think(thinking, ("reasoning.effort", "reasoning"), loaded)?;
    }
    let mut thoughts = Thoughts::Whole;
    for name in ["summary", "generate_summary"] {
        match asked.text(name)?.as_deref() {
            None => {}
            Some("auto" | "detailed") => thoughts = Thoughts::Summary,
            Some("concise") => {
                take_hint(&asked.path(name), "nobody shortens thoughts here: they are told whole")?;
                thoughts = Thoughts::Summary;
            }
            Some(other) => {
                let reason = format!("`{other}` is not one of auto, concise, detailed");
                return Err(ApiError::value(asked.path(name), reason));
            }
        }
    }
    for (name, neutral, reason) in [
        ("context", "auto", "the model's chat template decides which thoughts it is told again"),
        ("mode", "standard", "there is one mode"),
    ] {
        if asked.text(name)?.is_some_and(|value| value != neutral) {
            return Err(ApiError::unsupported(asked.path(name), reason));
        }
    }
    asked.finish()?;
    Ok(thoughts)
}

/// Takes `text`; what the answer holds to, where it is more than text.
///
/// # Errors
/// A part of it means nothing.
pub fn text(reader: &mut Reader, limits: &Limits) -> Result<Option<Constraint>> {
    let Some(text) = reader.take("text") else { return Ok(None) };
    let mut text = Reader::new("text", text)?;
    if text.text("verbosity")?.is_some_and(|verbosity| verbosity != "medium") {
        let reason = "the model has no setting for it; ask for it in a message";
        return Err(ApiError::unsupported("text.verbosity", reason));
    }
    let format = text.take("format");
    text.finish()?;
    let Some(format) = format else { return Ok(None) };
    let mut format = Reader::new("text.format", format)?;
    let kind = format.text("type")?;
    match format.need("type", kind)?.as_str() {
        "json_schema" => schema(format, limits).map(Some),
        "text" => format.finish().map(|()| None),
        "json_object" => {
            format.finish()?;
            let object = vec![("type".to_owned(), Value::from("object"))];
            Ok(Some(Constraint::JsonSchema(Value::Object(object))))
        }
        other => {
            let reason = format!("`{other}` is not one of text, json_object, json_schema");
            Err(ApiError::value("text.format.type", reason))
        }
    }
}

/// Takes `include`.
///
/// # Errors
/// A value that the server does not have.
pub fn include(reader: &mut Reader) -> Result<Include> {
    let mut include = Include::default();
    for (index, name) in reader.texts("include")?.unwrap_or_default().into_iter().enumerate() {
        match name.as_str() {
            "message.output_text.logprobs" => include.logprobs = true,
            "reasoning.encrypted_content" => include.thoughts = true,
            other => {
                let reason = format!("there is no `{other}` in answers of this server");
                return Err(ApiError::unsupported(format!("include[{index}]"), reason));
            }
        }
    }
    Ok(include)
}
