//! Whisper on the thread that owns its arrays: features to states, and states with tokens to
//! logits.

use mlx_ffi::fast::AttentionMask;
use mlx_ffi::{Array, Dtype, Indices, cpu, eval_all, fast, ops};

use super::alignment::Followed;
use crate::error::Result;
use crate::kernels::{Activation, Columns, Kernels};
use crate::layers::{Embedding, Fusion, LayerNorm, Linear, Pace};
use crate::weights::Linears;

/// The sizes of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Values of a frame of features.
    pub features: i32,
    pub hidden: i32,
    /// Values inside the feed-forward networks of the encoder, and of the decoder.
    pub inner: [i32; 2],
    /// Heads of the encoder, and of the decoder.
    pub heads: [i32; 2],
    /// Blocks of the encoder, and of the decoder.
    pub layers: [i32; 2],
    /// Positions of a window, each of which stands for two frames.
    pub places: i32,
    /// The most ids of a window.
    pub ids: i32,
    pub vocab: i32,
}

/// A model.
pub(super) struct Network {
    pub sizes: Sizes,
    pub kernels: Kernels,
    /// The type of activations.
    pub dtype: Dtype,
    /// Three frames to a state, then three states to one for each second place.
    pub convolutions: [Linear; 2],
    pub activation: Activation,
    /// `[places, hidden]`.
    pub places: Array,
    pub encoder: Vec<EncoderBlock>,
    pub encoder_norm: LayerNorm,
    pub words: Embedding,
    /// The factor of the vectors of ids.
    pub word_scale: f32,
    /// `[ids, hidden]`.
    pub positions: Array,
    pub decoder: Vec<DecoderBlock>,
    pub decoder_norm: LayerNorm,
    /// The output layer, where it is not that of the embeddings.
    pub head: Option<Linear>,
}

/// Attention within the positions of a window.
pub(super) struct SelfAttention {
    pub qkv: Linears<3>,
    pub out: Linear,
}

/// Attention of ids to the positions of the sound.
pub(super) struct CrossAttention {
    pub query: Linear,
    pub keys_and_values: [Linear; 2],
    pub out: Linear,
}

/// A feed-forward network behind its norm.
pub(super) struct Inner {
    pub norm: LayerNorm,
    pub into: Linear,
    pub out: Linear,
}

pub(super) struct EncoderBlock {
    pub norm: LayerNorm,
    pub attention: SelfAttention,
    pub inner: Inner,
}

pub(super) struct DecoderBlock {
    pub norm: LayerNorm,
    pub attention: SelfAttention,
    pub cross_norm: LayerNorm,
    pub cross: CrossAttention,
    pub inner: Inner,
}

/// The most probable ids of rows, on the host.
pub(super) struct Best {
    /// Of each row, among the ids of text.
    pub ids: Vec<u32>,
    pub logits: Vec<f32>,
    /// The logsumexp of each row's text.
    pub totals: Vec<f32>,
    /// The logits of all other ids, row by row.
    pub others: Vec<f32>,
}

/// The keys and values of rows: of the sound, and of the ids so far.
pub(super) struct Remembered {
    layers: Vec<LayerMemory>,
    /// Positions that are filled in each row.
    length: i32,
    /// The first position of each row that is not padding.
    starts: Vec<i32>,
}

struct LayerMemory {
    /// Keys and values of the sound, `[rows, heads, places, head_dim]`.
    sound: [Array; 2],
    /// Keys and values of ids, `[rows, heads, ids, head_dim]`.
    ids: [Array; 2],
}

impl Sizes {
    /// Values of a head of the decoder.
    fn head_dim(&self) -> i32 {
        self.hidden / self.heads[1]
    }
}

