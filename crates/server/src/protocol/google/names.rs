//! Names of fields, which Google's protocol takes in two spellings: `topP` and `top_p`.

use serde_json::{Map, Value as Json};

use crate::error::{ApiError, Result};
use crate::fields::reader::{Reader, expected};

/// The object at `path`, whose fields have their names in camel case.
///
/// # Errors
/// It is no object, or has a field in both spellings.
pub fn reader(path: impl Into<String>, json: Json) -> Result<Reader> {
    let path = path.into();
    match json {
        Json::Object(fields) => {
            let fields = in_camel_case(&path, fields)?;
            Reader::new(path, Json::Object(fields))
        }
        other => Err(expected(path, "an object", &other)),
    }
}

/// `fields` of the object at `path` with their names in camel case.
///
/// # Errors
/// One is there in both spellings.
pub fn in_camel_case(path: &str, fields: Map<String, Json>) -> Result<Map<String, Json>> {
    let mut renamed = Map::new();
    for (name, value) in fields {
        let camel = camel(&name);
        if renamed.contains_key(&camel) {
            let dot = if path.is_empty() { "" } else { "." };
            return Err(ApiError::value(format!("{path}{dot}{camel}"), "is there twice"));
        }
        renamed.insert(camel, value);
    }
    Ok(renamed)
}

/// The items of the value at `path`. A single one may stand without its array.
///
/// # Errors
/// It is neither an array nor an object.
pub fn one_or_many(path: &str, json: Json) -> Result<Vec<Json>> {
    match json {
        Json::Array(items) => Ok(items),
        one @ Json::Object(_) => Ok(vec![one]),
        other => Err(expected(path, "an array of objects", &other)),
    }
}

fn camel(name: &str) -> String {
    let mut camel = String::new();
    let mut letters = name.chars().peekable();
    while let Some(letter) = letters.next() {
        let next = letters.peek().copied().filter(char::is_ascii_lowercase);
        match next {
            Some(next) if letter == '_' && !camel.is_empty() => {
                camel.push(next.to_ascii_uppercase());
                letters.next();
            }
            _ => camel.push(letter),
        }
    }
    camel
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{camel, reader};

    #[test]
    fn both_spellings_of_a_name_are_one() {
        assert_eq!(camel("max_output_tokens"), "maxOutputTokens");
        assert_eq!(["topP", "_a", "a_", "a_B"].map(camel), ["topP", "_a", "a_", "a_B"]);
        let error = reader("generationConfig", json!({"topP": 1, "top_p": 1})).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("generationConfig.topP"));
    }
}
