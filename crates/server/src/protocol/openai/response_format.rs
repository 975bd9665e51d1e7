//! `response_format`: text, any JSON object, or JSON of a schema.

use inference_core::{Constraint, Value};
use serde_json::Value as Json;

use super::structured::schema_of;
use crate::config::Limits;
use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;

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
        // llama.cpp's clients give a schema with it.
        "json_object" => match format.take("schema") {
            Some(schema) => Some(schema_of(&format.path("schema"), schema, limits)?),
            None => {
                let object = vec![("type".to_owned(), Value::from("object"))];
                Some(Constraint::JsonSchema(Value::Object(object)))
            }
        },
        "json_schema" => match (format.take("json_schema"), format.take("schema")) {
            (None, Some(schema)) => Some(schema_of(&format.path("schema"), schema, limits)?),
            (inner, None) => {
                let inner = format.need("json_schema", inner)?;
                Some(schema(Reader::new(format.path("json_schema"), inner)?, limits)?)
            }
            (Some(_), Some(_)) => {
                let reason = "is there beside `json_schema`, which has the schema";
                return Err(ApiError::value(format.path("schema"), reason));
            }
        },
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
    // Text always conforms, whether that is asked for or not, and so do the keys of objects.
    format.bool("strict")?;
    let path = format.path("schema");
    let schema = format.take("schema");
    let schema = format.need("schema", schema)?;
    format.finish()?;
    schema_of(&path, schema, limits)
}
