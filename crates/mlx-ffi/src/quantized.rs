//! Quantised weights: packed integers with a scale for each group.

use std::ffi::CStr;

use crate::ops::{check_gathered, matrices};
use crate::stream::current;
use crate::vector::VectorArray;
use crate::{Array, Dtype, Error, Indices, Result, sys};

/// How a group of weights is represented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuantMode {
    /// `scale · q + bias`, scale and bias in the model's type.
    Affine,
    /// 4-bit floats (e2m1) with a power-of-two scale.
    Mxfp4,
    /// 8-bit floats (e4m3) with a power-of-two scale.
    Mxfp8,
    /// 4-bit floats (e2m1) with an e4m3 scale.
    Nvfp4,
}

impl QuantMode {
    /// The name in `config.json` and in MLX.
    pub fn as_str(self) -> &'static str {
        match self {
            QuantMode::Affine => "affine",
            QuantMode::Mxfp4 => "mxfp4",
            QuantMode::Mxfp8 => "mxfp8",
            QuantMode::Nvfp4 => "nvfp4",
        }
    }

    /// The mode of that name.
    pub fn from_name(name: &str) -> Option<QuantMode> {
        [QuantMode::Affine, QuantMode::Mxfp4, QuantMode::Mxfp8, QuantMode::Nvfp4]
            .into_iter()
            .find(|mode| mode.as_str() == name)
    }

    /// The bits and groups of the mode where a config says nothing of them.
    pub fn usual(self) -> Quantization {
        let (bits, group_size) = match self {
            QuantMode::Affine => (4, 64),
            QuantMode::Mxfp4 => (4, 32),
            QuantMode::Mxfp8 => (8, 32),
            QuantMode::Nvfp4 => (4, 16),
        };
        Quantization { mode: self, bits, group_size }
    }

    pub(crate) fn raw(self) -> &'static CStr {
        match self {
            QuantMode::Affine => c"affine",
            QuantMode::Mxfp4 => c"mxfp4",
            QuantMode::Mxfp8 => c"mxfp8",
            QuantMode::Nvfp4 => c"nvfp4",
        }
    }
}

/// The parameters of a quantisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quantization {
    /// How a group is represented.
    pub mode: QuantMode,
    /// Bits of one weight.
    pub bits: i32,
    /// Weights that share a scale.
    pub group_size: i32,
}

impl Quantization {
    /// Checks that MLX has kernels for these parameters.
    ///
    /// # Errors
    /// The parameters, with those that exist.
    pub fn validate(self) -> Result<()> {
        let Quantization { mode, bits, group_size } = self;
        let (bits_ok, groups): (bool, &[i32]) = match mode {
            QuantMode::Affine => (matches!(bits, 2 | 3 | 4 | 5 | 6 | 8), &[32, 64, 128]),
            QuantMode::Mxfp4 => (bits == 4, &[32]),
            QuantMode::Mxfp8 => (bits == 8, &[32]),
            QuantMode::Nvfp4 => (bits == 4, &[16]),
        };
        if bits_ok && groups.contains(&group_size) {
            return Ok(());
        }
        let bits_known = match mode {
            QuantMode::Affine => "2, 3, 4, 5, 6 or 8",
            QuantMode::Mxfp8 => "8",
            QuantMode::Mxfp4 | QuantMode::Nvfp4 => "4",
        };
        let groups_known = match mode {
            QuantMode::Affine => "32, 64 or 128",
            QuantMode::Mxfp4 | QuantMode::Mxfp8 => "32",
            QuantMode::Nvfp4 => "16",
        };
        Err(Error::new(format!(
            "{} with {bits} bits in groups of {group_size} is not known: {} has {bits_known} bits in groups of {groups_known}",
            mode.as_str(),
            mode.as_str(),
        )))
    }

    /// Checks that our own kernels for CPUs know these parameters: those of MLX, and affine groups
    /// of 16.
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    pub fn validate_on_cpu(self) -> Result<()> {
        let group_size = if self.is_on_cpu_alone() { 32 } else { self.group_size };
        Quantization { group_size, ..self }.validate()
    }

    /// Returns true for groups that only our own kernels for CPUs have.
    pub fn is_on_cpu_alone(self) -> bool {
        self.mode == QuantMode::Affine && self.group_size == 16
    }

    pub(crate) fn raw(self) -> (sys::mlx_optional_int, sys::mlx_optional_int) {
        let some = |value| sys::mlx_optional_int { value, has_value: true };
        (some(self.group_size), some(self.bits))
    }
}

/// A quantised weight: `[…, rows, columns]` packed along the columns.
#[derive(Debug)]
pub struct Quantized {
    /// Packed weights, U32, `[…, rows, columns · bits / 32]`.
    pub weight: Array,
    /// Scales, `[…, rows, columns / group_size]`.
    pub scales: Array,
    /// Biases of the affine mode, shaped as the scales.
    pub biases: Option<Array>,
    /// The parameters.
    pub quantization: Quantization,
}

impl Quantized {
    /// Checks what MLX's kernels take for granted: parameters that they know, and parts that fit
    /// them.
    pub(crate) fn check(&self) -> Result<()> {
        self.quantization.validate()?;
        self.check_parts()
    }

