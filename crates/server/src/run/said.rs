//! One whole answer: the sum of its parts.

use super::part::{End, Part, Scored};

/// An answer so far, or a whole one.
#[derive(Debug, Default)]
pub struct Said {
    /// The reasoning text.
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
    /// In which order it was said.
    order: Vec<Stretch>,
}

/// A run of one kind in an answer, with its end in the text of [`Said`], in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stretch {
    Token,
    Reasoning(usize),
    Text(usize),
    Call,
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
            Part::Token(token) => {
                self.tokens.push(token);
                self.order.push(Stretch::Token);
            }
            Part::Reasoning(text) => {
                self.reasoning.push_str(&text);
                let end = self.reasoning.len();
                match self.order.last_mut() {
                    Some(Stretch::Reasoning(reached)) => *reached = end,
                    _ => self.order.push(Stretch::Reasoning(end)),
                }
            }
            Part::Text(text) => {
                self.text.push_str(&text);
                let end = self.text.len();
                match self.order.last_mut() {
                    Some(Stretch::Text(reached)) => *reached = end,
                    _ => self.order.push(Stretch::Text(end)),
                }
            }
            Part::Call { name, .. } => {
                self.calls.push(Call { name, arguments: String::new() });
                self.order.push(Stretch::Call);
            }
            Part::Arguments { index, text } => {
                if let Some(call) = self.calls.get_mut(index) {
                    call.arguments.push_str(&text);
                }
            }
            Part::End(end) => self.end = Some(end),
        }
    }

    /// The parts in order. Texts of one kind that followed each other are one part.
    pub fn into_parts(self) -> Vec<Part> {
        let (mut reasoned, mut told, mut called) = (0, 0, 0);
        let (mut tokens, mut calls) = (self.tokens.into_iter(), self.calls.into_iter());
        let mut parts = Vec::new();
        for stretch in self.order {
            match stretch {
                Stretch::Token => parts.extend(tokens.next().map(Part::Token)),
                Stretch::Reasoning(end) => {
                    parts.push(Part::Reasoning(self.reasoning[reasoned..end].to_owned()));
                    reasoned = end;
                }
                Stretch::Text(end) => {
                    parts.push(Part::Text(self.text[told..end].to_owned()));
                    told = end;
                }
                Stretch::Call => {
                    let Some(Call { name, arguments }) = calls.next() else { continue };
                    parts.push(Part::Call { index: called, name });
                    parts.push(Part::Arguments { index: called, text: arguments });
                    called += 1;
                }
            }
        }
        parts.extend(self.end.map(Part::End));
        parts
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

    #[test]
    fn parts_come_out_in_the_order_in_which_they_went_in() {
        let parts = [
            Part::Reasoning("hm".into()),
            Part::Text("fox".into()),
            Part::Call { index: 0, name: "f".into() },
            Part::Arguments { index: 0, text: "{}".into() },
            Part::Text("ran".into()),
            Part::Reasoning("so".into()),
            Part::End(End::Stop),
        ];
        let mut said = Said::default();
        parts.clone().into_iter().for_each(|part| said.add(part));
        assert_eq!(said.into_parts(), parts);
    }
}