impl Network {
    /// `features`, `[rows, frames, features]` with two frames for each place, to states,
    /// `[rows, places, hidden]`. Each block is waited for: on a CPU before the next one, on a GPU
    /// while the next one is prepared.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn encode(&self, features: &Array) -> Result<Array> {
        let x = ops::astype(features, self.dtype)?;
        let x = self.convolutions[0].activated(&neighbours(&x, 1)?, self.activation)?;
        let x = self.convolutions[1].activated(&neighbours(&x, 2)?, self.activation)?;
        let mut x = ops::add(&x, &self.places)?;
        let mut pace = Pace::default();
        for block in &self.encoder {
            let normed = block.norm.forward(&x)?;
            let heads = block.attention.heads(&normed, self.sizes.heads[0], self.kernels)?;
            let made = self.attend(&heads, &[], false)?;
            x = block.attention.out.forward_fused(&made, onto(&x))?;
            x = block.inner.add_to(&x, self.activation)?;
            match self.kernels {
                Kernels::Cpu(_) => x.eval()?,
                _ => pace.after(&[&x])?,
            }
        }
        Ok(self.encoder_norm.forward(&x)?)
    }

    /// Hears nothing, in so many rows. A GPU loads kernels, and makes plans for the shapes of a
    /// batch, when it first meets them: that is done before anyone waits for a text.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn warm_up(&self, rows: i32) -> Result<()> {
        let Sizes { places, features, .. } = self.sizes;
        let states = self.encode(&ops::zeros(&[rows, 2 * places, features], Dtype::F32)?)?;
        states.eval()?;
        let mut remembered = self.remember(&states, vec![0; rows as usize], 8)?;
        let mask = ops::zeros(&[1, self.sizes.vocab / 2], Dtype::F32)?;
        for ids in [4, 1] {
            let behind = self.decode(&vec![0; (rows * ids) as usize], &mut remembered)?;
            let last = ops::slice_axis(&behind, 1, ids - 1, ids)?;
            self.best(&self.logits(&last)?, &mask)?;
        }
        Ok(())
    }

    /// The decoder's memory of `states`, `[rows, places, hidden]`, for rows whose first ids
    /// stand at `starts`, and at most `ids` positions.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn remember(&self, states: &Array, starts: Vec<i32>, ids: i32) -> Result<Remembered> {
        let [rows, ..] = states.dims::<3>()?;
        let (heads, head_dim) = (self.sizes.heads[1], self.sizes.head_dim());
        let layer = |block: &DecoderBlock| -> Result<LayerMemory> {
            let of = |linear: &Linear| -> Result<Array> {
                let all = Columns::all(linear.forward(states)?);
                Ok(ops::contiguous(&self.kernels.heads(&all, head_dim)?)?)
            };
            let [keys, values] = &block.cross.keys_and_values;
            let empty = || ops::zeros(&[rows, heads, ids, head_dim], self.dtype);
            let memory = LayerMemory { sound: [of(keys)?, of(values)?], ids: [empty()?, empty()?] };
            eval_all(memory.sound.iter().chain(&memory.ids))?;
            Ok(memory)
        };
        let layers = self.decoder.iter().map(layer).collect::<Result<Vec<_>>>()?;
        Ok(Remembered { layers, length: 0, starts })
    }

    /// The states behind `ids`, `[rows, l]` one behind the other, which follow what is remembered:
    /// `[rows, l, hidden]`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn decode(&self, ids: &[u32], remembered: &mut Remembered) -> Result<Array> {
        self.decode_watched(ids, remembered, |_, _, _| Ok(()))
    }

    /// [`decode`](Self::decode), and shows `watch` each layer's queries for the sound, and the
    /// sound's keys, by heads.
    fn decode_watched(
        &self,
        ids: &[u32],
        remembered: &mut Remembered,
        mut watch: impl FnMut(usize, &Array, &Array) -> Result<()>,
    ) -> Result<Array> {
        let rows = remembered.starts.len() as i32;
        let l = ids.len() as i32 / rows.max(1);
        let mut x = self.embed(ids, &[rows, l], remembered)?;
        let end = remembered.length + l;
        let starts = &remembered.starts;
        let layers = self.decoder.iter().zip(&mut remembered.layers);
        for (layer, (block, memory)) in layers.enumerate() {
            let normed = block.norm.forward(&x)?;
            let [q, k, v] = block.attention.heads(&normed, self.sizes.heads[1], self.kernels)?;
            let mut held = Vec::with_capacity(2);
            for (buffer, new) in memory.ids.iter_mut().zip([k, v]) {
                *buffer = ops::slice_update_axis(buffer, &new, 2, end - l, end)?;
                held.push(ops::slice_axis(buffer, 2, 0, end)?);
            }
            let [k, v] = <[Array; 2]>::try_from(held).expect("keys and values are two");
            let made = self.attend(&[q, k, v], starts, true)?;
            x = block.attention.out.forward_fused(&made, onto(&x))?;
            let query = block.cross.query.forward(&block.cross_norm.forward(&x)?)?;
            let query = self.kernels.heads(&Columns::all(query), self.sizes.head_dim())?;
            let [k, v] = &memory.sound;
            watch(layer, &query, k)?;
            let made = self.attend(&[query, k.share()?, v.share()?], &[], false)?;
            x = block.cross.out.forward_fused(&made, onto(&x))?;
            x = block.inner.add_to(&x, self.activation)?;
        }
        remembered.length = end;
        Ok(self.decoder_norm.forward(&x)?)
    }

    /// The vectors of `ids` at their positions.
    fn embed(&self, ids: &[u32], shape: &[i32; 2], remembered: &Remembered) -> Result<Array> {
        let x = self.words.forward(&Indices::from_u32(ids, shape)?)?;
        let x = ops::astype(&x, self.dtype)?;
        let x = match self.word_scale == 1.0 {
            true => x,
            false => ops::multiply(&x, &Array::scalar(self.word_scale, self.dtype)?)?,
        };
        let (first, last) = (remembered.length, self.sizes.ids - 1);
        let places = remembered.starts.iter().flat_map(|start| {
            // Padding has any position, and so has a row that is over.
            (first..first + shape[1]).map(move |at| (at - start).clamp(0, last) as u32)
        });
        let places: Vec<u32> = places.collect();
        let positions = ops::take(&self.positions, &Indices::from_u32(&places, shape)?, 0)?;
        Ok(ops::add(&x, &positions)?)
    }

    /// The logits of states, `[rows, n, hidden]`: `[rows, n, vocab]`, F32.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn logits(&self, states: &Array) -> Result<Array> {
        let logits = match &self.head {
            Some(head) => head.forward(states)?,
            None => self.words.project(states, Fusion::default())?,
        };
        Ok(ops::astype(&logits, Dtype::F32)?)
    }

    /// The best of the first ids of `logits`, `[rows, 1, vocab]`, as many as `mask` has, which is
    /// added to them; how likely they are; and the logits of the others.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn best(&self, logits: &Array, mask: &Array) -> Result<Best> {
        let [rows, _, vocab] = logits.dims()?;
        let text = mask.size() as i32;
        let logits = ops::reshape(logits, &[rows, vocab])?;
        let masked = ops::add(&ops::slice_axis(&logits, 1, 0, text)?, mask)?;
        let ids = ops::argmax(&masked, -1, false)?;
        let most = ops::max(&masked, -1, false)?;
        let totals = ops::logsumexp(&masked, -1, false)?;
        let others = ops::contiguous(&ops::slice_axis(&logits, 1, text, vocab)?)?;
        eval_all([&*ids, &most, &totals, &others])?;
        Ok(Best {
            ids: ids.to_vec_u32()?,
            logits: most.to_vec_f32()?,
            totals: totals.to_vec_f32()?,
            others: others.to_vec_f32()?,
        })
    }

    /// `softmax(q kᵀ / √d) v` with heads beside each other, `[rows, l, heads · d]`.
    fn attend(&self, [q, k, v]: &[Array; 3], starts: &[i32], causal: bool) -> Result<Array> {
        let [rows, _, l, d] = q.dims()?;
        let scale = 1.0 / (d as f32).sqrt();
        let is_padded = starts.iter().any(|start| *start > 0);
        if self.kernels.is_ours_on_cpu() {
            let starts = if is_padded { starts } else { &[] };
            let visible = cpu::Visible { starts, causal, window: None };
            return Ok(cpu::attention(q, k, v, scale, None, None, visible)?);
        }
        let padding;
        let mask = match (causal, is_padded) {
            (true, true) => {
                let [_, _, n, _] = k.dims()?;
                padding = padding_mask(starts, [l, n], q.dtype())?;
                AttentionMask::Array(&padding)
            }
            (true, false) if l > 1 => AttentionMask::Causal,
            _ => AttentionMask::None,
        };
        let made = fast::scaled_dot_product_attention(q, k, v, scale, mask, None)?;
        Ok(ops::reshape(&ops::swap_axes(&made, 1, 2)?, &[rows, l, -1])?)
    }

    /// How the decoder follows the sound: the attention of the ids behind `skipped` to the first
    /// `places` places of `states`, `[1, places, hidden]`, in the heads `heads`, as layer and head.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn follow(
        &self,
        states: &Array,
        ids: &[u32],
        skipped: usize,
        places: usize,
        heads: &[[usize; 2]],
    ) -> Result<Followed> {
        let mut remembered = self.remember(states, vec![0], ids.len() as i32)?;
        let mut followed = Followed { heads: Vec::new(), tokens: ids.len() - skipped, places };
        self.decode_watched(ids, &mut remembered, |layer, query, keys| {
            for [_, head] in heads.iter().filter(|[of, _]| *of == layer) {
                followed.heads.push(attention_of_head(query, keys, [*head, skipped, places])?);
            }
            Ok(())
        })?;
        Ok(followed)
    }
}

