//! Norms, gates and rotary positions by our own kernels for CPUs, each in one operation.

use cpu_kernels::Heads;

use super::kernel_dtype;
use super::operation::{Outcome, operation};
use crate::fast::RopeFrequencies;
use crate::{Array, Dtype, Error, Result, ops};

pub use cpu_kernels::Activation;

/// `x / √(mean(x²) + eps) · weight` over the last dimension, rounded to the type of both before
/// the weight is multiplied.
///
/// # Errors
/// A weight whose size is not that dimension, or whose type is not that of `x`; types other than
/// f32, f16 and bf16; a stream of the GPU.
pub fn rms_norm(x: &Array, weight: &Array, eps: f32) -> Result<Array> {
    let dtype = kernel_dtype(x.dtype().raw())?;
    let size = x.shape().last().copied();
    if size.is_none() || weight.shape() != [size.unwrap_or(0)] || weight.dtype() != x.dtype() {
        return Err(Error::new(format!("weight {weight:?} does not fit {x:?}")));
    }
    let size = size.unwrap_or(0) as usize;
    row_major(x, &[x, weight], move |[x, weight], out| {
        cpu_kernels::rms_norm(cpu_kernels::RmsNorm {
            dtype,
            size,
            eps,
            x,
            weight: Some(weight),
            out,
        })
    })
}

/// `act(gate) · up`; the activation is rounded to the type of both before it is multiplied.
///
/// # Errors
/// Operands of different shapes or types; types other than f32, f16 and bf16; a stream of the GPU.
pub fn gated(activation: Activation, gate: &Array, up: &Array) -> Result<Array> {
    let dtype = kernel_dtype(gate.dtype().raw())?;
    if gate.shape() != up.shape() || gate.dtype() != up.dtype() {
        return Err(Error::new(format!("gate {gate:?} does not fit {up:?}")));
    }
    row_major(gate, &[gate, up], move |[gate, up], out| {
        cpu_kernels::gated(cpu_kernels::Gate { dtype, activation, gate, up, out })
    })
}

/// An operation on row-major inputs whose result is like `like`.
fn row_major<const N: usize, F>(like: &Array, inputs: &[&Array; N], compute: F) -> Result<Array>
where
    F: Fn([&[u8]; N], &mut [u8]) -> Result<(), cpu_kernels::Error> + Send + Sync + 'static,
{
    let shape = like.shape();
    let order: Vec<i32> = (0..shape.len() as i32).collect();
    let size = like.dtype().size();
    let outcome = Outcome { dtype: like.dtype(), shape, order: &order };
    operation(inputs, outcome, move |inputs, out| {
        let rows: Vec<_> = inputs.iter().map(|input| input.row_major(size)).collect();
        compute(std::array::from_fn(|i| &*rows[i]), out)
    })
}

/// Rotary position encoding of `x`, `[b, n, l, head_dim]`: the first `dims` values of each head
/// are rotated in pairs (`i`, `i + dims / 2`) by their position times `scale`. `offsets` are the
/// first positions of the rows of the batch, or one for all. Angles are computed in f32; their
/// cosines and sines and the products with these are rounded to the type of `x`.
///
/// # Errors
/// Fewer dimensions than `dims`; offsets or frequencies that do not fit; types other than f32, f16
/// and bf16; a stream of the GPU.
pub fn rope(
    x: &Array,
    dims: i32,
    frequencies: RopeFrequencies<'_>,
    scale: f32,
    offsets: &[i32],
) -> Result<Array> {
    let dtype = kernel_dtype(x.dtype().raw())?;
    let shape: [i32; 4] = x.dims()?;
    let half = dims / 2;
    let fits = match frequencies {
        RopeFrequencies::Base(_) => true,
        RopeFrequencies::Wavelengths(lengths) => lengths.shape() == [half],
    };
    let offsets_fit = offsets.len() == 1 || offsets.len() == shape[0] as usize;
    if !fits || !offsets_fit || dims < 0 || dims % 2 != 0 || dims > shape[3] {
        return Err(Error::new(format!(
            "cannot rotate {dims} values of {x:?} with {frequencies:?} from {} offsets",
            offsets.len()
        )));
    }
    let known = match frequencies {
        RopeFrequencies::Base(base) => {
            let step = -f64::from(base).ln() / f64::from(half.max(1));
            (0..half).map(|i| scale * (f64::from(i) * step).exp() as f32).collect()
        }
        RopeFrequencies::Wavelengths(_) => Vec::new(),
    };
    let lengths = match frequencies {
        RopeFrequencies::Base(_) => None,
        RopeFrequencies::Wavelengths(lengths) => Some(ops::astype(lengths, Dtype::F32)?),
    };
    let inputs: Vec<&Array> = [x].into_iter().chain(&lengths).collect();
    let offsets = offsets.to_vec();
    let outcome = Outcome { dtype: x.dtype(), shape: &shape, order: &[0, 1, 2, 3] };
    operation(&inputs, outcome, move |inputs, out| {
        let given;
        let frequencies = match inputs.get(1) {
            None => &known,
            Some(lengths) => {
                let lengths = lengths.bytes.as_chunks::<4>().0.iter().copied();
                given = lengths.map(|length| scale / f32::from_ne_bytes(length)).collect();
                &given
            }
        };
        cpu_kernels::rope(cpu_kernels::Rope {
            dtype,
            shape: shape.map(|size| size as usize),
            x: Heads { data: inputs[0].bytes, strides: inputs[0].strides() },
            frequencies,
            offsets: &offsets,
            out,
        })
    })
}
