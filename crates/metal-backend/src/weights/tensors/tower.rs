//! Tensors of towers, in forms that language models do not have.

use mlx_ffi::{Array, dequantize, ops};

use super::Weights;
use crate::error::{Error, Result};
use crate::files::ModelFiles;
use crate::kernels::Matrix;
use crate::layers::{ClippedLinear, LayerNorm, Linear};

impl Weights {
    /// The first of the modules `names` that has tensors; of random weights, the first one.
    pub fn first_of(&self, names: &[&str]) -> Option<Weights> {
        let is_random = matches!(self.shared.files, ModelFiles::Random(_));
        names.iter().map(|name| self.at(name)).find(|module| is_random || !module.is_empty())
    }

    /// The table `name` of as many vectors as it has rows, unpacked where it is packed.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn table(&self, name: &str, rows: i32, columns: i32) -> Result<Array> {
        let w = self.at(name);
        if w.shape("scales").is_none() {
            return w.tensor("weight", &[rows, columns]);
        }
        let packed = w.packed(&[rows, columns])?;
        let dtype = w.float_dtype();
        let table = match self.describes() {
            true => ops::zeros(&[0], dtype)?,
            false => dequantize(&packed, dtype)?,
        };
        table.eval()?;
        Ok(table)
    }

    /// Leaves aside what programs of training save of a tower beside its weights: wavelengths and
    /// the numbers of places.
    pub fn leave_buffers(&self) {
        let prefix = self.prefix();
        self.ignore(|name| {
            let last = name.strip_prefix(&prefix).and_then(|own| own.rsplit('.').next());
            last.is_some_and(|last| last == "inv_freq" || last == "position_ids")
        });
    }

    /// The layer norm `name` over `size` values, with a bias.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn layer_norm(&self, name: &str, size: i32, eps: f32) -> Result<LayerNorm> {
        let w = self.at(name);
        // The names of checkpoints that began in TensorFlow, which transformers changes as it loads
        // them.
        let names = match w.has("gamma") && !w.has("weight") {
            true => ["gamma", "beta"],
            false => ["weight", "bias"],
        };
        let [weight, bias] = names.map(|name| w.tensor(name, &[size]));
        Ok(LayerNorm { weight: weight?, bias: Some(bias?), eps, kernels: self.kernels() })
    }

    /// The convolution `name` of 3 channels whose kernel, of sides `kernel`, is a patch: a product
    /// with a patch's values, channel by channel. The channels of the weight come first, as
    /// released, or last, as converted for MLX.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn patch_linear(
        &self,
        name: &str,
        output: i32,
        kernel: &[i32],
        bias: bool,
    ) -> Result<Linear> {
        const CHANNELS: i32 = 3;
        let w = self.at(name);
        let first = [&[output, CHANNELS], kernel].concat();
        let last = [&[output], kernel, &[CHANNELS]].concat();
        let inside: i32 = kernel.iter().product();
        let has_last = w.shape("weight").is_some_and(|shape| shape == last && shape != first);
        let weight = w.tensor("weight", if has_last { &last } else { &first })?;
        let weight = if self.describes() {
            weight
        } else if has_last {
            let weight = ops::reshape(&weight, &[output, inside, CHANNELS])?;
            let weight = ops::contiguous(&ops::swap_axes(&weight, 1, 2)?)?;
            ops::reshape(&weight, &[output, inside * CHANNELS])?
        } else {
            ops::reshape(&weight, &[output, inside * CHANNELS])?
        };
        weight.eval()?;
        let weight = w.weight(Matrix::Dense(weight), &[output, inside * CHANNELS])?;
        let bias = bias.then(|| w.tensor("bias", &[output])).transpose()?;
        Ok(Linear::new(weight, bias))
    }

    /// The projection whose matrix `name` is `[input, output]`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn turned_linear(&self, name: &str, input: i32, output: i32) -> Result<Linear> {
        let matrix = self.tensor(name, &[input, output])?;
        let matrix = match self.describes() {
            true => matrix,
            false => ops::contiguous(&ops::swap_axes(&matrix, 0, 1)?)?,
        };
        matrix.eval()?;
        Ok(Linear::new(self.weight(Matrix::Dense(matrix), &[output, input])?, None))
    }

    /// The projection `name.linear`, or `name` itself, between the bounds that the checkpoint has
    /// of it.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit; a bound without the other one.
    pub fn clipped_linear(&self, name: &str, input: i32, output: i32) -> Result<ClippedLinear> {
        let w = self.at(name);
        let inner = w.at("linear");
        let linear = match inner.is_empty() {
            true => self.linear(name, input, output, false)?,
            false => w.linear("linear", input, output, false)?,
        };
        let bounds = |names: [&str; 2]| -> Result<Option<[Array; 2]>> {
            match names.map(|name| w.has(name)) {
                [false, false] => Ok(None),
                [true, true] => {
                    let bound = |name: &str| {
                        let shape = w.shape(name).unwrap_or_default();
                        let shape: &[i32] = if shape.len() == 1 { &[1] } else { &[] };
                        w.tensor(name, shape)
                    };
                    Ok(Some([bound(names[0])?, bound(names[1])?]))
                }
                _ => Err(Error::model(format!("`{}` has one bound of two", w.prefix))),
            }
        };
        let input = bounds(["input_min", "input_max"])?;
        Ok(ClippedLinear { linear, input, output: bounds(["output_min", "output_max"])? })
    }
}
