//! How a row sees its pictures and hears its sounds: their vectors, computed once, and what a chunk
//! of its prompt sees of them.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx_ffi::{Array, Indices, Result, memory, on_cpu, ops};

use super::served::Served;
use crate::cache::Caches;
use crate::layers::{Decoder, Listening, Look, Pass, Seen};
use crate::sight::{Input, Scene, Shown};

/// A row's pictures and sounds while they are computed.
pub(super) struct Eyes {
    scene: Arc<Scene>,
    /// The vectors of each, `[1 + deep, n, hidden_size]`, once they are computed.
    features: Vec<Option<Array>>,
    /// The one that is being computed.
    look: Option<(usize, Taken)>,
}

/// A picture or a sound on its way through its tower.
enum Taken {
    Picture(Look),
    Sound(Listening),
}

impl Eyes {
    /// The eyes of a row that has seen nothing yet.
    pub fn new(scene: Arc<Scene>) -> Eyes {
        let features = scene.shown.iter().map(|_| None).collect();
        Eyes { scene, features, look: None }
    }

    /// The pictures and sounds of the prompt, with their positions.
    pub fn scene(&self) -> &Scene {
        &self.scene
    }

    /// The first one of a chunk whose vectors are missing.
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
        let started = Instant::now();
        while let Some(at) = self.missing(chunk) {
            let prepared = &self.scene.shown[at].prepared;
            if let Some(known) = served.features.find(&prepared.digest)? {
                self.features[at] = Some(known);
                continue;
            }
            let look = match self.look.take() {
                Some((of, look)) if of == at => look,
                _ => served.begin(&prepared.input)?,
            };
            let (_, look) = self.look.insert((at, look));
            if let Some(features) = served.advance(look)? {
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
                    .ok_or_else(|| mlx_ffi::Error::new("a picture or a sound was not taken in"))?;
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
    /// A picture or a sound before the first block of its tower.
    fn begin(&self, input: &Input) -> Result<Taken> {
        let none = || mlx_ffi::Error::new("the model has no tower for what is shown");
        match input {
            Input::Patches(patches) => {
                let tower = self.model.tower.as_ref().ok_or_else(none)?;
                tower.begin(patches).map(Taken::Picture)
            }
            Input::Frames(frames) => {
                let ears = self.model.ears.as_ref().ok_or_else(none)?;
                ears.begin(frames).map(Taken::Sound)
            }
        }
    }

    /// Takes it through its next block; at the end, its vectors.
    fn advance(&self, taken: &mut Taken) -> Result<Option<Array>> {
        match (taken, &self.model.tower, &self.model.ears) {
            (Taken::Picture(look), Some(tower), _) => tower.advance(look),
            (Taken::Sound(listening), _, Some(ears)) => ears.advance(listening),
            _ => Ok(None),
        }
    }

    /// Bytes that a prompt's pictures and sounds take beside what its ids do: what a tower holds of
    /// the largest, the vectors of all, and what a chunk takes that is longer than others because
    /// it holds a whole picture.
    pub fn sight_bytes(&self, scene: Option<&Scene>) -> u64 {
        let Some(scene) = scene else { return 0 };
        let model = &self.model;
        let dtype_size = model.embed_tokens.dtype().size() as u64;
        let of = |shown: &Shown| {
            let input = &shown.prepared.input;
            let held = match (input, &model.tower, &model.ears) {
                (Input::Patches(patches), Some(tower), _) => {
                    tower.bytes(patches.count() as u64, dtype_size)
                }
                (Input::Frames(frames), _, Some(ears)) => {
                    ears.bytes(frames.count as u64, dtype_size)
                }
                _ => 0,
            };
            4 * input.values().len() as u64 + held
        };
        let largest = scene.shown.iter().map(of).max().unwrap_or(0);
        let vectors: usize = scene.shown.iter().map(Shown::vectors).sum();
        let deep = model.tower.as_ref().map_or(0, |tower| tower.deepstack.len() as u64);
        let vector = self.model.hidden_size as u64 * dtype_size;
        let kept = vectors as u64 * vector * (1 + deep);
        // What is added behind layers is as long as a chunk.
        let behind = deep * self.chunk as u64 * vector;
        let longer = scene.longest().saturating_sub(self.chunk);
        largest + 2 * kept + behind + self.budget.longer_chunk(longer)
    }
}
