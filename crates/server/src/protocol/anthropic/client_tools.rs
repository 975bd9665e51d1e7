//! Tools that Anthropic's models know by their type, and that the client runs: their definitions
//! for models that do not.

use serde_json::{Map, Value as Json, json};

/// The description and the schema of the input of the tool of this type; `None` for others.
pub fn known(kind: &str) -> Option<(&'static str, Map<String, Json>)> {
    let is = |name: &str| kind.strip_prefix(name).is_some_and(|version| version.starts_with('_'));
    let (about, properties, required) = if is("bash") {
        let properties = json!({
            "command": {"type": "string", "description": "The command to run."},
            "restart": {"type": "boolean", "description": "Starts the shell anew, without a command."},
        });
        ("Runs a command in a shell that goes on from call to call.", properties, vec![])
    } else if is("text_editor") {
        ("Views, creates and edits text files.", file_commands(&[]), vec!["command", "path"])
    } else if is("memory") {
        let about = "Views, creates, edits, renames and deletes files below /memories, which keep \
                     what is to be known later.";
        (about, file_commands(&["delete", "rename"]), vec!["command"])
    } else {
        return None;
    };
    let schema = json!({"type": "object", "properties": properties, "required": required});
    match schema {
        Json::Object(schema) => Some((about, schema)),
        _ => None,
    }
}

fn file_commands(more: &[&str]) -> Json {
    let mut commands = vec!["view", "create", "str_replace", "insert"];
    commands.extend(more);
    let mut properties = json!({
        "command": {"type": "string", "enum": commands},
        "path": {"type": "string", "description": "The absolute path of the file or folder."},
        "file_text": {"type": "string", "description": "For `create`: the file's text."},
        "old_str": {"type": "string", "description": "For `str_replace`: the text to replace, which is there once."},
        "new_str": {"type": "string", "description": "For `str_replace`: the new text."},
        "insert_line": {"type": "integer", "description": "For `insert`: the line behind which the text goes; 0: the beginning."},
        "insert_text": {"type": "string", "description": "For `insert`: the text."},
        "view_range": {"type": "array", "items": {"type": "integer"},
            "description": "For `view`: the first and the last line; -1: to the end."},
    });
    if more.contains(&"rename") {
        properties["old_path"] = json!({"type": "string", "description": "For `rename`."});
        properties["new_path"] = json!({"type": "string", "description": "For `rename`."});
    }
    properties
}

#[cfg(test)]
mod tests {
    use super::known;

    #[test]
    fn tools_that_the_client_runs_have_definitions() {
        for (kind, needed) in
            [("bash_20250124", 0), ("text_editor_20250728", 2), ("memory_20250818", 1)]
        {
            let (about, schema) = known(kind).unwrap();
            assert!(about.ends_with('.'));
            assert_eq!(schema["required"].as_array().unwrap().len(), needed, "{kind}");
        }
        assert!(known("bashful").is_none() && known("computer_20250124").is_none());
    }
}
