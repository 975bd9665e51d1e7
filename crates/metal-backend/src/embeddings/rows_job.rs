//! The job of an embedding model's thread: computes vectors or logits from rows in batches.

use std::sync::mpsc::Sender;

use inference_core::{CancelToken, Error, Pooling, Result};

use super::batches::Batches;
use super::network::Network;
use super::tokens::Row;
use crate::engine::Turn;

/// The kind of result that is computed from rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// A vector of each, pooled so.
    Vectors(Pooling),
    /// A logit of each.
    Logits,
}

/// Rows that wait for their turn.
pub(super) struct RowsJob {
    pub rows: Vec<Row>,
    pub work: Work,
    pub cancel: CancelToken,
    pub reply: Sender<Result<Vec<Vec<f32>>>>,
}

impl Turn for RowsJob {
    /// The model, and the bytes that arrays may take.
    type Worker = (Network, u64);
    type Done = Vec<Vec<f32>>;

    fn work(&self, worker: &mut Self::Worker, closing: &CancelToken) -> Result<Vec<Vec<f32>>> {
        let (network, limit) = worker;
        let lengths: Vec<usize> = self.rows.iter().map(|row| row.ids.len()).collect();
        let longest = lengths.iter().copied().max().unwrap_or(1);
        let batches = Batches::new(&lengths, network.batch_tokens(longest, *limit)?);
        let mut results = vec![Vec::new(); self.rows.len()];
        for range in batches.ranges {
            if closing.is_cancelled() {
                return Err(Error::Closed);
            }
            if self.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let numbers = &batches.order[range];
            let rows: Vec<&Row> = numbers.iter().map(|number| &self.rows[*number]).collect();
            let values = match self.work {
                Work::Vectors(pooling) => network.vectors(&rows, pooling)?,
                Work::Logits => network.logits(&rows)?,
            };
            let each = values.len() / rows.len().max(1);
            for (number, values) in numbers.iter().zip(values.chunks_exact(each.max(1))) {
                results[*number] = values.to_vec();
            }
        }
        Ok(results)
    }

    fn answer(self, result: Result<Vec<Vec<f32>>>, _: &CancelToken) {
        // Whoever asked may be gone.
        let _ = self.reply.send(result);
    }
}
