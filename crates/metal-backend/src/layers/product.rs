//! Whose kernels a model's layers compute with.

use mlx_ffi::cpu::Level;
use mlx_ffi::{
    Array, Device, Dtype, Quantized, cpu, cuda, dequantize, fast, gather_qmm, ops, quantized_matmul,
};

use super::{Activation, Around, Columns, Matrix, Order, RmsNorm};
use crate::error::{Error, Result};

/// The variables that name the kernels for a CPU and for CUDA.
const CPU_VARIABLE: &str = "ML_CPU_KERNELS";
const CUDA_VARIABLE: &str = "ML_CUDA_KERNELS";

/// The first of NVIDIA's generations that has the instructions of our kernels (Ampere).
const COMPUTE_CAPABILITY: u64 = 8;

/// From so many rows on, more than our own kernels take, CUDA unpacks a matrix and multiplies with what
/// it stands for. That is faster than MLX's product of packed weights from 128 rows on: 103 µs against
/// 104 for 128 rows of 9728 × 2560 in 4 bits, 125 against 250 for 511 (H200). Below, it spares the first
/// prompt on a machine the half minute for which MLX compiles its own kernel.
pub(crate) const UNPACKED_FROM: i32 = cuda::MOST_ROWS + 1;

/// The same for a step of many requests, whose layers are sent all at once: what they unpack is held
/// together.
const UNPACKED_STEPS_FROM: i32 = 128;

/// Up to so many rows, CUDA multiplies a packed matrix with each by itself; the kernel for more is
/// faster from two rows on where the matrix is large: 17 µs for 8 rows of 2560 × 9728 in 4 bits,
/// 36 for 2, 91 for 6 (H200).
const FEW: i32 = 8;

/// Elements of a large matrix.
const LARGE: i64 = 1 << 24;

/// Whose kernels a model's layers compute with; decided when the model is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Product {
    /// MLX's.
    Mlx,
    /// MLX's, in the way that is fast on CUDA.
    MlxOnCuda,
    /// The same, and our own ones where they are faster.
    Cuda,
    /// Our own ones for CPUs.
    CpuKernels,
}

impl Product {
    /// What a model on `device` uses: our own kernels on a CPU under Linux, where MLX has none
    /// that are fast, unless the environment says `ML_CPU_KERNELS=off`; a level's name there is the
    /// one that they run at, in this process. On CUDA likewise, with `ML_CUDA_KERNELS=off`.
    ///
    /// # Errors
    /// A value of a variable that means nothing.
    pub fn on(device: Device) -> Result<Product> {
        if device == Device::Cpu {
            let level = match cpu_kernels(variable(CPU_VARIABLE).as_deref())? {
                CpuKernels::Off => return Ok(Product::Mlx),
                CpuKernels::Fastest => None,
                CpuKernels::At(level) => Some(level),
            };
            let named = |error| refused(format!("{CPU_VARIABLE}: {error}"));
            cpu::set_level(level).map_err(named)?;
            let ours = cfg!(not(target_os = "macos"));
            return Ok(if ours { Product::CpuKernels } else { Product::Mlx });
        }
        let wanted = match variable(CUDA_VARIABLE).as_deref() {
            None | Some("" | "on") => true,
            Some("off") => false,
            Some(other) => return Err(unknown(CUDA_VARIABLE, other, "on or off")),
        };
        if !device.is_available()? {
            return Ok(Product::Mlx);
        }
        let info = device.info()?;
        let has_instructions = info.compute_capability.is_some_and(|of| of >= COMPUTE_CAPABILITY);
        Ok(match info.backend {
            "cuda" if wanted && has_instructions => Product::Cuda,
            "cuda" => Product::MlxOnCuda,
            _ => Product::Mlx,
        })
    }

    /// `x wᵀ` for `x` of `[…, in]` and `w` of `[out, in]`.
    pub fn dense(self, x: &Array, w: &Array) -> mlx_ffi::Result<Array> {
        match self {
            Product::Cuda if few_rows_pay(x, w) => cuda::few_rows(x, cuda::Weights::Dense(w)),
            Product::Mlx | Product::MlxOnCuda | Product::Cuda => {
                ops::matmul(x, &ops::swap_axes(w, -1, -2)?)
            }
            Product::CpuKernels => cpu::matmul(x, w),
        }
    }

