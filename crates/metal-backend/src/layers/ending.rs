//! The last changes of a block to the residual stream, behind its two halves.

use mlx_ffi::{Array, Dtype, Result, cuda, ops};

use super::{Fusion, Linear, RmsNorm, Workspace};
use crate::kernels::{Activation, Columns, Kernels};

/// Changes the residual stream behind a block's two halves; by default, not at all.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    /// Adds a term made of the layer's own input.
    pub input: Option<LayerInput>,
    /// The factor of the stream.
    pub scale: Option<LayerScale>,
}

/// A layer's factor of the stream.
#[derive(Debug)]
pub(crate) struct LayerScale {
    /// `[1]`.
    of: Array,
    /// That value, often enough to lie in the device's memory.
    on_device: Array,
}

impl LayerScale {
    /// Values of two bytes that lie in the device's memory.
    const ON_DEVICE: i32 = 2 * cuda::ON_DEVICE as i32;

    /// A scale `of` one value, `[1]`; of none where a layer is only described.
    pub fn new(of: Array) -> Result<LayerScale> {
        let on_device = match of.size() {
            0 => of.share()?,
            _ => ops::contiguous(&ops::broadcast_to(&of, &[Self::ON_DEVICE])?)?,
        };
        Ok(LayerScale { of, on_device })
    }

    /// As kernels take it.
    pub fn on_device(&self) -> &Array {
        &self.on_device
    }

    /// `h` multiplied.
    pub fn apply(&self, h: &Array) -> Result<Array> {
        ops::multiply(h, &self.of)
    }
}

/// `norm(projection(activation(gate(x)) · input))`, which is added to the stream (Gemma 3n and 4).
#[derive(Debug)]
pub(crate) struct LayerInput {
    /// `hidden_size` to the input's size.
    pub gate: Linear,
    /// The input's size to `hidden_size`.
    pub projection: Linear,
    pub norm: RmsNorm,
    pub activation: Activation,
    /// Whose kernels compute the gate.
    pub kernels: Kernels,
}

impl Ending {
    /// Returns true when it leaves the stream as it is.
    pub fn is_nothing(&self) -> bool {
        self.input.is_none() && self.scale.is_none()
    }

    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        self.input.as_ref().map_or(Workspace::default(), |input| input.workspace(dtype))
    }
}

impl LayerInput {
    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        self.gate.workspace(dtype).then(self.projection.workspace(dtype))
    }

    /// The term to add to the stream `x`, `[b, l, hidden_size]`: `[b, l, hidden_size]`. The layer's
    /// own `input` is `size` columns of `[b, l, …]`.
    pub fn forward(&self, x: &Array, input: Option<&Columns>) -> Result<Array> {
        self.norm.forward(&self.projected(x, input)?)
    }

    /// That before its norm.
    fn projected(&self, x: &Array, input: Option<&Columns>) -> Result<Array> {
        let input = input.ok_or_else(|| mlx_ffi::Error::new("a layer misses its own input"))?;
        let is_on_cuda = self.kernels == Kernels::Cuda;
        // One row has a kernel that is told of what stands around the product.
        let product = |linear: &Linear, x: &Array| match is_on_cuda {
            true => linear.forward_fused(x, Fusion::default()),
            false => linear.forward(x),
        };
        let gate = Columns::all(product(&self.gate, x)?);
        product(&self.projection, &self.kernels.gated(self.activation, &gate, input)?)
    }

    /// The stream `h`, `[b, l, hidden_size]`, with what is added to it and multiplied with `scale`,
    /// and the norm `next` of that where it is one operation with it.
    pub fn added(
        &self,
        h: Array,
        input: Option<&Columns>,
        scale: Option<&LayerScale>,
        next: Option<&RmsNorm>,
    ) -> Result<(Array, Option<Array>)> {
        let y = self.projected(&h, input)?;
        let next = next.and_then(RmsNorm::weights);
        if let Some(own) = self.norm.weights() {
            let scale = scale.map(LayerScale::on_device);
            if let Some(both) = self.kernels.residual(&h, &y, [Some(own), next], None, scale) {
                return both;
            }
        }
        let h = self.kernels.sum(&h, &self.norm.forward(&y)?)?;
        Ok((scale.map_or_else(|| h.share(), |scale| scale.apply(&h))?, None))
    }
}
