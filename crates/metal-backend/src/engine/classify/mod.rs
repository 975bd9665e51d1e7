//! Classifications: how likely the next token, and given labels, are after each of many prompts.
//!
//! Prompts of similar lengths are computed together, each row filled up behind its end: attention
//! looks back only, so that what stands behind changes nothing. A prompt that is longer than a
//! chunk is computed by itself, in chunks. What labels of several tokens need is computed from
//! copies of their prompts' caches.

mod batch;
mod lane;
mod run;

use std::sync::mpsc;
use std::time::Instant;

use inference_core::{CacheMiss, CancelToken, Error, GenerateMetrics};

use super::scheduler::Served;
use crate::error::Result;
use batch::Batch;
pub(super) use lane::Lane;

/// One classification, ready to run: checked ids, and where the result goes.
pub(crate) struct ClassifyJob {
    /// Not empty, every id below the vocabulary's size.
    pub prompts: Vec<Vec<u32>>,
    /// As the prompts.
    pub labels: Vec<Vec<u32>>,
    /// Whether the whole logits are wanted.
    pub logits: bool,
    /// Ends it.
    pub cancel: CancelToken,
    /// When the caller asked.
    pub queued_at: Instant,
    /// Where the result goes. Dropped with a job that never ran, it tells that the model closed.
    pub reply: mpsc::Sender<Result<Vec<Scores>, Error>>,
}

/// What was computed for one prompt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scores {
    /// The most likely next id.
    pub id: u32,
    /// Its log probability.
    pub logprob: f32,
    /// `[vocab_size]`, where wanted.
    pub logits: Option<Vec<f32>>,
    /// The log probability of each label's ids, one after the other.
    pub labels: Vec<f32>,
}

/// A classification that runs.
pub(super) struct Classification {
    job: ClassifyJob,
    started: Instant,
    /// The prompts that no batch has taken yet, shortest first.
    left: Vec<usize>,
    scores: Vec<Scores>,
    batch: Option<Batch>,
    peak_bytes: u64,
}

impl Classification {
    fn new(job: ClassifyJob) -> Classification {
        let mut left: Vec<usize> = (0..job.prompts.len()).collect();
        left.sort_by_key(|prompt| job.prompts[*prompt].len());
        let scores = vec![Scores::default(); job.prompts.len()];
        Classification { job, started: Instant::now(), left, scores, batch: None, peak_bytes: 0 }
    }

    /// Begins a batch of the longest prompts that are left, as many as `room` bytes hold. False
    /// where not one does now, though one would if nothing else were there (`waits`).
    fn begin(&mut self, served: &Served, room: u64, waits: bool) -> Result<bool> {
        let lengths: Vec<usize> =
            self.left.iter().rev().map(|prompt| self.job.prompts[*prompt].len()).collect();
        let label = self.job.labels.iter().map(Vec::len).max().unwrap_or(0);
        let alone = batch::is_alone(served, lengths[0], label);
        // The positions of all rows are encoded alike.
        let reach = |length: &usize| served.model.reach(*length);
        let alike = lengths.iter().take_while(|length| reach(length) == reach(&lengths[0])).count();
        let mut rows = if alone { 1 } else { batch::rows(&lengths[..alike], served.chunk) };
        let needs = |rows: usize| batch::needs(served, rows, lengths[0], label);
        while rows > 1 && needs(rows) > room {
            rows /= 2;
        }
        let needed = needs(rows);
        if needed > room {
            if waits {
                return Ok(false);
            }
            return Err(Error::Memory {
                what: format!("classifying a prompt of {} tokens", lengths[0]),
                needed,
                available: room,
                remedy: "set a smaller prefill chunk or raise the memory limit".into(),
            }
            .into());
        }
        let prompts = self.left.split_off(self.left.len() - rows);
        self.batch = Some(Batch::new(prompts, &self.job, served, needed)?);
        Ok(true)
    }

    /// Computes a part of the batch, `layers` layers where it is in the model's layers.
    fn advance(&mut self, served: &Served, layers: usize) -> Result<()> {
        let Some(batch) = &mut self.batch else { return Ok(()) };
        if batch.advance(&self.job, &mut self.scores, served, layers)? {
            self.batch = None;
        }
        Ok(())
    }

    /// Whether everything is computed.
    fn is_done(&self) -> bool {
        self.left.is_empty() && self.batch.is_none()
    }

    /// What it cost, once it has ended with `active_bytes` in use.
    fn metrics(&self, active_bytes: u64) -> GenerateMetrics {
        let (queued, started) = (self.job.queued_at, self.started);
        GenerateMetrics {
            prompt_tokens: self.job.prompts.iter().map(Vec::len).sum(),
            cache_miss: Some(CacheMiss::Off),
            queue_duration: started.saturating_duration_since(queued),
            prefill_duration: started.elapsed(),
            total_duration: queued.elapsed(),
            peak_memory_bytes: self.peak_bytes.max(active_bytes),
            active_memory_bytes: active_bytes,
            ..GenerateMetrics::default()
        }
    }
}

impl ClassifyJob {
    /// Tells the caller. One who is gone needs nothing.
    fn answer(&self, result: Result<Vec<Scores>, Error>) {
        let _ = self.reply.send(result);
    }
}