    /// `x wᵀ + b` as [`dense`](Self::dense) with `bias` of `[out]`; MLX's own rounds the sum once.
    pub fn biased_dense(self, x: &Array, w: &Array, bias: &Array) -> mlx_ffi::Result<Array> {
        match self {
            Product::Mlx | Product::MlxOnCuda | Product::Cuda => {
                ops::addmm(bias, x, &ops::swap_axes(w, -1, -2)?)
            }
            Product::CpuKernels => self.sum(&cpu::matmul(x, w)?, bias),
        }
    }

    /// As [`dense`](Self::dense), with packed weights.
    pub fn quantized(self, x: &Array, w: &Quantized) -> mlx_ffi::Result<Array> {
        match self {
            Product::Cuda if few_packed_rows_pay(x, w) => {
                cuda::few_rows(x, cuda::Weights::Packed(w))
            }
            Product::Mlx => by_rows(x, |x| quantized_matmul(x, w)),
            Product::MlxOnCuda | Product::Cuda => {
                let is_step = x.shape().iter().rev().nth(1) == Some(&1);
                let unpacked_from = if is_step { UNPACKED_STEPS_FROM } else { UNPACKED_FROM };
                by_rows(x, |x| cuda_quantized(x, w, unpacked_from))
            }
            Product::CpuKernels => cpu::quantized_matmul(x, w),
        }
    }

    /// `x wᵀ` with a matrix of `w`, `[experts, out, in]`, for each of `indices`, `[t, e]`: `x` of
    /// `[t, 1 or e, in]` to `[t, e, out]`.
    pub fn gather_dense(
        self,
        x: &Array,
        w: &Array,
        indices: &Array,
        order: Order,
    ) -> mlx_ffi::Result<Array> {
        match self {
            Product::Mlx | Product::MlxOnCuda | Product::Cuda => {
                let (x, w) = (ops::expand_dims(x, -2)?, ops::swap_axes(w, -1, -2)?);
                let product = ops::gather_mm(&x, &w, indices, order == Order::Sorted)?;
                ops::squeeze(&product, -2)
            }
            Product::CpuKernels => cpu::gather_matmul(x, w, indices),
        }
    }

    /// As [`gather_dense`](Self::gather_dense), with packed weights.
    pub fn gather_quantized(
        self,
        x: &Array,
        w: &Quantized,
        indices: &Array,
        order: Order,
    ) -> mlx_ffi::Result<Array> {
        match self {
            Product::Mlx | Product::MlxOnCuda | Product::Cuda => {
                let x = ops::expand_dims(x, -2)?;
                ops::squeeze(&gather_qmm(&x, w, indices, order == Order::Sorted)?, -2)
            }
            Product::CpuKernels => cpu::gather_quantized_matmul(x, w, indices),
        }
    }

    /// Whether the device is one of CUDA.
    pub fn is_on_cuda(self) -> bool {
        matches!(self, Product::MlxOnCuda | Product::Cuda)
    }

    /// From how many rows of `dtype` on a packed matrix is unpacked for a product.
    pub fn unpacked_from(self, dtype: Dtype) -> Option<i32> {
        let unpacks = self.is_on_cuda() && matches!(dtype, Dtype::Bf16 | Dtype::F16);
        unpacks.then_some(UNPACKED_FROM)
    }

    /// The product with one row and what is done around it, gated where its first half is a gate for
    /// the second, where there is one operation for all that.
    pub fn one_row(
        self,
        x: &Array,
        matrix: &Matrix,
        bias: Option<&Array>,
        gate: Option<Activation>,
        around: Around<'_>,
    ) -> Option<mlx_ffi::Result<Array>> {
        let gate = match gate {
            None => None,
            Some(activation) => Some(activation.on_cuda()?),
        };
        let (x, norm) = match around.normed {
            Some(normed) => (normed, None),
            None => (x, around.norm.map(|norm| (&norm.weight, norm.eps))),
        };
        let around = cuda::Around { norm, bias, gate, onto: around.onto };
        let weights = weights(matrix);
        let pays = self == Product::Cuda && cuda::takes_one_row(x, weights, &around);
        pays.then(|| cuda::one_row(x, weights, &around))
    }

    /// Whether a sum with so many rows is better made by [`residual`](Self::residual) than by the
    /// product before it.
    pub fn adds_rows(self, x: &Array) -> bool {
        self == Product::Cuda && rows(x) > 1
    }

