//! Keys and values of the positions that a sequence has passed.

use mlx_ffi::{Array, Dtype, Result, ops};

use crate::layers::Reach;

/// Positions by which a buffer grows.
const STEP: i32 = 256;

/// What a query position may attend to.
#[derive(Debug)]
pub(crate) enum Mask {
    /// Everything.
    None,
    /// Everything up to itself.
    Causal,
    /// Where true: `[l, keys]`.
    Array(Array),
}

/// How a layer's cache behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheSpec {
    /// Keeps every position.
    Growing,
    /// Keeps the first `keep` and the last positions, `max_size` in all.
    Rotating {
        /// Positions held.
        max_size: i32,
        /// Of these, how many from the beginning.
        keep: i32,
    },
}

impl CacheSpec {
    /// Positions kept from the beginning where a context length bounds a cache.
    pub const CONTEXT_KEEP: i32 = 4;

    /// The cache of a layer that sees `window` positions, under a context length.
    pub fn new(window: Option<i32>, context_length: Option<i32>) -> CacheSpec {
        match (window, context_length) {
            (Some(window), limit) if limit.is_none_or(|limit| window <= limit) => {
                CacheSpec::Rotating { max_size: window, keep: 0 }
            }
            (_, Some(limit)) => CacheSpec::Rotating {
                max_size: limit,
                keep: CacheSpec::CONTEXT_KEEP.min(limit - 1),
            },
            _ => CacheSpec::Growing,
        }
    }

    /// The most positions held at once when `tokens` have passed, the last `chunk` of them
    /// together.
    pub fn positions(self, tokens: u64, chunk: u64) -> u64 {
        match self {
            CacheSpec::Growing => tokens.next_multiple_of(STEP as u64),
            CacheSpec::Rotating { max_size, .. } => tokens.min(max_size as u64 + chunk),
        }
    }
}

/// The cache of one layer of one sequence.
#[derive(Debug)]
pub(crate) struct Cache {
    spec: CacheSpec,
    /// How the positions of the sequence are encoded.
    reach: Reach,
    /// Keys and values, `[b, n_kv_heads, positions, head_dim]`.
    buffers: Option<(Array, Array)>,
    /// Positions that have passed.
    offset: i32,
    /// Where the next position is written.
    index: i32,
}

impl Cache {
    /// An empty cache.
    pub fn new(spec: CacheSpec, reach: Reach) -> Cache {
        Cache { spec, reach, buffers: None, offset: 0, index: 0 }
    }

    /// How the positions of the sequence are encoded.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// How the cache behaves.
    pub fn spec(&self) -> CacheSpec {
        self.spec
    }

    /// Positions that have passed, the position of the next one.
    pub fn offset(&self) -> i32 {
        self.offset
    }

