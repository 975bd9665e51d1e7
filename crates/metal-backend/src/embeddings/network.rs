//! An embedding model on the thread that owns its arrays: from rows of ids to vectors or scores.

use std::ops::Range;

use inference_core::{Error as Refusal, Pooling};
use mlx_ffi::{Array, Device, Indices, memory, ops};

use super::dense::DenseActivation;
use super::pooling::{Pooled, pooled};
use super::tokens::Row;
use crate::error::{Result, not_numbers};
use crate::layers::{ClassHead, ClassOf, Linear, TextEncoder, Texts};

/// Tokens of a batch: more make no product faster, and the caches of a CPU hold fewer. On CUDA the
/// host needs as much time for a batch of few tokens as for one of many.
const TOKENS_ON_CPU: usize = 1 << 10;
const TOKENS_ON_GPU: usize = 1 << 14;
const TOKENS_ON_CUDA: usize = 1 << 16;

/// An embedding model.
pub(super) struct Network {
    pub encoder: TextEncoder,
    /// Behind the pooling.
    pub dense: Vec<Projection>,
    /// The head that scores pairs by their states.
    pub head: Option<ClassHead>,
    /// The ids of yes and of no, whose logits behind a pair score it.
    pub score_ids: Option<[u32; 2]>,
    /// The tokens of a prompt count for the pooling.
    pub include_prompt: bool,
    pub device: Device,
}

/// A projection behind the pooling.
pub(super) struct Projection {
    pub linear: Linear,
    pub activation: DenseActivation,
}

impl Projection {
    /// `[n, in]` to `[n, out]`, F32.
    fn forward(&self, x: &Array) -> mlx_ffi::Result<Array> {
        let x = self.linear.forward(x)?;
        match self.activation {
            DenseActivation::Identity => Ok(x),
            DenseActivation::Tanh => ops::tanh(&x),
        }
    }
}

impl Network {
    /// Returns true when it scores pairs.
    pub fn scores(&self) -> bool {
        self.head.is_some() || self.score_ids.is_some()
    }

    /// Computes texts of no meaning, within `limit` bytes for all arrays. On CUDA the first pass of
    /// a process takes a third of a second, in which kernels are loaded: that is done before anyone
    /// waits for a text.
    ///
    /// # Errors
    /// Those of [`vectors`](Self::vectors).
    pub fn warm_up(&self, limit: u64) -> Result<()> {
        const LENGTH: usize = 64;
        const ROWS: usize = 16;
        let longest = self.encoder.max_positions().map_or(LENGTH, |most| LENGTH.min(most as usize));
        // Where not even so much fits, the first text tells.
        let Ok(tokens) = self.batch_tokens(longest, limit) else { return Ok(()) };
        let row = |ids: usize| Row { ids: vec![0; ids], kinds: vec![0; ids], prompt: 0 };
        let mut rows = vec![row(longest); ROWS.min(tokens / longest)];
        // A shorter one has padding.
        rows.push(row(1));
        let rows: Vec<&Row> = rows.iter().collect();
        self.vectors(&rows, Pooling::Mean)?;
        if self.scores() {
            self.logits(&rows)?;
        }
        Ok(())
    }

    /// The vectors of rows, one behind the other.
    ///
    /// # Errors
    /// Rows that do not fit the memory; errors of MLX; a model that computes no numbers.
    pub fn vectors(&self, rows: &[&Row], pooling: Pooling) -> Result<Vec<f32>> {
        let (states, texts) = self.states(rows)?;
        let mut vectors = pooled(&states, &self.pooled_texts(rows, &texts), pooling)?;
        for projection in &self.dense {
            vectors = projection.forward(&vectors)?;
        }
        finite(vectors.to_vec_f32()?)
    }

