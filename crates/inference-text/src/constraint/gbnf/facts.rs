//! The facts of each rule of a grammar.

use super::read::{Part, Rules};

/// Facts of rules. Each is found by what is known of the rules that a rule names, and only ever
/// becomes true.
pub(super) struct Facts {
    rules: Vec<Rule>,
}

/// The facts of one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rule {
    is_regular: bool,
    may_be_empty: bool,
    ends: bool,
    is_blank: bool,
    is_variable: bool,
    has_blank_tail: bool,
}

impl Facts {
    /// The facts of `rules`.
    pub fn of(rules: &Rules) -> Facts {
        let mut facts = Facts { rules: vec![Rule::default(); rules.0.len()] };
        loop {
            let mut changed = false;
            // Most rules name later ones.
            for (rule, part) in rules.0.iter().enumerate().rev() {
                let found = Rule {
                    is_regular: facts.is_regular(part),
                    may_be_empty: facts.may_be_empty(part),
                    ends: facts.ends(part),
                    is_blank: facts.is_blank(part),
                    is_variable: facts.is_variable(part),
                    has_blank_tail: facts.has_blank_tail(part),
                };
                changed |= found != facts.rules[rule];
                facts.rules[rule] = found;
            }
            if !changed {
                return facts;
            }
        }
    }

    /// Returns true when `part` does not come back to itself, and names no rule that does.
    pub fn is_regular(&self, part: &Part) -> bool {
        match part {
            Part::Text(_) | Part::Class { .. } | Part::Any => true,
            Part::Rule(rule) => self.rules[*rule].is_regular,
            Part::All(parts) | Part::OneOf(parts) => parts.iter().all(|part| self.is_regular(part)),
            Part::Times(part, ..) => self.is_regular(part),
        }
    }

    /// Returns true when `part` may match nothing.
    pub fn may_be_empty(&self, part: &Part) -> bool {
        match part {
            Part::Text(text) => text.is_empty(),
            Part::Class { .. } | Part::Any => false,
            Part::Rule(rule) => self.rules[*rule].may_be_empty,
            Part::All(parts) => parts.iter().all(|part| self.may_be_empty(part)),
            Part::OneOf(parts) => parts.iter().any(|part| self.may_be_empty(part)),
            Part::Times(part, least, _) => *least == 0 || self.may_be_empty(part),
        }
    }

    /// Returns true when some text matches `part`.
    pub fn ends(&self, part: &Part) -> bool {
        match part {
            Part::Text(_) | Part::Class { .. } | Part::Any => true,
            Part::Rule(rule) => self.rules[*rule].ends,
            Part::All(parts) => parts.iter().all(|part| self.ends(part)),
            Part::OneOf(parts) => parts.iter().any(|part| self.ends(part)),
            Part::Times(part, least, _) => *least == 0 || self.ends(part),
        }
    }

    /// Returns true when `part` matches blanks alone, of which there may be fewer or more. What
    /// follows may need one of them, so that it must not take as many as it can.
    pub fn is_blank_run(&self, part: &Part) -> bool {
        self.is_blank(part) && self.is_variable(part)
    }

    /// Returns true when a text of `part` may end with a run of blanks.
    pub fn has_blank_tail(&self, part: &Part) -> bool {
        self.is_blank_run(part)
            || match part {
                Part::Text(_) | Part::Class { .. } | Part::Any => false,
                Part::Rule(rule) => self.rules[*rule].has_blank_tail,
                Part::All(parts) => {
                    let tail = parts.iter().rev();
                    let mut tail = tail.scan(true, |open, part| {
                        let is_open = *open;
                        *open &= self.may_be_empty(part);
                        is_open.then_some(part)
                    });
                    tail.any(|part| self.has_blank_tail(part))
                }
                Part::OneOf(parts) => parts.iter().any(|part| self.has_blank_tail(part)),
                Part::Times(part, ..) => self.has_blank_tail(part),
            }
    }

    fn is_blank(&self, part: &Part) -> bool {
        let is_blank = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r');
        match part {
            Part::Text(text) => text.chars().all(is_blank),
            Part::Class { ranges, negated } => {
                let is_one = |(low, high): &(char, char)| is_blank(*low) && is_blank(*high);
                !negated && ranges.iter().all(is_one)
            }
            Part::Any => false,
            Part::Rule(rule) => self.rules[*rule].is_blank,
            Part::All(parts) | Part::OneOf(parts) => parts.iter().all(|part| self.is_blank(part)),
            Part::Times(part, ..) => self.is_blank(part),
        }
    }

    fn is_variable(&self, part: &Part) -> bool {
        match part {
            Part::Text(_) | Part::Class { .. } | Part::Any => false,
            Part::Rule(rule) => self.rules[*rule].is_variable,
            Part::All(parts) => parts.iter().any(|part| self.is_variable(part)),
            Part::OneOf(_) => true,
            Part::Times(part, least, most) => *most != Some(*least) || self.is_variable(part),
        }
    }
}