    /// `x + y`, where y is normed first with `out_norm`, and that normed with `norm`, where there is one
    /// operation for all that.
    pub fn residual(
        self,
        x: &Array,
        y: &Array,
        out_norm: Option<&RmsNorm>,
        norm: Option<&RmsNorm>,
    ) -> Option<mlx_ffi::Result<(Array, Option<Array>)>> {
        let [first, second] = [out_norm, norm].map(|norm| norm.map(|norm| &norm.weight));
        let mut epsilons = [out_norm, norm].into_iter().flatten().map(|norm| norm.eps);
        let eps = epsilons.next().unwrap_or(0.0);
        let fits = epsilons.all(|other| other == eps) && cuda::takes_residual(x, y, first, second);
        let pays = self == Product::Cuda && fits;
        pays.then(|| cuda::residual(x, y, first, second, eps))
    }

    /// `x + y`, where `y` may be a vector for all rows of `x`.
    pub fn sum(self, x: &Array, y: &Array) -> mlx_ffi::Result<Array> {
        match self {
            Product::CpuKernels if x.dtype() == y.dtype() => cpu::add(x, y),
            _ => ops::add(x, y),
        }
    }

    /// `x / √(mean(x²) + eps) · weight` over the last dimension.
    pub fn rms_norm(self, x: &Array, weight: &Array, eps: f32) -> mlx_ffi::Result<Array> {
        match self {
            Product::CpuKernels if x.dtype() == weight.dtype() => cpu::rms_norm(x, weight, eps),
            _ => fast::rms_norm(x, Some(weight), eps),
        }
    }

    /// What passes the gate: `activation(gate) · up`.
    pub fn gated(
        self,
        activation: Activation,
        gate: &Columns,
        up: &Columns,
    ) -> mlx_ffi::Result<Array> {
        let known = match activation {
            Activation::Silu => Some(cpu::Activation::Silu),
            Activation::GeluTanh => Some(cpu::Activation::GeluTanh),
            Activation::ClippedSilu { .. } => None,
        };
        match (self, known, activation.on_cuda()) {
            (Product::CpuKernels, Some(activation), _) => {
                let (gate, up) = ((&gate.of, gate.range.clone()), (&up.of, up.range.clone()));
                cpu::gated(activation, gate, up)
            }
            (Product::Cuda, _, Some(kind)) if Columns::are_halves(gate, up) => {
                cuda::gated(kind, &gate.of)
            }
            _ => activation.gated(&gate.array()?, &up.array()?),
        }
    }

    /// The heads of `x`, `[b, l, n * head_dim]`: `[b, n, l, head_dim]`.
    pub fn heads(self, x: &Columns, head_dim: i32) -> mlx_ffi::Result<Array> {
        if self == Product::CpuKernels {
            return cpu::heads(&x.of, x.range.clone(), head_dim, None, None);
        }
        let [b, l, _] = x.of.dims()?;
        ops::swap_axes(&ops::reshape(&x.array()?, &[b, l, -1, head_dim])?, 1, 2)
    }

    /// Whether products of many rows are faster where the matrices are named in order. Our own
    /// kernels bring the rows of a matrix together themselves.
    pub fn prefers_order(self) -> bool {
        self != Product::CpuKernels
    }
}

/// Whether our own kernel for a few rows is faster than MLX's: on an H200 27 µs against 34 for 8 rows of
/// 2560 × 9728, 40 against 39 for 32 of 2560 × 6144, but 46 against 40 for 8 of 9728 × 2560.
fn few_rows_pay(x: &Array, w: &Array) -> bool {
    let (rows, &[n, k]) = (rows(x), w.shape()) else { return false };
    let sizes_fit = k <= 4096 && (rows <= 8 || n <= 6144);
    sizes_fit && rows > 1 && cuda::takes_few_rows(x, cuda::Weights::Dense(w))
}

/// The same for packed weights: 57 µs against 151 for 8 rows of 9728 × 2560 in 4 bits, 32 against 47 of
/// 2560 × 9728. For 1024 × 151936 it is 112 against 97, but MLX's kernel may take a minute to be
/// compiled at its first use on a machine.
fn few_packed_rows_pay(x: &Array, w: &Quantized) -> bool {
    let (rows, n) = (rows(x), w.weight.shape()[0]);
    let size_fits = rows > 2 || rows == 2 && n >= 3072;
    size_fits && cuda::takes_few_rows(x, cuda::Weights::Packed(w))
}

fn rows(x: &Array) -> i32 {
    x.shape().split_last().map_or(0, |(_, leading)| leading.iter().product())
}

/// A matrix as kernels for CUDA take it.
fn weights(matrix: &Matrix) -> cuda::Weights<'_> {
    match matrix {
        Matrix::Dense(w) => cuda::Weights::Dense(w),
        Matrix::Quantized(w) => cuda::Weights::Packed(w),
    }
}

