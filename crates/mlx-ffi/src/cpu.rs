//! Matrix products, attention, what stands between them, copies of caches' rows, and convolutions
//! of pictures by our own kernels for CPUs, as operations of MLX's graph.
//!
//! On a Linux CPU MLX multiplies on one core, and packed weights far below the memory's speed.
//! These operations are lazy like MLX's own, take any layout of `x`, copy no weights, and run on
//! the thread of the current stream, which must be one of the CPU.
//!
//! Shapes and types are checked when the operation is made. Should a kernel fail after that, or
//! panic, then the call that waits for its value gets the error, as with MLX's own kernels.

use cpu_kernels::{Packing, Problem, Weights};

use crate::{Activation, Array, Dtype, Error, QuantMode, Quantization, Quantized, Result, ops};

mod arrange;
mod attention;
mod gather;
pub(crate) mod operation;
mod pictures;
mod recurrent;
mod rows;
mod scan;
mod step;

pub use arrange::arrange;
pub use attention::{Run, Visible, attention, attention_within};
pub use cpu_kernels::{ConvolutionActivation, Level, Pieces, Stretch, rounded_dots, set_threads};
pub use gather::{gather_matmul, gather_quantized_matmul, rounded_gather_quantized_matmul};
pub use pictures::{AfterNorm, ChannelGroups, conv2d, group_norm};
pub(crate) use recurrent::fits_columns;
pub use recurrent::{DeltaRule, Filter, convolution, delta};
pub use rows::{add, gated, heads, layer_norm, rms_norm, rms_norm_of_groups};
pub use scan::{SelectiveScan, scan};
pub use step::{step_attention, turns};

use operation::View;
pub(crate) use operation::{Inputs, Outcome, operation};

/// Lets whatever is computed from now on use the instructions of `level`; `None`: the best that
/// this processor has.
///
/// # Errors
/// Instructions that it does not have.
pub fn set_level(level: Option<Level>) -> Result<()> {
    cpu_kernels::set_level(level).map_err(failed)
}

/// `x wᵀ` for `x` of `[…, k]` and `w` of `[n, k]`: `[…, n]`. Different types meet in f32.
///
/// # Errors
/// Shapes that do not fit; types other than f32, f16 and bf16; a stream of the GPU.
pub fn matmul(x: &Array, w: &Array) -> Result<Array> {
    let [n, k] = w.dims()?;
    product(x, n, k, &Matrices::dense(x, w)?, cpu_kernels::matmul)
}

/// `x wᵀ` for `x` of `[…, columns]` and packed weights of `[rows, columns]`: `[…, rows]`, in the
/// type of `x`, or in f32 where affine scales have another.
///
/// # Errors
/// Weights that do not fit their parameters; shapes that do not fit; types other than f32, f16 and
/// bf16; a stream of the GPU.
pub fn quantized_matmul(x: &Array, w: &Quantized) -> Result<Array> {
    quantized(x, w, cpu_kernels::matmul)
}

/// [`quantized_matmul`] with `x` rounded to 8 bits, see [`rounds`].
///
/// # Errors
/// As [`quantized_matmul`].
pub fn rounded_quantized_matmul(x: &Array, w: &Quantized) -> Result<Array> {
    quantized(x, w, cpu_kernels::rounded_matmul)
}

/// The weights that `w`, `[…, rows, columns]`, stands for, in `dtype`.
///
/// # Errors
/// Weights that do not fit their parameters; types other than f32, f16 and bf16; a stream of the
/// GPU.
pub(crate) fn unpacked(w: &Quantized, dtype: Dtype) -> Result<Array> {
    let (kind, to) = (Kind::packed(w)?, kernel_dtype(dtype)?);
    let Some((&groups, rows)) = w.scales.shape().split_last() else {
        return Err(Error::new("no rows of groups"));
    };
    let columns = groups * w.quantization.group_size;
    let shape = [rows, &[columns]].concat();
    let size = [rows.iter().map(|&dim| dim as usize).product(), columns as usize];
    let inputs: Vec<&Array> = [&w.weight, &w.scales].into_iter().chain(&w.biases).collect();
    let outcome = Outcome::row_major(dtype, &shape);
    operation(&inputs, Inputs::RowMajor, outcome, move |inputs, out| {
        cpu_kernels::unpack(kind.weights(inputs), size, to, out).map_err(failed)
    })
}

