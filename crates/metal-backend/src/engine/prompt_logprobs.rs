//! How likely the tokens of a prompt are, each after those before it: read from a prefill's hidden
//! states, some positions at a time.

use std::ops::Range;

use inference_core::{Token, TokenLogprob};
use mlx_ffi::{Array, Dtype, Indices, eval_all, ops};

use super::memory::HEAD_ROWS;
use super::served::Served;
use crate::error::{Result, not_numbers};
use crate::sampling::{most_likely, normalise};

/// The log probabilities of a prompt's tokens, as they become known.
pub(crate) struct PromptLogprobs {
    /// All of the prompt's tokens; the numbers of the first ones are filled in.
    tokens: Vec<Token>,
    known: usize,
    /// Most likely tokens that are told at each place.
    top: usize,
}

impl PromptLogprobs {
    /// Nothing is known of `tokens`, a whole prompt, but what they are. The first one has no
    /// probability; of the others, `top` most likely ones are told too, at most the vocabulary.
    pub fn new(tokens: Vec<Token>, top: usize) -> PromptLogprobs {
        PromptLogprobs { tokens, known: 1, top }
    }

    /// Tokens, and most likely tokens at the place of each.
    pub fn sizes(&self) -> (usize, usize) {
        (self.tokens.len(), self.top)
    }

    /// Takes in what follows some more positions of `hidden`, `[1, l, hidden_size]`, of which the
    /// first is the sequence's position `first`, and waits for it. False where all were taken in.
    ///
    /// # Errors
    /// Those of MLX; a model whose logits are no numbers.
    pub(super) fn read(&mut self, served: &Served, hidden: &Array, first: usize) -> Result<bool> {
        let [_, l, _] = hidden.dims()?;
        // Position `p` tells of the token at `p + 1`; the last one of the prompt, of none.
        let last = (first + l as usize).min(self.tokens.len() - 1);
        let (begin, end) = (self.known - 1, last.min(self.known - 1 + HEAD_ROWS));
        if begin >= end {
            return Ok(false);
        }
        let part = ops::slice_axis(hidden, 1, (begin - first) as i32, (end - first) as i32)?;
        // [1, n, vocab_size] -> [n, vocab_size]
        let logits = ops::squeeze(&served.model.logits(&part)?, 0)?;
        let taken_in = match served.ranks.follow() {
            true => Ok(logits.eval()?),
            false => self.take_in(&logits, begin + 1..end + 1),
        };
        served.ranks.agree_on(taken_in)?;
        self.known = end + 1;
        Ok(end < last)
    }

    /// Takes in the logits, `[n, vocab_size]`, of the places of these tokens.
    fn take_in(&mut self, logits: &Array, places: Range<usize>) -> Result<()> {
        let logprobs = normalise(&ops::astype(logits, Dtype::F32)?)?;
        let tokens = &mut self.tokens[places];
        let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
        let ids = Indices::from_u32(&ids, &[ids.len() as i32, 1])?;
        let chosen = ops::take_along_axis(&logprobs, &ids, -1)?;
        let top = most_likely(&logprobs, self.top)?;
        eval_all(top.iter().flat_map(|(ids, values)| [&**ids, values]).chain([&chosen]))?;
        for (token, logprob) in tokens.iter_mut().zip(chosen.to_vec_f32()?) {
            if logprob.is_nan() {
                return Err(not_numbers());
            }
            token.logprob = Some(logprob);
        }
        if let Some((ids, values)) = top {
            let count = ids.shape()[1] as usize;
            let (ids, values) = (ids.to_vec_u32()?, values.to_vec_f32()?);
            let rows = ids.chunks_exact(count).zip(values.chunks_exact(count));
            for (token, (ids, values)) in tokens.iter_mut().zip(rows) {
                token.top_logprobs = ranked(ids, values);
            }
        }
        Ok(())
    }

    /// The prompt's tokens, with what became known of them.
    pub fn into_tokens(self) -> Vec<Token> {
        self.tokens
    }
}

/// The most likely tokens, most likely first; equals by id.
pub(super) fn ranked(ids: &[u32], logprobs: &[f32]) -> Vec<TokenLogprob> {
    let pairs = ids.iter().zip(logprobs);
    let mut top: Vec<TokenLogprob> =
        pairs.map(|(&id, &logprob)| TokenLogprob { id, logprob }).collect();
    top.sort_by(|a, b| b.logprob.total_cmp(&a.logprob).then(a.id.cmp(&b.id)));
    top
}