    /// The arrays that hold state, for evaluation.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.buffers.iter().flat_map(|(k, v)| [k, v])
    }

    /// The mask for the next `l` positions.
    pub fn mask(&self, l: i32) -> Result<Mask> {
        if l == 1 {
            return Ok(Mask::None);
        }
        match self.spec {
            CacheSpec::Growing => Ok(Mask::Causal),
            CacheSpec::Rotating { max_size, .. } => {
                let held = self.offset.min(max_size - 1);
                if held + l > max_size {
                    window_mask(l, held, max_size).map(Mask::Array)
                } else {
                    Ok(Mask::Causal)
                }
            }
        }
    }

    /// Appends `k` and `v`, `[b, n_kv_heads, l, head_dim]`, and returns all that are visible,
    /// `[b, n_kv_heads, n, head_dim]`.
    pub fn update(&mut self, k: &Array, v: &Array) -> Result<(Array, Array)> {
        let l = k.dims::<4>()?[2];
        match self.spec {
            CacheSpec::Growing => self.append(k, v, l),
            CacheSpec::Rotating { max_size, keep } if l == 1 => self.rotate(k, v, max_size, keep),
            CacheSpec::Rotating { max_size, keep } => self.extend(k, v, max_size, keep),
        }
    }

    fn append(&mut self, k: &Array, v: &Array, l: i32) -> Result<(Array, Array)> {
        let end = self.offset + l;
        let grow = |old: Option<Array>, new: &Array| -> Result<Array> {
            let [b, n, _, d] = new.dims()?;
            let old = match old {
                Some(old) if positions(&old) >= end => return Ok(old),
                old => old,
            };
            let steps = (l + STEP - 1) / STEP;
            let room = ops::zeros(&[b, n, steps * STEP, d], new.dtype())?;
            match old {
                None => Ok(room),
                Some(old) => {
                    let filled = ops::slice_axis(&old, 2, 0, self.offset)?;
                    ops::concatenate(&[&filled, &room], 2)
                }
            }
        };
        let (old_k, old_v) = self.buffers.take().unzip();
        let keys = write(grow(old_k, k)?, k, self.offset)?;
        let values = write(grow(old_v, v)?, v, self.offset)?;
        let visible = (front(&keys, end)?, front(&values, end)?);
        self.buffers = Some((keys, values));
        self.offset = end;
        self.index = end;
        Ok(visible)
    }

    /// Writes one position over the oldest one that need not be kept.
    fn rotate(&mut self, k: &Array, v: &Array, max: i32, keep: i32) -> Result<(Array, Array)> {
        let held = self.buffers.as_ref().map_or(0, |(k, _)| positions(k));
        let mut index = self.index;
        let room = if self.offset >= held && held < max {
            index = self.offset;
            STEP.min(max - held)
        } else {
            0
        };
        // A chunk leaves more than `max` positions behind: drop the oldest.
        let surplus = held - max;
        if surplus > 0 {
            index = max;
        }
        let prepare = |old: Option<Array>, new: &Array| -> Result<Array> {
            let [b, n, _, d] = new.dims()?;
            match old {
                Some(old) if surplus > 0 => drop_oldest(&old, keep, surplus),
                Some(old) if room == 0 => Ok(old),
                old => {
                    let room = ops::zeros(&[b, n, room, d], new.dtype())?;
                    match old {
                        None => Ok(room),
                        Some(old) => ops::concatenate(&[&old, &room], 2),
                    }
                }
            }
        };
        if index == max {
            index = keep;
        }
        let (old_k, old_v) = self.buffers.take().unzip();
        let keys = write(prepare(old_k, k)?, k, index)?;
        let values = write(prepare(old_v, v)?, v, index)?;
        self.offset += 1;
        self.index = index + 1;
        let visible = (front(&keys, self.offset)?, front(&values, self.offset)?);
        self.buffers = Some((keys, values));
        Ok(visible)
    }

    /// Appends a chunk; each of its positions sees at least `max` positions back.
    fn extend(&mut self, k: &Array, v: &Array, max: i32, keep: i32) -> Result<(Array, Array)> {
        let (index, offset) = (self.index, self.offset);
        let join = |old: Option<Array>, new: &Array| -> Result<Array> {
            let Some(old) = old else { return new.share() };
            let ordered = temporal_order(&old, keep, index, offset)?;
            let surplus = positions(&ordered) - max + 1;
            let kept = if surplus > 0 { drop_oldest(&ordered, keep, surplus)? } else { ordered };
            ops::concatenate(&[&kept, new], 2)
        };
        let (old_k, old_v) = self.buffers.take().unzip();
        let (keys, values) = (join(old_k, k)?, join(old_v, v)?);
        self.offset += k.dims::<4>()?[2];
        self.index = positions(&keys);
        let visible = (keys.share()?, values.share()?);
        self.buffers = Some((keys, values));
        Ok(visible)
    }
}

fn positions(buffer: &Array) -> i32 {
    buffer.shape().get(2).copied().unwrap_or(0)
}

fn write(buffer: Array, new: &Array, at: i32) -> Result<Array> {
    ops::slice_update_axis(&buffer, new, 2, at, at + positions(new))
}

/// The first `end` positions, or all where there are no more.
fn front(buffer: &Array, end: i32) -> Result<Array> {
    if end < positions(buffer) { ops::slice_axis(buffer, 2, 0, end) } else { buffer.share() }
}

fn drop_oldest(buffer: &Array, keep: i32, count: i32) -> Result<Array> {
    let total = positions(buffer);
    let rest = ops::slice_axis(buffer, 2, (keep + count).min(total), total)?;
    if keep == 0 {
        return Ok(rest);
    }
    let first = ops::slice_axis(buffer, 2, 0, keep.min(total))?;
    ops::concatenate(&[&first, &rest], 2)
}

/// The buffer's positions, oldest first, without room that was never written.
fn temporal_order(buffer: &Array, keep: i32, index: i32, offset: i32) -> Result<Array> {
    let total = positions(buffer);
    if index == total {
        return buffer.share();
    }
    if index >= offset {
        return ops::slice_axis(buffer, 2, 0, index);
    }
    let first = ops::slice_axis(buffer, 2, 0, keep)?;
    let old = ops::slice_axis(buffer, 2, index, total)?;
    let new = ops::slice_axis(buffer, 2, keep, index)?;
    ops::concatenate(&[&first, &old, &new], 2)
}

/// `[l, held + l]`, true where a query at `held + i` sees key `j`: not after it, and fewer than
/// `window` positions before it.
pub(crate) fn window_mask(l: i32, held: i32, window: i32) -> Result<Array> {
    let queries = ops::expand_dims(&ops::arange(held, held + l, Dtype::I32)?, 1)?;
    let keys = ops::expand_dims(&ops::arange(0, held + l, Dtype::I32)?, 0)?;
    let past = ops::greater_equal(&queries, &keys)?;
    let width = Array::from_i32(&[window], &[])?;
    let near = ops::less(&queries, &ops::add(&keys, &width)?)?;
    ops::logical_and(&past, &near)
}
