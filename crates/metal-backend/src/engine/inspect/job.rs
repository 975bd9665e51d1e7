//! The request of an inspection.

use std::sync::{Arc, mpsc};
use std::time::Instant;

use inference_core::{CancelToken, Error, LayerAttention};

use crate::engine::served::Served;
use crate::sight::Scene;

/// One prompt to look at, ready to run: checked ids and layers, and where the result goes.
pub(crate) struct InspectJob {
    /// How the engine calls it, once it was taken in.
    pub number: u64,
    /// Not empty, every id below the vocabulary's size.
    pub ids: Vec<u32>,
    /// Its pictures, where it has any.
    pub scene: Option<Arc<Scene>>,
    /// Layers of the model, each once.
    pub layers: Vec<usize>,
    /// The attention weights are requested too.
    pub weights: bool,
    /// Ends it.
    pub cancel: CancelToken,
    /// When the caller asked.
    pub queued_at: Instant,
    /// The channel for the result. Dropped with a job that never ran, it reports a closed model.
    pub reply: mpsc::Sender<Result<Vec<LayerAttention>, Error>>,
}

impl InspectJob {
    /// Bytes that it takes: the prefill, what is told of every layer, and the copies of one layer's
    /// part from which that is computed.
    pub(in crate::engine) fn needs(&self, served: &Served) -> u64 {
        let n = self.ids.len() as u64;
        let chunk = n.min(served.chunk as u64);
        let (mut told, mut most) = (0, 0);
        for layer in &self.layers {
            let Some(sizes) = served.model.layers[*layer].mixer.heads() else { continue };
            let (heads, kv_heads) = (sizes.n_heads as u64, sizes.n_kv_heads as u64);
            let vector = 4 * sizes.head_dim as u64;
            let scores = |queries: u64| 4 * heads * queries * (n + 1);
            told += (heads + kv_heads) * vector * n;
            let mut copies = 3 * (heads + kv_heads) * vector * chunk;
            if self.weights {
                told += scores(n);
                // The scores, masked, their logarithms, weights and entropies, and on their way
                // out.
                copies += 6 * scores(chunk) + kv_heads * vector * n;
            }
            most = most.max(copies);
        }
        let sight = served.sight_bytes(self.scene.as_deref());
        told + most + sight + served.budget.together(1, self.ids.len(), 1)
    }

    /// Tells the caller. One who is gone needs nothing.
    pub fn answer(&self, result: Result<Vec<LayerAttention>, Error>) {
        let _ = self.reply.send(result);
    }
}
