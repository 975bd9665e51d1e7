//! The activation of a gated network.

use mlx_ffi::{Array, Dtype, GELU_CUBE, Result, cuda, ops};

/// The activation function of a gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// The tanh form of the Gaussian error linear unit.
    GeluTanh,
    /// The Gaussian error linear unit: `x / 2 · (1 + erf(x / √2))`.
    Gelu,
    /// `x · sigmoid(1.702 x)` (CLIP).
    QuickGelu,
    /// `x` where it is above 0, else 0.
    Relu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `ln(1 + exp(x))` in F32.
    Softplus,
    /// `x` itself.
    Identity,
    /// `g · sigmoid(alpha · g)` of the gate and 1 more than what it lets through, both clipped at
    /// `limit` (gpt-oss).
    ClippedSilu { alpha: f32, limit: f32 },
    /// `GeluTanh` of what the gate has above its mean and so many standard deviations; else of 0
    /// (Gemma 3n).
    SparseGelu { deviations: f32 },
}

impl Activation {
    /// The activation of that name in a `config.json`.
    pub fn from_name(name: &str) -> Option<Activation> {
        match name {
            "silu" | "swish" => Some(Activation::Silu),
            "gelu" => Some(Activation::Gelu),
            "gelu_pytorch_tanh" | "gelu_new" => Some(Activation::GeluTanh),
            _ => None,
        }
    }

    /// The one that leaves all but this part of a normally distributed gate 0, below 1.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn sparse_gelu(part: f64) -> Result<Activation> {
        let below = Array::scalar((2.0 * part - 1.0) as f32, Dtype::F32)?;
        let deviations = ops::erfinv(&below)?.item_f32()? * std::f32::consts::SQRT_2;
        Ok(Activation::SparseGelu { deviations })
    }

    /// As our own kernels know it.
    pub fn fused(self) -> Option<mlx_ffi::Activation> {
        match self {
            Activation::Silu => Some(mlx_ffi::Activation::Silu),
            Activation::GeluTanh => Some(mlx_ffi::Activation::GeluTanh),
            Activation::Relu => Some(mlx_ffi::Activation::Relu),
            Activation::Gelu => Some(mlx_ffi::Activation::Gelu),
            Activation::Sigmoid => Some(mlx_ffi::Activation::Sigmoid),
            Activation::Softplus => Some(mlx_ffi::Activation::Softplus),
            Activation::Identity => Some(mlx_ffi::Activation::Identity),
            Activation::QuickGelu
            | Activation::ClippedSilu { .. }
            | Activation::SparseGelu { .. } => None,
        }
    }

    /// As our own kernels for experts know it.
    pub fn of_experts(self) -> Option<cuda::ExpertGate> {
        match self {
            Activation::Silu => Some(cuda::ExpertGate::Plain(mlx_ffi::Activation::Silu)),
            Activation::GeluTanh => Some(cuda::ExpertGate::Plain(mlx_ffi::Activation::GeluTanh)),
            Activation::Relu => Some(cuda::ExpertGate::Plain(mlx_ffi::Activation::Relu)),
            Activation::ClippedSilu { alpha, limit } => {
                Some(cuda::ExpertGate::Clipped { alpha, limit })
            }
            _ => None,
        }
    }

    /// The gated values, `act(gate) · up`, by MLX's operations.
    pub fn gated(self, gate: &Array, up: &Array) -> Result<Array> {
        let Activation::ClippedSilu { alpha, limit } = self else {
            return ops::multiply(&self.of(gate)?, up);
        };
        let scalar = |value| Array::scalar(value, gate.dtype());
        let gate = ops::minimum(gate, &scalar(limit)?)?;
        let up = ops::maximum(&ops::minimum(up, &scalar(limit)?)?, &scalar(-limit)?)?;
        let open = ops::sigmoid(&ops::multiply(&scalar(alpha)?, &gate)?)?;
        let silu = ops::multiply(&gate, &open)?;
        ops::multiply(&silu, &ops::add(&up, &scalar(1.0)?)?)
    }

    /// The activation of `x`, without a gate, by MLX's operations.
    pub fn of(self, x: &Array) -> Result<Array> {
        let scalar = |value| Array::scalar(value, x.dtype());
        match self {
            Activation::Silu => silu(x),
            Activation::GeluTanh => {
                // In one step, which rounds once: mlx-lm's numbers to the bit.
                let cube = ops::power(x, &scalar(3.0)?)?;
                let inner = ops::add(x, &ops::multiply(&scalar(GELU_CUBE)?, &cube)?)?;
                let scaled = ops::multiply(&scalar((2.0 / std::f32::consts::PI).sqrt())?, &inner)?;
                let open = ops::add(&scalar(1.0)?, &ops::tanh(&scaled)?)?;
                ops::multiply(&ops::multiply(&scalar(0.5)?, x)?, &open)
            }
            Activation::Gelu => {
                let erf = ops::multiply(x, &scalar(std::f32::consts::FRAC_1_SQRT_2)?)?;
                let open = ops::add(&ops::erf(&erf)?, &scalar(1.0)?)?;
                ops::multiply(&ops::multiply(x, &scalar(0.5)?)?, &open)
            }
            Activation::QuickGelu => {
                ops::multiply(x, &ops::sigmoid(&ops::multiply(x, &scalar(1.702)?)?)?)
            }
            Activation::Relu => ops::maximum(x, &scalar(0.0)?),
            Activation::Sigmoid => ops::sigmoid(x),
            Activation::Softplus => {
                let open = softplus(&ops::astype(x, Dtype::F32)?)?;
                ops::astype(&open, x.dtype())
            }
            Activation::Identity => x.share(),
            Activation::SparseGelu { deviations } => {
                Activation::GeluTanh.of(&above(x, deviations)?)
            }
            Activation::ClippedSilu { .. } => self.gated(x, &scalar(1.0)?),
        }
    }
}

