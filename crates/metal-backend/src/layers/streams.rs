//! From embeddings to several residual streams, and from these to one hidden state.

use mlx_ffi::{Array, Dtype, Result, ops};

use super::{Linear, Workspace};

/// The least mean square by which a stream is divided, as in transformers.
const LEAST: f32 = 1e-5;

/// The projections before the first layer and behind the last one of a model with several residual
/// streams: one each for every stream but the first, of `hidden_size` to the same.
#[derive(Debug)]
pub(crate) struct Streams {
    pub projections: Vec<Linear>,
    pub unembed_projections: Vec<Linear>,
}

impl Streams {
    /// Streams that there are.
    pub fn count(&self) -> u64 {
        1 + self.projections.len() as u64
    }

    /// Embeddings, `[b, l, hidden_size]`, to all streams side by side,
    /// `[b, l, streams · hidden_size]`.
    pub fn begin(&self, h: &Array) -> Result<Array> {
        let mut all = vec![h.share()?];
        for projection in &self.projections {
            all.push(as_large(&projection.forward(h)?, h)?);
        }
        ops::concatenate(&all.iter().collect::<Vec<_>>(), -1)
    }

    /// All streams, `[b, l, streams · hidden_size]`, to the hidden state, `[b, l, hidden_size]`.
    pub fn end(&self, all: &Array) -> Result<Array> {
        let [.., width] = all.dims::<3>()?;
        let count = self.count() as i32;
        let size = width / count;
        let stream = |index: i32| ops::slice_axis(all, -1, index * size, (index + 1) * size);
        let first = stream(0)?;
        let mut sum = first.share()?;
        for (index, projection) in (1..).zip(&self.unembed_projections) {
            let other = projection.forward(&stream(index)?)?;
            sum = ops::add(&sum, &as_large(&other, &first)?)?;
        }
        ops::multiply(&sum, &Array::scalar(1.0 / count as f32, sum.dtype())?)
    }

    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        let all = self.projections.iter().chain(&self.unembed_projections);
        all.map(|linear| linear.workspace(dtype)).fold(Workspace::default(), Workspace::then)
    }
}

/// `x` with the root mean square of `like`; both `[b, l, hidden_size]`.
fn as_large(x: &Array, like: &Array) -> Result<Array> {
    let scalar = |value| Array::scalar(value, Dtype::F32);
    let mean_square = |x: &Array| {
        let size = x.shape().last().copied().unwrap_or(1);
        let x = ops::astype(x, Dtype::F32)?;
        let sum = ops::sum(&ops::multiply(&x, &x)?, -1, true)?;
        ops::multiply(&sum, &scalar(1.0 / size as f32)?)
    };
    let own = ops::maximum(&mean_square(x)?, &scalar(LEAST)?)?;
    let ratio = ops::power(&ops::divide(&mean_square(like)?, &own)?, &scalar(0.5)?)?;
    ops::astype(&ops::multiply(x, &ratio)?, x.dtype())
}
