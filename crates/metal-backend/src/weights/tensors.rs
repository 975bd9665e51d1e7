//! Taking tensors by name, with their shapes checked where they are taken.

mod buffers;
mod check;
mod convolution;
mod cutting;
mod experts;
mod fp8;
mod heads;
mod joined;
mod latent;
mod lora;
mod norms;
mod packing;
mod parts;
mod progress;
mod recurrent;
mod stands_for;
mod tower;
mod vocabulary;

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use inference_core::{LoadProgress, Packing};
use mlx_ffi::distributed::Group;
use mlx_ffi::{Array, Dtype, Quantization, Quantized, ops};

use super::adapter::Adapter;
use super::checkpoint::Checkpoint;
use super::cut::Cut;
use super::source::TensorHeader;
use super::takes_heads::TakesHeads;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::ModelFiles;
use crate::kernels::{Bf16, Kernels, Matrix};
use crate::layers::{Linear, ModelPart, PartBytes, Stage, Weight};

pub(crate) use buffers::is_of_no_use;
pub(crate) use fp8::Fp8Scales;
pub(crate) use joined::Linears;

/// A cursor into a checkpoint: a dotted prefix, and the tensors that nobody has taken yet.
#[derive(Clone)]
pub(crate) struct Weights {
    prefix: String,
    /// This rank's parts of modules below, by the last part of their names.
    cuts: Rc<Vec<(&'static str, Cut)>>,
    /// The part of the model that lies below.
    part: ModelPart,
    /// Tensors that are stored as F32 stay so.
    keeps_f32: bool,
    shared: Rc<Shared>,
}

struct Shared {
    files: ModelFiles,
    left: RefCell<BTreeMap<String, TensorHeader>>,
    adapter: Option<Adapter>,
    /// The ranks that compute the model together.
    group: Option<Group>,
    /// The layers of this rank, where ranks have some each.
    stage: Option<Stage>,
    /// Bits to which unpacked matrices are packed as they are read.
    packs_to: Option<i32>,
    /// Which layers that draft are taken; others are left aside.
    heads: TakesHeads,
    /// Only shapes are checked, and every tensor is an empty stand-in.
    only_describe: bool,
    config: Config,
    /// See [`Checkpoint`].
    is_unwanted: Arc<AtomicBool>,
    /// The type that the user asked for.
    dtype: Option<Dtype>,
    /// The type of the checkpoint's floats, or of most of them.
    stored: Dtype,
    /// How weights of bf16 are computed where the user asks for no type.
    bf16: Bf16,
    /// Whose kernels the model computes with.
    kernels: Kernels,
    totals: RefCell<Totals>,
    progress: Option<LoadProgress>,
}

/// The totals of the taken tensors.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// Parameters, packed ones counted as what they stand for.
    pub parameters: u64,
    /// Bytes in memory.
    pub bytes: u64,
    /// Bytes of the parts of the model, those of other ranks too.
    pub parts: PartBytes,
    /// Parts of the checkpoint that the model does not use.
    pub unused_parts: Vec<&'static str>,
    /// How many parameters are packed in which way.
    packed: Vec<(Quantization, u64)>,
    /// Activations may be rounded for some of the matrices.
    pub rounds: bool,
    /// The kinds of matrix, of activations beside them, and the matrices' dimensions, for which the
    /// kernels were checked.
    checks: Vec<(Option<Quantization>, Dtype, usize)>,
}

impl Totals {
    /// The ways in which parameters are packed, that of most first.
    pub fn packings(&self) -> Vec<Packing> {
        let packing = |(way, parameters): &(Quantization, u64)| Packing {
            mode: way.mode.as_str().to_owned(),
            bits: way.bits as usize,
            group_size: way.group_size as usize,
            parameters: *parameters,
        };
        let mut all: Vec<Packing> = self.packed.iter().map(packing).collect();
        all.sort_by_key(|packing| Reverse(packing.parameters));
        all
    }
}

impl Weights {
    /// All tensors of `checkpoint` that a model may use; `only_describe` reads none of them.
    pub fn of(
        checkpoint: &Checkpoint,
        config: &Config,
        dtype: Option<Dtype>,
        kernels: Kernels,
        only_describe: bool,
    ) -> Weights {
        let all = checkpoint.headers.iter();
        let left = all.filter(|(name, header)| !is_of_no_use(name, header));
        let left = left.map(|(name, header)| (name.clone(), header.clone()));
        let shared = Shared {
            files: checkpoint.files.clone(),
            left: RefCell::new(left.collect()),
            adapter: None,
            group: None,
            stage: None,
            packs_to: None,
            heads: TakesHeads::No,
            only_describe,
            is_unwanted: Arc::clone(&checkpoint.is_unwanted),
            config: config.clone(),
            dtype,
            stored: checkpoint.float_dtype(),
            bf16: Bf16::Itself,
            kernels,
            totals: RefCell::default(),
            progress: None,
        };
        Weights {
            prefix: String::new(),
            cuts: Rc::default(),
            part: ModelPart::Rest,
            keeps_f32: false,
            shared: Rc::new(shared),
        }
    }

