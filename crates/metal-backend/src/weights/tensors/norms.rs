//! Norms, in the forms in which checkpoints have their weights, and matrices whose values have a
//! bound.

use mlx_ffi::{Array, Dtype, ops};

use super::Weights;
use crate::error::Result;
use crate::layers::{Around, RmsNorm};

impl Weights {
    /// The norm `name` over `size` values.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn rms_norm(&self, name: &str, size: i32, eps: f32) -> Result<RmsNorm> {
        let weight = self.at(name).tensor("weight", &[size])?;
        Ok(RmsNorm { weight, bias: None, eps, around: Around::Zero, kernels: self.kernels() })
    }

    /// A norm over `size` values without a weight, in the type of the checkpoint's other norms.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn plain_rms_norm(&self, size: i32, eps: f32) -> Result<RmsNorm> {
        let weight = Array::from_f32(&vec![1.0; size as usize], &[size])?;
        let weight = ops::astype(&weight, self.float_dtype())?;
        weight.eval()?;
        Ok(RmsNorm { weight, bias: None, eps, around: Around::Zero, kernels: self.kernels() })
    }

    /// The norm before a router: its weight is `name` over the root of `size`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn router_norm(&self, name: &str, size: i32, eps: f32) -> Result<RmsNorm> {
        let weight = self.tensor(name, &[size])?;
        let root = Array::scalar((size as f32).sqrt().recip(), weight.dtype())?;
        let weight = ops::multiply(&weight, &root)?;
        weight.eval()?;
        Ok(RmsNorm { weight, bias: None, eps, around: Around::Zero, kernels: self.kernels() })
    }

    /// A norm whose weight is stored as its distance from 1 (Gemma).
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn offset_rms_norm(&self, name: &str, size: i32, eps: f32) -> Result<RmsNorm> {
        let weight = self.at(name).tensor("weight", &[size])?;
        let weight = ops::add(&weight, &Array::scalar(1.0, weight.dtype())?)?;
        weight.eval()?;
        Ok(RmsNorm { weight, bias: None, eps, around: Around::Zero, kernels: self.kernels() })
    }

    /// The matrix `weight`, or the `weight` of each module of `rows` as a row of it.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn matrix_or_rows(&self, rows: &str, [count, size]: [i32; 2]) -> Result<Array> {
        if self.has("weight") || self.is_random() {
            return self.tensor("weight", &[count, size]);
        }
        let row = |index| self.at(rows).at(&format!("{index}")).tensor("weight", &[size]);
        let rows = (0..count).map(row).collect::<Result<Vec<Array>>>()?;
        if self.describes() {
            // Stand-ins have no values to be put together.
            return self.plain_rms_norm(size, 0.0).map(|norm| norm.weight);
        }
        let all = ops::concatenate(&rows.iter().collect::<Vec<_>>(), 0)?;
        let all = ops::reshape(&all, &[count, size])?;
        all.eval()?;
        Ok(all)
    }

    /// The matrix of the module `name` in F32, of exactly `shape`, its values within ± `limit`.
    ///
    /// # Errors
    /// As [`tensor_f32`](Self::tensor_f32).
    pub fn clipped(&self, name: &str, shape: &[i32], limit: Option<f64>) -> Result<Array> {
        let weight = self.at(name).tensor_f32("weight", shape)?;
        let Some(limit) = limit else { return Ok(weight) };
        let scalar = |value: f64| Array::scalar(value as f32, Dtype::F32);
        let clipped = ops::minimum(&ops::maximum(&weight, &scalar(-limit)?)?, &scalar(limit)?)?;
        clipped.eval()?;
        Ok(clipped)
    }
}
