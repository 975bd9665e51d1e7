//! Gemini CLI, whose settings are its user's but for the login.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::{Value as Json, json};

use crate::commands::launch::server::Served;
use crate::commands::launch::setup::{File, Folder, Setup, Told};
use crate::failure::{Failure, Result, reason};

/// The variable of the folder in which Gemini CLI has its own.
const HOME: &str = "GEMINI_CLI_HOME";

/// Its sessions and the states that it goes back to.
const KEPT: &[&str] = &["tmp", "history"];

/// Gemini CLI takes the server from variables. That a key is used, where its user chose a login, is
/// told by settings alone. They are the user's but for that, and what else lies beside them is
/// linked.
///
/// # Errors
/// Settings that cannot be read: without them, what they forbid would be allowed.
pub fn gemini(served: &Served, key: Option<&str>) -> Result<Setup> {
    let home = std::env::var_os(HOME).filter(|home| !home.is_empty());
    let home = home.map(PathBuf::from).or_else(std::env::home_dir);
    // Links lead there from another folder.
    let beside = home.map(|home| std::path::absolute(home.join(".gemini"))).transpose();
    let beside = beside.map_err(|error| Failure::Other(format!("{HOME}: {}", reason(&error))))?;
    let own = beside.as_ref().map(|folder| folder.join("settings.json"));
    let settings = own.as_deref().map_or_else(|| with_key(None), own_with_key)?;
    let variables = vec![
        ("GOOGLE_GEMINI_BASE_URL", served.url.clone()),
        ("GEMINI_API_KEY", key.unwrap_or("none").to_owned()),
    ];
    let rest = own.filter(|path| path.is_file());
    let rest =
        rest.map_or_else(String::new, |path| format!(", and the rest of {}", path.display()));
    let file = File {
        path: ".gemini/settings.json",
        text: settings.to_string(),
        shown: Some(format!("{}{rest}", with_key(None)?)),
    };
    Ok(Setup {
        variables,
        removed: &["GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"],
        arguments: ["--model", &served.model].map(OsString::from).into(),
        folder: Some(Folder { file, told: Told::Variable(HOME), beside, kept: KEPT }),
    })
}

/// The settings in the file at `path` where the server is asked by a key.
///
/// # Errors
/// They cannot be read.
fn own_with_key(path: &Path) -> Result<Json> {
    let refused = |why: String| {
        let path = path.display();
        Failure::Other(format!("{path}: {why}: mend it, or name another folder in {HOME}"))
    };
    match fs::read_to_string(path) {
        Ok(text) => with_key(Some(&text)).map_err(|error| refused(error.to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => with_key(None),
        Err(error) => Err(refused(reason(&error))),
    }
}

/// The settings `own` where the server is asked by a key.
///
/// # Errors
/// They are no JSON with comments, or what is to hold the key's setting is no object.
fn with_key(own: Option<&str>) -> Result<Json> {
    let refused = |why: String| Err(Failure::Other(why));
    let mut settings: Json = match own.map(|text| serde_json::from_str(&without_comments(text))) {
        None => json!({}),
        Some(Ok(settings)) => settings,
        Some(Err(error)) => return refused(error.to_string()),
    };
    let (mut at, mut path) = (&mut settings, "the whole");
    for name in ["security", "auth", "selectedType"] {
        if at.is_null() && path != "the whole" {
            *at = json!({});
        }
        if !at.is_object() {
            return refused(format!("`{path}` is no object"));
        }
        (at, path) = (&mut at[name], name);
    }
    *at = json!("gemini-api-key");
    Ok(settings)
}

/// The JSON `text` without comments, which Gemini CLI allows in its settings.
fn without_comments(text: &str) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['"', '/']) {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let comment = match rest.get(..2) {
            Some("//") => Some(rest.find('\n').unwrap_or(rest.len())),
            // One without an end is no JSON, and stays for the parser to tell.
            Some("/*") => rest[2..].find("*/").map(|end| end + 4),
            _ => None,
        };
        let length = comment.unwrap_or_else(|| string_length(rest));
        if comment.is_none() {
            kept.push_str(&rest[..length]);
        }
        rest = &rest[length..];
    }
    kept + rest
}

/// The length of the string with which `text` begins; 1 where it begins with something else.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if at > 0 && !is_escaped => return at + 1,
            _ if at == 0 && byte != b'"' => return 1,
            _ => is_escaped = byte == b'\\' && !is_escaped,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::{own_with_key, with_key};

    #[test]
    fn settings_stay_but_for_the_login() {
        let own = r#"// mine
            {"ui": {"theme": "a//b \" /* c */"}, /* "x": 1, */
            "tools": {"exclude": ["run"]}, // none
            "security": {"auth": {"selectedType": "oauth-personal", "a": 1}}} /*é*/ //"#;
        let expected = json!({
            "ui": {"theme": "a//b \" /* c */"},
            "tools": {"exclude": ["run"]},
            "security": {"auth": {"selectedType": "gemini-api-key", "a": 1}},
        });
        assert_eq!(with_key(Some(own)).unwrap(), expected);
        let alone = json!({"security": {"auth": {"selectedType": "gemini-api-key"}}});
        for text in [None, Some("// a\n{}"), Some(r#"{"security": null}"#)] {
            assert_eq!(with_key(text).unwrap(), alone, "{text:?}");
        }
    }

    #[test]
    fn settings_that_cannot_be_read_are_refused_by_their_files_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings.json");
        assert!(own_with_key(&path).is_ok(), "there need be none");
        for text in ["{", "[]", "null", "{} /* a", "{} / 2", "\"", r#"{"security": 1}"#] {
            fs::write(&path, text).unwrap();
            let error = own_with_key(&path).unwrap_err().to_string();
            assert!(
                error.contains("settings.json: ") && error.contains("GEMINI_CLI_HOME"),
                "{error}"
            );
        }
        fs::write(&path, [0xff]).unwrap();
        assert!(own_with_key(&path).is_err());
    }
}
