//! A classification that runs, batch by batch.

use std::time::Instant;

use inference_core::{CacheMiss, Error, GenerateMetrics};

use super::batch::{self, Batch};
use super::job::{ClassifyJob, Scores};
use crate::engine::served::Served;
use crate::error::Result;

/// A classification that runs.
pub(super) struct Classification {
    pub job: ClassifyJob,
    started: Instant,
    /// The prompts that no batch has taken yet, shortest first.
    left: Vec<usize>,
    pub scores: Vec<Scores>,
    pub batch: Option<Batch>,
    pub peak_bytes: u64,
}

impl Classification {
    pub fn new(job: ClassifyJob) -> Classification {
        let mut left: Vec<usize> = (0..job.prompts.len()).collect();
        left.sort_by_key(|prompt| job.prompts[*prompt].len());
        let scores = vec![Scores::default(); job.prompts.len()];
        Classification { job, started: Instant::now(), left, scores, batch: None, peak_bytes: 0 }
    }

    /// Bytes that the next batch takes at least.
    pub fn least(&self, served: &Served) -> u64 {
        self.needs(served, 1)
    }

    /// Bytes that so many of the longest prompts that are left take together.
    fn needs(&self, served: &Served, rows: usize) -> u64 {
        let Some(longest) = self.left.last() else { return 0 };
        let label = self.job.labels.iter().map(Vec::len).max().unwrap_or(0);
        let sight = served.sight_bytes(self.job.scenes[*longest].as_deref());
        batch::needs(served, rows, self.job.prompts[*longest].len(), label) + sight
    }

    /// Begins a batch of the longest prompts that are left, as many as `room` bytes hold.
    ///
    /// # Errors
    /// [`Error::Memory`] where they do not hold one; those of MLX.
    pub fn begin(&mut self, served: &Served, room: u64) -> Result<()> {
        let lengths: Vec<usize> =
            self.left.iter().rev().map(|prompt| self.job.prompts[*prompt].len()).collect();
        let label = self.job.labels.iter().map(Vec::len).max().unwrap_or(0);
        let alone = batch::is_alone(served, lengths[0], label);
        // The positions of all rows are encoded alike.
        let factors = |length: &usize| served.model.rope_factors(*length);
        let alike =
            lengths.iter().take_while(|length| factors(length) == factors(&lengths[0])).count();
        // A prompt with pictures is computed by itself.
        let scenes = self.left.iter().rev().map(|prompt| self.job.scenes[*prompt].as_deref());
        let alike = alike.min(scenes.take_while(Option::is_none).count().max(1));
        let mut rows = if alone { 1 } else { batch::rows(&lengths[..alike], served.chunk) };
        while rows > 1 && self.needs(served, rows) > room {
            rows /= 2;
        }
        rows = served.ranks.agree("rows of a batch", || rows)?;
        let needed = self.needs(served, rows);
        let refusal = || Error::Memory {
            what: format!("classifying a prompt of {} tokens", lengths[0]),
            needed,
            available: room,
            remedy: "set a smaller prefill chunk or raise the memory limit".into(),
        };
        let fits = if needed > room { Err(refusal().into()) } else { Ok(()) };
        served.ranks.agree_on(fits)?;
        let prompts = self.left.split_off(self.left.len() - rows);
        self.batch = Some(Batch::new(prompts, &self.job, served, needed)?);
        Ok(())
    }

    /// Computes a part of the batch, `layers` layers where it is in the model's layers.
    pub fn advance(&mut self, served: &Served, layers: usize) -> Result<()> {
        let Some(batch) = &mut self.batch else { return Ok(()) };
        if batch.advance(&self.job, &mut self.scores, served, layers)? {
            self.batch = None;
        }
        Ok(())
    }

    /// Returns true when all batches are computed.
    pub fn is_done(&self) -> bool {
        self.left.is_empty() && self.batch.is_none()
    }

    /// Metrics of the classification, once it has ended with `active_bytes` in use.
    pub fn metrics(&self, active_bytes: u64) -> GenerateMetrics {
        let (queued, started) = (self.job.queued_at, self.started);
        GenerateMetrics {
            requests: self.job.prompts.len(),
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
    pub fn answer(&self, result: Result<Vec<Scores>, Error>) {
        let _ = self.reply.send(result);
    }
}
