//! Conversations whose last message goes on: where its text ends in what the template writes.

use serde_json::{Map, Value as Json};

use crate::TextError;

/// Puts the mark `end` behind the text of the last message.
///
/// # Errors
/// [`TextError::Input`] where that is no assistant's, or has no text that could go on.
pub(super) fn mark_end(
    variables: &mut Map<String, Json>,
    end: Option<char>,
) -> Result<(), TextError> {
    let end =
        end.ok_or_else(|| cannot("and the others hold 31 noncharacters, and one is needed"))?;
    let messages = variables.get_mut("messages").and_then(Json::as_array_mut);
    let last = messages.and_then(|messages| messages.last_mut());
    let Some(last) = last.filter(|last| last["role"] == "assistant") else {
        return Err(cannot("is not the assistant's, so that no answer can go on with it"));
    };
    if last.get("tool_calls").is_some_and(|calls| *calls != Json::Array(Vec::new())) {
        return Err(cannot("ends with calls, whose results come next"));
    }
    let text = match last.get_mut("content") {
        Some(Json::Array(parts)) => parts.last_mut().and_then(|part| part.get_mut("text")),
        content => content,
    };
    let Some(Json::String(text)) = text else {
        return Err(cannot("has no text that an answer could go on with"));
    };
    text.push(end);
    Ok(())
}

/// The text that the template wrote, up to the mark `end`.
///
/// # Errors
/// [`TextError::Input`] where the template left the text out.
pub(super) fn cut(mut written: String, end: char) -> Result<String, TextError> {
    let Some(at) = written.rfind(end) else {
        return Err(cannot(
            "is left out by the chat template, so that no answer can go on with it",
        ));
    };
    written.truncate(at);
    // A template may write a text twice.
    Ok(written.replace(end, ""))
}

fn cannot(reason: &str) -> TextError {
    TextError::Input { name: "the last message".into(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value as Json, json};

    use super::{cut, mark_end};

    const END: char = '\u{fdd0}';

    fn marked(last: Json) -> Option<Json> {
        let mut variables = Map::new();
        variables.insert("messages".to_owned(), json!([{"role": "user", "content": "a"}, last]));
        mark_end(&mut variables, Some(END)).ok()?;
        Some(variables["messages"][1]["content"].clone())
    }

    #[test]
    fn the_end_of_an_answers_text_is_marked() {
        let text = json!({"role": "assistant", "content": "b ", "tool_calls": []});
        assert_eq!(marked(text).unwrap(), format!("b {END}"));
        let parts = json!([{"type": "text", "text": "b"}, {"type": "text", "text": ""}]);
        let content = marked(json!({"role": "assistant", "content": parts})).unwrap();
        assert_eq!(content[1]["text"], END.to_string());
        for last in [
            json!({"role": "user", "content": "b"}),
            json!({"role": "assistant", "content": null}),
            json!({"role": "assistant", "content": []}),
            json!({"role": "assistant", "content": "b", "tool_calls": [{}]}),
        ] {
            assert_eq!(marked(last), None);
        }
    }

    #[test]
    fn what_follows_the_last_mark_is_cut() {
        let written = format!("<a>b{END}<c>b {END}<end>");
        assert_eq!(cut(written, END).unwrap(), "<a>b<c>b ");
        assert!(cut("<a>b".to_owned(), END).is_err());
    }
}
