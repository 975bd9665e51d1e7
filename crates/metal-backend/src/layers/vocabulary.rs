//! A vocabulary of which several ranks have some ids each.

use std::ops::Range;

use mlx_ffi::distributed::Group;
use mlx_ffi::{Array, Dtype, Indices, Result, ops};

use super::LastLogits;
use super::top_logits::{MOST_IDS, TopLogits, own_top};

/// Which ids of a vocabulary this rank has.
#[derive(Debug)]
pub(crate) struct OwnIds {
    ranks: Group,
    /// For each id, its row among this rank's; 0 where another rank has it: `[vocab_size]`.
    rows: Indices,
    /// True for each id that this rank has: `[vocab_size, 1]`.
    are_own: Array,
}

impl OwnIds {
    /// The ids `own` of `vocab_size`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn new(ranks: Group, own: &Range<i32>, vocab_size: i32) -> Result<OwnIds> {
        let row = |id: i32| if own.contains(&id) { (id - own.start) as u32 } else { 0 };
        let rows: Vec<u32> = (0..vocab_size).map(row).collect();
        let are_own: Vec<u8> = (0..vocab_size).map(|id| u8::from(own.contains(&id))).collect();
        Ok(OwnIds {
            ranks,
            rows: Indices::from_u32(&rows, &[vocab_size])?,
            are_own: Array::from_bytes(&are_own, &[vocab_size, 1], Dtype::Bool)?,
        })
    }

    /// The vectors of `ids`, `[…]`, each of which one rank has: `[…, n]`. `of_rows` gives those of
    /// this rank's rows.
    pub fn embed(
        &self,
        ids: &Indices,
        of_rows: impl FnOnce(&Indices) -> Result<Array>,
    ) -> Result<Array> {
        let y = of_rows(&self.rows.take(ids, 0)?)?;
        let nothing = Array::scalar(0.0, y.dtype())?;
        let are_own = ops::take(&self.are_own, ids, 0)?;
        self.ranks.all_sum(&ops::where_(&are_own, &y, &nothing)?)
    }
}

/// Logits that not every rank computes.
#[derive(Debug)]
pub(crate) enum SplitLogits {
    /// Each rank computes those of its ids.
    OfIds(OwnLogits),
    /// The last rank computes all of them.
    OfLast(LastLogits),
}

impl SplitLogits {
    /// The logits of all ids, `[…, vocab_size]`, in the first rank at least, of what this rank
    /// computed.
    pub fn of_all(&self, own: &Array) -> Result<Array> {
        match self {
            SplitLogits::OfIds(logits) => logits.of_all(own),
            SplitLogits::OfLast(logits) => logits.of_all(own),
        }
    }

    /// The most likely id of each row of what this rank computed, `[rows, …]`, beside the others:
    /// `[rows]`.
    pub fn most_likely(&self, own: &Array) -> Result<Indices> {
        match self {
            SplitLogits::OfIds(logits) => logits.most_likely(own),
            SplitLogits::OfLast(logits) => logits.most_likely(own),
        }
    }

    /// The `count` most likely ids of each row, at most [`fewest`](Self::fewest), of what this rank
    /// computed, `[rows, …]`, beside the others: in the first rank at least. Only those are sent
    /// that may be among them.
    pub fn top(&self, own: &Array, count: i32) -> Result<TopLogits> {
        match self {
            SplitLogits::OfIds(logits) => logits.top(own, count),
            SplitLogits::OfLast(logits) => logits.top(own, count),
        }
    }

    /// The fewest ids of which a rank computes logits; 0 where there are more ids than ranks can
    /// number.
    pub fn fewest(&self) -> usize {
        let (vocab_size, count) = match self {
            SplitLogits::OfIds(OwnLogits { ranks, columns, vocab_size, .. }) => {
                (*vocab_size, vocab_size - (ranks.size() as i32 - 1) * columns)
            }
            SplitLogits::OfLast(logits) => (logits.vocab_size, logits.vocab_size),
        };
        if vocab_size <= MOST_IDS { count.max(0) as usize } else { 0 }
    }
}

/// Logits of which each rank computes those of its ids.
#[derive(Debug)]
pub(crate) struct OwnLogits {
    pub ranks: Group,
    /// This rank's first id.
    pub first: i32,
    /// Ids of each rank but the last ones, which have fewer.
    pub columns: i32,
    pub vocab_size: i32,
}

impl OwnLogits {
    /// The logits of all ids, `[…, vocab_size]`, in every rank, of this rank's.
    pub fn of_all(&self, own: &Array) -> Result<Array> {
        let Self { ranks, columns, vocab_size, .. } = self;
        let (size, mut shape) = (ranks.size() as i32, own.shape().to_vec());
        let Some(last) = shape.last_mut() else { return own.share() };
        let ids = std::mem::replace(last, *vocab_size);
        let rows = ops::reshape(own, &[-1, ids])?;
        let count = rows.rows();
        let rows = match columns - ids {
            0 => rows,
            missing => {
                let nothing = ops::zeros(&[count, missing], rows.dtype())?;
                ops::concatenate(&[&rows, &nothing], 1)?
            }
        };
        let all = ranks.all_gather(&rows)?;
        let all = ops::swap_axes(&ops::reshape(&all, &[size, count, *columns])?, 0, 1)?;
        let all = ops::reshape(&all, &[count, size * columns])?;
        ops::reshape(&ops::slice_axis(&all, 1, 0, *vocab_size)?, &shape)
    }

    /// The most likely id of each row of this rank's logits, `[rows, …]`, beside those of the
    /// others: `[rows]`. Only each rank's largest one is sent.
    pub fn most_likely(&self, own: &Array) -> Result<Indices> {
        let best = ops::argmax(own, -1, false)?;
        let value = ops::take_along_axis(own, &best.expand_dims(-1)?, -1)?;
        let value = ops::astype(&ops::squeeze(&value, -1)?, Dtype::F32)?;
        self.ranks.index_of_largest(&value, &best, self.first, self.vocab_size)
    }

    /// The most likely ids of each row of this rank's logits, `[rows, …]`, beside those of the
    /// others: as many of each rank.
    fn top(&self, own: &Array, count: i32) -> Result<TopLogits> {
        let sent = self.ranks.all_gather(&own_top(own, self.first, count)?)?;
        TopLogits::of_sent(&sent, self.vocab_size)
    }
}
