//! How a row sees its pictures: their vectors, computed once, and what a chunk of its prompt sees
//! of them.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx_ffi::{Array, Indices, Result, memory, on_cpu, ops};

use super::served::Served;
use crate::cache::Caches;
use crate::layers::{Decoder, Look, Pass, Seen};
use crate::sight::Scene;

/// A row's pictures while they are computed.
pub(super) struct Eyes {
    scene: Arc<Scene>,
    /// Each picture's vectors, `[1 + deep, n, hidden_size]`, once they are computed.
    features: Vec<Option<Array>>,
    /// The picture that is being computed.
    look: Option<(usize, Look)>,
}

impl Eyes {
    /// The eyes of a row that has seen nothing yet.
    pub fn new(scene: Arc<Scene>) -> Eyes {
        let features = scene.shown.iter().map(|_| None).collect();
        Eyes { scene, features, look: None }
    }

    /// The pictures of the prompt, with their positions.
    pub fn scene(&self) -> &Scene {
        &self.scene
    }

    /// The first picture of a chunk whose vectors are missing.
    fn missing(&self, chunk: &Range<usize>) -> Option<usize> {
        let is_here = |runs: &[Range<usize>]| {
            runs.iter().any(|run| run.start < chunk.end && chunk.start < run.end)
        };
        (0..self.features.len())
            .find(|at| self.features[*at].is_none() && is_here(&self.scene.shown[*at].runs))
    }

    /// Computes for about `quantum` what a chunk sees, and waits for it. True once all of it is
    /// there.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn look(
        &mut self,
        chunk: &Range<usize>,
        served: &Served,
        quantum: Duration,
    ) -> Result<bool> {
        let Some(tower) = &served.model.tower else { return Ok(true) };
        let started = Instant::now();
        while let Some(at) = self.missing(chunk) {
            let prepared = &self.scene.shown[at].prepared;
            if let Some(known) = served.features.find(&prepared.digest)? {
                self.features[at] = Some(known);
                continue;
            }
            let look = match self.look.take() {
                Some((of, look)) if of == at => look,
                _ => tower.begin(&prepared.patches)?,
            };
            let (_, look) = self.look.insert((at, look));
            if let Some(features) = tower.advance(look)? {
                served.features.keep(prepared.digest, features.share()?);
                self.features[at] = Some(features);
                self.look = None;
                if on_cpu()? {
                    memory::clear_cache()?;
                }
            }
            if started.elapsed() >= quantum {
                break;
            }
        }
        Ok(self.missing(chunk).is_none())
    }

    /// The pass of the ids of a chunk, before its first layer. What it sees must be there.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn begin(
        &self,
        model: &Decoder,
        ids: &[u32],
        chunk: Range<usize>,
        caches: &Caches,
    ) -> Result<Pass> {
        let mut ids = ids.to_vec();
        let mut features = Vec::new();
        for (shown, known) in self.scene.shown.iter().zip(&self.features) {
            let mut first = 0;
            for run in &shown.runs {
                let here = run.start.max(chunk.start)..run.end.min(chunk.end);
                let of_run = first;
                first += run.len();
                if here.is_empty() {
                    continue;
                }
                let known = known
                    .as_ref()
                    .ok_or_else(|| mlx_ffi::Error::new("a picture was not looked at"))?;
                let from = (of_run + here.start - run.start) as i32;
                let own = ops::slice_axis(known, 1, from, from + here.len() as i32)?;
                let columns = here.start - chunk.start..here.end - chunk.start;
                ids[columns.clone()].fill(self.scene.filler);
                features.push((columns.start as i32..columns.end as i32, own));
            }
        }
        let seen = Seen {
            features,
            positions: self.scene.positions(chunk.clone()),
            spans: self.scene.spans(&chunk),
        };
        let ids = Indices::from_u32(&ids, &[1, ids.len() as i32])?;
        model.begin_seeing(&ids, caches, seen)
    }
}

impl Served {
    /// Bytes that a prompt's pictures take beside what its ids do: what the tower holds of the
    /// largest, the vectors of all, and what a chunk takes that is longer than others because it
    /// holds a whole picture.
    pub fn sight_bytes(&self, scene: Option<&Scene>) -> u64 {
        let (Some(scene), Some(tower)) = (scene, &self.model.tower) else { return 0 };
        let dtype_size = self.model.embed_tokens.dtype().size() as u64;
        let of = |shown: &crate::sight::Shown| {
            let patches = shown.patches();
            4 * patches.values.len() as u64 + tower.bytes(patches.count() as u64, dtype_size)
        };
        let largest = scene.shown.iter().map(of).max().unwrap_or(0);
        let vectors: usize = scene.shown.iter().map(crate::sight::Shown::vectors).sum();
        let deep = tower.deepstack.len() as u64;
        let vector = self.model.hidden_size as u64 * dtype_size;
        let kept = vectors as u64 * vector * (1 + deep);
        // What is added behind layers is as long as a chunk.
        let behind = deep * self.chunk as u64 * vector;
        let longer = scene.longest().saturating_sub(self.chunk);
        largest + 2 * kept + behind + self.budget.longer_chunk(longer)
    }
}
