//! A projection that each head has for itself.

use mlx_ffi::{Array, Dtype, Indices, Result, cuda, dequantize, ops, quantized_matmul};

use super::Weight;
use crate::kernels::{Kernels, Matrix, Order};

/// Positions up to which packed matrices are gathered on CUDA. For more, they are unpacked once.
const MOST_GATHERED: i32 = 4;

/// `x w[h]ᵀ` with the matrix of head `h`.
#[derive(Debug)]
pub(crate) struct HeadLinear {
    /// `[heads, out, in]`.
    weight: Weight,
}

impl HeadLinear {
    /// Projections by `weight`, `[heads, out, in]`.
    pub fn new(weight: Weight) -> HeadLinear {
        HeadLinear { weight }
    }

    /// `x`, `[b, l, heads, in]`: `[b, l, heads, out]`.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let [b, l, heads, input] = x.dims()?;
        let x = ops::reshape(x, &[b * l, heads, input])?;
        let y = match (&self.weight.matrix, self.weight.kernels) {
            (
                Matrix::Dense(w),
                Kernels::Mlx | Kernels::Metal | Kernels::MlxOnCuda | Kernels::Cuda,
            ) => by_heads(&x, |x| ops::matmul(x, &ops::swap_axes(w, -1, -2)?))?,
            (Matrix::Quantized(w), Kernels::Mlx | Kernels::Metal) => {
                by_heads(&x, |x| quantized_matmul(x, w))?
            }
            // Gathered, a matrix would be read anew for each position.
            (Matrix::Quantized(w), Kernels::MlxOnCuda | Kernels::Cuda) if b * l > MOST_GATHERED => {
                let w = dequantize(w, x.dtype())?;
                by_heads(&x, |x| ops::matmul(x, &ops::swap_axes(&w, -1, -2)?))?
            }
            _ => {
                let each = Indices::up_to(heads)?.expand_dims(0)?.broadcast_to(&[b * l, heads])?;
                self.weight.gather(&x, &each, Order::Any)?
            }
        };
        ops::reshape(&y, &[b, l, heads, -1])
    }

    /// Its matrices as kernels for CUDA take them.
    pub fn on_cuda(&self) -> cuda::Weights<'_> {
        self.weight.matrix.on_cuda()
    }

    /// Its matrices, unpacked, in `dtype`.
    pub fn matrices(&self, dtype: Dtype) -> Result<Array> {
        match &self.weight.matrix {
            Matrix::Dense(w) => ops::astype(w, dtype),
            Matrix::Quantized(w) => dequantize(w, dtype),
        }
    }
}

/// `product` of `x`, `[t, heads, in]`, with the rows of each head in one matrix: `[t, heads, out]`.
fn by_heads(x: &Array, product: impl Fn(&Array) -> Result<Array>) -> Result<Array> {
    ops::swap_axes(&product(&ops::swap_axes(x, 0, 1)?)?, 0, 1)
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{QuantMode, Quantization, quantize};

    use super::*;

    #[test]
    fn each_head_has_its_own_matrix_whosever_kernels_multiply() {
        let wave = |count: usize| (0..count).map(|i| (0.37 * i as f32).sin()).collect::<Vec<f32>>();
        let (heads, output, input) = (3, 5, 32);
        let shape = [heads, output, input];
        let w = Array::from_f32(&wave((heads * output * input) as usize), &shape).expect("values");
        let x = wave((2 * 4 * heads * input) as usize);
        let x = Array::from_f32(&x, &[2, 4, heads, input]).expect("values");
        let quantization = Quantization { mode: QuantMode::Affine, bits: 8, group_size: 32 };
        for packs in [false, true] {
            let matrix = || match packs {
                false => Matrix::Dense(w.share().expect("a matrix")),
                true => Matrix::Quantized(quantize(&w, quantization).expect("a matrix")),
            };
            let linear = |kernels| HeadLinear::new(Weight { matrix: matrix(), kernels });
            let plain = linear(Kernels::Mlx).matrices(Dtype::F32).expect("matrices");
            let [x_values, w_values] = [&x, &plain].map(|array| array.to_vec_f32().expect("f32"));
            let value = |at: usize, head: usize, row: usize| -> f32 {
                let x = &x_values[(at * 3 + head) * 32..][..32];
                let w = &w_values[(head * 5 + row) * 32..][..32];
                x.iter().zip(w).map(|(x, w)| x * w).sum()
            };
            for kernels in [Kernels::Mlx, Kernels::CPU, Kernels::MlxOnCuda] {
                let y = linear(kernels).forward(&x).expect("a product");
                assert_eq!(y.shape(), [2, 4, heads, output]);
                for (index, found) in y.to_vec_f32().expect("f32").into_iter().enumerate() {
                    let expected = value(index / 15, index / 5 % 3, index % 5);
                    assert!((found - expected).abs() < 1e-4, "{found}, not {expected}");
                }
            }
        }
    }
}
