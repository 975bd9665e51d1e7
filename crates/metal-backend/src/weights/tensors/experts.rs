//! The projections of experts, in the forms in which checkpoints have them.

use mlx_ffi::{Array, Dtype, QuantMode, Quantization, Quantized, ops};

use super::Weights;
use crate::error::{Error, Result};
use crate::layers::{ExpertLinear, Matrix};

impl Weights {
    /// The projections `name` of all experts in one tensor, packed or not, as mlx-lm stores them:
    /// `shape` is `[experts, output, input]`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn expert_linear(&self, name: &str, shape: [i32; 3], bias: bool) -> Result<ExpertLinear> {
        let w = self.at(name);
        let weight = w.matrix(&shape)?;
        let bias = bias.then(|| w.tensor("bias", &shape[..2])).transpose()?;
        Ok(ExpertLinear::new(weight, bias))
    }

    /// The projections `name` of experts with a number and a tensor each, `0.name.weight` and so on,
    /// put together.
    ///
    /// # Errors
    /// As [`expert_linear`](Self::expert_linear).
    pub fn each_expert_linear(&self, name: &str, shape: [i32; 3]) -> Result<ExpertLinear> {
        let [experts, output, input] = shape;
        let each =
            |expert: i32| self.at(&format!("{expert}.{name}")).tensor("weight", &[output, input]);
        let matrices = (0..experts).map(each).collect::<Result<Vec<Array>>>()?;
        let weight = if self.shared.only_describe {
            ops::zeros(&[0], matrices.first().map_or(Dtype::F32, Array::dtype))?
        } else {
            let rows = ops::concatenate(&matrices.iter().collect::<Vec<_>>(), 0)?;
            ops::reshape(&rows, &shape)?
        };
        weight.eval()?;
        Ok(ExpertLinear::new(self.at(name).weight(Matrix::Dense(weight), &shape)?, None))
    }

    /// The projections `name` of all experts as gpt-oss is released: `name_blocks` of 16 bytes with
    /// 32 values each, `name_scales` and `name_bias`. The bytes are MLX's own packing.
    ///
    /// # Errors
    /// As [`expert_linear`](Self::expert_linear).
    pub fn mxfp4_expert_linear(&self, name: &str, shape: [i32; 3]) -> Result<ExpertLinear> {
        let [experts, output, input] = shape;
        let quantization = Quantization { mode: QuantMode::Mxfp4, bits: 4, group_size: 32 };
        if input % 32 != 0 {
            return Err(Error::model(format!(
                "`{}` has {input} columns, which groups of 32 do not divide",
                self.name(name)
            )));
        }
        let bytes = |kind: &str, shape: &[i32], parameters| -> Result<Array> {
            let name = format!("{name}_{kind}");
            let header = self.header(&name, shape, Dtype::U8)?;
            if header.dtype != Dtype::U8 {
                return Err(Error::model(format!(
                    "tensor `{}` has the type {:?}, expected bytes",
                    self.name(&name),
                    header.dtype
                )));
            }
            self.take(&name, &header, Dtype::U8, parameters)
        };
        let parameters = shape.iter().map(|&size| size as u64).product();
        let blocks = bytes("blocks", &[experts, output, input / 32, 16], parameters)?;
        let scales = bytes("scales", &[experts, output, input / 32], 0)?;
        let bias = self.tensor(&format!("{name}_bias"), &shape[..2])?;
        let weight = if self.shared.only_describe {
            blocks
        } else {
            // The lower half of a byte is the earlier value, here as there.
            ops::reshape(&ops::view(&blocks, Dtype::U32)?, &[experts, output, input / 8])?
        };
        weight.eval()?;
        let packed = Quantized { weight, scales, biases: None, quantization };
        let weight = self.at(name).weight(Matrix::Quantized(packed), &shape)?;
        Ok(ExpertLinear::new(weight, Some(bias)))
    }
}