/// Returns true when products round activations of `dtype` for weights of this form. Others take
/// them as they are. `of_experts`: each row has a matrix of its own.
pub fn rounds(quantization: Quantization, dtype: Dtype, of_experts: bool) -> bool {
    let has_form = matches!(quantization.mode, QuantMode::Affine | QuantMode::Mxfp4);
    has_form && (!of_experts || kernel_dtype(dtype).is_ok_and(cpu_kernels::rounds_steps))
}

fn quantized(x: &Array, w: &Quantized, multiply: Multiply) -> Result<Array> {
    let matrices = Matrices::packed(x, w)?;
    let [n, groups] = w.scales.dims()?;
    product(x, n, groups * w.quantization.group_size, &matrices, multiply)
}

/// A kernel for products.
type Multiply = fn(Problem<'_>) -> std::result::Result<(), cpu_kernels::Error>;

/// The epilogue of a product in f32: adds a bias, then activates, then adds a residual.
#[derive(Clone, Copy, Debug, Default)]
pub struct Finish<'a> {
    /// `[n]`.
    pub bias: Option<&'a Array>,
    /// Of each value.
    pub activation: Option<Activation>,
    /// Of the shape of the result.
    pub residual: Option<&'a Array>,
}

/// `finish` of `x wᵀ` for `x` of `[…, k]` and `w` of `[n, k]`: `[…, n]`. All of it is f32.
///
/// # Errors
/// Shapes or types that do not fit; a stream of the GPU.
pub fn finished_matmul(x: &Array, w: &Array, finish: Finish<'_>) -> Result<Array> {
    let Finish { bias, activation, residual } = finish;
    let ([n, k], Some((&columns, rows))) = (w.dims()?, x.shape().split_last()) else {
        return Err(Error::new("no row to multiply"));
    };
    let shape = [rows, &[n]].concat();
    let fits = columns == k
        && bias.is_none_or(|bias| bias.shape() == [n])
        && residual.is_none_or(|residual| residual.shape() == shape);
    let inputs: Vec<&Array> = [x, w].into_iter().chain(bias).chain(residual).collect();
    if !fits || inputs.iter().any(|input| input.dtype() != Dtype::F32) {
        return Err(Error::new(format!("{x:?}, {w:?} and {finish:?} do not fit a product in f32")));
    }
    let m = rows.iter().map(|&dim| dim as usize).product();
    let positions = positions(x.shape());
    let (n, k, dtype) = (n as usize, k as usize, cpu_kernels::Dtype::F32);
    let given = [bias.is_some(), residual.is_some()];
    let outcome = Outcome::row_major(Dtype::F32, &shape);
    operation(&inputs, Inputs::RowMajor, outcome, move |inputs, out| {
        let [x, w, rest @ ..] = inputs else { return Err(Error::new("no operands")) };
        let mut rest = rest.iter().map(|view| view.bytes);
        let [bias, residual] = given.map(|given| if given { rest.next() } else { None });
        let weights = Weights::Dense { dtype, data: w.bytes };
        let problem = Problem { m, positions, n, k, dtype, x: x.bytes, weights, out };
        let finish = cpu_kernels::Finish { bias, activation, residual };
        cpu_kernels::finished_matmul(problem, finish).map_err(failed)
    })
}

/// `x`, `[…, k]`, by a matrix of `[n, k]`.
fn product(
    x: &Array,
    n: i32,
    k: i32,
    matrices: &Matrices<'_>,
    multiply: Multiply,
) -> Result<Array> {
    let x = matrices.activations(x, k)?;
    let (dtype, kind) = (kernel_dtype(x.dtype())?, matrices.kind);
    let mut shape = x.shape().to_vec();
    shape[x.shape().len() - 1] = n;
    let m = leading_shape(&x).iter().map(|&dim| dim as usize).product();
    let positions = positions(x.shape());
    let (n, k) = (n as usize, k as usize);
    let outcome = Outcome::row_major(x.dtype(), &shape);
    let inputs: Vec<&Array> = std::iter::once(&x).chain(matrices.parts()).collect();
    operation(&inputs, Inputs::RowMajor, outcome, move |inputs, out| {
        let [x, parts @ ..] = inputs else { return Err(Error::new("a product without operands")) };
        let weights = kind.weights(parts);
        let problem = Problem { m, positions, n, k, dtype, x: x.bytes, weights, out };
        multiply(problem).map_err(failed)
    })
}

