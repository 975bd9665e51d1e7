//! Whose keys and values a layer sees.

/// The owner of the keys and values that a layer sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Its own.
    Own,
    /// Its own, shared with later layers under this number.
    Shares(usize),
    /// The shared KV of an earlier layer, under this number.
    Reuses(usize),
}
