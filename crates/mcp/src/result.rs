//! The outcome of a call, as text for a model.

use serde_json::Value as Json;

/// Bytes of a result's text. What is beyond would fill a context.
const LONGEST: usize = 128 << 10;

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its text; what is no text is told in brackets. It is as the server sent it.
    pub text: String,
    /// The tool failed, and the text says why.
    pub is_error: bool,
    /// Bytes that were cut off.
    pub cut: usize,
}

impl Outcome {
    /// The outcome that `result` tells.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn of(result: &Json) -> Result<Outcome, String> {
        let empty = Vec::new();
        let parts = match result.get("content") {
            Some(Json::Array(parts)) => parts,
            None | Some(Json::Null) => &empty,
            Some(_) => return Err("the `content` of a result is no array".to_owned()),
        };
        let texts: Vec<String> = parts.iter().map(part).collect();
        let mut text = texts.join("\n");
        // A structured result comes as text too, unless the server is careless.
        if let (true, Some(structured)) = (parts.is_empty(), result.get("structuredContent")) {
            text = structured.to_string();
        }
        let mut end = text.len().min(LONGEST);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let cut = text.len() - end;
        if cut > 0 {
            text.truncate(end);
            text.push_str(&format!("\n[{cut} more bytes were cut off]"));
        }
        let is_error = result.get("isError") == Some(&Json::Bool(true));
        Ok(Outcome { text, is_error, cut })
    }
}

/// A part as text.
fn part(part: &Json) -> String {
    let of = |name: &str| part.get(name).and_then(Json::as_str);
    let bytes = |name: &str| of(name).map_or(0, |data| data.len() / 4 * 3);
    let kind = of("type").unwrap_or("unknown");
    match (kind, of("text")) {
        ("text", Some(text)) => return text.to_owned(),
        ("resource_link", _) => {
            let uri = of("uri").unwrap_or("?");
            return of("name").map_or(uri.to_owned(), |name| format!("{name}: {uri}"));
        }
        ("resource", _) => {
            let resource = part.get("resource").unwrap_or(&Json::Null);
            let text = resource.get("text").and_then(Json::as_str);
            let uri = resource.get("uri").and_then(Json::as_str).unwrap_or("?");
            return text.map_or_else(|| format!("[the resource {uri}, left out]"), str::to_owned);
        }
        _ => {}
    }
    let media = of("mimeType").unwrap_or("of an unknown type");
    format!("[{kind} {media}, about {} bytes, left out]", bytes("data"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{LONGEST, Outcome};

    #[test]
    fn parts_become_text() {
        let result = json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "mimeType": "image/png", "data": "AAAABBBB"},
            {"type": "resource", "resource": {"uri": "a://b", "text": "two"}},
            {"type": "resource", "resource": {"uri": "a://c", "blob": "AAAA"}},
            {"type": "resource_link", "uri": "a://d", "name": "d"},
        ], "isError": true});
        let outcome = Outcome::of(&result).unwrap();
        let expected = "one\n[image image/png, about 6 bytes, left out]\ntwo\n\
                        [the resource a://c, left out]\nd: a://d";
        assert_eq!((outcome.text.as_str(), outcome.is_error, outcome.cut), (expected, true, 0));
        let structured = Outcome::of(&json!({"structuredContent": {"a": 1}})).unwrap();
        assert_eq!((structured.text.as_str(), structured.is_error), (r#"{"a":1}"#, false));
        assert!(Outcome::of(&json!({"content": "text"})).is_err());
    }

    #[test]
    fn a_result_that_is_too_long_is_cut_between_characters() {
        let text = format!("a{}", "é".repeat(LONGEST));
        let outcome = Outcome::of(&json!({"content": [{"type": "text", "text": text}]})).unwrap();
        assert_eq!(outcome.cut, 2 * LONGEST + 1 - (LONGEST - 1));
        assert!(outcome.text.ends_with("bytes were cut off]"));
    }
}
