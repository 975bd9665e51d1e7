//! `response_format`: text, any JSON object, or JSON of a schema.

use inference_core::{Constraint, Value};
use inference_text::json::to_value;
use serde_json::Value as Json;

use crate::config::Limits;
use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;
use crate::protocol::conversation::bounded;

/// The constraint that the field `response_format` asks for; `None`: unconstrained text.
///
/// # Errors
/// A part of it means nothing.
pub fn constraint(reader: &mut Reader, limits: &Limits) -> Result<Option<Constraint>> {
    let Some(format) = reader.object("response_format")? else { return Ok(None) };
    let mut format = Reader::new("response_format", Json::Object(format))?;
    let kind = format.text("type")?;
    let constraint = match format.need("type", kind)?.as_str() {
        "text" => None,
        "json_object" => {
            let object = vec![("type".to_owned(), Value::from("object"))];
            Some(Constraint::JsonSchema(Value::Object(object)))
        }
        "json_schema" => {
            let inner = format.take("json_schema");
            let inner = format.need("json_schema", inner)?;
            Some(schema(Reader::new(format.path("json_schema"), inner)?, limits)?)
        }
        other => {
            let reason = format!("`{other}` is not one of text, json_object, json_schema");
            return Err(ApiError::value(format.path("type"), reason));
        }
    };
    format.finish()?;
    Ok(constraint)
}

/// The schema of `format`, which has a name, may have a description, and holds nothing else.
///
/// # Errors
/// There is none, or it is too large.
pub fn schema(mut format: Reader, limits: &Limits) -> Result<Constraint> {
    // The name and the description are for models that are told of the schema; here it holds.
    format.text("name")?;
    format.text("description")?;
    // Text always conforms, whether that is asked for or not.
    format.bool("strict")?;
    let path = format.path("schema");
    let schema = format.take("schema");
    let schema = format.need("schema", schema)?;
    format.finish()?;
    if !schema.is_object() && !schema.is_boolean() {
        return Err(ApiError::value(path, "expected a JSON schema"));
    }
    bounded(&path, schema.to_string().len(), limits)?;
    Ok(Constraint::JsonSchema(to_value(schema)))
}
