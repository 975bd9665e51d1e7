//! Finds out, by rendering it, how a model's template takes a reasoning effort.

use inference_core::{ChatOptions, Message, TextModel, Value};

/// The way in which a chat template takes the request's `reasoning_effort`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// The template does not take it.
    #[default]
    Unknown,
    /// It can be told not to think (`enable_thinking`).
    Switch,
    /// It takes levels (`reasoning_effort`).
    Levels,
    /// Both.
    SwitchAndLevels,
}

impl Effort {
    /// Renders a question in different ways and compares.
    pub fn probe(model: &dyn TextModel) -> Effort {
        let differs = |name: &str, one: Value, other: Value| {
            let render = |value| {
                let template_kwargs = vec![(name.to_owned(), value)];
                let chat = ChatOptions { template_kwargs, ..ChatOptions::default() };
                model.render_chat(&[Message::user("a")], &chat).ok().map(|prompt| prompt.text)
            };
            render(one) != render(other)
        };
        let switch = differs("enable_thinking", true.into(), false.into());
        let levels = differs("reasoning_effort", "low".into(), "high".into());
        match (switch, levels) {
            (false, false) => Effort::Unknown,
            (true, false) => Effort::Switch,
            (false, true) => Effort::Levels,
            (true, true) => Effort::SwitchAndLevels,
        }
    }

    /// The template's variables for `effort`.
    ///
    /// # Errors
    /// Why the template cannot have it.
    pub fn variables(self, effort: &str) -> Result<Vec<(String, Value)>, &'static str> {
        let switch = |on: bool| ("enable_thinking".to_owned(), Value::from(on));
        let level = ("reasoning_effort".to_owned(), Value::from(effort));
        match (self, effort) {
            // A model that does not think does as it is told.
            (Effort::Unknown, "none") => Ok(Vec::new()),
            (Effort::Unknown, _) => Err("the model's chat template knows nothing of it"),
            (Effort::Switch, effort) => Ok(vec![switch(effort != "none")]),
            (Effort::Levels, "none") => Err("the model cannot be told not to think"),
            (Effort::Levels, _) => Ok(vec![level]),
            (Effort::SwitchAndLevels, "none") => Ok(vec![switch(false)]),
            (Effort::SwitchAndLevels, _) => Ok(vec![switch(true), level]),
        }
    }

    /// The template's variables for thinking, or for not thinking.
    ///
    /// # Errors
    /// Why the template cannot have it.
    pub fn switched(self, on: bool) -> Result<Vec<(String, Value)>, &'static str> {
        match self {
            _ if !on => self.variables("none"),
            Effort::Unknown => Err("the model's chat template knows nothing of thinking"),
            // It always thinks.
            Effort::Levels => Ok(Vec::new()),
            Effort::Switch | Effort::SwitchAndLevels => {
                Ok(vec![("enable_thinking".to_owned(), Value::from(true))])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use inference_core::Value;

    use super::Effort;

    #[test]
    fn what_the_template_does_not_know_is_refused() {
        assert!(Effort::Unknown.variables("high").is_err());
        assert_eq!(Effort::Unknown.variables("none").unwrap(), vec![]);
        assert!(Effort::Levels.variables("none").is_err());
        let off = vec![("enable_thinking".to_owned(), Value::from(false))];
        assert_eq!(Effort::Switch.variables("none").unwrap(), off);
        assert_eq!(Effort::SwitchAndLevels.variables("none").unwrap(), off);
        assert_eq!(Effort::SwitchAndLevels.variables("low").unwrap().len(), 2);
        let on = vec![("enable_thinking".to_owned(), Value::from(true))];
        assert_eq!(Effort::Switch.switched(true).unwrap(), on);
        assert_eq!(Effort::Switch.switched(false).unwrap(), off);
        assert_eq!(Effort::Levels.switched(true).unwrap(), vec![]);
        assert!(Effort::Unknown.switched(true).is_err() && Effort::Levels.switched(false).is_err());
    }
}
