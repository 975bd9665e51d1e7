//! Grammars in llama.cpp's GBNF, as the grammar library takes them.
//!
//! Regular parts of a grammar become regular expressions, so that the library's lexer walks the
//! vocabulary and not its parser. A grammar without recursion is one expression, and is followed
//! exactly. In another one, each expression takes as much of a text as it can, but for blanks.

mod facts;
mod read;
mod write;

use inference_core::{Constraint, Result};

use self::read::{MAX_BYTES, is_name};
use super::error::invalid;

/// The constraint that a grammar in GBNF means; `None` where `grammar` is in Lark.
///
/// # Errors
/// The fault in the grammar, with its line.
pub fn of_gbnf(grammar: &str) -> Result<Option<Constraint>> {
    if !begins_a_rule(grammar) {
        return Ok(None);
    }
    if grammar.len() > MAX_BYTES {
        let bytes = grammar.len();
        return Err(invalid(format!(
            "the grammar has {bytes} bytes, at most {MAX_BYTES} are taken"
        )));
    }
    let rules = read::rules(grammar).map_err(|error| invalid(format!("GBNF, {error}")))?;
    write::constraint(&rules).map(Some).map_err(|error| invalid(format!("GBNF: {error}")))
}

/// Returns true when some line begins a rule as GBNF does, with `name ::=`.
fn begins_a_rule(grammar: &str) -> bool {
    grammar.lines().any(|line| {
        let name = line.trim_start();
        let rest = name.trim_start_matches(is_name);
        rest.len() < name.len() && rest.trim_start().starts_with("::=")
    })
}

#[cfg(test)]
mod tests {
    use inference_core::Constraint;

    use super::of_gbnf;

    fn written(grammar: &str) -> String {
        match of_gbnf(grammar).unwrap().unwrap() {
            Constraint::Regex(regex) => format!("regex {regex}"),
            Constraint::Lark(lark) => lark,
            Constraint::JsonSchema(_) => panic!("a schema"),
        }
    }

    #[test]
    fn without_recursion_a_grammar_is_one_expression() {
        for (grammar, regex) in [
            (r#"root ::= "yes" | "no""#, "(?:yes|no)"),
            ("root ::= item+ \nitem ::= \"- \" [^\\n]* \"\\n\"", r"(?:(?:\- [^\n]*\n)+)"),
            ("# a comment\nroot ::= [a-z0-9_-]{2,3} # and one more", "(?:[a-z0-9_\\-]{2,3})"),
            ("root ::=\n  \"a\" |\n  ( \"b\"\n  \"c\" )?", "(?:a|(?:bc)?)"),
            (r#"root ::= "a.*/" . "\x41\u00e4\U0001F600""#, r"(?:a\.\*/(?s:.)Aä😀)"),
            (r#"root ::= [\[\]\\^] [a-]"#, r"(?:[\[\]\\\^][a\-])"),
            (r#"root ::= "a"{3} "b"{2,} "c"{0}"#, "(?:a{3}b{2,}(?:))"),
        ] {
            assert_eq!(written(grammar), format!("regex {regex}"), "{grammar}");
        }
    }

    #[test]
    fn what_is_recursive_is_a_rule() {
        let lark = written(
            "root ::= ws sum ws\nsum ::= num (\"+\" sum)? | \"(\" sum \")\"\nnum ::= [0-9]+\nws ::= \" \"*",
        );
        assert_eq!(
            lark,
            "start: r1 r2 r1\nr1: (/ /)*\nr2: (/[0-9]+/ (/\\+/ r2)? | /\\(/ r2 /\\)/)\n"
        );
    }

    #[test]
    fn what_is_no_gbnf_is_named_with_its_line() {
        assert!(of_gbnf("start: \"a ::= b\"").unwrap().is_none());
        for (grammar, reason) in [
            ("a ::= \"b\"", "no rule `root`"),
            ("root ::= a", "no rule `a`"),
            ("root ::= \"a", "line 1: a text without an end"),
            ("root ::= \"a\"\nb ::= [a", "line 2: a class without an end"),
            ("root ::= (\"a\"", "line 1: a `(` without a `)`"),
            ("root ::= \"a\" )", "line 1: found `)`"),
            ("root ::= [z-a]", "line 1: the range from `z` to `a` is empty"),
            ("root ::= \"a\"{3,2}", "line 1: 3 is more than 2"),
            ("root ::= *", "line 1: found `*`"),
            ("root ::= \"a\"\nroot ::= \"b\"", "line 2: a second rule `root`"),
            ("root ::= <[5]>", "line 1: tokens by their ids"),
            ("root ::= \"\\q\"", "line 1: `\\q` is no escape"),
            ("root ::= []", "line 1: a class of nothing"),
            ("root ::= root", "matches no text"),
            ("root ::= \"a\" root", "matches no text"),
        ] {
            let error = of_gbnf(grammar).unwrap_err().to_string();
            assert!(error.contains(reason), "{grammar}: {error}");
        }
    }

    #[test]
    fn rules_that_name_each_other_many_times_are_bounded() {
        let mut grammar = "root ::= a39\na0 ::= \"a\"\n".to_owned();
        (1..40).for_each(|i| grammar += &format!("a{i} ::= a{0} a{0}\n", i - 1));
        assert!(of_gbnf(&grammar).unwrap_err().to_string().contains("more than"));
        // Rules that write nothing are visited as often.
        let hollow = grammar.replace("\"a\"", "\"\"");
        assert!(of_gbnf(&hollow).unwrap_err().to_string().contains("parts"));
        let beside = hollow.replace("root ::= a39", "root ::= a39 | \"x\" root");
        assert!(of_gbnf(&beside).is_ok(), "each is a rule of its own there");
        for suffix in ["+", "*", "?", "{2}"] {
            let grammar = format!("root ::= \"a\"{}", suffix.repeat(20_000));
            assert!(of_gbnf(&grammar).unwrap_err().to_string().contains("repetitions"));
        }
        let many: String = (0..200)
            .map(|i| format!("a{i} ::= {}a{}{}\n", "(".repeat(40), i + 1, "+)".repeat(40)))
            .collect();
        assert!(of_gbnf(&format!("root ::= a0\n{many}a200 ::= \"a\"\n")).is_err());
        let empties = format!("root ::= {} root?", "\"\" ".repeat(20_000));
        assert!(of_gbnf(&empties).is_ok());
        let deep = format!("root ::= {}\"a\"{}", "(".repeat(10_000), ")".repeat(10_000));
        assert!(of_gbnf(&deep).unwrap_err().to_string().contains("levels"));
        let chain: String = (0..900).map(|i| format!("a{i} ::= a{}\n", i + 1)).collect();
        let chain = format!("root ::= a0\n{chain}a900 ::= \"a\"\n");
        assert!(of_gbnf(&chain).unwrap_err().to_string().contains("levels"));
        let many: String = (0..5_000).map(|i| format!("a{i} ::= a\n")).collect();
        assert!(of_gbnf(&many).unwrap_err().to_string().contains("rules"));
    }
}
