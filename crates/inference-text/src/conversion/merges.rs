//! Merges of byte pair encoding, made anew from a vocabulary that keeps none.
//!
//! A token is a merge of each two tokens that make it. Its own place among all tokens says when.

/// The most comparisons: the squares of all tokens' lengths in bytes, added up. Published
/// vocabularies take a fiftieth of it.
const MOST_WORK: u64 = 1 << 30;

/// The work that finding the parts of tokens has taken.
#[derive(Default)]
pub(super) struct Work(u64);

impl Work {
    /// The ends of first parts of `token` that are tokens, as the rests are, shortest first.
    /// `is_end` says where a token may be cut.
    ///
    /// # Errors
    /// Tokens up to this one that are too long to be cut at all places.
    pub fn cuts(
        &mut self,
        token: &[u8],
        mut is_cut: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Vec<usize>, String> {
        let length = token.len() as u64;
        self.0 = self.0.saturating_add(length.saturating_mul(length));
        if self.0 > MOST_WORK {
            return Err(format!(
                "its tokens are too long: the squares of their lengths make more than {MOST_WORK}"
            ));
        }
        Ok((1..token.len()).filter(|end| is_cut(&token[..*end], &token[*end..])).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::Work;

    #[test]
    fn cuts_are_found_from_the_front_and_long_tokens_are_refused() {
        let mut work = Work::default();
        assert_eq!(work.cuts(b"abcd", |left, _| left != b"ab").unwrap(), [1, 3]);
        let long = vec![b'a'; 1 << 15];
        let error = work.cuts(&long, |_, _| true).unwrap_err();
        assert!(error.contains("too long"), "{error}");
    }
}
