//! Whoever proposes the next tokens of a row.

use std::fmt;

/// Whoever proposes the tokens that follow others.
pub(super) trait Proposer: fmt::Debug {
    /// The proposed tokens behind `ids`, at most `most`; none where it has no idea. Each call's ids
    /// begin with those of the call before.
    fn propose(&mut self, ids: &[u32], most: usize) -> Vec<u32>;
}
