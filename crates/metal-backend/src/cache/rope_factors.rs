//! Which factors divide the inverse frequencies of a row's positions.

/// The factors of LongRoPE. All positions of a row have the same ones, or a query and a key would
/// not be as far apart as they are; they follow from the length of the whole. A model without
/// LongRoPE has short ones only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum RopeFactors {
    /// `short_factor`: of sequences up to the original context.
    #[default]
    Short,
    /// `long_factor`: of longer ones.
    Long,
}
