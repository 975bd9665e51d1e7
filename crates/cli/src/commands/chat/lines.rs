//! Turns of several lines: a backslash at the end of a line, or a block between `"""`.

/// Collects lines until a turn is complete.
#[derive(Debug, Default)]
pub struct Lines {
    parts: Vec<String>,
    in_block: bool,
}

const FENCE: &str = "\"\"\"";

impl Lines {
    /// Returns true when a turn has begun and is not complete.
    pub fn is_open(&self) -> bool {
        self.in_block || !self.parts.is_empty()
    }

    /// Takes one more line, or several that were pasted; the whole turn when they complete it.
    pub fn push(&mut self, line: &str) -> Option<String> {
        if !self.in_block {
            let opening = self.parts.is_empty().then(|| line.trim_start().strip_prefix(FENCE));
            let Some(rest) = opening.flatten() else { return self.push_plain(line) };
            let closed = rest.split_once(FENCE);
            if closed.is_some_and(|(_, behind)| !behind.trim().is_empty()) {
                // Only part of what was pasted is a block.
                self.parts.push(line.to_owned());
                return self.finish();
            }
            self.in_block = true;
            if rest.trim().is_empty() {
                return None;
            }
            return self.push_in_block(rest.strip_prefix('\n').unwrap_or(rest));
        }
        self.push_in_block(line)
    }

    /// Returns the lines so far as a turn: the input has ended.
    pub fn finish(&mut self) -> Option<String> {
        self.in_block = false;
        let parts = std::mem::take(&mut self.parts);
        (!parts.is_empty()).then(|| parts.join("\n"))
    }

    /// Forgets what was typed so far.
    pub fn clear(&mut self) {
        *self = Lines::default();
    }

    fn push_plain(&mut self, line: &str) -> Option<String> {
        match line.strip_suffix('\\') {
            Some(part) => {
                self.parts.push(part.to_owned());
                None
            }
            None => {
                self.parts.push(line.to_owned());
                self.finish()
            }
        }
    }

    fn push_in_block(&mut self, line: &str) -> Option<String> {
        let Some(last) = line.trim_end().strip_suffix(FENCE) else {
            self.parts.push(line.to_owned());
            return None;
        };
        if !last.trim().is_empty() {
            self.parts.push(last.strip_suffix('\n').unwrap_or(last).to_owned());
        }
        Some(self.finish().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    /// The turns that `text` makes, line by line.
    fn turns(text: &str) -> Vec<String> {
        let mut lines = Lines::default();
        let mut turns: Vec<String> = text.lines().filter_map(|line| lines.push(line)).collect();
        turns.extend(lines.finish());
        turns
    }

    #[test]
    fn a_line_is_a_turn() {
        assert_eq!(turns("one\ntwo"), ["one", "two"]);
    }

    #[test]
    fn a_backslash_continues_the_line() {
        assert_eq!(turns("one \\\n  two\\\nthree\nfour"), ["one \n  two\nthree", "four"]);
    }

    #[test]
    fn a_block_keeps_its_lines_as_they_are() {
        assert_eq!(turns("\"\"\"\none\n\n  two\\\n\"\"\"\nthree"), ["one\n\n  two\\", "three"]);
        assert_eq!(turns("\"\"\"one\ntwo\"\"\""), ["one\ntwo"]);
        assert_eq!(turns("\"\"\"one\"\"\""), ["one"]);
        assert_eq!(turns("\"\"\"\n/clear\n\"\"\""), ["/clear"]);
    }

    #[test]
    fn a_pasted_block_is_the_turn_that_its_lines_are() {
        let paste = |text: &str| Lines::default().push(text);
        assert_eq!(paste("\"\"\"\none\n\n  two\\\n\"\"\"").unwrap(), "one\n\n  two\\");
        assert_eq!(paste("\"\"\"one\ntwo\"\"\"\n").unwrap(), "one\ntwo");
        assert_eq!(paste("\"\"\"\none\n"), None);
        // A text that begins with a block and goes on is one turn as it stands.
        let more = "\"\"\"\none\n\"\"\"\ntwo";
        assert_eq!(paste(more).unwrap(), more);
    }

    #[test]
    fn the_end_of_the_input_completes_a_turn() {
        assert_eq!(turns("one\\"), ["one"]);
        assert_eq!(turns("\"\"\"\none"), ["one"]);
        assert!(turns("\"\"\"").is_empty());
    }

    #[test]
    fn an_open_turn_can_be_forgotten() {
        let mut lines = Lines::default();
        assert_eq!(lines.push("one\\"), None);
        assert!(lines.is_open());
        lines.clear();
        assert!(!lines.is_open());
        assert_eq!(lines.push("two"), Some("two".to_owned()));
    }
}