    /// Checks what our own kernels for CPUs take for granted.
    pub(crate) fn check_on_cpu(&self) -> Result<()> {
        self.quantization.validate_on_cpu()?;
        self.check_parts()
    }

    /// Checks that there are weights at all, a scale and a bias for each group, in the types of the
    /// mode.
    fn check_parts(&self) -> Result<()> {
        let Quantized { weight, scales, biases, quantization } = self;
        let is_affine = quantization.mode == QuantMode::Affine;
        let scales_fit = match biases {
            None => !is_affine && scales.dtype() == Dtype::U8,
            Some(biases) => {
                let fit = biases.shape() == scales.shape() && biases.dtype() == scales.dtype();
                is_affine && scales.dtype().is_float() && fit
            }
        };
        if !scales_fit || weight.dtype() != Dtype::U32 {
            return Err(Error::new(format!(
                "weights {weight:?}, scales {scales:?} and biases {biases:?} do not fit {quantization:?}"
            )));
        }
        let (weight, scales) = (weight.shape(), scales.shape());
        let bits = |size: i32, of: i32| i64::from(size) * i64::from(of);
        if let ([rows @ .., packed], [scale_rows @ .., groups]) = (weight, scales)
            && rows == scale_rows
            && !weight.contains(&0)
            && i64::from(*groups) * i64::from(quantization.group_size) <= i64::from(i32::MAX)
            && bits(*packed, 32)
                == bits(*groups, self.quantization.group_size) * i64::from(self.quantization.bits)
        {
            return Ok(());
        }
        Err(Error::new(format!(
            "weights of shape {weight:?} and scales of shape {scales:?} do not fit {:?}",
            self.quantization
        )))
    }

    pub(crate) fn biases_raw(&self) -> sys::mlx_array {
        self.biases.as_ref().map_or(sys::mlx_array { ctx: std::ptr::null_mut() }, Array::raw)
    }
}

/// Quantises `w` along its last dimension.
///
/// # Errors
/// Parameters that do not exist; a last dimension that is no multiple of the group size.
pub fn quantize(w: &Array, quantization: Quantization) -> Result<Quantized> {
    quantization.validate()?;
    let (group_size, bits) = quantization.raw();
    let empty = sys::mlx_array { ctx: std::ptr::null_mut() };
    // SAFETY: the input outlives the call; mlx-c only reads it and takes an empty global scale.
    let parts = VectorArray::from_op(|out| unsafe {
        let mode = quantization.mode.raw().as_ptr();
        sys::mlx_quantize(out, w.raw(), group_size, bits, mode, empty, current())
    })?;
    let mut parts = parts.into_iter();
    match (parts.next(), parts.next()) {
        (Some(weight), Some(scales)) => {
            Ok(Quantized { weight, scales, biases: parts.next(), quantization })
        }
        _ => Err(Error::new("MLX returned no scales")),
    }
}

/// `x wᵀ` for `x` of `[…, columns]`: `[…, rows]`. On the CPU the sums are kept in the type of `x`,
/// which in bf16 costs eight times the error of [`crate::ops::matmul`].
///
/// # Errors
/// Shapes that do not fit the parameters; an empty `x`.
pub fn quantized_matmul(x: &Array, w: &Quantized) -> Result<Array> {
    w.check()?;
    // MLX's kernel for the CPU divides by the number of rows.
    if x.size() == 0 {
        return Err(Error::new(format!("no quantized product with an empty {x:?}")));
    }
    let (group_size, bits) = w.quantization.raw();
    // SAFETY: the inputs outlive the call; mlx-c only reads them and takes empty biases.
    Array::from_op(|out| unsafe {
        sys::mlx_quantized_matmul(
            out,
            x.raw(),
            w.weight.raw(),
            w.scales.raw(),
            w.biases_raw(),
            true,
            group_size,
            bits,
            w.quantization.mode.raw().as_ptr(),
            current(),
        )
    })
}

/// `x wᵀ` with a matrix of `w`, `[matrices, rows, columns]`, chosen for each row of `x` by
/// `indices`, which broadcast against the leading dimensions of `x`. `sorted`: the indices go
/// upwards.
///
/// # Errors
/// Shapes that do not fit the parameters; indices that are not below `matrices`; an empty `x`.
pub fn gather_qmm(x: &Array, w: &Quantized, indices: &Indices, sorted: bool) -> Result<Array> {
    w.check()?;
    indices.check("gather_qmm", matrices(&w.weight))?;
    check_gathered("gather_qmm", x, indices)?;
    let (group_size, bits) = w.quantization.raw();
    let empty = sys::mlx_array { ctx: std::ptr::null_mut() };
    // SAFETY: the inputs outlive the call; mlx-c only reads them and takes empty biases and
    // left-hand indices.
    Array::from_op(|out| unsafe {
        sys::mlx_gather_qmm(
            out,
            x.raw(),
            w.weight.raw(),
            w.scales.raw(),
            w.biases_raw(),
            empty,
            indices.raw(),
            true,
            group_size,
            bits,
            w.quantization.mode.raw().as_ptr(),
            sorted,
            current(),
        )
    })
}
