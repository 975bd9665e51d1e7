//! One prompt that passes through the layers, and what is taken out there.

use std::time::{Duration, Instant};

use inference_core::{CacheMiss, GenerateMetrics, LayerAttention};
use mlx_ffi::{Indices, eval_all};

use super::job::InspectJob;
use super::rows::{self, Rows};
use crate::cache::Caches;
use crate::engine::eyes::Eyes;
use crate::engine::served::Served;
use crate::error::Result;
use crate::layers::{Decoder, Observed, Pass};

/// How long a part of a tower may take before others are served.
const QUANTUM: Duration = Duration::from_millis(20);

/// A prompt that is being looked at.
pub(super) struct Inspection {
    pub job: InspectJob,
    started: Instant,
    pub caches: Caches,
    /// Ids that the caches hold.
    done: usize,
    pass: Option<Pass>,
    /// How it sees its pictures.
    eyes: Option<Eyes>,
    /// As the job asks for them; what is not computed yet is 0.
    pub layers: Vec<LayerAttention>,
    /// Bytes that are set aside.
    pub needed: u64,
    pub peak_bytes: u64,
}

impl Inspection {
    /// The job before its first layer, whose caches are empty.
    pub fn new(job: InspectJob, caches: Caches, served: &Served, needed: u64) -> Inspection {
        let n = job.ids.len();
        let empty = |layer: &usize| {
            let heads = served.model.layers[*layer].mixer.heads()?;
            Some(rows::empty(*layer, heads, n, job.weights))
        };
        let layers = job.layers.iter().filter_map(empty).collect();
        let (started, done, pass, peak_bytes) = (Instant::now(), 0, None, 0);
        let eyes = job.scene.clone().map(Eyes::new);
        let shift = job.scene.as_ref().map_or(0, |scene| scene.delta());
        let caches = caches.with_shift(shift);
        Inspection { job, started, caches, done, pass, eyes, layers, needed, peak_bytes }
    }

    /// Returns true when all of the prompt is computed.
    pub fn is_done(&self) -> bool {
        self.done == self.job.ids.len()
    }

    /// Computes a layer of a chunk, takes out what is asked for, and waits for both.
    ///
    /// # Errors
    /// Those of MLX, and values that are no numbers, with the layer.
    pub fn advance(&mut self, served: &Served) -> Result<()> {
        let end = self.job.ids.len().min(self.done + served.chunk);
        let end = self.eyes.as_ref().map_or(end, |eyes| eyes.scene().chunk_end(self.done, end));
        let (here, count) = (self.done..end, end - self.done);
        if let (None, Some(eyes)) = (&self.pass, &mut self.eyes)
            && !eyes.look(&here, served, QUANTUM)?
        {
            return Ok(());
        }
        let mut pass = match self.pass.take() {
            Some(pass) => pass,
            None => {
                let ids = &self.job.ids[self.done..self.done + count];
                let mut pass = match &self.eyes {
                    Some(eyes) => eyes.begin(&served.model, ids, here, &self.caches)?,
                    None => {
                        let ids = Indices::from_u32(ids, &[1, count as i32])?;
                        served.model.begin(&ids, &self.caches)?
                    }
                };
                pass.observe();
                pass
            }
        };
        let layer = pass.layer();
        let through = self
            .layer(&served.model, &mut pass, count)
            .map_err(|error| error.in_phase(&format!("inspecting layer {layer}")))?;
        if through {
            self.done += count;
        } else {
            self.pass = Some(pass);
        }
        Ok(())
    }

    /// The next layer. True where it was the last one.
    fn layer(&mut self, model: &Decoder, pass: &mut Pass, count: usize) -> Result<bool> {
        let layer = pass.layer();
        let through = model.advance(pass, &mut self.caches, 1)?;
        let at = self.job.layers.iter().position(|asked| *asked == layer);
        if let (Some(seen), Some(at)) = (pass.take_observed(), at) {
            self.take(&seen, at, count)?;
        }
        // The last hidden states are not needed, so the last layer's end never runs.
        let hidden = (!through).then(|| pass.arrays()).into_iter().flatten();
        eval_all(self.caches.arrays().chain(hidden))?;
        Ok(through)
    }

    /// Takes out what the layer asked for at `at` saw.
    fn take(&mut self, seen: &Observed, at: usize, count: usize) -> Result<()> {
        let told = &mut self.layers[at];
        let rows = Rows { first: self.done, count, of: self.job.ids.len() };
        rows.take(&seen.queries, told.n_heads, &mut told.queries)?;
        rows.take(&seen.keys, told.n_kv_heads, &mut told.keys)?;
        if let Some(weights) = &mut told.weights {
            let new = seen.weights()?;
            eval_all([&new.values, &new.entropy])?;
            rows.take_weights(&new.values, &mut weights.values)?;
            rows.take(&new.entropy, told.n_heads, &mut weights.entropy)?;
        }
        Ok(())
    }

    /// Metrics of the inspection until now.
    pub fn metrics(&self) -> GenerateMetrics {
        let (queued, started) = (self.job.queued_at, self.started);
        GenerateMetrics {
            prompt_tokens: self.job.ids.len(),
            cache_miss: Some(CacheMiss::Off),
            queue_duration: started.saturating_duration_since(queued),
            prefill_duration: started.elapsed(),
            total_duration: queued.elapsed(),
            peak_memory_bytes: self.peak_bytes,
            ..GenerateMetrics::default()
        }
    }
}
