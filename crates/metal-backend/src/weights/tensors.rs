//! Taking tensors by name, with their shapes checked where they are taken.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use mlx_ffi::{Array, Dtype, Quantization, Quantized, dequantize, ops};

use super::source::TensorHeader;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::ModelFiles;
use crate::layers::{Embedding, Linear, Matrix, Product, RmsNorm, Weight};

/// A cursor into a checkpoint: a dotted prefix, and the tensors that nobody has taken yet.
#[derive(Clone)]
pub(crate) struct Weights {
    prefix: String,
    shared: Rc<Shared>,
}

struct Shared {
    files: ModelFiles,
    left: RefCell<BTreeMap<String, TensorHeader>>,
    /// Only shapes are checked, and every tensor is an empty stand-in.
    only_describe: bool,
    config: Config,
    /// The type that the user asked for.
    dtype: Option<Dtype>,
    /// What multiplies with every matrix.
    product: Product,
    totals: RefCell<Totals>,
}

/// What the taken tensors add up to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// Parameters, packed ones counted as what they stand for.
    pub parameters: u64,
    /// Bytes in memory.
    pub bytes: u64,
    /// The kinds of matrix, and of activations beside them, on which the kernels were checked.
    checks: Vec<(Option<Quantization>, Dtype)>,
}

impl Weights {
    /// The checkpoint in `files`. With `only_describe`, tensors are checked but not read.
    ///
    /// # Errors
    /// Damaged or missing files.
    pub fn open(
        files: &ModelFiles,
        config: &Config,
        dtype: Option<Dtype>,
        product: Product,
        only_describe: bool,
    ) -> Result<Weights> {
        let left = files.headers()?;
        let shared = Shared {
            files: files.clone(),
            left: RefCell::new(left),
            only_describe,
            config: config.clone(),
            dtype,
            product,
            totals: RefCell::default(),
        };
        Ok(Weights { prefix: String::new(), shared: Rc::new(shared) })
    }

    /// Whose kernels the model computes with.
    pub fn product(&self) -> Product {
        self.shared.product
    }

    /// The cursor one level down: `w.at("model").at("layers.0")`.
    pub fn at(&self, name: &str) -> Weights {
        Weights { prefix: self.name(name), shared: Rc::clone(&self.shared) }
    }

    fn name(&self, name: &str) -> String {
        match (self.prefix.is_empty(), name.is_empty()) {
            (true, _) => name.to_owned(),
            (false, true) => self.prefix.clone(),
            (false, false) => format!("{}.{name}", self.prefix),
        }
    }

    /// What the names of all tensors below this cursor begin with.
    pub fn prefix(&self) -> String {
        if self.prefix.is_empty() { String::new() } else { format!("{}.", self.prefix) }
    }

    /// Whether any tensor below this cursor is left.
    pub fn is_empty(&self) -> bool {
        let prefix = self.prefix();
        !self.shared.left.borrow().keys().any(|name| name.starts_with(&prefix))
    }

    /// Whether a tensor of that name is left.
    pub fn has(&self, name: &str) -> bool {
        self.shared.left.borrow().contains_key(&self.name(name))
    }

    /// Sets aside the tensors whose names satisfy `known`: a checkpoint carries them, the model
    /// does not use them.
    pub fn ignore(&self, known: impl Fn(&str) -> bool) {
        self.shared.left.borrow_mut().retain(|name, _| !known(name));
    }

    /// Ends the taking.
    ///
    /// # Errors
    /// Tensors that nobody took, by name.
    pub fn finish(self) -> Result<Totals> {
        let left = self.shared.left.borrow();
        if let Some(first) = left.keys().next() {
            return Err(Error::model(format!(
                "{} tensors are not part of the architecture, the first is `{first}`: the config does not fit the weights",
                left.len()
            )));
        }
        Ok(self.shared.totals.borrow().clone())
    }

    /// The tensor `name` of exactly `shape`, in the model's type where it is a float.
    ///
    /// # Errors
    /// A tensor that is missing or has another shape.
    pub fn tensor(&self, name: &str, shape: &[i32]) -> Result<Array> {
        let header = self.header(name, shape)?;
        if !header.dtype.is_float() {
            return Err(Error::model(format!(
                "tensor `{}` has the type {:?}, expected a floating-point type",
                self.name(name),
                header.dtype
            )));
        }
        let dtype = self.shared.dtype.unwrap_or(header.dtype);
        self.take(name, &header, dtype, header.shape.iter().map(|&dim| dim as u64).product())
    }

    fn header(&self, name: &str, shape: &[i32]) -> Result<TensorHeader> {
        let full = self.name(name);
        let left = self.shared.left.borrow();
        let header =
            left.get(&full).ok_or_else(|| Error::model(format!("tensor `{full}` is missing")))?;
        if header.shape != shape {
            return Err(Error::model(format!(
                "tensor `{full}` has shape {:?}, expected {shape:?}",
                header.shape
            )));
        }
        Ok(header.clone())
    }