    /// Whose kernels the model computes with.
    pub fn kernels(&self) -> Kernels {
        self.shared.kernels
    }

    /// Adds `adapter` to the projections and embeddings that it names.
    pub fn with_adapter(mut self, adapter: Adapter) -> Weights {
        let shared = Rc::get_mut(&mut self.shared);
        shared.expect("the adapter is set before cursors are handed out").adapter = Some(adapter);
        self
    }

    /// The cursor one level down: `w.at("model").at("layers.0")`.
    pub fn at(&self, name: &str) -> Weights {
        Weights { prefix: self.name(name), ..self.clone() }
    }

    fn name(&self, name: &str) -> String {
        match (self.prefix.is_empty(), name.is_empty()) {
            (true, _) => name.to_owned(),
            (false, true) => self.prefix.clone(),
            (false, false) => format!("{}.{name}", self.prefix),
        }
    }

    /// The prefix of all tensors' names below this cursor.
    pub fn prefix(&self) -> String {
        if self.prefix.is_empty() { String::new() } else { format!("{}.", self.prefix) }
    }

    /// Returns true when no tensor below this cursor is left.
    pub fn is_empty(&self) -> bool {
        let (prefix, left) = (self.prefix(), self.shared.left.borrow());
        left.range(prefix.clone()..).next().is_none_or(|(name, _)| !name.starts_with(&prefix))
    }

    /// Returns true when weights are random: every tensor exists then.
    pub fn is_random(&self) -> bool {
        matches!(self.shared.files, ModelFiles::Random(_))
    }

    /// Returns true when a tensor of that name is left.
    pub fn has(&self, name: &str) -> bool {
        if matches!(self.shared.files, ModelFiles::Random(_)) {
            let quantized = self.shared.config.quantization(&self.prefix);
            return name == "scales" && quantized.is_ok_and(|found| found.is_some());
        }
        self.shared.left.borrow().contains_key(&self.name(name))
    }

    /// Returns true when the tensor `name` and `other`'s are left and [`ModelFiles::look_alike`].
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn looks_like(&self, name: &str, other: &Weights) -> Result<bool> {
        let left = self.shared.left.borrow();
        let found = [self, other].map(|at| left.get(&at.name(name)));
        let [Some(own), Some(other)] = found else { return Ok(false) };
        self.shared.files.look_alike(own, other)
    }

    /// Sets aside the tensors whose names satisfy `known`: a checkpoint carries them, the model
    /// does not use them.
    pub fn ignore(&self, known: impl Fn(&str) -> bool) {
        self.shared.left.borrow_mut().retain(|name, _| !known(name));
    }

    /// Sets aside the modules `names` under this cursor, and an adapter's part of them.
    pub fn ignore_modules(&self, names: &[&str]) {
        for name in names {
            let module = self.at(name);
            let prefix = module.prefix();
            self.ignore(|tensor| tensor.starts_with(&prefix));
            if let Some(adapter) = &self.shared.adapter {
                adapter.ignore(&module.prefix);
            }
        }
    }

    /// Sets aside the tensors of a part of the checkpoint that the model does not use and that has
    /// a name, so that users are told of it.
    pub fn leave_part(&self, part: &'static str, known: impl Fn(&str) -> bool) {
        let before = self.shared.left.borrow().len();
        self.ignore(known);
        let mut totals = self.shared.totals.borrow_mut();
        if self.shared.left.borrow().len() < before && !totals.unused_parts.contains(&part) {
            totals.unused_parts.push(part);
        }
    }

    /// Leaves aside the blocks behind the last one, and those under `mtp.`, which predict tokens
    /// further ahead.
    pub fn leave_layers_from(&self, count: i32) {
        self.leave_part("MTP layers", |name| {
            let layer = name.strip_prefix("model.layers.").and_then(|rest| rest.split('.').next());
            let layer = layer.and_then(|layer| layer.parse().ok());
            layer.is_some_and(|layer: i32| layer >= count) || name.starts_with("mtp.")
        });
    }

