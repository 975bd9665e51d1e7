//! Speculative decoding of a row: who proposes its next tokens, and how often they are drawn.

mod lookup;
mod proposer;

use lookup::Lookup;
use proposer::Proposer;

use crate::plan::{Acceptance, Drafted};

/// The drafts of a row.
#[derive(Debug)]
pub(super) struct Drafts {
    /// The most tokens of a draft.
    pub most: usize,
    proposer: Box<dyn Proposer>,
    acceptance: Acceptance,
    /// The last proposal, verified or not, as far as it was not held against what was drawn, and
    /// the count of ids that it stands behind.
    open: Option<(usize, Vec<u32>)>,
    /// Draft tokens that were verified, and those of them that were drawn.
    pub verified: (usize, usize),
    /// Passes that verified drafts: ids that the caches held, draft tokens, and accepted ones.
    passes: Vec<[usize; 3]>,
}

impl Drafts {
    /// Drafts of up to `most` tokens, each from the row's own ids; `None` where that is 0.
    pub fn by_lookup(most: usize) -> Option<Drafts> {
        (most > 0).then(|| Drafts {
            most,
            proposer: Box::new(Lookup::default()),
            acceptance: Acceptance::default(),
            open: None,
            verified: (0, 0),
            passes: Vec::new(),
        })
    }

    /// The draft behind `ids`, at most `most` tokens.
    pub fn propose(&mut self, ids: &[u32], most: usize) -> Vec<u32> {
        let draft = self.proposer.propose(ids, self.most.min(most));
        if self.open.is_none() && !draft.is_empty() {
            self.open = Some((ids.len(), draft.clone()));
        }
        draft
    }

    /// Holds what was proposed against what was drawn since, the last of `ids`. So the acceptance
    /// of drafts is known though none of them is verified.
    pub fn compare(&mut self, ids: &[u32]) {
        let Some((mut at, draft)) = self.open.take() else { return };
        let mut left = draft.into_iter();
        for (drawn, drafted) in ids.get(at..).unwrap_or(&[]).iter().zip(left.by_ref()) {
            self.acceptance.note(drafted == *drawn);
            if drafted != *drawn {
                return;
            }
            at += 1;
        }
        let left: Vec<u32> = left.collect();
        self.open = (!left.is_empty()).then_some((at, left));
    }

    /// The draft of so many tokens, as the plan sees it.
    pub fn drafted(&self, length: usize) -> Drafted {
        Drafted { acceptance: self.acceptance, length }
    }

    /// Takes note of a pass behind `held` ids that verified so many draft tokens, of which so many
    /// were drawn.
    pub fn note(&mut self, held: usize, verified: usize, accepted: usize) {
        self.verified.0 += verified;
        self.verified.1 += accepted;
        self.passes.push([held, verified, accepted]);
    }

    /// The draft tokens that the pass behind `held` ids verified, and those that were drawn; `None`
    /// where it was a step.
    pub fn pass_behind(&self, held: usize) -> Option<(usize, usize)> {
        let at = self.passes.binary_search_by_key(&held, |[held, ..]| *held).ok()?;
        let [_, verified, accepted] = self.passes[at];
        Some((verified, accepted))
    }
}

#[cfg(test)]
mod tests {
    use super::Drafts;

    #[test]
    fn proposals_are_compared_with_what_is_drawn_though_none_is_verified() {
        let mut drafts = Drafts::by_lookup(4).expect("drafts");
        let mut ids = vec![1, 2, 3, 4, 5, 1, 2];
        let before = drafts.acceptance.rate();
        assert_eq!(drafts.propose(&ids, 9), [3, 4, 5, 1]);
        ids.extend([3, 4]);
        drafts.compare(&ids);
        let two = drafts.acceptance.rate();
        assert!(two > before);
        // What is left of it is compared with the next ones.
        ids.push(7);
        drafts.compare(&ids);
        assert!(drafts.acceptance.rate() < two);
        assert!(drafts.open.is_none() && drafts.propose(&ids, 9).is_empty());
        assert!(Drafts::by_lookup(0).is_none());
    }

    #[test]
    fn passes_are_known_by_the_ids_before_them() {
        let mut drafts = Drafts::by_lookup(4).expect("drafts");
        drafts.note(7, 4, 2);
        drafts.note(10, 3, 0);
        assert_eq!(drafts.verified, (7, 2));
        let found = [7, 8, 10, 11].map(|held| drafts.pass_behind(held));
        assert_eq!(found, [Some((4, 2)), None, Some((3, 0)), None]);
    }
}
