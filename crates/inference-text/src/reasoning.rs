//! The state in which the end of a prompt leaves the reasoning of its answer. The reader of answers
//! and their constraint ask here, so that both say the same.

/// The reasoning of an answer, where its text begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun<'a> {
    /// The prompt opened it: it goes on until this mark.
    Open(&'a str),
    /// The prompt closed it: the answer has none.
    Over,
    /// The answer may open it.
    Not,
}

impl<'a> Begun<'a> {
    /// Returns the state by the end of `prompt_text`, of reasoning between one of these pairs of
    /// marks. Whitespace behind a mark says nothing.
    pub fn of(
        prompt_text: &str,
        mut pairs: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    ) -> Self {
        let end = prompt_text.trim_end();
        if pairs.clone().any(|(_, close)| end.ends_with(close)) {
            return Begun::Over;
        }
        let open = pairs.find(|(open, _)| end.ends_with(open));
        open.map_or(Begun::Not, |(_, close)| Begun::Open(close))
    }
}

#[cfg(test)]
mod tests {
    use super::Begun;

    #[test]
    fn the_last_mark_of_a_prompt_decides() {
        let pairs = [("<think>", "</think>"), ("[THINK]", "[/THINK]")];
        for (prompt, begun) in [
            ("", Begun::Not),
            ("assistant\n", Begun::Not),
            ("<think>Hello", Begun::Not),
            ("assistant\n<think>", Begun::Open("</think>")),
            ("assistant\n<think>\n\t ", Begun::Open("</think>")),
            ("[THINK]", Begun::Open("[/THINK]")),
            ("<think>\n\n</think>\n\n", Begun::Over),
            ("<think>a</think><think>", Begun::Open("</think>")),
        ] {
            assert_eq!(Begun::of(prompt, pairs.into_iter()), begun, "{prompt:?}");
        }
        // A mark that ends with the other one closes.
        assert_eq!(Begun::of("||", [("|", "||")].into_iter()), Begun::Over);
    }
}
