//! Forms that an answer is held to, in the words of llama.cpp, vLLM and others, beside OpenAI's
//! `response_format`.

use inference_core::{Constraint, GenerateOptions};
use inference_text::constraint::of_gbnf;
use inference_text::json::to_value;
use serde_json::{Value as Json, json};

use crate::config::Limits;
use crate::error::{ApiError, Names, Result};
use crate::fields::reader::{Reader, expected};
use crate::protocol::conversation::{bounded, constrain};

/// The fields that hold a text to a form, as (field, form).
const FIELDS: [(&str, Form); 6] = [
    ("regex", Form::Regex),
    ("guided_regex", Form::Regex),
    ("grammar", Form::Grammar),
    ("guided_grammar", Form::Grammar),
    ("json_schema", Form::Schema),
    ("guided_json", Form::Schema),
];
/// The fields within `structured_outputs` that do, as (name, path, form).
const INNER: [(&str, &str, Form); 3] = [
    ("regex", "structured_outputs.regex", Form::Regex),
    ("grammar", "structured_outputs.grammar", Form::Grammar),
    ("json", "structured_outputs.json", Form::Schema),
];

/// The form of what a field holds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Regex,
    Grammar,
    Schema,
}

/// Takes all fields that hold an answer to a form, of which there may be one.
///
/// # Errors
/// There are two; a value is none or too large.
pub fn structured(
    reader: &mut Reader,
    limits: &Limits,
    options: &mut GenerateOptions,
    names: &mut Names,
) -> Result<()> {
    for (field, form) in FIELDS {
        if let Some(constraint) = held(reader, field, form, limits)? {
            constrain(options, names, field, constraint)?;
        }
    }
    if let Some(choices) = reader.texts("guided_choice")? {
        constrain(options, names, "guided_choice", one_of("guided_choice", &choices, limits)?)?;
    }
    let Some(inner) = reader.take("structured_outputs") else { return Ok(()) };
    let mut inner = Reader::new("structured_outputs", inner)?;
    for (name, field, form) in INNER {
        if let Some(constraint) = held(&mut inner, name, form, limits)? {
            constrain(options, names, field, constraint)?;
        }
    }
    if let Some(choices) = inner.texts("choice")? {
        let field = "structured_outputs.choice";
        constrain(options, names, field, one_of(field, &choices, limits)?)?;
    }
    if inner.bool("json_object")? == Some(true) {
        let object = Constraint::JsonSchema(to_value(json!({"type": "object"})));
        constrain(options, names, "structured_outputs.json_object", object)?;
    }
    if inner.bool("disable_any_whitespace")? == Some(true) {
        let reason = "JSON has the white space that docs/server.md tells";
        return Err(ApiError::unsupported("structured_outputs.disable_any_whitespace", reason));
    }
    // There is one that compiles grammars, and objects that list properties have no others.
    inner.hints(
        &["disable_fallback", "disable_additional_properties", "_backend"],
        "it is so in any case",
    )?;
    inner.finish()
}

fn held(
    reader: &mut Reader,
    name: &str,
    form: Form,
    limits: &Limits,
) -> Result<Option<Constraint>> {
    let path = reader.path(name);
    if form == Form::Schema {
        let Some(schema) = reader.take(name) else { return Ok(None) };
        return schema_of(&path, schema, limits).map(Some);
    }
    let Some(text) = reader.text(name)?.filter(|text| !text.is_empty()) else { return Ok(None) };
    bounded(&path, text.len(), limits)?;
    if form == Form::Regex {
        return Ok(Some(Constraint::Regex(text)));
    }
    // Here, since what a model's format adds around it is in Lark.
    let read = of_gbnf(&text).map_err(|error| ApiError::from(error).about(path))?;
    Ok(Some(read.unwrap_or(Constraint::Lark(text))))
}

/// The constraint of a schema, which may be written as a text.
///
/// # Errors
/// It is none, or too large.
pub fn schema_of(path: &str, schema: Json, limits: &Limits) -> Result<Constraint> {
    let schema = match schema {
        Json::String(text) => {
            bounded(path, text.len(), limits)?;
            serde_json::from_str(&text).map_err(|error| {
                ApiError::value(path, format!("expected a JSON schema, found a text: {error}"))
            })?
        }
        schema => schema,
    };
    if !schema.is_object() && !schema.is_boolean() {
        return Err(expected(path, "a JSON schema", &schema));
    }
    bounded(path, schema.to_string().len(), limits)?;
    Ok(Constraint::JsonSchema(to_value(schema)))
}

