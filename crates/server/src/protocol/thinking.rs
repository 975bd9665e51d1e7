//! Fields that say whether to think, and how much.

use inference_core::Value;
use inference_text::Effort;

use crate::error::{ApiError, Result};
use crate::fields::told::take_hint;

/// The reasoning that a request asks for.
#[derive(Debug, Default, PartialEq)]
pub struct Thinking {
    /// Variables of the chat template.
    pub variables: Vec<(String, Value)>,
    /// The most tokens of reasoning.
    pub budget: Option<usize>,
    /// It is asked for, or not wanted.
    pub is_on: Option<bool>,
}

/// The efforts that requests may ask for.
const LEVELS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

impl Thinking {
    fn with(self, is_on: bool) -> Thinking {
        Thinking { is_on: Some(is_on), ..self }
    }
}

/// The thinking of the effort `level`, which `field` asks for.
///
/// # Errors
/// The template cannot have it. One that knows nothing of thinking takes any, and the answer tells
/// so.
pub fn level(effort: Effort, level: &str, field: &str) -> Result<Thinking> {
    if !LEVELS.contains(&level) {
        let reason = format!("`{level}` is not one of {}", LEVELS.join(", "));
        return Err(ApiError::value(field, reason));
    }
    if level == "none" {
        return switched(effort, false, field);
    }
    taken(effort, effort.variables(level), field).map(|thinking| thinking.with(true))
}

/// Thinking that is on or off, which `field` asks for. Where the template cannot be told, its end
/// is forced.
///
/// # Errors
/// As [`level`].
pub fn switched(effort: Effort, on: bool, field: &str) -> Result<Thinking> {
    if !on && matches!(effort, Effort::Levels | Effort::Unknown) {
        return Ok(Thinking { budget: Some(0), ..Thinking::default() }.with(false));
    }
    taken(effort, effort.switched(on), field).map(|thinking| thinking.with(on))
}

fn taken(
    effort: Effort,
    variables: Result<Vec<(String, Value)>, &'static str>,
    field: &str,
) -> Result<Thinking> {
    match (variables, effort) {
        (Ok(variables), _) => Ok(Thinking { variables, ..Thinking::default() }),
        // A model that does not think answers the same however much it is to think.
        (Err(reason), Effort::Unknown) => take_hint(field, reason).map(|()| Thinking::default()),
        (Err(reason), _) => Err(ApiError::unsupported(field, reason)),
    }
}

#[cfg(test)]
mod tests {
    use inference_text::Effort;

    use super::{Thinking, level, switched};

    #[test]
    fn a_model_that_does_not_think_takes_any_effort() {
        let nothing = Thinking::default().with(true);
        assert_eq!(level(Effort::Unknown, "high", "reasoning_effort").unwrap(), nothing);
        assert_eq!(switched(Effort::Unknown, true, "think").unwrap(), nothing);
    }

    #[test]
    fn efforts_are_those_that_are_known() {
        let error = level(Effort::Switch, "off", "reasoning.effort").unwrap_err();
        assert_eq!(error.param.as_deref(), Some("reasoning.effort"));
        assert!(error.message.contains("none, minimal"), "{}", error.message);
    }

    #[test]
    fn thinking_that_a_template_cannot_turn_off_is_bounded() {
        for effort in [Effort::Levels, Effort::Unknown] {
            assert_eq!(level(effort, "none", "reasoning_effort").unwrap().budget, Some(0));
            assert_eq!(switched(effort, false, "think").unwrap().budget, Some(0));
        }
        for effort in [Effort::Switch, Effort::SwitchAndLevels] {
            let off = switched(effort, false, "think").unwrap();
            assert_eq!((off.variables.len(), off.budget), (1, None));
        }
    }
}
