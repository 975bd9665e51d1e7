//! The name in a path.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use crate::error::ApiError;

/// The one name in a path, such as `gpt-oss-20b` in `/v1/models/gpt-oss-20b`.
#[derive(Debug)]
pub struct Name(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = ApiError;

    /// # Errors
    /// 400 for one that is not UTF-8.
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Name, ApiError> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Name(name)),
            Err(error) => Err(ApiError::bad_request(error.body_text())),
        }
    }
}
