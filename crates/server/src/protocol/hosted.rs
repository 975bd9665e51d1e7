//! Tools that other servers run themselves. A request offers them where the model may use them and
//! need not: they are left out, and the answer tells so.

use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;
use crate::fields::told::{is_strict, tell};

/// Beginnings of the kinds of OpenAI's, Anthropic's and others' own tools; versions follow.
const KINDS: [&str; 20] = [
    "advisor",
    "apply_patch",
    "browser_search",
    "code_execution",
    "code_interpreter",
    "computer",
    "file_search",
    "google_search",
    "image_generation",
    "local_shell",
    "mcp",
    "openrouter:",
    "programmatic_tool_calling",
    "shell",
    "tool_search",
    "url_context",
    "web_extractor",
    "web_fetch",
    "web_search",
    "x_search",
];

/// Leaves `tool` out where its `kind` is one that another server runs. Returns false where it is
/// not.
///
/// # Errors
/// It is, and the server holds requests to what it honours.
pub fn leave_out(tool: &Reader, kind: &str) -> Result<bool> {
    if !KINDS.iter().any(|known| kind.starts_with(known)) {
        return Ok(false);
    }
    if is_strict() {
        return Err(not_here(&tool.path("type"), kind));
    }
    tell(&tool.path(kind));
    Ok(true)
}

/// Leaves out the tool `kind` at `path`, which another server runs.
///
/// # Errors
/// The server holds requests to what it honours.
pub fn leave_out_at(path: &str, kind: &str) -> Result<()> {
    match is_strict() {
        true => Err(not_here(path, kind)),
        false => {
            tell(path);
            Ok(())
        }
    }
}

fn not_here(path: &str, kind: &str) -> ApiError {
    let reason =
        format!("the server has no `{kind}` of its own; take it out, or give it as a function");
    ApiError::unsupported(path, reason)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::leave_out;
    use crate::fields::reader::Reader;
    use crate::fields::told::telling;

    #[tokio::test]
    async fn tools_of_other_servers_are_left_out_and_told() {
        let tool = Reader::new("tools[8]", json!({})).unwrap();
        for kind in ["web_search", "web_search_preview_2025_03_11", "code_execution_20250825"] {
            let (left_out, names) = telling(false, async { leave_out(&tool, kind) }).await;
            assert!(left_out.unwrap() && names == [format!("tools[].{kind}")]);
            let (refused, _) = telling(true, async { leave_out(&tool, kind) }).await;
            assert_eq!(refused.unwrap_err().param.as_deref(), Some("tools[8].type"));
        }
        for kind in ["function", "custom", "functoin", "my_web_search"] {
            assert!(!leave_out(&tool, kind).unwrap(), "{kind}");
        }
    }
}
