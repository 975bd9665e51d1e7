//! A choice among the layers of a checkpoint that draft.

/// Which layers that draft are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TakesHeads {
    /// None.
    #[default]
    No,
    /// Those of which no part is missing.
    Whole,
    /// All: what is missing is an error.
    All,
}
