//! Chat templates, rendered as transformers renders them.
//!
//! transformers compiles a template with jinja2's sandbox, `trim_blocks`,
//! `lstrip_blocks`, loop controls and four additions: `tojson` without HTML
//! escapes, `raise_exception`, `strftime_now` and `{% generation %}`. This is
//! minijinja with those, with Python's way of printing and Python's string
//! methods. Other than there, a render is bounded: steps, bytes, nesting
//! (see `meter`), and it sees no clock but the one it is given.

mod filters;
pub(super) mod meter;
mod methods;
mod ops;
mod print;

use super::clock::LocalTime;
use crate::TextError;
use minijinja::machinery::{eval, make_string_output};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value};
use serde_json::Value as Json;
use std::sync::Arc;

/// Name of a context variable that no template can write.
const NOW: &str = " now";
/// A template of more bytes is refused; the longest published ones have about 30 KiB.
const MAX_TEMPLATE: usize = 1 << 20;

/// A compiled chat template; cheap to clone and shared between threads.
///
/// ```
/// use inference_text::{ChatTemplate, LocalTime};
/// let template = ChatTemplate::new("{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}")?;
/// let mut variables = serde_json::Map::new();
/// variables.insert("messages".into(), serde_json::json!([{"role": "user", "content": "Hi"}]));
/// let text = template.render(&variables, LocalTime { seconds: 0 })?;
/// assert_eq!(text, "<user>Hi\n");
/// # Ok::<(), inference_text::TextError>(())
/// ```
#[derive(Clone)]
pub struct ChatTemplate {
    source: Arc<str>,
    environment: Arc<Environment<'static>>,
    syntax: SyntaxConfig,
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").field("source", &self.source).finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// Checks `source`, a Jinja template.
    ///
    /// # Errors
    /// [`TextError::Template`] with the line if it is no template, or longer than 1 MiB.
    pub fn new(source: &str) -> Result<ChatTemplate, TextError> {
        if source.len() > MAX_TEMPLATE {
            let reason = format!("has {} bytes, at most {MAX_TEMPLATE} are read", source.len());
            return Err(TextError::Template { line: 0, reason });
        }
        let syntax =
            SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(error)?;
        let template = ChatTemplate {
            source: without_generation_tags(source).into(),
            environment: Arc::new(environment()),
            syntax,
        };
        meter::compile(&template.source, template.syntax.clone()).map_err(error)?;
        Ok(template)
    }

    /// The text for `variables`: `messages`, `tools`, `add_generation_prompt`, `bos_token` and
    /// whatever else the template reads. `now` is what `strftime_now` prints.
    ///
    /// # Errors
    /// [`TextError::Raised`] where the template calls `raise_exception`,
    /// [`TextError::TemplateBounds`] where it runs or grows without end, [`TextError::Template`]
    /// for every other failure.
    pub fn render(
        &self,
        variables: &serde_json::Map<String, Json>,
        now: LocalTime,
    ) -> Result<String, TextError> {
        self.render_marked(variables, now, None)
    }

    /// Renders variables whose strings may hold `sentinel`, which JSON escapes leave as it is.
    pub(super) fn render_marked(
        &self,
        variables: &serde_json::Map<String, Json>,
        now: LocalTime,
        sentinel: Option<char>,
    ) -> Result<String, TextError> {
        let mut pairs = vec![(NOW.to_owned(), Value::from(now.seconds))];
        if let Some(sentinel) = sentinel {
            pairs.push((filters::SENTINEL.to_owned(), Value::from(sentinel.to_string())));
        }
        for (name, value) in variables {
            pairs.push((name.clone(), value_of(value, meter::MAX_DEPTH).map_err(error)?));
        }
        let (instructions, blocks) =
            meter::compile(&self.source, self.syntax.clone()).map_err(error)?;
        let mut text = String::new();
        let root = Value::from_pairs(pairs);
        let mut out = make_string_output(&mut text);
        eval(&self.environment, &instructions, root, &blocks, &mut out, AutoEscape::None)
            .map_err(error)?;
        drop(out);
        if text.len() > meter::MAX_STRING {
            let limit = meter::MAX_STRING;
            return Err(TextError::TemplateBounds(format!(
                "the text has {} bytes, at most {limit} are allowed",
                text.len()
            )));
        }
        Ok(text)
    }
}

fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    // Prints as "", has no attributes: jinja2's default.
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_fuel(Some(meter::MAX_STEPS));
    env.set_recursion_limit(500);
    env.set_unknown_method_callback(methods::call);
    env.set_formatter(|out, state, value| {
        let text = print::python_str(value)?;
        meter::charge_bytes(state, text.len())?;
        Ok(out.write_str(&text)?)
    });
    env.add_function("raise_exception", |message: Value| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "raised")
            .with_source(Raised(print::python_str(&message)?)))
    });
    env.add_function("strftime_now", |state: &State, format: &str| {
        let seconds = state.lookup(NOW).and_then(|now| now.as_i64()).unwrap_or(0);
        LocalTime { seconds }.strftime(format)
    });
    ops::register(&mut env);
    filters::register(&mut env);
    env
}

/// The message that a template raised with `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn error(err: Error) -> TextError {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&err);
    while let Some(cause) = source {
        if let Some(Raised(message)) = cause.downcast_ref::<Raised>() {
            return TextError::Raised(message.clone());
        }
        if let Some(cause) = cause.downcast_ref::<Error>()
            && cause.kind() == ErrorKind::OutOfFuel
        {
            let steps = || format!("more than {} steps", meter::MAX_STEPS);
            return TextError::TemplateBounds(cause.detail().map_or_else(steps, str::to_owned));
        }
        source = cause.source();
    }
    let line = err.line().unwrap_or(0);
    let reason = match err.detail() {
        Some(detail) => format!("{}: {detail}", err.kind()),
        None => err.kind().to_string(),
    };
    TextError::Template { line, reason }
}

/// JSON to a template's value; key order is kept.
fn value_of(json: &Json, depth: usize) -> Result<Value, Error> {
    if depth == 0 {
        return Err(meter::exceeded(&format!(
            "input nested more than {} levels deep",
            meter::MAX_DEPTH
        )));
    }
    Ok(match json {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => Value::from(i),
            (None, Some(u)) => Value::from(u),
            _ => Value::from(n.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(s) => Value::from(s.as_str()),
        Json::Array(items) => Value::from(
            items.iter().map(|item| value_of(item, depth - 1)).collect::<Result<Vec<_>, _>>()?,
        ),
        Json::Object(map) => {
            let pairs =
                map.iter().map(|(key, item)| Ok((key.as_str(), value_of(item, depth - 1)?)));
            Value::from_pairs(pairs.collect::<Result<Vec<_>, Error>>()?)
        }
    })
}

/// `{% generation %}` marks the assistant's tokens for training; for a render it is a block that is
/// always taken.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        // Behind the opening: `{%}` does not close itself.
        let Some((inner, behind)) = tag[2..].split_once("%}") else {
            rest = tag;
            break;
        };
        let name = inner.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        match name {
            "generation" | "endgeneration" => {
                let statement = if name == "generation" { "if true" } else { "endif" };
                out.push_str("{%");
                out.push_str(&inner.replacen(name, statement, 1));
                out.push_str("%}");
                rest = behind;
            }
            _ => {
                // Only the opening is passed over: a string may hold "%}".
                out.push_str("{%");
                rest = &tag[2..];
            }
        }
    }
    out.push_str(rest);
    out
}
