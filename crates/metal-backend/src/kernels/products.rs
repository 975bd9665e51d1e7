//! Products with the matrices of a checkpoint.

use mlx_ffi::{Array, Dtype, Quantized, cpu, cuda, dequantize, ops, quantized_matmul};

use super::choice::{Activations, Kernels, UNPACKED_BY_US_FROM, UNPACKED_F32_FROM, UNPACKED_FROM};

/// From so many rows on a step of many requests unpacks a matrix: its layers are sent all at once,
/// so that what they unpack is held together.
const UNPACKED_STEPS_FROM: i32 = 128;

/// Up to so many rows, CUDA multiplies a packed matrix with each by itself; the kernel for more is
/// faster from two rows on where the matrix is large: 17 µs for 8 rows of 2560 × 9728 in 4 bits,
/// 36 for 2, 91 for 6 (H200).
const FEW: i32 = 8;

/// Elements of a large matrix.
const LARGE: i64 = 1 << 24;

impl Kernels {
    /// `x wᵀ` for `x` of `[…, in]` and `w` of `[out, in]`.
    pub fn dense(self, x: &Array, w: &Array) -> mlx_ffi::Result<Array> {
        match self {
            Kernels::Cuda if several_rows_pay(x, cuda::Weights::Dense(w)) => {
                cuda::several_rows(x, cuda::Weights::Dense(w))
            }
            Kernels::Cuda if cuda::takes_dense(x, w) => cuda::dense(x, w),
            Kernels::Mlx | Kernels::Metal | Kernels::MlxOnCuda | Kernels::Cuda => {
                ops::matmul(x, &ops::swap_axes(w, -1, -2)?)
            }
            Kernels::Cpu(_) => cpu::matmul(x, w),
        }
    }

    /// `x wᵀ + b` for `x` of `[…, in]`, `w` of `[out, in]` and `bias` of `[out]`. MLX's own kernel
    /// rounds the sum once. A step on CUDA rounds it as that of one row is rounded, and can be
    /// captured.
    pub fn biased_dense(self, x: &Array, w: &Array, bias: &Array) -> mlx_ffi::Result<Array> {
        match self {
            Kernels::Cuda if is_step(x) && cuda::takes_dense(x, w) => {
                self.sum(&self.dense(x, w)?, bias)
            }
            Kernels::Mlx | Kernels::Metal | Kernels::MlxOnCuda | Kernels::Cuda => {
                ops::addmm(bias, x, &ops::swap_axes(w, -1, -2)?)
            }
            Kernels::Cpu(_) if [x, w, bias].iter().all(|of| of.dtype() == Dtype::F32) => {
                cpu::finished_matmul(x, w, cpu::Finish { bias: Some(bias), ..Default::default() })
            }
            Kernels::Cpu(_) => self.sum(&cpu::matmul(x, w)?, bias),
        }
    }

    /// `x wᵀ` for `x` of `[…, in]` and packed weights `w` of `[out, in]`.
    pub fn quantized(self, x: &Array, w: &Quantized) -> mlx_ffi::Result<Array> {
        match self {
            Kernels::Cuda if several_rows_pay(x, cuda::Weights::Packed(w)) => {
                cuda::several_rows(x, cuda::Weights::Packed(w))
            }
            Kernels::Cuda if unpacking_pays(x, w) => cuda::dense(x, &cuda::unpacked(w, x.dtype())?),
            Kernels::Mlx | Kernels::Metal => by_rows(x, |x| quantized_matmul(x, w)),
            Kernels::MlxOnCuda | Kernels::Cuda => {
                let unpacked_from = if is_step(x) { UNPACKED_STEPS_FROM } else { UNPACKED_FROM };
                by_rows(x, |x| cuda_quantized(x, w, unpacked_from))
            }
            Kernels::Cpu(Activations::Whole) => cpu::quantized_matmul(x, w),
            Kernels::Cpu(Activations::Int8) => cpu::rounded_quantized_matmul(x, w),
        }
    }

    /// `x wᵀ + b` for `x` of `[…, in]`, packed weights `w` of `[out, in]` and `bias` of `[out]`.
    /// The product adds the bias where the matrix is unpacked first.
    pub fn biased_quantized(
        self,
        x: &Array,
        w: &Quantized,
        bias: &Array,
    ) -> mlx_ffi::Result<Array> {
        let has_own = several_rows_pay(x, cuda::Weights::Packed(w)) || is_step(x);
        if self == Kernels::Cuda && !has_own && unpacking_pays(x, w) {
            return self.biased_dense(x, &cuda::unpacked(w, x.dtype())?, bias);
        }
        self.sum(&self.quantized(x, w)?, bias)
    }
}

/// Returns true when `x` has one position of each row of a batch.
fn is_step(x: &Array) -> bool {
    x.shape().iter().rev().nth(1) == Some(&1)
}

/// Returns true when our own kernel for several rows multiplies them. It is the fastest in a run of
/// layers, as it copies their weights ahead. Alone, it takes longer for large matrices of four
/// bits.
pub(super) fn several_rows_pay(x: &Array, w: cuda::Weights<'_>) -> bool {
    x.rows() > 1 && cuda::takes_several_rows(x, w)
}

