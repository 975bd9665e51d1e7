//! Bytes of a request in base64.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::error::{ApiError, Result};

/// Base64 with or without the `=` at its end.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Base64 without the breaks of its lines, which many encoders write.
pub fn without_breaks(data: &str) -> Cow<'_, str> {
    const BREAKS: [char; 2] = ['\r', '\n'];
    match data.contains(BREAKS) {
        true => Cow::Owned(data.replace(BREAKS, "")),
        false => Cow::Borrowed(data),
    }
}

/// The bytes that `data` of the request's `field` stands for.
///
/// # Errors
/// No base64.
pub fn bytes_in(field: &str, data: &str) -> Result<Vec<u8>> {
    BASE64.decode(data).map_err(|error| ApiError::value(field, format!("not base64: {error}")))
}
