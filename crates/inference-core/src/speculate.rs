//! Whoever drafts tokens.

/// Whoever drafts the tokens of requests, which one pass verifies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speculate {
    /// The load's [`draft_model`](crate::LoadOptions::draft_model); without one, a layer of the
    /// checkpoint that predicts a further token, where the backend has a use for it; else lookups,
    /// for requests that ask for draft tokens.
    #[default]
    Auto,
    /// A layer of the checkpoint that predicts a further token (multi-token prediction).
    Mtp,
    /// The load's [`draft_model`](crate::LoadOptions::draft_model).
    Draft,
    /// Lookups of a request's last tokens in its prompt and its answer, for every request.
    Ngram,
    /// Nobody: requests that ask for draft tokens are refused.
    Off,
}

impl Speculate {
    /// All of them, with their names.
    pub const ALL: [(&str, Speculate); 5] = [
        ("auto", Speculate::Auto),
        ("mtp", Speculate::Mtp),
        ("draft", Speculate::Draft),
        ("ngram", Speculate::Ngram),
        ("off", Speculate::Off),
    ];
}
