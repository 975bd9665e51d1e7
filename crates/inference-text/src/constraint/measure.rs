//! Estimates the cost of a regular expression by its form, before anything is made of it.

use inference_core::Result;
use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{Ast, ClassSet, ClassSetItem, RepetitionKind, RepetitionRange};

use super::error::invalid;

/// Positions in an expression that a text can have at once. Each costs some 0.1 µs and 10 bytes a
/// step.
const MAX_PLACES: u64 = 20_000;
/// Ranges of characters in all classes of an expression: each takes some 100 bytes.
const MAX_RANGES: u64 = 200_000;

/// Parts of one sequence that a text may leave out: the time of them grows with the square.
const MAX_OPTIONAL: u64 = 1000;

/// Refuses an expression that would cost too much. One that is none is for the library to tell.
pub(super) fn check_regex(what: &str, regex: &str) -> Result<()> {
    let Ok(ast) = Parser::new().parse(regex) else { return Ok(()) };
    let Part { once: places, ranges, optional, .. } = measure(&ast);
    if optional > MAX_OPTIONAL {
        return Err(invalid(format!(
            "{what} has {optional} parts behind each other that may be left out, at most \
             {MAX_OPTIONAL} are taken"
        )));
    }
    if ranges > MAX_RANGES {
        return Err(invalid(format!(
            "{what} has classes of {ranges} ranges of characters, at most {MAX_RANGES} are taken"
        )));
    }
    if places > MAX_PLACES {
        let places = match places {
            u64::MAX => "more than 2^64".to_owned(),
            places => places.to_string(),
        };
        return Err(invalid(format!(
            "{what} repeats too much: a text may be at {places} of its places at once, at most \
             {MAX_PLACES} are taken; lower the counts of repetitions inside of others"
        )));
    }
    Ok(())
}

/// The cost of a part of an expression.
struct Part {
    /// The most positions that a text has at once, where it enters the part at one time alone.
    once: u64,
    /// The most where it may enter the part at any time, beside the positions that it already has.
    often: u64,
    /// Ranges of characters.
    ranges: u64,
    /// All of its texts have the same number of characters.
    is_fixed: bool,
    /// A text may leave it out.
    may_be_empty: bool,
    /// Parts that may be left out of the sequence in it that has the most of them.
    optional: u64,
}

impl Part {
    const EMPTY: Part =
        Part { once: 0, often: 0, ranges: 0, is_fixed: true, may_be_empty: true, optional: 0 };

    /// One character, of as many ranges.
    fn character(ranges: u64) -> Part {
        Part { once: 1, often: 1, ranges, may_be_empty: false, ..Part::EMPTY }
    }

    /// The part, then another one.
    fn then(self, next: Part) -> Part {
        // Behind a part of any length, the next may begin anywhere.
        let once = if self.is_fixed { next.once } else { next.often };
        Part {
            once: self.once.saturating_add(once),
            often: self.often.saturating_add(next.often),
            ranges: self.ranges.saturating_add(next.ranges),
            is_fixed: self.is_fixed && next.is_fixed,
            may_be_empty: self.may_be_empty && next.may_be_empty,
            optional: self.optional.max(next.optional),
        }
    }

    /// The part or another one.
    fn or(self, other: Part) -> Part {
        Part {
            once: self.once.saturating_add(other.once),
            often: self.often.saturating_add(other.often),
            ranges: self.ranges.saturating_add(other.ranges),
            is_fixed: false,
            may_be_empty: self.may_be_empty || other.may_be_empty,
            optional: self.optional.max(other.optional),
        }
    }

    fn repeated(self, least: u32, most: Option<u32>) -> Part {
        let often = self.often.saturating_mul(most.unwrap_or(least).max(1).into());
        // Parts of one length keep step with the text: it is at one count of them.
        let is_in_step = self.is_fixed || most == Some(1);
        let once = if is_in_step { self.once } else { often };
        Part {
            once,
            often,
            is_fixed: self.is_fixed && most == Some(least),
            may_be_empty: self.may_be_empty || least == 0,
            ..self
        }
    }
}

