//! One whole answer: the sum of its parts.

use super::part::{End, Part, Scored};

/// What an answer has said.
#[derive(Debug, Default)]
pub struct Said {
    /// What the model thought.
    pub reasoning: String,
    /// The answer's text.
    pub text: String,
    /// The tools that it calls.
    pub calls: Vec<Call>,
    /// The prompt's tokens, where their log probabilities were asked for.
    pub prompt: Vec<Scored>,
    /// The answer's tokens, where log probabilities were asked for.
    pub tokens: Vec<Scored>,
    /// Why it ended; `None` before it has.
    pub end: Option<End>,
}

/// A tool call.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    /// The tool's name.
    pub name: String,
    /// A JSON object.
    pub arguments: String,
}

impl Said {
    /// Adds what is said next.
    pub fn add(&mut self, part: Part) {
        match part {
            Part::Prompt(tokens) => self.prompt.extend(tokens),
            Part::Token(token) => self.tokens.push(token),
            Part::Reasoning(text) => self.reasoning.push_str(&text),
            Part::Text(text) => self.text.push_str(&text),
            Part::Call { name, .. } => self.calls.push(Call { name, arguments: String::new() }),
            Part::Arguments { index, text } => {
                if let Some(call) = self.calls.get_mut(index) {
                    call.arguments.push_str(&text);
                }
            }
            Part::End(end) => self.end = Some(end),
        }
    }

    /// The mean log probability of its tokens.
    pub fn likelihood(&self) -> f64 {
        let logprob = |scored: &Scored| f64::from(scored.token.logprob.unwrap_or(0.0));
        match self.tokens.len() {
            0 => f64::NEG_INFINITY,
            count => self.tokens.iter().map(logprob).sum::<f64>() / count as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, Said};
    use crate::run::part::{End, Part};

    #[test]
    fn parts_of_one_kind_are_joined() {
        let mut said = Said::default();
        for part in [
            Part::Reasoning("h".into()),
            Part::Reasoning("m".into()),
            Part::Text("fox".into()),
            Part::Call { index: 0, name: "f".into() },
            Part::Arguments { index: 0, text: "{".into() },
            Part::Arguments { index: 0, text: "}".into() },
            Part::End(End::Calls),
        ] {
            said.add(part);
        }
        assert_eq!((said.reasoning.as_str(), said.text.as_str()), ("hm", "fox"));
        assert_eq!(said.calls, [Call { name: "f".into(), arguments: "{}".into() }]);
        assert_eq!(said.end, Some(End::Calls));
    }
}
