//! A layer's attention, for one who observes it.

use mlx_ffi::{Array, Dtype, Result, ops};

use crate::cache::{View, Visible};

/// The heads of a layer, as an observer sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadSizes {
    /// Of queries.
    pub n_heads: i32,
    /// Of keys.
    pub n_kv_heads: i32,
    /// Values of a query and of a key.
    pub head_dim: i32,
}

/// The queries and keys of one layer and some positions, as attention takes them.
#[derive(Debug)]
pub(crate) struct Observed {
    /// `[1, n_heads, l, head_dim]`.
    pub queries: Array,
    /// The keys of the same positions, `[1, n_kv_heads, l, head_dim]`.
    pub keys: Array,
    /// All keys that they may see, `[1, n_kv_heads, n, head_dim]`; their own are the last ones.
    view: Array,
    visible: Visible,
    scores: Scores,
}

/// How attention makes its scores.
#[derive(Debug)]
pub(crate) struct Scores {
    /// Their factor.
    pub scale: f32,
    /// They are squashed to ± this by tanh.
    pub softcap: Option<f32>,
    /// One more logit for each head, `[n_heads]`.
    pub sinks: Option<Array>,
}

/// How queries share their attention among keys.
#[derive(Debug)]
pub(crate) struct Weights {
    /// `[n_heads, l, n]`, in float32: the last `n` keys until these queries' end.
    pub values: Array,
    /// `[n_heads, l]`, in float32 and nats, a sink's share included.
    pub entropy: Array,
}

impl Observed {
    /// The attention of one row's queries and keys after position encoding, over `view`.
    pub fn new(queries: &Array, keys: &Array, view: &View, scores: Scores) -> Result<Observed> {
        let (queries, keys) = (queries.share()?, keys.share()?);
        Ok(Observed::of([queries, keys, view.keys.share()?], view.visible.clone(), scores))
    }

    /// The attention of one row's queries and keys, given beside all keys that they may see.
    pub fn of([queries, keys, view]: [Array; 3], visible: Visible, scores: Scores) -> Observed {
        Observed { queries, keys, view, visible, scores }
    }

    /// The weights with which attention sees, computed in float32.
    pub fn weights(&self) -> Result<Weights> {
        let scalar = |value| Array::scalar(value, Dtype::F32);
        let [_, n_heads, l, d] = self.queries.dims()?;
        let [_, n_kv_heads, n, _] = self.view.dims()?;
        let groups = n_heads / n_kv_heads;
        let q = ops::astype(&self.queries, Dtype::F32)?;
        let q = ops::multiply(&q, &scalar(self.scores.scale)?)?;
        // The query heads that share a key head, one after the other.
        let q = ops::reshape(&q, &[n_kv_heads, groups * l, d])?;
        let k = ops::reshape(&ops::astype(&self.view, Dtype::F32)?, &[n_kv_heads, n, d])?;
        let scores = ops::matmul(&q, &ops::swap_axes(&k, -1, -2)?)?;
        let mut scores = ops::reshape(&scores, &[n_heads, l, n])?;
        if let Some(softcap) = self.scores.softcap {
            let softcap = scalar(softcap)?;
            scores = ops::multiply(&ops::tanh(&ops::divide(&scores, &softcap)?)?, &softcap)?;
        }
        if let Some(visible) = self.visible.array(l, n)? {
            let visible = ops::reshape(&visible, &[1, l, n])?;
            scores = ops::where_(&visible, &scores, &scalar(f32::MIN)?)?;
        }
        if let Some(sinks) = &self.scores.sinks {
            let sinks = ops::reshape(&ops::astype(sinks, Dtype::F32)?, &[n_heads, 1, 1])?;
            let sinks = ops::broadcast_to(&sinks, &[n_heads, l, 1])?;
            scores = ops::concatenate(&[&scores, &sinks], -1)?;
        }
        let log = ops::subtract(&scores, &ops::logsumexp(&scores, -1, true)?)?;
        let weights = ops::exp(&log)?;
        let sum = ops::sum(&ops::multiply(&weights, &log)?, -1, false)?;
        // Rounding leaves no entropy below 0, nor a zero with a sign.
        let entropy = ops::maximum(&ops::subtract(&scalar(0.0)?, &sum)?, &scalar(0.0)?)?;
        let values = match &self.scores.sinks {
            None => weights,
            Some(_) => ops::slice_axis(&weights, -1, 0, n)?,
        };
        Ok(Weights { values, entropy })
    }
}
