//! Bounds of what a request may ask to be done over and over with one of its texts. A body is
//! bounded by its bytes; these hold what its parts are multiplied to.

use crate::error::{ApiError, Result};

/// The most tools of a request.
const TOOLS: usize = 1024;

/// The most bytes of all stop strings of a request.
const STOP_BYTES: usize = 4096;

/// The most bytes of a text that stands before or beside each of others, counted each time.
const REPEATED_BYTES: usize = 16 << 20;

/// Holds the number of a request's tools to its bound.
///
/// # Errors
/// They are too many; `field` holds them.
pub fn check_tools(field: &str, count: usize) -> Result<()> {
    match count <= TOOLS {
        true => Ok(()),
        false => {
            let reason = format!("has {count} tools, at most {TOOLS} are allowed");
            Err(ApiError::value(field, reason))
        }
    }
}

/// Holds the stop strings of a request to their bounds: `most` of them are allowed.
///
/// # Errors
/// They are too many or too long; `field` holds them.
pub fn check_stops(field: &str, stops: &[String], most: usize) -> Result<()> {
    if stops.len() > most {
        return Err(ApiError::value(field, format!("has more than {most} strings")));
    }
    let bytes: usize = stops.iter().map(String::len).sum();
    match bytes <= STOP_BYTES {
        true => Ok(()),
        false => {
            let reason = format!("has {bytes} bytes, at most {STOP_BYTES} are allowed");
            Err(ApiError::value(field, reason))
        }
    }
}

/// Holds a text that stands beside others to the bytes that it is multiplied to.
///
/// # Errors
/// They are too many; `field` holds the text.
pub fn check_repeated(field: &str, bytes: usize, times: usize) -> Result<()> {
    let whole = bytes.saturating_mul(times);
    match whole <= REPEATED_BYTES {
        true => Ok(()),
        false => {
            let reason = format!(
                "has {bytes} bytes and is read {times} times, which are {whole} bytes: \
                 at most {REPEATED_BYTES} are allowed"
            );
            Err(ApiError::value(field, reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{REPEATED_BYTES, STOP_BYTES, TOOLS, check_repeated, check_stops, check_tools};

    #[test]
    fn what_is_multiplied_is_refused_by_the_whole() {
        assert!(check_repeated("query", REPEATED_BYTES / 8, 8).is_ok());
        for (bytes, times) in [(REPEATED_BYTES / 8 + 1, 8), (usize::MAX, 2)] {
            let error = check_repeated("query", bytes, times).unwrap_err();
            assert_eq!(error.param.as_deref(), Some("query"));
        }
    }

    #[test]
    fn stop_strings_are_bounded_by_number_and_by_bytes() {
        let stops = |count, bytes| vec!["a".repeat(bytes); count];
        assert!(check_stops("stop", &stops(4, STOP_BYTES / 4), 4).is_ok());
        assert!(check_stops("stop", &stops(5, 1), 4).is_err());
        assert!(check_stops("stop", &stops(1, STOP_BYTES + 1), 4).is_err());
        assert!(check_tools("tools", TOOLS).is_ok() && check_tools("tools", TOOLS + 1).is_err());
    }
}