/// Returns true when our own kernel unpacks the matrix for a product with several rows. Then
/// nothing waits for MLX's kernels to be compiled, and a step can be captured.
fn unpacking_pays(x: &Array, w: &Quantized) -> bool {
    let columns = x.shape().last().copied().unwrap_or(0);
    x.rows() >= UNPACKED_BY_US_FROM
        && x.shape().len() >= 2
        && columns % 8 == 0
        && cuda::takes_unpacked(w, x.dtype())
}

/// `product` of `x` with all its rows in one matrix: MLX's kernels for packed weights read the
/// weights anew for each matrix of a batch.
fn by_rows(
    x: &Array,
    product: impl Fn(&Array) -> mlx_ffi::Result<Array>,
) -> mlx_ffi::Result<Array> {
    let shape = x.shape();
    let (Some(&columns), true) = (shape.last(), x.size() > 0) else { return product(x) };
    let rows = (x.size() / columns as usize) as i32;
    if shape.len() < 2 || shape[shape.len() - 2] == rows {
        return product(x);
    }
    let y = product(&ops::reshape(x, &[rows, columns])?)?;
    let mut full = shape.to_vec();
    full[shape.len() - 1] = y.shape()[1];
    ops::reshape(&y, &full)
}

/// The product of `[…, rows, in]`, one matrix, with packed weights by the kernel that is fastest on
/// CUDA; they are unpacked for so many rows and more.
fn cuda_quantized(x: &Array, w: &Quantized, unpacked_from: i32) -> mlx_ffi::Result<Array> {
    let &[.., rows, columns] = x.shape() else { return quantized_matmul(x, w) };
    // MLX's kernel for several rows computes nonsense in F32.
    let unpacked_from = if x.dtype() == Dtype::F32 { UNPACKED_F32_FROM } else { unpacked_from };
    if rows >= unpacked_from {
        return ops::matmul(x, &ops::swap_axes(&dequantize(w, x.dtype())?, -1, -2)?);
    }
    let elements = i64::from(w.weight.shape()[0]) * i64::from(columns);
    if (2..FEW).contains(&rows) && elements >= LARGE {
        return padded(x, |x| quantized_matmul(x, w));
    }
    quantized_matmul(x, w)
}

/// `product` of `[…, rows, in]`, one matrix, with rows of zeros up to [`FEW`], without their
/// results.
fn padded(x: &Array, product: impl Fn(&Array) -> mlx_ffi::Result<Array>) -> mlx_ffi::Result<Array> {
    let mut missing = x.shape().to_vec();
    let at = missing.len() - 2;
    let rows = std::mem::replace(&mut missing[at], FEW - x.shape()[at]);
    let full = ops::concatenate(&[x, &ops::zeros(&missing, x.dtype())?], -2)?;
    ops::slice_axis(&product(&full)?, -2, 0, rows)
}

#[cfg(test)]
mod tests {
    use mlx_ffi::Quantization;

    use super::*;

    #[test]
    fn packed_products_see_a_matrix_whatever_the_batch() {
        let values: Vec<f32> = (0..6 * 64).map(|i| (i as f32 * 0.37).sin()).collect();
        let w = ops::multiply(
            &Array::from_f32(&values[..128], &[2, 64]).expect("values"),
            &Array::scalar(0.5, Dtype::F32).expect("a scalar"),
        )
        .expect("a product");
        let quantization =
            Quantization { mode: mlx_ffi::QuantMode::Affine, bits: 8, group_size: 64 };
        let packed = mlx_ffi::quantize(&w, quantization).expect("a matrix");
        let x = Array::from_f32(&values, &[6, 64]).expect("values");
        let expected = quantized_matmul(&x, &packed).expect("a product").to_vec_f32().expect("f32");
        for shape in [&[6, 1, 64][..], &[3, 2, 64], &[1, 6, 64], &[6, 64]] {
            let x = ops::reshape(&x, shape).expect("the same size");
            let seen = std::cell::Cell::new(0);
            let product = |x: &Array| {
                seen.set(x.shape()[x.shape().len() - 2]);
                quantized_matmul(x, &packed)
            };
            let y = by_rows(&x, product).expect("a product");
            assert_eq!((seen.get(), y.shape().last()), (6, Some(&2)), "{shape:?}");
            assert_eq!(y.shape()[..shape.len() - 1], shape[..shape.len() - 1]);
            assert_eq!(y.to_vec_f32().expect("f32"), expected);
        }
        let few = ops::slice_axis(&x, 0, 0, 3).expect("rows");
        let y = padded(&few, |x| quantized_matmul(x, &packed)).expect("a product");
        assert_eq!(y.to_vec_f32().expect("f32"), expected[..6]);
        // What CUDA is given in place of many rows is the same product.
        let many = ops::concatenate(&vec![&x; 86], 0).expect("516 rows");
        for rows in [1, 2, 7, 8, 516] {
            let x = ops::slice_axis(&many, 0, 0, rows).expect("rows");
            let x = ops::astype(&x, Dtype::Bf16).expect("bf16");
            let got = cuda_quantized(&x, &packed, UNPACKED_FROM).expect("a product");
            let got = got.to_vec_f32().expect("f32");
            let want = quantized_matmul(&x, &packed).expect("a product").to_vec_f32().expect("f32");
            let near = got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 0.1);
            assert!(got.len() == want.len() && near, "{rows}: {got:?} {want:?}");
        }
    }
}