    /// Ends the taking.
    ///
    /// # Errors
    /// Tensors that nobody took, by name, the adapter's among them.
    pub fn finish(self) -> Result<Totals> {
        let left = self.shared.left.borrow();
        if let Some(first) = left.keys().next() {
            let (count, are) = match left.len() {
                1 => ("1 tensor".to_owned(), "is"),
                count => (format!("{count} tensors"), "are"),
            };
            return Err(Error::model(format!(
                "{count} {are} not part of the architecture, the first is `{first}`: the config does not fit the weights"
            )));
        }
        if let Some(adapter) = &self.shared.adapter {
            adapter.finish()?;
        }
        let totals = self.shared.totals.borrow().clone();
        self.tell(totals.bytes);
        Ok(totals)
    }

    /// The tensor `name` of exactly `shape`, in the model's type where it is a float.
    ///
    /// # Errors
    /// A tensor that is missing or has another shape.
    pub fn tensor(&self, name: &str, shape: &[i32]) -> Result<Array> {
        let header = self.header(name, shape, Dtype::Bf16)?;
        if header.is_fp8 {
            return self.fp8(name, &header);
        }
        if !header.dtype.is_float() {
            return Err(Error::model(format!(
                "tensor `{}` has the type {:?}, expected a floating-point type",
                self.name(name),
                header.dtype
            )));
        }
        let stays = self.keeps_f32 && self.shared.dtype.is_none() && header.dtype == Dtype::F32;
        let dtype = if stays { Dtype::F32 } else { self.float_dtype() };
        self.take(name, &header, dtype, header.elements())
    }

    /// The tensor `name` of exactly `shape` in F32, whatever the model's type is.
    ///
    /// # Errors
    /// A tensor that is missing, has another shape or is no float.
    pub fn tensor_f32(&self, name: &str, shape: &[i32]) -> Result<Array> {
        let header = self.header(name, shape, Dtype::F32)?;
        if !header.dtype.is_float() {
            return Err(Error::model(format!(
                "tensor `{}` has the type {:?}, expected a floating-point type",
                self.name(name),
                header.dtype
            )));
        }
        self.take(name, &header, Dtype::F32, header.elements())
    }

    /// The shape of the tensor `name`, where it is left; random weights have any.
    pub fn shape(&self, name: &str) -> Option<Vec<i32>> {
        self.shared.left.borrow().get(&self.name(name)).map(|header| header.shape.clone())
    }

    /// The header's entry for the tensor `name`, which must have this shape; `drawn` is its type
    /// where weights are random.
    fn header(&self, name: &str, shape: &[i32], drawn: Dtype) -> Result<TensorHeader> {
        let full = self.name(name);
        let part = self.cut_of(name).and_then(|cut| cut.part(name, shape));
        if matches!(self.shared.files, ModelFiles::Random(_)) {
            return Ok(TensorHeader::of(shape, drawn).of_file(&full).with_part(shape, part));
        }
        let left = self.shared.left.borrow();
        let header =
            left.get(&full).ok_or_else(|| Error::model(self.shared.files.missing(&full)))?;
        let expected = part.as_ref().map_or(shape, |part| &part.whole);
        if header.shape != expected {
            return Err(Error::model(format!(
                "tensor `{full}` has shape {:?}, expected {expected:?}",
                header.shape
            )));
        }
        Ok(header.clone().with_part(shape, part))
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
        totals.parameters += header.part.as_ref().map_or(parameters, |part| part.times(parameters));
        totals.bytes += header.bytes_as(Some(dtype));
        let array = self.read(&self.shared.files, header, dtype)?;
        self.tell(totals.bytes);
        if dtype == Dtype::F16 && header.dtype.is_float() && header.dtype != Dtype::F16 {
            self.check_f16(&full, &array)?;
        }
        Ok(array)
    }

    /// The tensor as `dtype`, evaluated.
    fn read(&self, files: &ModelFiles, header: &TensorHeader, dtype: Dtype) -> Result<Array> {
        if self.describes() {
            return Ok(ops::zeros(&[0], dtype)?);
        }
        if self.shared.is_unwanted.load(Ordering::Relaxed) {
            return Err(Error::model("the load was given up"));
        }
        let array = files.read_tensor(&header.in_dtype(dtype))?;
        let array = if array.dtype() == dtype { array } else { ops::astype(&array, dtype)? };
        // One at a time, so that a converted weight and its source are never held for all.
        array.eval()?;
        Ok(array)
    }

