//! Every option of the contract and every feature, on every architecture: what is asked for is
//! seen, or refused by its name, and the report of capabilities says which.
//!
//! The options are taken apart field by field, so that a new one does not compile until it is
//! walked.

mod asides;
mod generate;
mod load;

use std::collections::BTreeSet;

use inference_core::{Capabilities, Error, Feature, LoadOptions, Support};

use crate::checkpoints::is_refused_in_bf16;
use crate::fixtures::Checkpoint;

/// One architecture, and the features of its report that were looked at.
struct Walk {
    name: &'static str,
    checkpoint: Checkpoint,
    capabilities: Capabilities,
    walked: BTreeSet<Feature>,
}

impl Walk {
    /// Takes note that `option` was asked for. `seen` is whether that showed, or the refusal; it
    /// must be what the report says of `feature`, and an option without one must be honoured.
    #[track_caller]
    fn option(&mut self, option: &str, feature: Option<Feature>, seen: Result<bool, Error>) {
        let support = feature.map_or(Support::Yes, |feature| self.capabilities.support(feature));
        let agrees = match (&support, &seen) {
            (Support::Yes, Ok(shown)) => *shown,
            (Support::No(reason), Err(Error::Unsupported { what, reason: told })) => {
                what == option && told == reason
            }
            _ => false,
        };
        assert!(agrees, "{}: `{option}` is reported as {support:?}, seen is {seen:?}", self.name);
        self.walked.extend(feature);
    }
}

/// Ids of the vocabularies of all checkpoints, none of them an added token's.
fn prompt(length: u32) -> Vec<u32> {
    (0..length).map(|i| 20 + (i * i + 3 * i) % 300).collect()
}

#[test]
fn every_option_is_seen_or_refused_as_the_report_says() {
    for name in metal_backend::architectures() {
        if is_refused_in_bf16(name) {
            continue;
        }
        let checkpoint = Checkpoint::new(name);
        let model = checkpoint.load_native(LoadOptions::default());
        let (info, told) = checkpoint.describe(LoadOptions::default());
        let capabilities = model.capabilities().clone();
        assert_eq!((&info, &told), (model.info(), &capabilities), "{name}");
        let mut walk = Walk { name, checkpoint, capabilities, walked: BTreeSet::new() };
        generate::walk(&mut walk, &*model);
        asides::walk(&mut walk, &*model);
        load::walk(&mut walk, &*model);
        let all = BTreeSet::from(Feature::ALL);
        let left: Vec<_> = all.difference(&walk.walked).collect();
        assert!(left.is_empty(), "{name}: nothing was asked of {left:?}");
    }
}