/// `product` of `x` with all its rows in one matrix: MLX's kernels for packed weights read the weights
/// anew for each matrix of a batch.
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

/// The product of `[…, rows, in]`, one matrix, with packed weights by the kernel that is fastest on CUDA;
/// they are unpacked for so many rows and more.
fn cuda_quantized(x: &Array, w: &Quantized, unpacked_from: i32) -> mlx_ffi::Result<Array> {
    let &[.., rows, columns] = x.shape() else { return quantized_matmul(x, w) };
    // The faster kernels know no other types.
    if !matches!(x.dtype(), Dtype::Bf16 | Dtype::F16) {
        return quantized_matmul(x, w);
    }
    if rows >= unpacked_from {
        return ops::matmul(x, &ops::swap_axes(&dequantize(w, x.dtype())?, -1, -2)?);
    }
    let elements = i64::from(w.weight.shape()[0]) * i64::from(columns);
    if (2..FEW).contains(&rows) && elements >= LARGE {
        return padded(x, |x| quantized_matmul(x, w));
    }
    quantized_matmul(x, w)
}

/// `product` of `[…, rows, in]`, one matrix, with rows of zeros up to [`FEW`], without their results.
fn padded(x: &Array, product: impl Fn(&Array) -> mlx_ffi::Result<Array>) -> mlx_ffi::Result<Array> {
    let mut missing = x.shape().to_vec();
    let at = missing.len() - 2;
    let rows = std::mem::replace(&mut missing[at], FEW - x.shape()[at]);
    let full = ops::concatenate(&[x, &ops::zeros(&missing, x.dtype())?], -2)?;
    ops::slice_axis(&product(&full)?, -2, 0, rows)
}

fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// What the environment wants of our kernels for CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CpuKernels {
    Off,
    Fastest,
    At(Level),
}

fn cpu_kernels(value: Option<&str>) -> Result<CpuKernels> {
    let levels = [Level::Portable, Level::Avx2, Level::Avx512];
    match value {
        None | Some("" | "on") => Ok(CpuKernels::Fastest),
        Some("off") => Ok(CpuKernels::Off),
        Some(other) => match levels.into_iter().find(|level| level.name() == other) {
            Some(level) => Ok(CpuKernels::At(level)),
            None => Err(unknown(CPU_VARIABLE, other, "on, off, portable, avx2 or avx512")),
        },
    }
}

fn unknown(variable: &str, value: &str, expected: &str) -> Error {
    refused(format!("{variable} is `{value}`, expected {expected}"))
}

fn refused(reason: String) -> Error {
    Error::Core(inference_core::Error::Engine(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_turns_our_kernels_off_or_names_their_level_and_nothing_else_is_taken() {
        assert_eq!(cpu_kernels(None).expect("unset"), CpuKernels::Fastest);
        assert_eq!(cpu_kernels(Some("on")).expect("on"), CpuKernels::Fastest);
        assert_eq!(cpu_kernels(Some("off")).expect("off"), CpuKernels::Off);
        assert_eq!(cpu_kernels(Some("avx2")).expect("a level"), CpuKernels::At(Level::Avx2));
        let error = cpu_kernels(Some("0")).expect_err("none of these").to_string();
        assert!(error.contains("ML_CPU_KERNELS") && error.contains("`0`"), "{error}");
    }

    #[test]
    fn packed_products_see_a_matrix_whatever_the_batch() {
        let values: Vec<f32> = (0..6 * 64).map(|i| (i as f32 * 0.37).sin()).collect();
        let w = ops::multiply(
            &Array::from_f32(&values[..128], &[2, 64]).expect("values"),
            &Array::scalar(0.5, Dtype::F32).expect("a scalar"),
        )
        .expect("a product");
        let quantization =
            mlx_ffi::Quantization { mode: mlx_ffi::QuantMode::Affine, bits: 8, group_size: 64 };
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

    #[test]
    fn a_gpu_has_our_kernels_where_it_is_one_of_cuda_that_knows_their_instructions() {
        let product = Product::on(Device::Gpu).expect("no such variable in tests");
        let info = Device::Gpu.is_available().expect("MLX tells").then(|| Device::Gpu.info());
        let expected = match info.map(|info| info.expect("a device")) {
            Some(info) if info.backend == "cuda" => match info.compute_capability {
                Some(8..) => Product::Cuda,
                _ => Product::MlxOnCuda,
            },
            _ => Product::Mlx,
        };
        assert_eq!(product, expected);
    }
}