/// An expression that matches each of `choices`.
///
/// # Errors
/// There is none, or they are too long.
pub fn one_of(path: &str, choices: &[String], limits: &Limits) -> Result<Constraint> {
    if choices.is_empty() {
        return Err(ApiError::value(path, "is empty"));
    }
    let escaped = |choice: &String| {
        let letter = |letter: char| match letter {
            '\\' | '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$'
            | '#' | '&' | '-' | '~' => format!("\\{letter}"),
            letter => letter.to_string(),
        };
        choice.chars().map(letter).collect::<String>()
    };
    let regex = choices.iter().map(escaped).collect::<Vec<_>>().join("|");
    bounded(path, regex.len(), limits)?;
    Ok(Constraint::Regex(regex))
}

#[cfg(test)]
mod tests {
    use inference_core::{Constraint, GenerateOptions};
    use inference_text::json::to_value;
    use serde_json::{Value as Json, json};

    use super::structured;
    use crate::config::Limits;
    use crate::error::Names;
    use crate::fields::reader::Reader;

    fn read(request: Json) -> Result<Option<Constraint>, String> {
        let mut reader = Reader::new("", request).unwrap();
        let (mut options, mut names) = (GenerateOptions::default(), Names::default());
        let read = structured(&mut reader, &Limits::default(), &mut options, &mut names);
        read.and_then(|()| reader.finish()).map_err(|error| error.param.unwrap_or_default())?;
        Ok(options.constraint)
    }

    #[test]
    fn each_word_for_a_form_is_the_same_form() {
        let schema = json!({"type": "object"});
        let of_schema = Some(Constraint::JsonSchema(to_value(schema.clone())));
        for request in [
            json!({"json_schema": schema}),
            json!({"guided_json": schema}),
            json!({"guided_json": schema.to_string()}),
            json!({"structured_outputs": {"json": schema, "disable_fallback": true}}),
            json!({"structured_outputs": {"json_object": true, "regex": null}}),
        ] {
            assert_eq!(read(request.clone()), Ok(of_schema.clone()), "{request}");
        }
        let of_regex = Some(Constraint::Regex(r"a\.b|c\+".to_owned()));
        for request in [
            json!({"guided_choice": ["a.b", "c+"]}),
            json!({"structured_outputs": {"choice": ["a.b", "c+"]}}),
            json!({"guided_regex": r"a\.b|c\+"}),
        ] {
            assert_eq!(read(request.clone()), Ok(of_regex.clone()), "{request}");
        }
        let odd = json!({"guided_choice": ["", "<b>", "a->b"]});
        assert_eq!(read(odd), Ok(Some(Constraint::Regex(r"|<b>|a\->b".to_owned()))));
        let of_grammar = Some(Constraint::Regex("(?:a)".to_owned()));
        assert_eq!(read(json!({"grammar": "root ::= \"a\""})), Ok(of_grammar.clone()));
        assert_eq!(
            read(json!({"guided_grammar": "root ::= \"a\"", "grammar": ""})),
            Ok(of_grammar)
        );
        assert_eq!(read(json!({})), Ok(None));
    }

    #[test]
    fn two_forms_and_what_is_none_are_named() {
        for (request, param) in [
            (json!({"regex": "a", "guided_json": {}}), "guided_json"),
            (json!({"guided_choice": []}), "guided_choice"),
            (json!({"guided_json": "{"}), "guided_json"),
            (json!({"json_schema": 1}), "json_schema"),
            (json!({"grammar": "root ::= a"}), "grammar"),
            (json!({"structured_outputs": {"x": 1}}), "structured_outputs.x"),
            (
                json!({"structured_outputs": {"disable_any_whitespace": true}}),
                "structured_outputs.disable_any_whitespace",
            ),
        ] {
            assert_eq!(read(request.clone()).unwrap_err(), param, "{request}");
        }
    }
}
