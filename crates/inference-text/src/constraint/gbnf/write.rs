//! Rules to an expression, or to a grammar of expressions.

use inference_core::Constraint;

use super::facts::Facts;
use super::read::{MAX_BYTES, Part, Rules};

/// Parts that are written: those of a rule are, wherever it is named.
const MAX_PARTS: usize = 200_000;
/// Levels of parts in each other, those of the rules that they name counted.
const MAX_LEVELS: usize = 150;

type Result<T> = std::result::Result<T, String>;

/// The constraint that `rules` mean.
///
/// # Errors
/// They allow no text, or are too large.
pub(super) fn constraint(rules: &Rules) -> Result<Constraint> {
    let facts = Facts::of(rules);
    let root = &rules.0[0];
    if !facts.ends(root) {
        return Err("`root` matches no text that ends".to_owned());
    }
    let mut writer = Writer { rules, facts, named: vec![0], parts: 0 };
    if writer.facts.is_regular(root) {
        return Ok(Constraint::Regex(format!("(?:{})", writer.regex(root, 0)?)));
    }
    let mut lark = String::new();
    let mut next = 0;
    while let Some(rule) = writer.named.get(next).copied() {
        let name = if next == 0 { "start".to_owned() } else { format!("r{rule}") };
        let body = writer.grammar(&rules.0[rule], 0)?;
        lark.push_str(&format!("{name}: {body}\n"));
        check_bytes(&lark)?;
        next += 1;
    }
    Ok(Constraint::Lark(lark))
}

fn check_bytes(written: &str) -> Result<()> {
    match written.len() > MAX_BYTES {
        true => Err(format!("with its rules in their places it has more than {MAX_BYTES} bytes")),
        false => Ok(()),
    }
}

struct Writer<'a> {
    rules: &'a Rules,
    facts: Facts,
    /// The rules that the grammar has, in their order.
    named: Vec<usize>,
    /// Parts that were written so far.
    parts: usize,
}

