//! Several operations of a layer as one, where a device has such a kernel.

use mlx_ffi::step::Heads;
use mlx_ffi::{Array, Dtype, cpu, cuda, metal, ops};

use super::activation::Activation;
use super::choice::Kernels;
use super::columns::Columns;
use super::matrix::Matrix;
use super::products::several_rows_pay;

/// An RMS norm: `x / √(mean(x²) + eps) · weight` over the last dimension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm<'a> {
    /// `[size]`.
    pub weight: &'a Array,
    pub eps: f32,
}

/// An RMS norm of groups of columns beside a gate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatedNorm<'a> {
    /// Of `[size]` for all groups, or of `[groups, size]`.
    pub norm: Norm<'a>,
    pub activation: Activation,
    /// As many columns as there are values.
    pub gate: &'a Columns,
    /// The norm is of what the gate lets through; otherwise the gate sees what the norm gives.
    pub gate_is_first: bool,
}

/// The work that one kernel does before and after a product.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GemvFusion<'a> {
    /// Prologue: the norm of the row.
    pub norm: Option<Norm<'a>>,
    /// Epilogue: what is added to the product, `[out]`.
    pub bias: Option<&'a Array>,
    /// Epilogue: the first half of the result gates the second.
    pub gate: Option<Activation>,
    /// Epilogue: what is taken of each value.
    pub activation: Option<Activation>,
    /// Epilogue: the residual that the result is added to.
    pub residual: Option<&'a Array>,
    /// Epilogue: the result may come in float parts, as [`Kernels::residual`] takes it.
    pub in_parts: bool,
}

