//! The query of a request's address.

use crate::error::{ApiError, Result};

/// The most names of a query.
const MOST: usize = 32;

/// The names and values of a query.
///
/// # Errors
/// A name is there twice, or there are too many.
pub fn pairs(query: Option<&str>) -> Result<Vec<(String, String)>> {
    let mut pairs = Vec::<(String, String)>::new();
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        if pairs.iter().any(|(other, _)| *other == name) {
            return Err(ApiError::value(name, "is there twice"));
        }
        if pairs.len() == MOST {
            let reason = format!("the query has more than {MOST} names");
            return Err(ApiError::bad_request(reason));
        }
        pairs.push((name.into_owned(), value.into_owned()));
    }
    Ok(pairs)
}