impl Writer<'_> {
    /// Counts a part within `levels` others.
    fn enter(&mut self, levels: usize) -> Result<usize> {
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return Err(format!(
                "with its rules in their places it has more than {MAX_PARTS} parts"
            ));
        }
        if levels > MAX_LEVELS {
            return Err(format!("its rules and brackets nest deeper than {MAX_LEVELS} levels"));
        }
        Ok(levels + 1)
    }

    /// A part as a regular expression.
    fn regex(&mut self, part: &Part, levels: usize) -> Result<String> {
        let levels = self.enter(levels)?;
        let written = match part {
            Part::Text(text) => text.chars().map(literal).collect(),
            Part::Any => "(?s:.)".to_owned(),
            Part::Class { ranges, negated } => class(ranges, *negated),
            Part::Rule(rule) => {
                let rules = self.rules;
                self.regex(&rules.0[*rule], levels)?
            }
            Part::All(parts) => {
                let mut all = String::new();
                for part in parts {
                    all.push_str(&self.regex_inside(part, levels)?);
                    check_bytes(&all)?;
                }
                all
            }
            Part::OneOf(parts) => {
                let parts = parts.iter().map(|part| self.regex(part, levels));
                parts.collect::<Result<Vec<_>>>()?.join("|")
            }
            Part::Times(_, _, Some(0)) => "(?:)".to_owned(),
            Part::Times(part, least, most) => {
                let inner = match &**part {
                    Part::Class { .. } | Part::Any => self.regex(part, levels)?,
                    Part::Text(text) if text.chars().count() == 1 => self.regex(part, levels)?,
                    part => format!("(?:{})", self.regex(part, levels)?),
                };
                format!("{inner}{}", times(*least, *most))
            }
        };
        check_bytes(&written)?;
        Ok(written)
    }

    /// A part as a regular expression within a sequence.
    fn regex_inside(&mut self, part: &Part, levels: usize) -> Result<String> {
        let written = self.regex(part, levels)?;
        let rules = self.rules;
        let mut inner = part;
        // A chain of rules, which came to its end in the line above.
        while let Part::Rule(rule) = inner {
            inner = &rules.0[*rule];
        }
        Ok(if matches!(inner, Part::OneOf(_)) { format!("(?:{written})") } else { written })
    }

    /// A part as the body of a rule. Expressions in it match one character at least.
    fn grammar(&mut self, part: &Part, levels: usize) -> Result<String> {
        let levels = self.enter(levels)?;
        let written = match part {
            // It could take a blank that what follows needs.
            part if self.facts.is_blank_run(part) && !matches!(part, Part::Rule(_)) => {
                self.letters(part, levels)?
            }
            part if self.is_lexeme(part) => {
                format!("/{}/", self.regex(part, levels)?.replace('/', "\\/"))
            }
            Part::Text(_) | Part::Class { .. } | Part::Any => "\"\"".to_owned(),
            Part::Rule(0) => "start".to_owned(),
            Part::Rule(rule) => {
                if !self.named.contains(rule) {
                    self.named.push(*rule);
                }
                format!("r{rule}")
            }
            Part::All(parts) => self.sequence(parts, levels)?,
            Part::OneOf(parts) => {
                let parts = parts.iter().map(|part| self.grammar(part, levels));
                format!("({})", parts.collect::<Result<Vec<_>>>()?.join(" | "))
            }
            Part::Times(_, _, Some(0)) => "\"\"".to_owned(),
            Part::Times(inner, 0, most) if self.is_lexeme(inner) => {
                let inner = Part::Times(inner.clone(), 1, *most);
                format!("{}?", self.grammar(&inner, levels)?)
            }
            Part::Times(inner, least, most) => {
                format!("({}){}", self.grammar(inner, levels)?, times(*least, *most))
            }
        };
        check_bytes(&written)?;
        Ok(written)
    }

    /// Returns true when a part can be one expression that takes as much as it can.
    fn is_lexeme(&self, part: &Part) -> bool {
        let facts = &self.facts;
        facts.is_regular(part) && !facts.may_be_empty(part) && !facts.has_blank_tail(part)
    }

    /// Parts behind each other: neighbours are one expression as far as they can be one.
    fn sequence(&mut self, parts: &[Part], levels: usize) -> Result<String> {
        let mut written = Vec::new();
        let mut rest = parts;
        while let Some(first) = rest.first() {
            let is_plain =
                |part: &&Part| self.facts.is_regular(part) && !self.facts.has_blank_tail(part);
            let run = rest.iter().take_while(is_plain).count();
            let is_empty = rest[..run].iter().all(|part| self.facts.may_be_empty(part));
            let taken = match run {
                0 | 1 => {
                    written.push(self.grammar(first, levels)?);
                    1
                }
                run if is_empty => {
                    for part in &rest[..run] {
                        written.push(self.grammar(part, levels)?);
                    }
                    run
                }
                run => {
                    let run_of_them = Part::All(rest[..run].to_vec());
                    written.push(self.grammar(&run_of_them, levels)?);
                    run
                }
            };
            rest = &rest[taken..];
        }
        Ok(if written.is_empty() { "\"\"".to_owned() } else { written.join(" ") })
    }

    /// A part letter by letter, so that the parser decides how many it takes.
    fn letters(&mut self, part: &Part, levels: usize) -> Result<String> {
        let levels = self.enter(levels)?;
        let all = |writer: &mut Self, parts: &[Part]| {
            parts.iter().map(|part| writer.letters(part, levels)).collect::<Result<Vec<_>>>()
        };
        Ok(match part {
            Part::Text(text) if text.is_empty() => "\"\"".to_owned(),
            Part::Text(text) => {
                let letters: Vec<_> =
                    text.chars().map(|c| format!("/{}/", literal(c).replace('/', "\\/"))).collect();
                letters.join(" ")
            }
            Part::Any | Part::Class { .. } => format!("/{}/", self.regex(part, levels)?),
            Part::Rule(_) => self.grammar(part, levels)?,
            Part::All(parts) if parts.is_empty() => "\"\"".to_owned(),
            Part::All(parts) => all(self, parts)?.join(" "),
            Part::OneOf(parts) => format!("({})", all(self, parts)?.join(" | ")),
            Part::Times(_, _, Some(0)) => "\"\"".to_owned(),
            Part::Times(inner, least, most) => {
                format!("({}){}", self.letters(inner, levels)?, times(*least, *most))
            }
        })
    }
}

/// The sign for so many repetitions.
fn times(least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => "*".to_owned(),
        (1, None) => "+".to_owned(),
        (0, Some(1)) => "?".to_owned(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) if least == most => format!("{{{least}}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

fn literal(c: char) -> String {
    match c {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        '/' => "/".to_owned(),
        c if c.is_control() => format!("\\x{{{:x}}}", c as u32),
        c if regex_syntax::is_meta_character(c) => format!("\\{c}"),
        c => c.to_string(),
    }
}

fn class(ranges: &[(char, char)], negated: bool) -> String {
    let range = |(low, high): &(char, char)| match low == high {
        true => literal(*low),
        false => format!("{}-{}", literal(*low), literal(*high)),
    };
    let ranges: String = ranges.iter().map(range).collect();
    format!("[{}{ranges}]", if negated { "^" } else { "" })
}