fn measure(ast: &Ast) -> Part {
    match ast {
        Ast::Empty(_) | Ast::Flags(_) | Ast::Assertion(_) => Part::EMPTY,
        Ast::Literal(_) => Part::character(1),
        Ast::Dot(_) => Part::character(10),
        Ast::ClassPerl(_) | Ast::ClassUnicode(_) => Part::character(LETTERS),
        Ast::ClassBracketed(class) => Part::character(ranges(&class.kind)),
        Ast::Group(group) => measure(&group.ast),
        Ast::Alternation(all) => {
            let parts = all.asts.iter().map(measure);
            parts.reduce(Part::or).unwrap_or(Part::EMPTY)
        }
        Ast::Concat(all) => {
            let parts: Vec<Part> = all.asts.iter().map(measure).collect();
            let is_optional = |part: &&Part| part.may_be_empty && part.often > 0;
            let optional = parts.iter().filter(is_optional).count() as u64;
            let all = parts.into_iter().fold(Part::EMPTY, Part::then);
            Part { optional: optional.max(all.optional), ..all }
        }
        Ast::Repetition(repetition) => {
            let (least, most) = match &repetition.op.kind {
                RepetitionKind::ZeroOrOne => (0, Some(1)),
                RepetitionKind::ZeroOrMore => (0, None),
                RepetitionKind::OneOrMore => (1, None),
                RepetitionKind::Range(RepetitionRange::Exactly(count)) => (*count, Some(*count)),
                RepetitionKind::Range(RepetitionRange::AtLeast(least)) => (*least, None),
                RepetitionKind::Range(RepetitionRange::Bounded(least, most)) => {
                    (*least, Some(*most))
                }
            };
            measure(&repetition.ast).repeated(least, most)
        }
    }
}

/// Ranges of characters in a class of Unicode.
const LETTERS: u64 = 700;

/// Ranges of characters in a class of ranges and classes.
fn ranges(class: &ClassSet) -> u64 {
    let (mut count, mut sets, mut items) = (0_u64, vec![class], Vec::new());
    while let Some(set) = sets.pop() {
        match set {
            ClassSet::BinaryOp(both) => sets.extend([&*both.lhs, &*both.rhs]),
            ClassSet::Item(item) => items.push(item),
        }
        while let Some(item) = items.pop() {
            match item {
                ClassSetItem::Union(union) => items.extend(&union.items),
                ClassSetItem::Bracketed(inner) => sets.push(&inner.kind),
                ClassSetItem::Perl(_) | ClassSetItem::Unicode(_) => count += LETTERS,
                _ => count += 1,
            }
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::check_regex;

    fn refusal(regex: &str) -> Option<String> {
        check_regex("it", regex).err().map(|error| error.to_string())
    }

    #[test]
    fn what_keeps_step_with_a_text_may_repeat_as_often_as_it_likes() {
        for regex in [
            r"\w{0,250}",
            ".{1,2000}",
            "(?s:.{0,100000})",
            "([0-9a-f]{2}:){0,50000}",
            r"(\w{1,30} ){0,200}",
            "(.{0,100}\n){0,100}",
            r"^[\w.+-]{1,64}@[\w-]{1,63}(\.[\w-]{1,63}){1,8}$",
            r"https?://[^\s/$.?#].[^\s]*",
            "[",
        ] {
            assert_eq!(refusal(regex), None, "{regex}");
        }
    }

    #[test]
    fn repetitions_inside_of_others_multiply() {
        for regex in [
            r"(\w{0,250}\s?){0,250}",
            "(.{0,500}){0,500}",
            "((((a{0,100}b?){0,100}c?){0,100}d?){0,100})",
            r"(\w{0,250}){4000000000}",
        ] {
            let reason = refusal(regex).unwrap();
            assert!(reason.contains("repeats too much"), "{reason}");
        }
        let deep = format!("{}a{}", "(".repeat(60), "b?){0,3}".repeat(60));
        assert!(refusal(&deep).unwrap().contains("more than 2^64"));
        assert!(refusal(&r"\w".repeat(1000)).unwrap().contains("700000 ranges"));
        assert!(refusal(&"a?".repeat(1001)).unwrap().contains("1001 parts behind each other"));
    }
}
