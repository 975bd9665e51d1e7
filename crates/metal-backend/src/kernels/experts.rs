//! Products with a matrix for each expert of a mixture.

use mlx_ffi::{Array, Indices, Quantized, cpu, dequantize, gather_qmm, ops};

use super::choice::{Activations, Kernels};

/// The order in which experts are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Any.
    Any,
    /// Upwards.
    Sorted,
}

impl Kernels {
    /// `x wᵀ` with a matrix of `w`, `[experts, out, in]`, for each of `indices`, `[t, e]`: `x` of
    /// `[t, 1 or e, in]` to `[t, e, out]`.
    pub fn gather_dense(
        self,
        x: &Array,
        w: &Array,
        indices: &Indices,
        order: Order,
    ) -> mlx_ffi::Result<Array> {
        match self {
            Kernels::Mlx | Kernels::Metal | Kernels::MlxOnCuda | Kernels::Cuda => {
                let (x, w) = (ops::expand_dims(x, -2)?, ops::swap_axes(w, -1, -2)?);
                // On CUDA, sorted indices may be read before they are computed (MLX 0.32.2).
                let is_sorted = order == Order::Sorted && !self.is_on_cuda();
                let product = ops::gather_mm(&x, &w, indices, is_sorted)?;
                ops::squeeze(&product, -2)
            }
            Kernels::Cpu(_) => cpu::gather_matmul(x, w, indices),
        }
    }

    /// `x wᵀ` with a packed matrix of `w`, `[experts, out, in]`, for each of `indices`, `[t, e]`:
    /// `x` of `[t, 1 or e, in]` to `[t, e, out]`.
    pub fn gather_quantized(
        self,
        x: &Array,
        w: &Quantized,
        indices: &Indices,
        order: Order,
    ) -> mlx_ffi::Result<Array> {
        match self {
            Kernels::MlxOnCuda | Kernels::Cuda => self.gather_unpacked(x, w, indices, order),
            Kernels::Mlx | Kernels::Metal => {
                let x = ops::expand_dims(x, -2)?;
                ops::squeeze(&gather_qmm(&x, w, indices, order == Order::Sorted)?, -2)
            }
            Kernels::Cpu(Activations::Whole) => cpu::gather_quantized_matmul(x, w, indices),
            Kernels::Cpu(Activations::Int8) => cpu::rounded_gather_quantized_matmul(x, w, indices),
        }
    }

    /// [`gather_quantized`](Self::gather_quantized) with unpacked matrices: those that are named,
    /// or all. MLX has no kernel for packed experts on CUDA.
    fn gather_unpacked(
        self,
        x: &Array,
        w: &Quantized,
        indices: &Indices,
        order: Order,
    ) -> mlx_ffi::Result<Array> {
        let [t, e] = indices.dims()?;
        let [experts, ..] = w.weight.dims::<3>()?;
        if t * e >= experts {
            return self.gather_dense(x, &dequantize(w, x.dtype())?, indices, order);
        }
        let named = indices.reshape(&[t * e])?;
        let part = |array: &Array| ops::take(array, &named, 0);
        let biases = w.biases.as_ref().map(part).transpose()?;
        let (weight, scales) = (part(&w.weight)?, part(&w.scales)?);
        let matrices = Quantized { weight, scales, biases, quantization: w.quantization };
        let matrices = dequantize(&matrices, x.dtype())?;
        let [_, _, columns] = x.dims()?;
        let rows = ops::broadcast_to(x, &[t, e, columns])?;
        let rows = ops::reshape(&rows, &[t * e, 1, columns])?;
        let y = ops::matmul(&rows, &ops::swap_axes(&matrices, -1, -2)?)?;
        ops::reshape(&y, &[t, e, -1])
    }

    /// Returns true when products of many rows are faster with the matrices named in order. Our own
    /// kernels bring the rows of a matrix together themselves. On CUDA, MLX is not told of the
    /// order.
    pub fn prefers_order(self) -> bool {
        matches!(self, Kernels::Mlx | Kernels::Metal)
    }
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{Dtype, QuantMode, Quantization, quantize};

    use super::*;

    #[test]
    fn unpacked_experts_are_those_that_are_named() {
        let values = |count: i32, speed: f32| -> Vec<f32> {
            (0..count).map(|i| (i as f32 * speed).sin()).collect()
        };
        let w = Array::from_f32(&values(6 * 4 * 64, 0.37), &[6, 4, 64]).expect("matrices");
        let quantization = Quantization { mode: QuantMode::Affine, bits: 8, group_size: 64 };
        let packed = quantize(&w, quantization).expect("packed");
        for (t, e) in [(2, 2), (5, 3)] {
            let named: Vec<u32> = (0..t * e).map(|i| (i * 5 % 6) as u32).collect();
            let indices = Indices::from_u32(&named, &[t, e]).expect("indices");
            for each in [1, e] {
                let x = Array::from_f32(&values(t * each * 64, 0.11), &[t, each, 64]).expect("x");
                let found = Kernels::Cuda.gather_unpacked(&x, &packed, &indices, Order::Any);
                let found = found.expect("products").to_vec_f32().expect("values");
                let plain = dequantize(&packed, Dtype::F32).expect("matrices");
                let expected = Kernels::Mlx.gather_dense(&x, &plain, &indices, Order::Any);
                let expected = expected.expect("products").to_vec_f32().expect("values");
                let near = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-4);
                assert!(found.len() == expected.len() && near, "{found:?} {expected:?}");
            }
        }
    }
}
