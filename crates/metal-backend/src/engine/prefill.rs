//! A request on its way through its prompt.

use std::time::{Duration, Instant};

use mlx_ffi::{Array, Indices, eval_all, memory};

use super::pass;
use super::row::Row;
use crate::cache::Caches;
use crate::error::Result;
use crate::layers::{Decoder, Pass};

/// A row whose prompt is being computed. It may rest between two layers, so that others need not
/// wait for a whole chunk.
pub(super) struct Prefill {
    pub row: Row,
    pub caches: Caches,
    /// Ids that the caches hold.
    done: usize,
    /// Ids to compute before decoding begins.
    end: usize,
    /// Ids after which a chunk ends, so that a snapshot can be taken there; 0: nowhere.
    stop: usize,
    pass: Option<Pass>,
    /// The hidden states of the chunk that ends at `done`, `[1, l, hidden_size]`, while the prompt's
    /// log probabilities are read from them.
    reading: Option<Array>,
}

impl Prefill {
    /// The prefill of `row`, of whose ids `caches` hold the first ones.
    pub fn new(row: Row, caches: Caches) -> Prefill {
        // The last id is the first step of decoding. Without tokens to generate, there is none.
        let end = row.ids.len() - usize::from(row.max_tokens > 0);
        let done = caches.offsets().first().map_or(0, |offset| *offset as usize);
        Prefill { row, caches, done, end, stop: 0, pass: None, reading: None }
    }

    /// The prefill with the end of a chunk after `ids` ids.
    pub fn stopping_at(self, ids: usize) -> Prefill {
        Prefill { stop: ids, ..self }
    }

    /// Ids that are still to be computed.
    pub fn left(&self) -> usize {
        self.end - self.done
    }

    /// Whether hidden states wait to be read.
    pub fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Whether all layers hold the same positions, and nothing more is wanted of them.
    pub fn is_between_chunks(&self) -> bool {
        self.pass.is_none() && self.reading.is_none()
    }

    /// Whether a chunk has passed some layers, and not all.
    pub fn is_between_layers(&self) -> bool {
        self.pass.is_some()
    }

    /// Ids of the chunk that is computed next, or under way.
    pub fn chunk(&self, chunk: usize) -> usize {
        // Chunks begin at multiples of their size, wherever a cache let the prefill begin. What a row
        // generated before it was preempted never belonged to its first chunk.
        let first = if self.done == 0 { self.row.first_pass().max(1) } else { usize::MAX };
        let stop = if self.done < self.stop { self.stop - self.done } else { usize::MAX };
        (chunk - self.done % chunk).min(self.left()).min(first).min(stop)
    }

    /// Computes `layers` more layers of a chunk, and waits for them. The chunk must be the same
    /// from its first layer to its last.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn advance(&mut self, model: &Decoder, chunk: usize, layers: usize) -> Result<()> {
        let count = self.chunk(chunk);
        if count == 0 {
            return Ok(());
        }
        let mut pass = match self.pass.take() {
            Some(pass) => pass,
            None => {
                let part = &self.row.ids[self.done..self.done + count];
                model.begin(&Indices::from_u32(part, &[1, count as i32])?, &self.caches)?
            }
        };
        if pass::advance(model, &mut pass, &mut self.caches, layers)? {
            // Where the hidden states themselves are not needed, the last layer's end never runs.
            self.reading =
                self.row.prompt_logprobs.is_some().then(|| pass.h().share()).transpose()?;
            eval_all(self.caches.arrays().chain(&self.reading))?;
            memory::clear_cache()?;
            self.done += count;
        } else {
            eval_all(self.caches.arrays().chain(pass.arrays()))?;
            self.pass = Some(pass);
        }
        Ok(())
    }

    /// Reads the prompt's log probabilities from hidden states, for about `quantum`.
    ///
    /// # Errors
    /// Those of MLX; a model whose logits are no numbers.
    pub fn read(&mut self, model: &Decoder, quantum: Duration) -> Result<()> {
        let started = Instant::now();
        let (Some(hidden), Some(report)) = (self.reading.take(), &mut self.row.prompt_logprobs)
        else {
            return Ok(());
        };
        let [_, l, _] = hidden.dims()?;
        let first = self.done - l as usize;
        while report.read(model, &hidden, first)? {
            if started.elapsed() >= quantum {
                self.reading = Some(hidden);
                return Ok(());
            }
        }
        Ok(memory::clear_cache()?)
    }
}
