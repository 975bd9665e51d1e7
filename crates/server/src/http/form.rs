//! A body of `multipart/form-data` (RFC 7578), taken apart.

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;

use super::body::bytes;
use crate::error::{ApiError, Result};
use crate::run::state::State;

/// The most parts of a form.
const MOST_PARTS: usize = 64;

/// A part of a form.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// The field's name.
    pub name: String,
    /// The part is a file.
    pub is_file: bool,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// The parts of the request's body, with `boundary` between them.
///
/// # Errors
/// It is too large, too slow, or no form.
pub async fn parts(state: &State, request: Request, boundary: String) -> Result<Vec<Part>> {
    let (parts, body) = request.into_parts();
    let bytes = bytes(state, &parts.headers, body).await?;
    state.read_text(bytes.len(), move || split(&bytes, &boundary)).await
}

/// The text between the parts, where the body is declared as a form.
pub fn boundary(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let (essence, parameters) = value.split_once(';')?;
    if !essence.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let boundary = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"'))
    })?;
    (!boundary.is_empty() && boundary.len() <= 70).then(|| boundary.to_owned())
}

fn split(bytes: &[u8], boundary: &str) -> Result<Vec<Part>> {
    let broken = |reason: &str| ApiError::bad_request(format!("the form is broken: {reason}"));
    let first = format!("--{boundary}");
    let between = format!("\r\n--{boundary}");
    let start = find(bytes, first.as_bytes()).ok_or_else(|| broken("its boundary is not there"))?;
    let mut rest = &bytes[start + first.len()..];
    let mut parts = Vec::new();
    while !rest.starts_with(b"--") {
        rest = rest.strip_prefix(b"\r\n").ok_or_else(|| broken("a part begins in no line"))?;
        let end = find(rest, between.as_bytes()).ok_or_else(|| broken("its end is missing"))?;
        let part = &rest[..end];
        let head = find(part, b"\r\n\r\n").ok_or_else(|| broken("a part has no head"))?;
        let text = std::str::from_utf8(&part[..head]);
        let text = text.map_err(|_| broken("a part's head is not UTF-8"))?;
        let disposition = text.split("\r\n").find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
        });
        let parameter = |name: &str| {
            disposition.unwrap_or_default().split(';').find_map(|parameter| {
                let (found, value) = parameter.split_once('=')?;
                (found.trim() == name).then(|| value.trim().trim_matches('"').to_owned())
            })
        };
        let name = parameter("name").ok_or_else(|| broken("a part has no name"))?;
        if parts.len() == MOST_PARTS {
            return Err(broken("it has too many parts"));
        }
        let is_file = parameter("filename").is_some();
        parts.push(Part { name, is_file, bytes: part[head + 4..].to_vec() });
        rest = &rest[end + between.len()..];
    }
    Ok(parts)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &[u8] = b"--x\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\na fox\r\n--x\r\n\
        Content-Disposition: form-data; name=\"image[]\"; filename=\"a.png\"\r\nContent-Type: image/png\r\n\r\n\
        \x00\r\n--\xff\r\n--x--\r\n";

    #[test]
    fn a_form_has_its_parts_byte_for_byte() {
        let parts = split(FORM, "x").unwrap();
        let prompt = Part { name: "prompt".into(), is_file: false, bytes: b"a fox".to_vec() };
        let image =
            Part { name: "image[]".into(), is_file: true, bytes: b"\x00\r\n--\xff".to_vec() };
        assert_eq!(parts, [prompt, image]);
    }

    #[test]
    fn a_form_that_ends_early_or_has_no_names_is_refused() {
        for end in 0..FORM.len() - 4 {
            assert!(split(&FORM[..end], "x").is_err(), "{end}");
        }
        assert!(split(b"--x\r\n\r\n\r\na\r\n--x--", "x").is_err());
        assert!(split(FORM, "y").is_err());
    }
}
