//! The parts of an answer, and the tools that it may call.

pub use inference_core::Piece;
use serde_json::{Value, json};

use crate::json::from_value;

/// A tool that may be called.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The JSON schema of its arguments.
    pub parameters: Value,
    /// A call's arguments must follow the schema to the letter.
    pub strict: bool,
}

impl Tool {
    /// The tools of a conversation as chat templates take them: `{"type": "function", "function":
    /// {"name", "parameters"}}`, or the function alone. What has no name cannot be called.
    pub fn of_values(tools: &[inference_core::Value]) -> Vec<Tool> {
        let tool = |value| {
            let value = from_value(value);
            let function = value.get("function").unwrap_or(&value);
            let name = function.get("name")?.as_str()?.to_owned();
            let parameters = function.get("parameters").cloned();
            let parameters = parameters.unwrap_or_else(|| json!({"type": "object"}));
            Some(Tool { name, parameters, strict: false })
        };
        tools.iter().filter_map(tool).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Tool;
    use crate::json::to_value;

    #[test]
    fn tools_are_read_with_and_without_their_type() {
        let schema = json!({"type": "object", "properties": {"zone": {"type": "string"}}});
        let function = json!({"name": "time", "parameters": schema});
        let typed = json!({"type": "function", "function": function});
        let tools = [typed, function, json!({"name": "now"}), json!({"type": "function"})];
        let tools = Tool::of_values(&tools.map(to_value));
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["time", "time", "now"]);
        assert_eq!(tools[0].parameters, schema);
        assert_eq!(tools[2].parameters, json!({"type": "object"}));
    }
}
