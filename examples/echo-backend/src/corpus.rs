//! The corpus in place of weights, and the longest-suffix match over it.

use inference_core::TokenLogprob;

/// The id after the 256 bytes: the end of a document. No text encodes to it.
pub const EOS: u32 = 256;

/// The bytes and [`EOS`].
pub const VOCAB_SIZE: usize = 257;

/// The longest suffix of the context that is looked for.
pub const ORDER: usize = 128;

/// The ids of all documents, each followed by [`EOS`].
pub struct Corpus {
    ids: Vec<u32>,
}

impl Corpus {
    /// The documents of `text`, which blank lines keep apart; `None` where there is none.
    pub fn new(text: &str) -> Option<Self> {
        let mut ids = Vec::with_capacity(text.len());
        for document in text.split("\n\n").map(str::trim).filter(|d| !d.is_empty()) {
            ids.extend(encode(document));
            ids.push(EOS);
        }
        (!ids.is_empty()).then_some(Corpus { ids })
    }

    /// Bytes that the corpus takes.
    pub fn bytes(&self) -> u64 {
        size_of_val(self.ids.as_slice()) as u64
    }

    /// Ids in the corpus.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// The ids that followed the longest suffix of `context` that occurs, each with its log share.
    ///
    /// The most frequent comes first, equal ones by id. Never empty: the empty suffix occurs
    /// everywhere.
    pub fn next(&self, context: &[u32]) -> Vec<TokenLogprob> {
        let mut counts = [0u32; VOCAB_SIZE];
        let mut longest = 0;
        for (at, &id) in self.ids.iter().enumerate() {
            let before = self.ids[..at].iter().rev();
            let agreeing = before.zip(context.iter().rev()).take(ORDER).take_while(|(a, b)| a == b);
            let length = agreeing.count();
            if length > longest {
                longest = length;
                counts = [0; VOCAB_SIZE];
            }
            if length == longest {
                counts[id as usize] += 1;
            }
        }
        let total = counts.iter().sum::<u32>() as f32;
        let mut next: Vec<_> = (0..)
            .zip(counts)
            .filter(|(_, count)| *count > 0)
            .map(|(id, count)| TokenLogprob { id, logprob: (count as f32 / total).ln() })
            .collect();
        next.sort_by(|a, b| b.logprob.total_cmp(&a.logprob));
        next
    }
}

/// The ids of `text`: its bytes.
pub fn encode(text: &str) -> impl Iterator<Item = u32> {
    text.bytes().map(u32::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Vec<u32> {
        encode(text).collect()
    }

    #[test]
    fn the_longest_match_decides_not_the_most_frequent_letter() {
        let corpus = Corpus::new("aab aab xac").unwrap();
        assert_eq!(corpus.next(&ids("a"))[0].id, u32::from(b'a'));
        assert_eq!(corpus.next(&ids("xa"))[0].id, u32::from(b'c'));
    }

    #[test]
    fn shares_add_up_to_one_and_the_most_frequent_comes_first() {
        let corpus = Corpus::new("ab ab ac").unwrap();
        let next = corpus.next(&ids("a"));
        assert_eq!(next.iter().map(|n| n.id).collect::<Vec<_>>(), ids("bc"));
        let sum: f32 = next.iter().map(|n| n.logprob.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
        assert!((next[0].logprob.exp() - 2.0 / 3.0).abs() < 1e-6);
    }

    #[test]
    fn documents_end_with_the_end_of_sequence() {
        let corpus = Corpus::new("one\n\ntwo\n").unwrap();
        assert_eq!(corpus.next(&ids("one"))[0].id, EOS);
        assert_eq!(corpus.next(&ids("two"))[0].id, EOS);
        assert_eq!(corpus.len(), 8);
        assert_eq!(corpus.bytes(), 32);
    }

    #[test]
    fn a_context_that_occurs_nowhere_still_has_a_continuation() {
        assert_eq!(Corpus::new("aab").unwrap().next(&ids("z"))[0].id, u32::from(b'a'));
    }

    #[test]
    fn text_without_a_document_is_no_corpus() {
        assert!(Corpus::new("").is_none());
        assert!(Corpus::new("\n\n  \n\n").is_none());
    }
}