/// The attention of one head, from the id `skipped` on, to the first `places`, row by row.
fn attention_of_head(
    q: &Array,
    k: &Array,
    [head, skipped, places]: [usize; 3],
) -> Result<Vec<f32>> {
    let of_head = |x: &Array| -> Result<Array> {
        let x = ops::slice_axis(x, 1, head as i32, head as i32 + 1)?;
        Ok(ops::astype(&ops::squeeze(&ops::squeeze(&x, 0)?, 0)?, Dtype::F32)?)
    };
    let (q, k) = (of_head(q)?, of_head(k)?);
    let [l, d] = q.dims()?;
    let q = ops::slice_axis(&q, 0, skipped as i32, l)?;
    let q = ops::multiply(&q, &Array::scalar(1.0 / (d as f32).sqrt(), Dtype::F32)?)?;
    let weights = ops::softmax(&ops::matmul(&q, &ops::swap_axes(&k, 0, 1)?)?, -1, true)?;
    Ok(ops::contiguous(&ops::slice_axis(&weights, 1, 0, places as i32)?)?.to_vec_f32()?)
}

impl Remembered {
    /// Keeps the rows `kept` alone, by their numbers.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn keep(&mut self, kept: &[u32]) -> Result<()> {
        let rows = Indices::from_u32(kept, &[kept.len() as i32])?;
        for layer in &mut self.layers {
            for array in layer.sound.iter_mut().chain(&mut layer.ids) {
                *array = ops::take(array, &rows, 0)?;
            }
            eval_all(layer.sound.iter().chain(&layer.ids))?;
        }
        self.starts = kept.iter().map(|row| self.starts[*row as usize]).collect();
        Ok(())
    }
}

