//! Rules to an expression, or to a grammar of expressions.

use inference_core::Constraint;

use super::read::{MAX_BYTES, Part, Rules};

/// Rules that may name each other in a chain.
const MAX_CHAIN: usize = 200;

type Result<T> = std::result::Result<T, String>;

/// The constraint that `rules` mean.
///
/// # Errors
/// They allow no text, or are too large.
pub(super) fn constraint(rules: &Rules) -> Result<Constraint> {
    let facts = Facts::of(rules);
    if !facts.ends[0] {
        return Err("`root` matches no text that ends".to_owned());
    }
    let mut writer = Writer { rules, facts, named: vec![0], bytes: 0 };
    if writer.facts.is_regular[0] {
        return Ok(Constraint::Regex(format!("(?:{})", writer.regex_of(0, 0)?)));
    }
    let mut lark = String::new();
    let mut next = 0;
    while let Some(rule) = writer.named.get(next).copied() {
        let name = if next == 0 { "start".to_owned() } else { format!("r{rule}") };
        let body = writer.grammar(&rules.0[rule])?;
        lark.push_str(&format!("{name}: {body}\n"));
        writer.check(lark.len())?;
        next += 1;
    }
    Ok(Constraint::Lark(lark))
}

/// The facts that are known of each rule.
struct Facts {
    /// It does not come back to itself, and names no rule that does.
    is_regular: Vec<bool>,
    /// It may match nothing.
    may_be_empty: Vec<bool>,
    /// Some text matches it.
    ends: Vec<bool>,
}

impl Facts {
    fn of(rules: &Rules) -> Facts {
        let count = rules.0.len();
        let mut facts = Facts {
            is_regular: vec![false; count],
            may_be_empty: vec![false; count],
            ends: vec![false; count],
        };
        // Each round, what follows from the rounds before; each fact only ever becomes true.
        loop {
            let mut changed = false;
            for (rule, part) in rules.0.iter().enumerate() {
                let found = [facts.is_regular(part), facts.may_be_empty(part), facts.ends(part)];
                let known = [&mut facts.is_regular, &mut facts.may_be_empty, &mut facts.ends];
                for (known, found) in known.into_iter().zip(found) {
                    changed |= found && !known[rule];
                    known[rule] |= found;
                }
            }
            if !changed {
                return facts;
            }
        }
    }

    /// Returns true when `part` names only rules that are known to be regular.
    fn is_regular(&self, part: &Part) -> bool {
        match part {
            Part::Text(_) | Part::Class { .. } | Part::Any => true,
            Part::Rule(rule) => self.is_regular[*rule],
            Part::All(parts) | Part::OneOf(parts) => parts.iter().all(|part| self.is_regular(part)),
            Part::Times(part, ..) => self.is_regular(part),
        }
    }

    fn may_be_empty(&self, part: &Part) -> bool {
        match part {
            Part::Text(text) => text.is_empty(),
            Part::Class { .. } | Part::Any => false,
            Part::Rule(rule) => self.may_be_empty[*rule],
            Part::All(parts) => parts.iter().all(|part| self.may_be_empty(part)),
            Part::OneOf(parts) => parts.iter().any(|part| self.may_be_empty(part)),
            Part::Times(part, least, _) => *least == 0 || self.may_be_empty(part),
        }
    }

    fn ends(&self, part: &Part) -> bool {
        match part {
            Part::Text(_) | Part::Class { .. } | Part::Any => true,
            Part::Rule(rule) => self.ends[*rule],
            Part::All(parts) => parts.iter().all(|part| self.ends(part)),
            Part::OneOf(parts) => parts.iter().any(|part| self.ends(part)),
            Part::Times(part, least, _) => *least == 0 || self.ends(part),
        }
    }
}

struct Writer<'a> {
    rules: &'a Rules,
    facts: Facts,
    /// The rules that the grammar has, in their order.
    named: Vec<usize>,
    /// Bytes that were written so far.
    bytes: usize,
}

