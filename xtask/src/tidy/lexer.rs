//! Rust source apart: code without the text of its strings, and comments.

/// A source line: its code, where strings and characters are emptied, and its comments.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Line {
    pub code: String,
    pub comment: String,
}

/// The lines of `source`.
pub fn lines(source: &str) -> Vec<Line> {
    let mut lexer = Lexer { rest: source, lines: vec![Line::default()] };
    while !lexer.rest.is_empty() {
        lexer.step();
    }
    lexer.lines
}

struct Lexer<'a> {
    rest: &'a str,
    lines: Vec<Line>,
}

impl Lexer<'_> {
    fn step(&mut self) {
        let rest = self.rest;
        if rest.starts_with("//") {
            self.take(rest.find('\n').unwrap_or(rest.len()), Kind::Comment);
        } else if rest.starts_with("/*") {
            self.take(block_comment(rest), Kind::Comment);
        } else if let Some(length) = raw_string(rest)
            && !self.follows_identifier()
        {
            self.take(length, Kind::Literal);
        } else if rest.starts_with('"') {
            self.take(quoted(rest, '"'), Kind::Literal);
        } else if is_char_literal(rest) {
            self.take(quoted(rest, '\''), Kind::Literal);
        } else {
            self.take(rest.chars().next().map_or(1, char::len_utf8), Kind::Code);
        }
    }

    /// Returns true when an `r` or `b` that comes next ends a name rather than being a prefix.
    fn follows_identifier(&self) -> bool {
        let code = self.lines.last().map_or("", |line| line.code.as_str());
        code.ends_with(|c: char| c.is_alphanumeric() || c == '_')
    }

    fn take(&mut self, length: usize, kind: Kind) {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        for (index, part) in taken.split('\n').enumerate() {
            if index > 0 {
                self.lines.push(Line::default());
            }
            let Some(line) = self.lines.last_mut() else { return };
            match kind {
                Kind::Code => line.code.push_str(part),
                Kind::Comment => line.comment.push_str(part),
                // Something stands there, so that code before and after stays apart.
                Kind::Literal => line.code.push('"'),
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// The length of the block comment at the start of `text`; block comments nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of the raw string at the start of `text`, prefix included; `None` for anything else.
fn raw_string(text: &str) -> Option<usize> {
    let after_prefix = ["r", "br", "cr"].iter().find_map(|prefix| text.strip_prefix(prefix))?;
    let body = after_prefix.trim_start_matches('#');
    let hashes = &after_prefix[..after_prefix.len() - body.len()];
    let content = body.strip_prefix('"')?;
    let end = format!("\"{hashes}");
    let length = content.find(&end).map_or(content.len(), |at| at + end.len());
    Some(text.len() - content.len() + length)
}

/// The length of the literal at the start of `text` up to its closing `quote`.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns true when a character begins here rather than a lifetime: `'x'` or `'\…'`.
fn is_char_literal(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next() == Some('\'')
        && match chars.next() {
            Some('\\') => true,
            Some(_) => chars.next() == Some('\''),
            None => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> String {
        lines(source).iter().map(|line| line.code.as_str()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn comments_are_kept_apart_from_code() {
        let found = lines("let a = 1; // why\n/* b\n/* c */ d */ e\n");
        assert_eq!(found[0], Line { code: "let a = 1; ".into(), comment: "// why".into() });
        assert_eq!(found[1], Line { code: String::new(), comment: "/* b".into() });
        assert_eq!(found[2], Line { code: " e".into(), comment: "/* c */ d */".into() });
    }

    #[test]
    fn the_text_of_strings_is_no_code_and_no_comment() {
        assert_eq!(code(r#"f("unsafe // x", 1)"#), "f(\", 1)");
        assert_eq!(code(r#"f("a\"unsafe", b)"#), "f(\", b)");
        assert_eq!(code("f(r#\"a \" unsafe\"#, b)"), "f(\", b)");
        assert_eq!(code("f(br\"unsafe\\\", b)"), "f(\", b)");
        assert_eq!(code("\"two\nlines\" + a"), "\"\n\" + a");
        assert!(lines(r#"f("// not a comment")"#)[0].comment.is_empty());
    }

    #[test]
    fn characters_and_lifetimes_are_told_apart() {
        assert_eq!(code(r"f('a', '\'', '\u{41}', b'x')"), "f(\", \", \", b\")");
        assert_eq!(
            code("fn f<'a>(x: &'a str, y: &'static str)"),
            "fn f<'a>(x: &'a str, y: &'static str)"
        );
        assert_eq!(code("'\"' + a"), "\" + a");
    }

    #[test]
    fn a_name_that_ends_like_a_prefix_begins_no_raw_string() {
        assert_eq!(code("bar\"x\" y"), "bar\" y");
        assert_eq!(code("r#type"), "r#type");
    }
}