/// How many positions of a sequence follow each other in activations of `shape`, `[batch,
/// positions, …, k]`; 1 if the shape does not say.
fn positions(shape: &[i32]) -> usize {
    if let [_, positions, _, ..] = *shape { positions as usize } else { 1 }
}

/// The weights of a product, their scales and their biases.
struct Matrices<'a> {
    weight: &'a Array,
    extra: [Option<&'a Array>; 2],
    kind: Kind,
    /// In which activations are multiplied with them.
    dtype: Dtype,
}

/// How matrices are represented.
#[derive(Clone, Copy)]
enum Kind {
    Dense(cpu_kernels::Dtype),
    Packed { packing: Packing, group_size: usize },
}

impl Kind {
    /// How `w` is represented.
    ///
    /// # Errors
    /// Weights that do not fit their parameters.
    fn packed(w: &Quantized) -> Result<Kind> {
        w.check_on_cpu()?;
        let Quantization { mode, bits, group_size } = w.quantization;
        let packing = match mode {
            QuantMode::Affine => {
                let scales = kernel_dtype(w.scales.dtype())?;
                Packing::Affine { bits: bits as usize, scales }
            }
            QuantMode::Mxfp4 => Packing::Mxfp4,
            QuantMode::Mxfp8 => Packing::Mxfp8,
            QuantMode::Nvfp4 => Packing::Nvfp4,
        };
        Ok(Kind::Packed { packing, group_size: group_size as usize })
    }

    /// The weights, with scales and biases where they have any.
    fn weights<'a>(self, parts: &[View<'a>]) -> Weights<'a> {
        let part = |index: usize| parts.get(index).map_or(&[][..], |view| view.bytes);
        match self {
            Kind::Dense(dtype) => Weights::Dense { dtype, data: part(0) },
            Kind::Packed { packing, group_size } => {
                let (data, scales, biases) = (part(0), part(1), part(2));
                Weights::Packed { packing, group_size, data, scales, biases }
            }
        }
    }
}

impl<'a> Matrices<'a> {
    fn dense(x: &Array, weight: &'a Array) -> Result<Matrices<'a>> {
        let kind = Kind::Dense(kernel_dtype(weight.dtype())?);
        Ok(Matrices { weight, extra: [None, None], kind, dtype: meet(x, weight) })
    }

    /// # Errors
    /// Weights that do not fit their parameters.
    fn packed(x: &Array, w: &'a Quantized) -> Result<Matrices<'a>> {
        let kind = Kind::packed(w)?;
        let Quantized { weight, scales, biases, quantization } = w;
        let is_affine = quantization.mode == QuantMode::Affine;
        let dtype = if is_affine { meet(x, scales) } else { x.dtype() };
        Ok(Matrices { weight, extra: [Some(scales), biases.as_ref()], kind, dtype })
    }

    fn parts(&self) -> impl Iterator<Item = &'a Array> {
        std::iter::once(self.weight).chain(self.extra.into_iter().flatten())
    }

    /// `x` of `k` columns in the type in which it is multiplied.
    ///
    /// # Errors
    /// Another number of columns; types other than f32, f16 and bf16.
    fn activations(&self, x: &Array, k: i32) -> Result<Array> {
        if x.shape().last() != Some(&k) {
            return Err(Error::new(format!("cannot multiply {x:?} with weights of {k} columns")));
        }
        kernel_dtype(x.dtype())?;
        if x.dtype() == self.dtype { x.share() } else { ops::astype(x, self.dtype) }
    }
}

/// The type that holds the values of both.
fn meet(a: &Array, b: &Array) -> Dtype {
    if a.dtype() == b.dtype() { a.dtype() } else { Dtype::F32 }
}

fn kernel_dtype(dtype: Dtype) -> Result<cpu_kernels::Dtype> {
    match dtype {
        Dtype::F32 => Ok(cpu_kernels::Dtype::F32),
        Dtype::F16 => Ok(cpu_kernels::Dtype::F16),
        Dtype::Bf16 => Ok(cpu_kernels::Dtype::Bf16),
        _ => Err(Error::new("the CPU kernels take f32, f16 and bf16 only")),
    }
}

/// Converts the error of a kernel.
fn failed(error: cpu_kernels::Error) -> Error {
    Error::new(error.to_string())
}

/// All dimensions but the last.
fn leading_shape(x: &Array) -> &[i32] {
    x.shape().split_last().map_or(&[], |(_, leading)| leading)
}
