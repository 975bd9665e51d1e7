//! The first step of every request with a body: checks of its fields, and its model.

use axum::extract::Request;

use crate::error::Result;
use crate::fields::reader::Reader;
use crate::fields::table::{Field, check};
use crate::http::body;
use crate::pool::lease::Lease;
use crate::pool::loaded::Loaded;
use crate::protocol::waiting::Waiting;
use crate::run::state::State;
use crate::run::tally::Tally;

/// A request whose fields fit its tables.
pub struct Checked {
    /// Its fields but for `model`.
    pub reader: Reader,
    /// The model that it asks for, which stays loaded as long as this does.
    pub loaded: Lease<Loaded>,
    /// How long its body was, in bytes.
    pub bytes: usize,
}

/// Reads `request`, checks it against `tables`, and waits until its model is loaded.
///
/// # Errors
/// The server is not ready or ends, the body cannot be read, a field does not fit; there is no such
/// model, or it cannot be loaded.
pub async fn checked(state: &State, request: Request, tables: &[&[Field]]) -> Result<Checked> {
    state.pool.check_open()?;
    let waiting = request.extensions().get::<Waiting>().cloned().unwrap_or_default();
    let (body, bytes) = body::object(state, request).await?;
    let mut reader = check(tables, &state.config.limits, body)?;
    let name = reader.text("model")?;
    let streams = reader.copy("stream") == true;
    let loaded = loaded_for(state, &waiting, name.as_deref(), streams).await?;
    Ok(Checked { reader, loaded, bytes })
}

/// The model `name`, once it is loaded. A request that wants events hears that it is waited for.
///
/// # Errors
/// There is no such model, or it cannot be loaded.
pub async fn loaded_for(
    state: &State,
    waiting: &Waiting,
    name: Option<&str>,
    wants_events: bool,
) -> Result<Lease<Loaded>> {
    Tally::current().asks_for(name);
    waiting.set(wants_events);
    let loaded = state.pool.text(name).await;
    waiting.set(false);
    let loaded = loaded?;
    Tally::current().answered_by(loaded.name());
    Ok(loaded)
}
