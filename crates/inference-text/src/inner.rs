//! The parts of a loaded tokenizer.

use std::collections::BTreeSet;

use crate::marks::ControlTokens;
use crate::normalizer::Growth;
use crate::pipeline::PlainPipeline;

/// A tokenizer with the configs beside it.
pub(crate) struct Inner {
    pub tokenizer: tokenizers::Tokenizer,
    pub plain: PlainPipeline,
    pub control: ControlTokens,
    pub growth: Growth,
    /// `bos_token`, `eos_token`, … as the chat template sees them.
    pub named: Vec<(&'static str, String)>,
    pub eos_ids: BTreeSet<u32>,
    pub special_ids: BTreeSet<u32>,
    /// The model's kind and the name of its file.
    pub kind: String,
}
