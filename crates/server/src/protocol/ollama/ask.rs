//! The first step of every request to a model: its fields, its model, and how long that stays.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value as Json, json};

use super::keep_alive::keep_alive;
use super::tables::OPTIONS;
use super::wire::{Head, Kind};
use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;
use crate::fields::table::{Field, check};
use crate::fields::told::take_hint;
use crate::http::body;
use crate::http::response::json_response;
use crate::pool::lease::Lease;
use crate::pool::loaded::Loaded;
use crate::pool::models::Makes;
use crate::pool::slot::Keep;
use crate::run::state::State;
use crate::run::tally::Tally;

/// A request whose fields fit its tables.
pub struct Ask {
    /// Its fields but for `model` and `keep_alive`.
    pub reader: Reader,
    /// The model's number.
    pub index: usize,
    /// The model's name, as the server has it.
    pub name: String,
    /// How long the model stays.
    pub keep: Keep,
    /// How long its body was, in bytes.
    pub bytes: usize,
    /// When it came.
    pub began: Instant,
}

/// Reads `request`, which is for a model that makes `makes`, and checks it against `tables`.
///
/// # Errors
/// The body cannot be read, a field does not fit, there is no such model, or it stays and is to be
/// unloaded.
pub async fn ask(
    state: &State,
    request: Request,
    tables: &[&[Field]],
    makes: Makes,
) -> Result<Ask> {
    let began = Instant::now();
    state.pool.check_open()?;
    let (mut body, bytes) = body::undeclared_object(state, request).await?;
    options_on_top(&mut body, tables)?;
    let mut reader = check(tables, &state.config.limits, body)?;
    let mut keep = keep_alive(&mut reader)?;
    let asked = reader.text("model")?.unwrap_or_default();
    let index = state.pool.find(Some(meant(state, &asked)), makes).await?;
    let known = Arc::clone(state.pool.catalogue().known(index));
    if known.pinned && keep == Keep::For(Duration::ZERO) {
        take_hint("keep_alive", "the model stays loaded: it is pinned, or the only one")?;
        keep = Keep::Always;
    }
    Ok(Ask { reader, index, name: known.name.to_string(), keep, bytes, began })
}

/// Moves what clients write beside `options`, and not into it, to where Ollama has it: into
/// `options`, of which requests with these `tables` have one.
///
/// # Errors
/// It is there too, and says something else.
fn options_on_top(body: &mut Map<String, Json>, tables: &[&[Field]]) -> Result<()> {
    let is_own = |name: &str| tables.iter().flat_map(|table| table.iter()).any(|f| f.name == name);
    if !is_own("options") || body.get("options").is_some_and(|o| !o.is_object() && !o.is_null()) {
        return Ok(());
    }
    let is_option =
        |name: &&String| !is_own(name) && OPTIONS.iter().any(|option| option.name == name.as_str());
    let names: Vec<String> = body.keys().filter(is_option).cloned().collect();
    for name in names {
        let value = body.shift_remove(&name).unwrap_or_default();
        if value.is_null() {
            continue;
        }
        if body.get("options").is_none_or(Json::is_null) {
            body.insert("options".to_owned(), json!({}));
        }
        let options = &mut body["options"];
        if !options[&name].is_null() && options[&name] != value {
            return Err(ApiError::value(&name, format!("differs from `options.{name}`")));
        }
        options[&name] = value;
    }
    Ok(())
}

/// The name that `asked` means: Ollama's clients put `:latest` behind names that have no tag.
pub fn meant<'a>(state: &State, asked: &'a str) -> &'a str {
    state.pool.catalogue().names().untagged(asked)
}

impl Ask {
    /// The model, and the head of the answer, once it is loaded.
    ///
    /// # Errors
    /// It cannot be loaded.
    pub async fn loaded(&self, state: &Arc<State>, kind: Kind) -> Result<(Lease<Loaded>, Head)> {
        let waits = Instant::now();
        Tally::current().asks_for(Some(&self.name));
        let loaded = state.pool.text(Some(&self.name)).await?;
        state.pool.keep(self.index, self.keep);
        Ok((loaded, self.head(state, kind, waits)))
    }

    /// The answer to a request without `text`: the model is loaded, or unloaded where it is not to
    /// stay.
    ///
    /// # Errors
    /// The model cannot be loaded, or there is a field that says how to answer.
    pub async fn of_nothing(
        mut self,
        state: &Arc<State>,
        kind: Kind,
        text: &str,
    ) -> Result<Response> {
        let waits = Instant::now();
        let done = self.load_or_unload(state, text).await?;
        let object = self.head(state, kind, waits).of_nothing(done);
        Ok(json_response(StatusCode::OK, &object))
    }

    /// The head of the answer, which waited for its model since `waits`.
    fn head(&self, state: &State, kind: Kind, waits: Instant) -> Head {
        Head {
            kind,
            model: self.name.clone(),
            began: self.began,
            load: waits.elapsed(),
            call_id: state.id("call_"),
        }
    }

    /// Loads or unloads the model. Returns the word of Ollama for what was done.
    async fn load_or_unload(&mut self, state: &Arc<State>, text: &str) -> Result<&'static str> {
        for name in ["tools", "tool_choice", "images", "system", "raw", "think", "suffix"] {
            let is_text = ["system", "suffix"].contains(&name);
            let is_switch = ["raw", "think"].contains(&name);
            let asks_nothing = |value: &Json| {
                *value == json!([])
                    || is_text && *value == json!("")
                    || is_switch && *value == json!(false)
            };
            if self.reader.take(name).is_some_and(|value| !asks_nothing(&value)) {
                return Err(ApiError::value(name, format!("says nothing without `{text}`")));
            }
        }
        if self.keep == Keep::For(Duration::ZERO) {
            state.pool.keep(self.index, self.keep);
            return Ok("unload");
        }
        let _lease = state.pool.text(Some(&self.name)).await?;
        state.pool.keep(self.index, self.keep);
        Ok("load")
    }
}