impl SelfAttention {
    /// Heads of queries, keys and values of `x`, `[rows, l, hidden]`.
    fn heads(&self, x: &Array, heads: i32, kernels: Kernels) -> Result<[Array; 3]> {
        let hidden = x.shape().last().copied().unwrap_or(0);
        let of = |columns: &Columns| kernels.heads(columns, hidden / heads);
        match &self.qkv {
            Linears::Separate([q, k, v]) => {
                let of = |linear: &Linear| -> Result<Array> {
                    Ok(of(&Columns::all(linear.forward(x)?))?)
                };
                Ok([of(q)?, of(k)?, of(v)?])
            }
            Linears::Joined(all) => {
                let all = all.forward(x)?;
                let part = |number: i32| -> Result<Array> {
                    let range = number * hidden..(number + 1) * hidden;
                    Ok(of(&Columns { of: all.share()?, range })?)
                };
                Ok([part(0)?, part(1)?, part(2)?])
            }
        }
    }
}

impl Inner {
    /// `x` and what the network makes of it.
    fn add_to(&self, x: &Array, activation: Activation) -> Result<Array> {
        let inner = self.into.activated(&self.norm.forward(x)?, activation)?;
        Ok(self.out.forward_fused(&inner, onto(x))?)
    }
}

/// The sum with `residual` behind a projection.
fn onto(residual: &Array) -> Fusion<'_> {
    Fusion { residual: Some(residual), ..Fusion::default() }
}

/// Each row of `x`, `[rows, n, size]`, between the ones before and behind it, for every `stride`th:
/// `[rows, n / stride, 3 · size]`. Beyond the edges are zeros.
fn neighbours(x: &Array, stride: i32) -> Result<Array> {
    let [rows, n, size] = x.dims()?;
    let zeros = ops::zeros(&[rows, 1, size], x.dtype())?;
    let padded = ops::concatenate(&[&zeros, x, &zeros], 1)?;
    let each = |first: i32| -> Result<Array> {
        let all = ops::slice_axis(&padded, 1, first, first + n)?;
        if stride == 1 {
            return Ok(all);
        }
        let pairs = ops::reshape(&ops::contiguous(&all)?, &[rows, n / stride, stride, size])?;
        Ok(ops::squeeze(&ops::slice_axis(&pairs, 2, 0, 1)?, 2)?)
    };
    Ok(ops::concatenate(&[&each(0)?, &each(1)?, &each(2)?], 2)?)
}

/// The mask that is added to the scores of `l` queries, the last of `n` positions: 0 where a query
/// may see a key, which is not padding and not later.
fn padding_mask(starts: &[i32], [l, n]: [i32; 2], dtype: Dtype) -> Result<Array> {
    const HIDDEN: f32 = -1e4;
    let mut values = Vec::with_capacity(starts.len() * (l * n) as usize);
    for start in starts {
        for query in n - l..n {
            values.extend((0..n).map(|key| match *start <= key && key <= query {
                true => 0.0,
                false => HIDDEN,
            }));
        }
    }
    Ok(Array::from_floats(&values, &[starts.len() as i32, 1, l, n], dtype)?)
}
