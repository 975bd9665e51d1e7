//! What a request will need, in bytes, before it starts.

use inference_core::Error;
use mlx_ffi::memory;

use crate::cache::CacheSpec;
use crate::error::Result;
use crate::layers::Decoder;

/// The arithmetic of one model's requests.
pub(super) struct Budget {
    /// Bytes that weights, caches and activations may take together.
    limit: u64,
    /// Each layer's cache with the bytes of one position.
    layers: Vec<(CacheSpec, u64)>,
    /// Bytes of activations for each position of a chunk.
    activation_bytes: u64,
    /// The longest sequence whose caches hold when it grows; a longer one is prefilled once more.
    original_context: Option<u64>,
    /// Query heads, for the scores of attention where they are materialised.
    n_heads: u64,
    /// Bytes of one position's logits, their log probabilities and sampling copies.
    logit_bytes: u64,
}

impl Budget {
    /// The budget of `model` whose activations take `dtype_size` bytes each.
    pub fn new(model: &Decoder, specs: &[CacheSpec], dtype_size: u64, limit: u64) -> Budget {
        let layers: Vec<(CacheSpec, u64)> = model
            .layers
            .iter()
            .zip(specs)
            .map(|(layer, spec)| (*spec, layer.attention.kv_elements() * dtype_size))
            .collect();
        let widest = |size: fn(&crate::layers::AttentionConfig) -> i32| {
            model.layers.iter().map(|layer| size(&layer.attention.config)).max().unwrap_or(0) as u64
        };
        let heads = widest(|config| (config.n_heads + 2 * config.n_kv_heads) * config.head_dim);
        // The residual stream and its norms, the projections before and after rotation, the three
        // intermediates of the feed-forward network.
        let activations =
            4 * model.hidden_size as u64 + 2 * heads + 3 * model.intermediate_size as u64;
        Budget {
            limit,
            layers,
            activation_bytes: activations * dtype_size,
            original_context: model.original_context.map(|length| length as u64),
            n_heads: widest(|config| config.n_heads),
            logit_bytes: 4 * 4 * model.vocab_size as u64,
        }
    }

    /// Bytes of the caches after `tokens` positions, and of the activations of the largest chunk.
    fn needed(&self, prompt: u64, tokens: u64, chunk: u64) -> u64 {
        let prompt = match self.original_context {
            Some(original) if prompt <= original && original < tokens => original + 1,
            _ => prompt,
        };
        let chunk = chunk.min(prompt);
        let caches: u64 =
            self.layers.iter().map(|(spec, bytes)| spec.positions(tokens, chunk) * bytes).sum();
        let keys = self.layers.iter().map(|(spec, _)| spec.positions(prompt, chunk)).max();
        let scores = 4 * self.n_heads * chunk * keys.unwrap_or(0);
        caches + chunk * self.activation_bytes + scores + self.logit_bytes
    }

    /// How many new tokens may follow a prompt: `wanted`, or with `None` as many as the context
    /// and the memory hold.
    ///
    /// # Errors
    /// [`Error::Memory`] with the numbers.
    pub fn admit(
        &self,
        prompt: usize,
        wanted: Option<usize>,
        context_left: usize,
        chunk: usize,
    ) -> Result<usize> {
        let available = self.limit.saturating_sub(memory::active()? as u64);
        let needed = |new: usize| self.needed(prompt as u64, (prompt + new) as u64, chunk as u64);
        let most = wanted.unwrap_or(context_left).min(context_left);
        if needed(most) <= available {
            return Ok(most);
        }
        // Without a wish, the answer may be as long as the memory allows, if it can begin at all.
        let least = 1.min(most);
        if wanted.is_none() && needed(least) <= available {
            let (mut fits, mut too_many) = (least, most);
            while too_many - fits > 1 {
                let middle = fits + (too_many - fits) / 2;
                if needed(middle) <= available {
                    fits = middle;
                } else {
                    too_many = middle;
                }
            }
            return Ok(fits);
        }
        let new = if wanted.is_none() { least } else { most };
        Err(Error::Memory {
            what: format!("a prompt of {prompt} tokens with {new} new ones"),
            needed: needed(new),
            available,
            remedy: "ask for fewer tokens, set a shorter context length or a smaller prefill chunk, or raise the memory limit".into(),
        }
        .into())
    }
}