    /// Removes the tensor from what is left, as `dtype`, evaluated.
    fn take(
        &self,
        name: &str,
        header: &TensorHeader,
        dtype: Dtype,
        parameters: u64,
    ) -> Result<Array> {
        let full = self.name(name);
        self.shared.left.borrow_mut().remove(&full);
        let mut totals = self.shared.totals.borrow_mut();
        totals.parameters += parameters;
        let elements: u64 = header.shape.iter().map(|&dim| dim as u64).product();
        totals.bytes += elements * dtype.size() as u64;
        if self.shared.only_describe {
            return Ok(ops::zeros(&[0], dtype)?);
        }
        let array = self.shared.files.read_tensor(header)?;
        let array = if array.dtype() == dtype { array } else { ops::astype(&array, dtype)? };
        // One at a time, so that a converted weight and its source are never held for all.
        array.eval()?;
        Ok(array)
    }

    /// The matrix `weight` under this cursor, `[rows, columns]`, packed or not.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn matrix(&self, rows: i32, columns: i32) -> Result<Weight> {
        let matrix = if self.has("scales") {
            Matrix::Quantized(self.packed(rows, columns)?)
        } else {
            Matrix::Dense(self.tensor("weight", &[rows, columns])?)
        };
        self.check_kernel(&matrix, columns)?;
        Ok(Weight { matrix, product: self.shared.product })
    }

    fn packed(&self, rows: i32, columns: i32) -> Result<Quantized> {
        let quantization = self.quantization(columns)?;
        let Quantization { bits, group_size, .. } = quantization;
        if columns % group_size != 0 || (i64::from(columns) * i64::from(bits)) % 32 != 0 {
            return Err(Error::model(format!(
                "`{}` has {columns} columns, which {bits} bits in groups of {group_size} do not divide",
                self.prefix
            )));
        }
        let packed_columns = (i64::from(columns) * i64::from(bits) / 32) as i32;
        let packed = self.header("weight", &[rows, packed_columns])?;
        let scale_shape = [rows, columns / group_size];
        let scales = self.header("scales", &scale_shape)?;
        let is_affine = quantization.mode == mlx_ffi::QuantMode::Affine;
        let expected = if is_affine { scales.dtype.is_float() } else { scales.dtype == Dtype::U8 };
        if packed.dtype != Dtype::U32 || !expected {
            return Err(Error::model(format!(
                "`{}` has weights of type {:?} and scales of type {:?}, which {} does not have",
                self.prefix,
                packed.dtype,
                scales.dtype,
                quantization.mode.as_str()
            )));
        }
        let scale_dtype =
            if is_affine { self.shared.dtype.unwrap_or(scales.dtype) } else { Dtype::U8 };
        let parameters = rows as u64 * columns as u64;
        let biases = if is_affine {
            let header = self.header("biases", &scale_shape)?;
            Some(self.take("biases", &header, scale_dtype, 0)?)
        } else {
            None
        };
        Ok(Quantized {
            weight: self.take("weight", &packed, Dtype::U32, parameters)?,
            scales: self.take("scales", &scales, scale_dtype, 0)?,
            biases,
            quantization,
        })
    }

    /// The config's entry for this module, else what the tensors' shapes say.
    fn quantization(&self, columns: i32) -> Result<Quantization> {
        if let Some(quantization) = self.shared.config.quantization(&self.prefix)? {
            return Ok(quantization);
        }
        let left = self.shared.left.borrow();
        let last = |name: &str| left.get(&self.name(name))?.shape.last().copied();
        let inferred = last("weight").zip(last("scales")).and_then(|(packed, groups)| {
            let group_size = columns.checked_div(groups)?;
            let bits = i32::try_from(i64::from(packed) * 32 / i64::from(columns)).ok()?;
            let mode = mlx_ffi::QuantMode::Affine;
            Some(Quantization { mode, bits, group_size })
        });
        let quantization = inferred.filter(|found| found.validate().is_ok());
        quantization.ok_or_else(|| {
            Error::model(format!(
                "`{}` has scales, but config.json says nothing of its quantisation and the shapes fit none",
                self.prefix
            ))
        })
    }

    /// Compares the product with a matrix, as the model will compute it, against that with the
    /// weights that it stands for, once for each kind: a kernel that is wrong on this device shows
    /// here, not in the text. Kernels differ for one row and for many.
    fn check_kernel(&self, matrix: &Matrix, columns: i32) -> Result<()> {
        let kind = match matrix {
            Matrix::Dense(w) => (None, w.dtype()),
            Matrix::Quantized(w) => (Some(w.quantization), self.activation_dtype(w)),
        };
        let mut totals = self.shared.totals.borrow_mut();
        if self.shared.only_describe || totals.checks.contains(&kind) {
            return Ok(());
        }
        totals.checks.push(kind);
        let (quantization, dtype) = kind;
        let few = |array: &Array| ops::slice_axis(array, 0, 0, array.shape()[0].min(32));
        let (matrix, plain) = match matrix {
            Matrix::Dense(w) => (Matrix::Dense(few(w)?), few(w)?),
            Matrix::Quantized(w) => {
                let part = Quantized {
                    weight: few(&w.weight)?,
                    scales: few(&w.scales)?,
                    biases: w.biases.as_ref().map(few).transpose()?,
                    quantization: w.quantization,
                };
                let plain = dequantize(&part, dtype)?;
                (Matrix::Quantized(part), plain)
            }
        };
        let weight = Weight { matrix, product: self.shared.product };
        let plain = ops::swap_axes(&ops::astype(&plain, Dtype::F32)?, 0, 1)?;
        let tolerance = if dtype == Dtype::F32 { 1e-4 } else { 2e-2 };
        for rows in [1, 32] {
            let wave: Vec<f32> = (0..rows * columns).map(|i| (0.7 * i as f32).sin()).collect();
            let x = ops::astype(&Array::from_f32(&wave, &[rows, columns])?, dtype)?;
            let product = weight.project(&x)?.to_vec_f32()?;
            let x = ops::astype(&x, Dtype::F32)?;
            let expected = ops::matmul(&x, &plain)?.to_vec_f32()?;
            // The scale of rounding: the products' magnitudes added up.
            let sizes = ops::matmul(&ops::abs(&x)?, &ops::abs(&plain)?)?.to_vec_f32()?;
            for ((got, want), size) in product.iter().zip(&expected).zip(&sizes) {
                if !want.is_finite() {
                    return Err(Error::model(format!(
                        "`{}` stands for {want}, which is not a number to compute with: it is damaged",
                        self.prefix
                    )));
                }
                let distance = (got - want).abs();
                if distance.is_nan() || distance > tolerance * size.max(1e-6) {
                    let form = quantization.map_or("unpacked weights".to_owned(), |q| {
                        let mode = q.mode.as_str();
                        format!("{mode} weights of {} bits in groups of {}", q.bits, q.group_size)
                    });
                    return Err(Error::model(format!(
                        "the kernel for {form} and {rows} rows of {dtype:?} computes {got} where {want} is right on this device; refused rather than speak nonsense"
                    )));
                }
            }
        }
        Ok(())
    }

    /// The type of activations beside a packed weight: that of its scales, or the model's own
    /// where the scales are bytes.
    fn activation_dtype(&self, w: &Quantized) -> Dtype {
        let scales = w.scales.dtype();
        if scales.is_float() { scales } else { self.float_dtype() }
    }

    /// The type that the user asked for, else that of the checkpoint's norms.
    fn float_dtype(&self) -> Dtype {
        let left = self.shared.left.borrow();
        let norm = left
            .iter()
            .find(|(name, header)| name.ends_with("norm.weight") && header.dtype.is_float());
        self.shared.dtype.or(norm.map(|(_, header)| header.dtype)).unwrap_or(Dtype::Bf16)
    }

    /// The projection `name` from `input` to `output` values.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn linear(&self, name: &str, input: i32, output: i32, bias: bool) -> Result<Linear> {
        let w = self.at(name);
        let matrix = w.matrix(output, input)?;
        let bias = bias.then(|| w.tensor("bias", &[output])).transpose()?;
        Ok(Linear::new(matrix, bias))
    }

    /// The embeddings `name`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn embedding(&self, name: &str, vocab_size: i32, hidden_size: i32) -> Result<Embedding> {
        let dtype = self.float_dtype();
        let weight = self.at(name).matrix(vocab_size, hidden_size)?;
        let dtype = match &weight.matrix {
            Matrix::Dense(weight) => weight.dtype(),
            Matrix::Quantized(packed) if packed.scales.dtype().is_float() => packed.scales.dtype(),
            Matrix::Quantized(_) => dtype,
        };
        Ok(Embedding::new(weight, dtype))
    }

    /// The norm `name` over `size` values.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn rms_norm(&self, name: &str, size: i32, eps: f32) -> Result<RmsNorm> {
        let weight = self.at(name).tensor("weight", &[size])?;
        Ok(RmsNorm::new(weight, eps, self.product()))
    }

    /// A norm whose weight is stored as its distance from 1 (Gemma).
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn offset_rms_norm(&self, name: &str, size: i32, eps: f32) -> Result<RmsNorm> {
        let weight = self.at(name).tensor("weight", &[size])?;
        let weight = ops::add(&weight, &Array::scalar(1.0, weight.dtype())?)?;
        weight.eval()?;
        Ok(RmsNorm::new(weight, eps, self.product()))
    }
}
