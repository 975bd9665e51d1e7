//! Matrices that are packed, or that are packed as they are read.

use mlx_ffi::{QuantMode, Quantization, Quantized, quantize};

use super::Weights;
use crate::error::{Error, Result};
use crate::kernels::Matrix;

impl Weights {
    /// Packs matrices to so many bits as they are read, where they are not packed already and their
    /// columns are whole groups of 64 or of 32.
    pub fn packed_to(mut self, bits: Option<i32>) -> Weights {
        let shared = std::rc::Rc::get_mut(&mut self.shared);
        shared.expect("it is set before cursors are handed out").packs_to = bits;
        self
    }

    /// The unpacked matrix `weight`, packed where that was asked for.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub(super) fn dense_or_packed(&self, shape: &[i32]) -> Result<Matrix> {
        let weight = self.tensor("weight", shape)?;
        let (Some(bits), &[rows, columns]) = (self.shared.packs_to, shape) else {
            return Ok(Matrix::Dense(weight));
        };
        let Some(group_size) = [64, 32].into_iter().find(|size| columns % size == 0) else {
            return Ok(Matrix::Dense(weight));
        };
        let (rows, columns) = (rows as u64, columns as u64);
        let scales = rows * columns / group_size as u64 * weight.dtype().size() as u64;
        let mut totals = self.shared.totals.borrow_mut();
        totals.bytes -= rows * columns * weight.dtype().size() as u64;
        totals.bytes += rows * columns * bits as u64 / 8 + 2 * scales;
        if self.describes() {
            return Ok(Matrix::Dense(weight));
        }
        let quantization = Quantization { mode: QuantMode::Affine, bits, group_size };
        let Quantized { weight, scales, biases, .. } = quantize(&weight, quantization)?;
        mlx_ffi::eval_all([&weight, &scales].into_iter().chain(&biases))?;
        Ok(Matrix::Quantized(Quantized { weight, scales, biases, quantization }))
    }

    /// The config's entry for this module, else what the tensors' shapes say.
    pub(super) fn quantization(&self, columns: i32) -> Result<Quantization> {
        if let Some(quantization) = self.shared.config.quantization(&self.prefix)? {
            return Ok(quantization);
        }
        let left = self.shared.left.borrow();
        let last = |name: &str| left.get(&self.name(name))?.shape.last().copied();
        let inferred = last("weight").zip(last("scales")).and_then(|(packed, groups)| {
            let group_size = columns.checked_div(groups)?;
            let bits = i32::try_from(i64::from(packed) * 32 / i64::from(columns)).ok()?;
            let are_floats = left.get(&self.name("scales"))?.dtype.is_float();
            let mode = match (are_floats, bits, group_size) {
                (true, ..) => QuantMode::Affine,
                (false, 4, 16) => QuantMode::Nvfp4,
                (false, 4, _) => QuantMode::Mxfp4,
                (false, ..) => QuantMode::Mxfp8,
            };
            Some(Quantization { mode, bits, group_size })
        });
        let quantization = inferred.filter(|found| found.validate().is_ok());
        quantization.ok_or_else(|| {
            Error::model(format!(
                "`{}` has scales, but config.json says nothing of its quantisation and the shapes fit none",
                self.prefix
            ))
        })
    }
}