/// `ln(1 + exp(x))`, by MLX's operations.
pub(crate) fn softplus(x: &Array) -> Result<Array> {
    let x = ops::expand_dims(x, -1)?;
    let zeros = ops::zeros(x.shape(), x.dtype())?;
    ops::logsumexp(&ops::concatenate(&[&x, &zeros], -1)?, -1, false)
}

/// `x · sigmoid(x)`, by MLX's operations.
pub(crate) fn silu(x: &Array) -> Result<Array> {
    ops::multiply(x, &ops::sigmoid(x)?)
}

/// The excess of each value over the mean of its row of `x` plus so many standard deviations; 0 for
/// those below.
fn above(x: &Array, deviations: f32) -> Result<Array> {
    let scalar = |value| Array::scalar(value, Dtype::F32);
    let wide = ops::astype(x, Dtype::F32)?;
    let size = x.shape().last().copied().unwrap_or(1).max(1);
    let mean = |x: &Array| ops::multiply(&ops::sum(x, -1, true)?, &scalar(1.0 / size as f32)?);
    let middle = mean(&wide)?;
    let distance = ops::subtract(&wide, &middle)?;
    let deviation = ops::power(&mean(&ops::multiply(&distance, &distance)?)?, &scalar(0.5)?)?;
    let least = ops::multiply(&deviation, &scalar(deviations)?)?;
    let kept = ops::maximum(&ops::subtract(&distance, &least)?, &scalar(0.0)?)?;
    ops::astype(&kept, x.dtype())
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{Device, use_device};

    use super::*;

    #[test]
    fn a_sparse_gate_opens_above_the_quantile_only() {
        use_device(Device::Cpu).expect("a CPU");
        let sparse = Activation::sparse_gelu(0.95).expect("an activation");
        let Activation::SparseGelu { deviations } = sparse else { panic!("{sparse:?}") };
        assert!((deviations - 1.644_853_6).abs() < 1e-5, "{deviations}");
        // Mean 1, deviation 3: the last value is 10 - 1 - 3 · 1.6448536 above.
        let mut values = [0.0; 10];
        values[9] = 10.0;
        let gate = Array::from_f32(&values, &[1, 10]).expect("a row");
        let ones = Array::from_f32(&[1.0; 10], &[1, 10]).expect("a row");
        let found = sparse.gated(&gate, &ones).expect("it opens").to_vec_f32().expect("values");
        assert_eq!(found[..9], [0.0; 9]);
        assert!((found[9] - 4.065_44).abs() < 1e-3, "{found:?}");
    }
}