/// Returns true when the kernel for CUDA adds these.
fn takes_residual(
    x: &Array,
    y: &Array,
    [out_norm, norm]: [Option<Norm<'_>>; 2],
    scale: Option<&Array>,
) -> bool {
    let both = out_norm.zip(norm);
    let [first, second] = [out_norm, norm].map(|norm| norm.map(|norm| norm.weight));
    both.is_none_or(|(first, second)| first.eps == second.eps)
        && cuda::takes_residual(x, y, first, second)
        && scale.is_none_or(|scale| scale.dtype() == x.dtype())
}

impl Kernels {
    /// The product of `x` with `matrix` and its `fusion`, where there is one operation for all
    /// that: on CUDA for one row (GEMV), and for several with a gate or in parts; on a CPU in F32
    /// for any.
    pub fn gemv(
        self,
        x: &Array,
        matrix: &Matrix,
        fusion: GemvFusion<'_>,
    ) -> Option<mlx_ffi::Result<Array>> {
        let GemvFusion { norm, bias, gate, activation, residual, in_parts } = fusion;
        if let (Kernels::Cpu(_), None, None, Matrix::Dense(w)) = (self, norm, gate, matrix) {
            let activation = match activation {
                None => None,
                Some(activation) => Some(activation.fused()?),
            };
            let mut operands = [x, w].into_iter().chain(bias).chain(residual);
            let fits = operands.all(|operand| operand.dtype() == Dtype::F32);
            let finish = cpu::Finish { bias, activation, residual };
            return fits.then(|| cpu::finished_matmul(x, w, finish));
        }
        if activation.is_some() {
            return None;
        }
        let gate = match gate {
            None => None,
            Some(activation) => Some(activation.fused()?),
        };
        let weights = matrix.on_cuda();
        if let (Kernels::Cuda, None, None, None) = (self, norm, bias, residual)
            && several_rows_pay(x, weights)
        {
            return match gate {
                Some(gate) if cuda::takes_gated_rows(x, weights) => {
                    Some(cuda::gated_rows(x, weights, gate))
                }
                None if in_parts => Some(cuda::several_rows_in_parts(x, weights)),
                _ => None,
            };
        }
        let norm = norm.map(|norm| (norm.weight, norm.eps));
        let around = cuda::Around { norm, bias, gate, onto: residual };
        let pays = self == Kernels::Cuda && cuda::takes_one_row(x, weights, &around);
        pays.then(|| cuda::one_row(x, weights, &around))
    }

    /// Returns true when a sum of so many rows is better made by [`residual`](Self::residual) than
    /// by the product before it.
    pub fn adds_rows(self, x: &Array) -> bool {
        self == Kernels::Cuda && x.rows() > 1
    }

    /// Returns true when [`residual`](Self::residual) is one operation for such norms and takes `y`
    /// in float parts.
    pub fn adds_parts(
        self,
        x: &Array,
        norms: [Option<Norm<'_>>; 2],
        scale: Option<&Array>,
    ) -> bool {
        self.adds_rows(x) && takes_residual(x, x, norms, scale)
    }

    /// `x + y`, where y may come in float parts. It is normed first with `out_norm` and then
    /// multiplied with `factor`, times the first value of `scale`, and that normed with `norm`,
    /// where there is one operation for all that.
    pub fn residual(
        self,
        x: &Array,
        y: &Array,
        [out_norm, norm]: [Option<Norm<'_>>; 2],
        factor: Option<f32>,
        scale: Option<&Array>,
    ) -> Option<mlx_ffi::Result<(Array, Option<Array>)>> {
        let [first, second] = [out_norm, norm].map(|norm| norm.map(|norm| norm.weight));
        let eps = out_norm.or(norm).map_or(0.0, |norm| norm.eps);
        let pays = self == Kernels::Cuda && takes_residual(x, y, [out_norm, norm], scale);
        pays.then(|| cuda::residual(x, y, first, second, eps, factor, scale))
    }

    /// The gated values, `activation(gate) · up`. A column of the gate may be for several of `up`.
    pub fn gated(
        self,
        activation: Activation,
        gate: &Columns,
        up: &Columns,
    ) -> mlx_ffi::Result<Array> {
        let (count, gates) = (up.count(), gate.count().max(1));
        let each = count / gates;
        if let (Kernels::Metal, Some(activation)) = (self, activation.fused()) {
            let (gate, up) = (gate.heads(), Some(up.heads()));
            if let Some(found) = metal::gated(activation, gate, up, [count, each])? {
                return Ok(found);
            }
        }
        match (self, activation.fused()) {
            (Kernels::Cpu(_), Some(activation)) if each == 1 => {
                let (gate, up) = ((&gate.of, gate.range.clone()), (&up.of, up.range.clone()));
                cpu::gated(activation, gate, up)
            }
            (Kernels::Cuda, Some(activation))
                if cuda::takes_gate(gate.heads(), up.heads(), count, each) =>
            {
                cuda::gated(activation, gate.heads(), up.heads(), count, each)
            }
            _ if each == 1 => activation.gated(&gate.array()?, &up.array()?),
            _ => {
                let up = up.array()?;
                let groups = [&up.shape()[..up.shape().len() - 1], &[gates, each]].concat();
                let gate = ops::expand_dims(&gate.array()?, -1)?;
                let y = activation.gated(&gate, &ops::reshape(&up, &groups)?)?;
                ops::reshape(&y, up.shape())
            }
        }
    }

    /// `x`, `[b, l, groups · size]`, with the norm of each group by itself and what `by` says of
    /// its gate.
    pub fn gated_norm(self, x: &Array, by: &GatedNorm<'_>) -> mlx_ffi::Result<Array> {
        let GatedNorm { norm: Norm { weight, eps }, activation, gate, gate_is_first } = *by;
        if let Some(activation) = activation.fused() {
            let gate = gate.heads();
            let by = cuda::NormAndGate { weight, eps, gate, activation, gate_is_first };
            if self == Kernels::Cuda && cuda::takes_norm_and_gate(x, &by) {
                return cuda::norm_and_gate(x, &by);
            }
            if self == Kernels::Metal
                && let Some(found) = metal::norm_and_gate(x, &by)?
            {
                return Ok(found);
            }
        }
        let opened = |x: Array| self.gated(activation, gate, &Columns::all(x));
        match gate_is_first {
            true => self.rms_norm_of_groups(&opened(x.share()?)?, weight, eps),
            false => opened(self.rms_norm_of_groups(x, weight, eps)?),
        }
    }

    /// `activation(x)`, without a gate.
    pub fn activated(self, activation: Activation, x: &Array) -> mlx_ffi::Result<Array> {
        let (columns, count) = (Heads { array: x, at: 0 }, x.shape().last().copied().unwrap_or(0));
        if let (Kernels::Cuda, Some(activation)) = (self, activation.fused())
            && cuda::takes_gate(columns, columns, count, 1)
        {
            return cuda::activated(activation, columns, count);
        }
        if let (Kernels::Metal, Some(activation)) = (self, activation.fused())
            && let Some(found) = metal::gated(activation, columns, None, [count, 1])?
        {
            return Ok(found);
        }
        if !self.is_ours_on_cpu() {
            return activation.of(x);
        }
        // One row for all, whose values lie side by side, so that nothing is copied.
        let width = x.shape().last().copied().unwrap_or(0);
        let row = Array::from_f32(&vec![1.0; width as usize], &[width])?;
        let ones = ops::broadcast_to(&ops::astype(&row, x.dtype())?, x.shape())?;
        self.gated(activation, &Columns::all(x.share()?), &Columns::all(ones))
    }
}
