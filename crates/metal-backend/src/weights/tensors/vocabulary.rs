//! The embeddings of a vocabulary and its output layer, of which each rank has the rows of some
//! ids.

use mlx_ffi::{Array, Dtype, ops};

use super::Weights;
use super::lora::of_rank;
use crate::error::{Error, Result};
use crate::layers::{Embedding, Linear, Lora, OwnIds, OwnLogits, SplitLogits};
use crate::weights::Cut;
use crate::weights::cut::share_of_vocabulary;

impl Weights {
    /// The embeddings `name`: of all ids, or of those that this rank has.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn embedding(
        &self,
        name: &'static str,
        vocab_size: i32,
        hidden_size: i32,
    ) -> Result<Embedding> {
        let cut = self.cut_of_vocabulary(vocab_size);
        let rows = cut.as_ref().map_or(vocab_size, Cut::count);
        let of_rank = self.cut(cut.iter().map(|cut| (name, cut.clone())).collect());
        let weight = of_rank.at(name).matrix(&[rows, hidden_size])?;
        // An adapter's factors lie the other way round: it is read as that of all ids.
        let lora = self.cut(Vec::new()).at(name).lora(vocab_size, hidden_size)?;
        let embedding = Embedding::new(weight, self.float_dtype());
        let (Some(cut), Some(ranks)) = (cut, self.ranks()) else {
            return Ok(embedding.with_lora(lora));
        };
        let lora = lora.map(|lora| self.of_own_ids(lora, &cut)).transpose()?;
        let own = OwnIds::new(ranks.clone(), &cut.ranges()[0], vocab_size)?;
        Ok(embedding.with_lora(lora).of_ranks(own))
    }

    /// The output layer `name`, whose logits are those of all ids, or of those that this rank has.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn output_layer(
        &self,
        name: &'static str,
        [hidden_size, vocab_size]: [i32; 2],
        bias: bool,
    ) -> Result<Linear> {
        let (of_rank, rows) = self.with_own_ids(name, vocab_size);
        of_rank.linear(name, hidden_size, rows, bias)
    }

    /// The bias of the output layer `name`, of this rank's ids.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor).
    pub fn output_bias(&self, name: &'static str, vocab_size: i32) -> Result<Array> {
        let (of_rank, rows) = self.with_own_ids(name, vocab_size);
        of_rank.at(name).tensor("bias", &[rows])
    }

    /// The Euclidean length of each column of the output layer `name`, `[hidden_size]` F32,
    /// whatever a rank has of it; `None`: it is packed, or no values are asked for.
    ///
    /// # Errors
    /// A matrix that is missing or does not fit.
    pub fn column_lengths(
        &self,
        name: &str,
        [hidden_size, vocab_size]: [i32; 2],
    ) -> Result<Option<Array>> {
        let w = self.cut(Vec::new()).at(name);
        if w.has("scales") {
            return Ok(None);
        }
        let header = w.header("weight", &[vocab_size, hidden_size], Dtype::Bf16)?;
        if self.describes() {
            return Ok(None);
        }
        if self.is_random() {
            return Ok(Some(Array::from_f32(&vec![1.0; hidden_size as usize], &[hidden_size])?));
        }
        if header.is_fp8 {
            return Err(Error::model(format!(
                "tensor `{}weight` has floats of 8 bits, expected 16 or 32: its columns are measured",
                w.prefix()
            )));
        }
        let matrix = ops::astype(&self.shared.files.read_tensor(&header)?, Dtype::F32)?;
        let lengths = ops::sqrt(&ops::sum(&ops::multiply(&matrix, &matrix)?, 0, false)?)?;
        let lengths = ops::add(&lengths, &Array::scalar(1e-7, Dtype::F32)?)?;
        lengths.eval()?;
        Ok(Some(lengths))
    }

    /// The cursor whose module `name` has this rank's ids alone, and how many these are.
    fn with_own_ids(&self, name: &'static str, vocab_size: i32) -> (Weights, i32) {
        let cut = self.cut_of_vocabulary(vocab_size);
        let rows = cut.as_ref().map_or(vocab_size, Cut::count);
        (self.cut(cut.into_iter().map(|cut| (name, cut)).collect()), rows)
    }

    /// How ranks put together an output layer's logits; `None` where each computes those of all
    /// ids.
    pub fn split_logits(&self, vocab_size: i32) -> Option<SplitLogits> {
        if let Some(stage) = self.stage() {
            return Some(SplitLogits::OfLast(stage.logits(vocab_size)));
        }
        let ranks = self.ranks()?.clone();
        let (own, columns) = share_of_vocabulary(vocab_size, ranks.rank(), ranks.size())?;
        Some(SplitLogits::OfIds(OwnLogits { ranks, first: own.start, columns, vocab_size }))
    }

    /// The rows of this rank's ids, where it has not all.
    fn cut_of_vocabulary(&self, vocab_size: i32) -> Option<Cut> {
        let ranks = self.ranks()?;
        let (own, _) = share_of_vocabulary(vocab_size, ranks.rank(), ranks.size())?;
        Some(Cut::row_range(vocab_size, own))
    }

    /// The adapter of embeddings with the factors of this rank's ids.
    fn of_own_ids(&self, lora: Lora, cut: &Cut) -> Result<Lora> {
        match self.describes() {
            true => Ok(lora),
            false => Ok(Lora { a: of_rank(&lora.a, 0, cut)?, ..lora }),
        }
    }
}
