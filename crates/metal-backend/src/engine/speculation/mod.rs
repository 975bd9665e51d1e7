//! Speculative decoding of a row: who proposes its next tokens, and how often they are drawn.

mod lookup;
mod proposer;

use lookup::Lookup;
use proposer::Proposer;

use crate::plan::{Acceptance, Drafted};

/// Steps without a draft that pays after which a row asks its model for none any more.
const GIVEN_UP: usize = 32;

/// The drafts of a row.
#[derive(Debug)]
pub(super) struct Drafts {
    /// The most tokens of a draft.
    most: usize,
    /// Whoever proposes from the row's ids; `None`: the model's drafter does.
    proposer: Option<Box<dyn Proposer>>,
    acceptance: Acceptance,
    /// Steps since a draft was verified.
    idle: usize,
    /// The last proposal, verified or not, as far as it was not held against what was drawn, and
    /// the count of ids that it stands behind.
    open: Option<(usize, Vec<u32>)>,
    /// Draft tokens that were verified, and those of them that were drawn.
    pub verified: (usize, usize),
    /// Passes that verified drafts: ids that the caches held, draft tokens, and accepted ones.
    passes: Vec<[usize; 3]>,
}

impl Drafts {
    /// Drafts of up to `most` tokens, each by the model's drafter or from the row's own ids; `None`
    /// where that is 0.
    pub fn new(most: usize, by_model: bool) -> Option<Drafts> {
        let lookup = || -> Box<dyn Proposer> { Box::new(Lookup::default()) };
        (most > 0).then(|| Drafts {
            most,
            proposer: (!by_model).then(lookup),
            acceptance: if by_model { Acceptance::of_drafter() } else { Acceptance::default() },
            idle: 0,
            open: None,
            verified: (0, 0),
            passes: Vec::new(),
        })
    }

    /// The most tokens of a draft; 0 where it asks for none any more.
    pub fn longest(&self) -> usize {
        if self.has_given_up() { 0 } else { self.most }
    }

    /// Returns true when the model's drafter is asked for none any more: its drafts did not pay for
    /// long. What it would have to know is not computed from then on.
    pub fn has_given_up(&self) -> bool {
        self.proposer.is_none() && self.idle >= GIVEN_UP
    }

    /// Returns true when the model's drafter is asked for drafts.
    pub fn asks_model(&self) -> bool {
        self.proposer.is_none() && !self.has_given_up()
    }

    /// Takes note that the row begins again: all of it is computed anew.
    pub fn begin_again(&mut self) {
        self.idle = 0;
    }

    /// Takes note of a step in which no draft was worth its time.
    pub fn note_idle(&mut self) {
        self.idle += 1;
    }

    /// The draft behind `ids` that they propose themselves, at most `most` tokens.
    pub fn propose(&mut self, ids: &[u32], most: usize) -> Vec<u32> {
        let most = self.most.min(most);
        let draft = self.proposer.as_mut().map(|proposer| proposer.propose(ids, most));
        self.take(ids, &draft.unwrap_or_default())
    }

    /// Takes in the `draft` that was made behind `ids`.
    pub fn take(&mut self, ids: &[u32], draft: &[u32]) -> Vec<u32> {
        if self.open.is_none() && !draft.is_empty() {
            self.open = Some((ids.len(), draft.to_vec()));
        }
        draft.to_vec()
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
        if verified > 0 {
            self.idle = 0;
        }
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
    use super::{Drafts, GIVEN_UP};

    #[test]
    fn proposals_are_compared_with_what_is_drawn_though_none_is_verified() {
        let mut drafts = Drafts::new(4, false).expect("drafts");
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
        assert!(Drafts::new(0, false).is_none());
    }

    #[test]
    fn a_model_whose_drafts_do_not_pay_for_long_is_asked_for_none() {
        let mut drafts = Drafts::new(4, true).expect("drafts");
        assert!(drafts.asks_model() && drafts.propose(&[1, 2, 1, 2], 4).is_empty());
        (0..GIVEN_UP).for_each(|_| drafts.note_idle());
        assert!(drafts.has_given_up() && !drafts.asks_model());
        assert_eq!(drafts.longest(), 0);
        drafts.begin_again();
        assert_eq!(drafts.longest(), 4);
        (1..GIVEN_UP).for_each(|_| drafts.note_idle());
        drafts.note(7, 4, 0);
        drafts.note_idle();
        assert!(drafts.asks_model(), "one was verified meanwhile");
        // What is looked up costs next to nothing.
        let mut lookup = Drafts::new(4, false).expect("drafts");
        (0..GIVEN_UP).for_each(|_| lookup.note_idle());
        assert_eq!((lookup.longest(), lookup.asks_model()), (4, false));
    }

    #[test]
    fn passes_are_known_by_the_ids_before_them() {
        let mut drafts = Drafts::new(4, false).expect("drafts");
        drafts.note(7, 4, 2);
        drafts.note(10, 3, 0);
        assert_eq!(drafts.verified, (7, 2));
        let found = [7, 8, 10, 11].map(|held| drafts.pass_behind(held));
        assert_eq!(found, [Some((4, 2)), None, Some((3, 0)), None]);
    }
}