impl Writer<'_> {
    fn check(&self, bytes: usize) -> Result<()> {
        match bytes.max(self.bytes) > MAX_BYTES {
            true => {
                Err(format!("with its rules in their places it has more than {MAX_BYTES} bytes"))
            }
            false => Ok(()),
        }
    }

    /// A part as a regular expression.
    fn regex(&mut self, part: &Part, chain: usize) -> Result<String> {
        let written = match part {
            Part::Text(text) => text.chars().map(literal).collect(),
            Part::Any => "(?s:.)".to_owned(),
            Part::Class { ranges, negated } => class(ranges, *negated),
            Part::Rule(rule) => {
                if chain > MAX_CHAIN {
                    return Err(format!("more than {MAX_CHAIN} rules name each other in a chain"));
                }
                self.regex_of(*rule, chain + 1)?
            }
            Part::All(parts) => {
                let parts = parts.iter().map(|part| self.regex_inside(part, chain));
                parts.collect::<Result<String>>()?
            }
            Part::OneOf(parts) => {
                let parts = parts.iter().map(|part| self.regex(part, chain));
                parts.collect::<Result<Vec<_>>>()?.join("|")
            }
            Part::Times(_, _, Some(0)) => "(?:)".to_owned(),
            Part::Times(part, least, most) => {
                let inner = match &**part {
                    Part::Class { .. } | Part::Any => self.regex(part, chain)?,
                    Part::Text(text) if text.chars().count() == 1 => self.regex(part, chain)?,
                    part => format!("(?:{})", self.regex(part, chain)?),
                };
                format!("{inner}{}", times(*least, *most))
            }
        };
        self.bytes += written.len();
        self.check(0)?;
        Ok(written)
    }

    fn regex_of(&mut self, rule: usize, chain: usize) -> Result<String> {
        let rules = self.rules;
        self.regex(&rules.0[rule], chain)
    }

    /// A part as a regular expression within a sequence.
    fn regex_inside(&mut self, part: &Part, chain: usize) -> Result<String> {
        let written = self.regex(part, chain)?;
        let rules = self.rules;
        let mut inner = part;
        while let Part::Rule(rule) = inner {
            inner = &rules.0[*rule];
        }
        Ok(if matches!(inner, Part::OneOf(_)) { format!("(?:{written})") } else { written })
    }

    /// A part as the body of a rule. Expressions in it match one character at least.
    fn grammar(&mut self, part: &Part) -> Result<String> {
        let is_regular = self.facts.is_regular(part);
        if is_regular && !self.facts.may_be_empty(part) {
            return Ok(format!("/{}/", self.regex(part, 0)?.replace('/', "\\/")));
        }
        Ok(match part {
            Part::Text(_) => "\"\"".to_owned(),
            Part::Class { .. } | Part::Any => unreachable!("one character is regular"),
            Part::Rule(rule) if is_regular => {
                let rules = self.rules;
                self.grammar(&rules.0[*rule])?
            }
            Part::Rule(0) => "start".to_owned(),
            Part::Rule(rule) => {
                if !self.named.contains(rule) {
                    self.named.push(*rule);
                }
                format!("r{rule}")
            }
            Part::All(parts) if parts.is_empty() => "\"\"".to_owned(),
            Part::All(parts) => self.sequence(parts)?,
            Part::OneOf(parts) => {
                let parts = parts.iter().map(|part| self.grammar(part));
                format!("({})", parts.collect::<Result<Vec<_>>>()?.join(" | "))
            }
            Part::Times(_, _, Some(0)) => "\"\"".to_owned(),
            Part::Times(inner, 0, most) if is_regular && !self.facts.may_be_empty(inner) => {
                let inner = Part::Times(inner.clone(), 1, *most);
                format!("{}?", self.grammar(&inner)?)
            }
            Part::Times(inner, least, most) => {
                format!("({}){}", self.grammar(inner)?, times(*least, *most))
            }
        })
    }

    /// Parts behind each other: neighbours that are regular are one expression.
    fn sequence(&mut self, parts: &[Part]) -> Result<String> {
        let mut written = Vec::new();
        let mut rest = parts;
        while let Some(first) = rest.first() {
            let regular = rest.iter().take_while(|part| self.facts.is_regular(part)).count();
            let run = Part::All(rest[..regular].to_vec());
            if regular > 1 && !self.facts.may_be_empty(&run) {
                written.push(self.grammar(&run)?);
                rest = &rest[regular..];
            } else {
                written.push(self.grammar(first)?);
                rest = &rest[1..];
            }
        }
        Ok(written.join(" "))
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
