//! Fields that say whether to think, and how much, as variables of the chat template.

use inference_core::Value;
use inference_text::Effort;

use crate::error::{ApiError, Result};
use crate::fields::told::take_hint;

/// Variables of the chat template.
pub type Variables = Vec<(String, Value)>;

/// The variables for the effort `level`, which `field` asks for.
///
/// # Errors
/// The template cannot have it. One that knows nothing of thinking takes any, and the answer tells
/// so.
pub fn level(effort: Effort, level: &str, field: &str) -> Result<Variables> {
    taken(effort, effort.variables(level), field)
}

/// The variables for thinking, or for not thinking, which `field` asks for.
///
/// # Errors
/// As [`level`].
pub fn switched(effort: Effort, on: bool, field: &str) -> Result<Variables> {
    taken(effort, effort.switched(on), field)
}

fn taken(
    effort: Effort,
    variables: Result<Variables, &'static str>,
    field: &str,
) -> Result<Variables> {
    match (variables, effort) {
        (Ok(variables), _) => Ok(variables),
        // A model that does not think answers the same however much it is to think.
        (Err(reason), Effort::Unknown) => take_hint(field, reason).map(|()| Vec::new()),
        (Err(reason), _) => Err(ApiError::unsupported(field, reason)),
    }
}

#[cfg(test)]
mod tests {
    use inference_text::Effort;

    use super::{level, switched};

    #[test]
    fn a_model_that_does_not_think_takes_any_effort() {
        assert_eq!(level(Effort::Unknown, "high", "reasoning_effort").unwrap(), vec![]);
        assert_eq!(switched(Effort::Unknown, true, "think").unwrap(), vec![]);
        assert_eq!(switched(Effort::Switch, true, "think").unwrap().len(), 1);
        let error = level(Effort::Levels, "none", "reasoning_effort").unwrap_err();
        assert_eq!(error.param.as_deref(), Some("reasoning_effort"));
    }
}
