//! Responses in the description.

use serde_json::{Value as Json, json};

/// The responses of an operation that answers `content` and tells errors as `error`.
pub fn responses(content: Json, error: &str) -> Json {
    let error = json!({"$ref": format!("#/components/schemas/{error}")});
    let failed = |about: &str| json!({"description": about, "content": {"application/json": {"schema": error}}});
    json!({
        "200": {"description": "Done", "content": content},
        "400": failed("A field that means nothing or is not honoured; `param` names it"),
        "401": failed("No key, or a wrong one"),
        "403": failed("A host or an origin that is not allowed, or what the server was not started for"),
        "404": failed("No such model, or nothing stored of that id"),
        "405": failed("Another method"),
        "408": failed("The body came too slowly"),
        "413": failed("The body is too large"),
        "415": failed("The body is not declared as JSON"),
        "429": failed("Too many wait; `Retry-After` tells when to try again"),
        "500": failed("A fault of the server"),
        "503": failed("The model is being loaded or cannot be, or the server ends"),
    })
}
