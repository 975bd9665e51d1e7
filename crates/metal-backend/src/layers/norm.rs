//! Root-mean-square normalisation.

use mlx_ffi::{Array, Dtype, Result, cuda, ops};

use crate::kernels::{Kernels, Norm};

/// `x / √(mean(x²) + eps) · weight` over the last dimension.
#[derive(Debug)]
pub(crate) struct RmsNorm {
    /// `[size]`, or `[groups, size]` for values of `[…, groups, size]`.
    pub weight: Array,
    /// `[size]`, of a norm around the mean that has one.
    pub bias: Option<Array>,
    pub eps: f32,
    /// The quantity that is squared.
    pub around: Around,
    /// Whose kernels compute it.
    pub kernels: Kernels,
}

/// The quantity whose squares a norm averages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Around {
    /// The values (root-mean-square norm).
    Zero,
    /// The values' distances from their mean, which the result has too (layer norm).
    Mean,
}

impl RmsNorm {
    /// `[…, size]` to the same.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        match self.around {
            Around::Zero => self.kernels.rms_norm(x, &self.weight, self.eps),
            Around::Mean => self.around_mean(x),
        }
    }

    /// [`forward`](Self::forward) by our own kernel for CUDA where there is one, so that a captured
    /// step can hold it.
    pub fn kept(&self, x: &Array) -> Result<Array> {
        match self.weights() {
            Some(Norm { weight, eps })
                if self.kernels == Kernels::Cuda && cuda::takes_rms_norm(x, weight) =>
            {
                cuda::rms_norm(x, weight, eps)
            }
            _ => self.forward(x),
        }
    }

    /// In float32, as the references compute it.
    fn around_mean(&self, x: &Array) -> Result<Array> {
        let dtype = x.dtype();
        let is_row = self.weight.shape().len() == 1;
        if self.kernels.is_ours_on_cpu() && self.weight.dtype() == dtype && is_row {
            return self.kernels.layer_norm(x, &self.weight, self.bias.as_ref(), self.eps);
        }
        let size = x.shape().last().copied().unwrap_or(1).max(1);
        let x = ops::astype(x, Dtype::F32)?;
        let part = Array::scalar(1.0 / size as f32, Dtype::F32)?;
        let mean = ops::multiply(&ops::sum(&x, -1, true)?, &part)?;
        let weight = ops::astype(&self.weight, Dtype::F32)?;
        let y = self.kernels.rms_norm(&ops::subtract(&x, &mean)?, &weight, self.eps)?;
        let y = match &self.bias {
            None => y,
            Some(bias) => ops::add(&y, bias)?,
        };
        ops::astype(&y, dtype)
    }

    /// This norm, whose result is multiplied with `factor`.
    pub fn scaled(self, factor: f32) -> Result<RmsNorm> {
        let weight = ops::multiply(&self.weight, &Array::scalar(factor, self.weight.dtype())?)?;
        Ok(RmsNorm { weight, ..self })
    }

    /// This norm, each of whose results is divided by the one of `by`, `[size]` F32.
    pub fn divided(self, by: &Array) -> Result<RmsNorm> {
        let weight = ops::divide(&ops::astype(&self.weight, Dtype::F32)?, by)?;
        let weight = ops::astype(&weight, self.weight.dtype())?;
        weight.eval()?;
        Ok(RmsNorm { weight, ..self })
    }

    /// This norm, of the distances from the mean.
    pub fn around(self, around: Around) -> RmsNorm {
        RmsNorm { around, ..self }
    }

    /// Returns true for a norm of heads that kernels know: around 0, by weights that all heads
    /// share.
    pub fn is_of_heads(&self) -> bool {
        self.weights().is_some() && self.weight.shape().len() == 1
    }

    /// Its weight and epsilon for a kernel; `None`: kernels do not know it.
    pub fn weights(&self) -> Option<Norm<'_>> {
        (self.around == Around::Zero).then_some(Norm { weight: &self.weight, eps: self.eps })
    }
}
