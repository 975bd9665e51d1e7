//! Modulated norms and heads of transformers that make pictures, where a device has such a kernel.

use mlx_ffi::cuda::{self, Branch, ScaledNorm, StreamHeads};
use mlx_ffi::{Array, Result, fast, ops};

use super::choice::Kernels;

impl Kernels {
    /// `x + gate · y` of a branch, and the norm of that, scaled and shifted, where there is one
    /// operation for all that; all norms have `eps`. Without a branch the first result is `x`.
    pub fn modulated(
        self,
        x: &Array,
        branch: Option<&Branch<'_>>,
        norm: Option<&ScaledNorm<'_>>,
        eps: f32,
    ) -> Option<Result<(Array, Option<Array>)>> {
        let pays = self == Kernels::Cuda && cuda::takes_modulated(x, branch, norm);
        pays.then(|| cuda::modulated(x, branch, norm, eps))
    }

    /// `x + gate · y` of a branch.
    pub fn branched(self, x: &Array, branch: &Branch<'_>, eps: f32) -> Result<Array> {
        match self.modulated(x, Some(branch), None, eps) {
            Some(found) => Ok(found?.0),
            None => self.sum(x, &self.let_through(branch, eps)?),
        }
    }

    /// The norm of `x`, scaled and shifted.
    pub fn scaled_norm(self, x: &Array, norm: &ScaledNorm<'_>, eps: f32) -> Result<Array> {
        if let Some(found) = self.modulated(x, None, Some(norm), eps) {
            return found.and_then(both).map(|[_, normed]| normed);
        }
        let normed = match norm.weight {
            None => fast::layer_norm(x, None, None, eps)?,
            Some(weight) => self.rms_norm(x, weight, eps)?,
        };
        let scaled = match norm.scale {
            None => normed,
            Some(scale) if norm.one_more => {
                let one = Array::scalar(1.0, scale.dtype())?;
                ops::multiply(&normed, &ops::add(scale, &one)?)?
            }
            Some(scale) => ops::multiply(&normed, scale)?,
        };
        norm.shift.map_or_else(|| scaled.share(), |shift| ops::add(&scaled, shift))
    }

    /// `x + gate · y` of a branch, and the norm of that, scaled and shifted; all norms have `eps`.
    pub fn branched_and_normed(
        self,
        x: &Array,
        branch: &Branch<'_>,
        norm: &ScaledNorm<'_>,
        eps: f32,
    ) -> Result<[Array; 2]> {
        if let Some(found) = self.modulated(x, Some(branch), Some(norm), eps) {
            return found.and_then(both);
        }
        let x = self.branched(x, branch, eps)?;
        let normed = self.scaled_norm(&x, norm, eps)?;
        Ok([x, normed])
    }

    fn let_through(self, branch: &Branch<'_>, eps: f32) -> Result<Array> {
        let y = match branch.norm {
            None => branch.y.share()?,
            Some(weight) => self.rms_norm(branch.y, weight, eps)?,
        };
        match branch.gate {
            None => Ok(y),
            Some(gate) if branch.tanh => ops::multiply(&y, &ops::tanh(gate)?),
            Some(gate) => ops::multiply(&y, gate),
        }
    }

    /// The heads of one stream, or of two, the second behind the first, `[1, heads, l, head_dim]`
    /// each, where there is one operation for that: queries and keys normed with `eps`, their pairs
    /// `2 i` and `2 i + 1` rotated by cosines and sines, and values.
    pub fn picture_heads(
        self,
        streams: &[StreamHeads<'_>],
        turns: [&Array; 2],
        head_dim: i32,
        eps: f32,
    ) -> Option<Result<[Array; 3]>> {
        let pays = self == Kernels::Cuda && cuda::takes_picture_heads(streams, turns, head_dim);
        pays.then(|| {
            let [q, k, v] = cuda::picture_heads(streams, turns, head_dim, eps)?;
            let first = |x: Array| ops::swap_axes(&x, 1, 2);
            Ok([first(q)?, first(k)?, first(v)?])
        })
    }
}

/// The sum and its norm, which is there.
fn both((x, normed): (Array, Option<Array>)) -> Result<[Array; 2]> {
    Ok([x, normed.ok_or_else(|| mlx_ffi::Error::new("a norm gave nothing"))?])
}