    /// The matrix `weight` under this cursor, packed or not: `[rows, columns]`, or
    /// `[experts, rows, columns]`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn matrix(&self, shape: &[i32]) -> Result<Weight> {
        let matrix = if self.has("scales") {
            Matrix::Quantized(self.packed(shape)?)
        } else {
            self.dense_or_packed(shape)?
        };
        self.weight(matrix, shape)
    }

    /// `matrix` of `shape` with what multiplies with it.
    fn weight(&self, matrix: Matrix, shape: &[i32]) -> Result<Weight> {
        let weight = Weight { matrix, kernels: self.shared.kernels };
        self.check_kernel(&weight, shape)?;
        Ok(weight)
    }

    fn packed(&self, shape: &[i32]) -> Result<Quantized> {
        let (&columns, rows) = shape.split_last().expect("a matrix has columns");
        let quantization = self.quantization(self.uncut_columns(columns))?;
        if !self.kernels().is_ours_on_cpu() {
            let known = quantization.validate();
            known.map_err(|error| Error::model(format!("`{}`: {error}", self.prefix)))?;
        }
        let Quantization { bits, group_size, .. } = quantization;
        if columns % group_size != 0 || (i64::from(columns) * i64::from(bits)) % 32 != 0 {
            return Err(Error::model(format!(
                "`{}` has {columns} columns, which {bits} bits in groups of {group_size} do not divide",
                self.prefix
            )));
        }
        let packed_columns = (i64::from(columns) * i64::from(bits) / 32) as i32;
        let packed = self.header("weight", &[rows, &[packed_columns]].concat(), Dtype::U32)?;
        let scale_shape = [rows, &[columns / group_size]].concat();
        let is_affine = quantization.mode == mlx_ffi::QuantMode::Affine;
        let drawn = if is_affine { Dtype::Bf16 } else { Dtype::U8 };
        let scales = self.header("scales", &scale_shape, drawn)?;
        let biases = is_affine.then(|| self.header("biases", &scale_shape, drawn)).transpose()?;
        let fits = |header: &TensorHeader| {
            let fits = if is_affine { header.dtype.is_float() } else { header.dtype == Dtype::U8 };
            fits && !header.is_fp8
        };
        let are_expected = fits(&scales) && biases.as_ref().is_none_or(fits);
        if packed.dtype != Dtype::U32 || !are_expected {
            let of_biases = biases.map(|header| format!(" and biases of type {:?}", header.dtype));
            return Err(Error::model(format!(
                "`{}` has weights of type {:?}, scales of type {:?}{}, which {} does not have",
                self.prefix,
                packed.dtype,
                scales.dtype,
                of_biases.unwrap_or_default(),
                quantization.mode.as_str()
            )));
        }
        self.check_packed_f16(quantization, &scales, biases.as_ref())?;
        let scale_dtype = if is_affine { self.float_dtype() } else { Dtype::U8 };
        let parameters = shape.iter().map(|&size| size as u64).product();
        let biases = biases.map(|header| self.take("biases", &header, scale_dtype, 0));
        let biases = biases.transpose()?;
        self.note_packed(quantization, parameters);
        Ok(Quantized {
            weight: self.take("weight", &packed, Dtype::U32, parameters)?,
            scales: self.take("scales", &scales, scale_dtype, 0)?,
            biases,
            quantization,
        })
    }

    /// So many parameters more are packed in this way.
    fn note_packed(&self, way: Quantization, parameters: u64) {
        let packed = &mut self.shared.totals.borrow_mut().packed;
        match packed.iter_mut().find(|(known, _)| *known == way) {
            Some((_, all)) => *all += parameters,
            None => packed.push((way, parameters)),
        }
    }

    /// The model's type: the one that the user asked for, else that of most of the checkpoint's
    /// floats. One vector of F32 would otherwise make F32 of all activations behind it.
    fn float_dtype(&self) -> Dtype {
        let Shared { dtype, bf16, stored, .. } = &*self.shared;
        dtype.unwrap_or_else(|| bf16.computed(*stored))
    }

    /// The projection `name` from `input` values to logits of `count` experts. Where the user asks
    /// for no type, one that is stored as F32 stays so: what it chooses depends on small
    /// differences.
    ///
    /// # Errors
    /// As [`linear`](Self::linear).
    pub fn router(&self, name: &str, input: i32, count: i32, bias: bool) -> Result<Linear> {
        Weights { keeps_f32: true, ..self.clone() }.linear(name, input, count, bias)
    }

    /// The projection `name` from `input` to `output` values.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn linear(&self, name: &str, input: i32, output: i32, bias: bool) -> Result<Linear> {
        let w = self.at(name);
        let matrix = w.matrix(&[output, input])?;
        let bias = bias.then(|| w.tensor("bias", &[output])).transpose()?;
        let linear = Linear::new(matrix, bias).with_lora(w.lora(input, output)?);
        Ok(linear.together(w.together()))
    }
}
