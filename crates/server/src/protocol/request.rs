//! What every request with a body goes through first.

use axum::extract::Request;

use crate::error::Result;
use crate::fields::reader::Reader;
use crate::fields::table::{Field, check};
use crate::http::body;
use crate::run::state::{Loaded, State};

/// A request whose fields fit its tables.
pub struct Checked {
    /// Its fields but for `model`.
    pub reader: Reader,
    /// The model that it asks for.
    pub loaded: Loaded,
    /// How long its body was, in bytes.
    pub bytes: usize,
}

/// Reads `request` and checks it against `tables`.
///
/// # Errors
/// There is no model yet or any more, the body cannot be read, a field does not fit, or the model is
/// not the served one.
pub async fn checked(state: &State, request: Request, tables: &[&[Field]]) -> Result<Checked> {
    state.loaded()?;
    let (body, bytes) = body::object(state, request).await?;
    let mut reader = check(tables, &state.config.limits, body)?;
    let loaded = state.serve(reader.text("model")?.as_deref())?;
    Ok(Checked { reader, loaded, bytes })
}