    /// The logits of pairs.
    ///
    /// # Errors
    /// As [`vectors`](Self::vectors).
    pub fn logits(&self, rows: &[&Row]) -> Result<Vec<f32>> {
        let (states, texts) = self.states(rows)?;
        let texts = self.pooled_texts(rows, &texts);
        if let Some(head) = &self.head {
            let pooling = match head.of {
                ClassOf::First => Pooling::Cls,
                ClassOf::Mean => Pooling::Mean,
            };
            let pooled = pooled(&states, &texts, pooling)?;
            let pooled = ops::astype(&pooled, states.dtype())?;
            return finite(head.forward(&pooled)?.to_vec_f32()?);
        }
        let (TextEncoder::Decoder(decoder), Some(ids)) = (&self.encoder, self.score_ids) else {
            return Err(Refusal::Engine("the model scores no pairs".into()).into());
        };
        let last = pooled(&states, &texts, Pooling::Last)?;
        let last = ops::expand_dims(&ops::astype(&last, states.dtype())?, 0)?;
        let logits = decoder.logits_of_normed(&last)?;
        let both = ops::take(&logits, &Indices::from_u32(&ids, &[2])?, 2)?;
        let both = both.to_vec_f32()?;
        finite(both.chunks_exact(2).map(|pair| pair[0] - pair[1]).collect())
    }

    /// The states of rows, `[1, l, hidden_size]`, and how they lie there.
    fn states(&self, rows: &[&Row]) -> Result<(Array, Texts)> {
        let joined = |of: fn(&Row) -> &[u32]| -> Vec<u32> {
            rows.iter().flat_map(|row| of(row).iter().copied()).collect()
        };
        let texts = self.encoder.texts(rows.iter().map(|row| row.ids.len() as i32).collect());
        let (ids, kinds) = (joined(|row| &row.ids), joined(|row| &row.kinds));
        Ok((self.encoder.encode(&ids, &kinds, &texts)?, texts))
    }

    /// The positions of each row that count for its pooling.
    fn pooled_texts<'a>(&self, rows: &[&Row], texts: &'a Texts) -> Pooled<'a> {
        let span = |(row, own): (&&Row, Range<i32>)| {
            let skipped = if self.include_prompt { 0 } else { row.prompt as i32 };
            // A text whose end was cut off may have no other tokens.
            if own.start + skipped < own.end { own.start + skipped..own.end } else { own }
        };
        let spans = rows.iter().zip(texts.spans()).map(span).collect();
        let by_groups = !self.encoder.kernels().is_ours_on_cpu();
        Pooled { spans, groups: by_groups.then_some(texts) }
    }

    /// Tokens that fit a batch whose longest row has `longest`, within `limit` bytes for all
    /// arrays.
    ///
    /// # Errors
    /// [`Refusal::Memory`] where not even that row fits.
    pub fn batch_tokens(&self, longest: usize, limit: u64) -> Result<usize> {
        let [hidden, inner] = self.encoder.widths().map(|width| width as u64);
        let dtype_size = self.encoder.dtype().size() as u64;
        let is_on_cuda = self.encoder.kernels().is_on_cuda();
        // Two layers are held there with what they computed on the way.
        let token = match is_on_cuda {
            true => 2 * (10 * hidden + 6 * inner) * dtype_size.max(4),
            false => (10 * hidden + 3 * inner) * dtype_size.max(4),
        };
        let scores = self.encoder.score_bytes(self.device) * longest as u64;
        let each = token + scores;
        let available = limit.saturating_sub(memory::active()? as u64);
        let needed = each * longest as u64;
        if needed > available {
            return Err(Refusal::Memory {
                what: format!("a text of {longest} tokens"),
                needed,
                available,
                remedy: "let it be truncated, give parts of it, or allow more memory".into(),
            }
            .into());
        }
        let most = match self.device {
            Device::Cpu => TOKENS_ON_CPU,
            Device::Gpu if is_on_cuda => TOKENS_ON_CUDA,
            Device::Gpu => TOKENS_ON_GPU,
        };
        Ok(most.min((available / each.max(1)) as usize).max(longest))
    }
}

fn finite(values: Vec<f32>) -> Result<Vec<f32>> {
    if values.iter().all(|value| value.is_finite()) { Ok(values) } else { Err(not_numbers()) }
}
