//! A tensor of the result: its type and shape are known before anything is read.

use std::rc::Rc;

use mlx_ffi::{Array, Dtype, ops};

use crate::config::Fp8Format;
use crate::error::{Error, Result};
use crate::files::ModelFiles;
use crate::weights::{Fp8Scales, TensorHeader};

/// Makes the tensor from the files of the source.
type Make = Rc<dyn Fn(&ModelFiles) -> Result<Array>>;

/// A tensor that can be made. What cannot be made of it is an error, which whoever has its name
/// adds that to.
#[derive(Clone)]
pub(super) struct Value {
    pub shape: Vec<i32>,
    pub dtype: Dtype,
    make: Make,
}

impl Value {
    /// One that lies in the source.
    pub fn read(header: TensorHeader) -> Value {
        let (shape, dtype) = (header.shape.clone(), header.dtype);
        Value { shape, dtype, make: Rc::new(move |files| files.read_tensor(&header)) }
    }

    /// One whose floats of 8 bits, with scales as `format` says, become bf16.
    ///
    /// # Errors
    /// Scales that do not fit.
    pub fn fp8(weight: TensorHeader, scales: TensorHeader, format: Fp8Format) -> Result<Value> {
        let fit = Fp8Scales::of(&weight, &scales, format).ok_or_else(|| {
            Error::model(format!(
                "scales of shape {:?} do not fit weights of shape {:?}",
                scales.shape, weight.shape
            ))
        })?;
        let shape = weight.shape.clone();
        let make = move |files: &ModelFiles| {
            let scales = files.read_tensor(&scales)?;
            Ok(fit.unpack(&files.read_tensor(&weight)?, &scales, Dtype::Bf16)?)
        };
        Ok(Value { shape, dtype: Dtype::Bf16, make: Rc::new(make) })
    }

    /// The values of all `parts`, which have one type and shape, under a new first axis.
    ///
    /// # Errors
    /// Parts that differ; none at all.
    pub fn stack(parts: Vec<Value>) -> Result<Value> {
        let Some(first) = parts.first() else { return Err(Error::model("no experts")) };
        let (inner, dtype) = (first.shape.clone(), first.dtype);
        if let Some(other) = parts.iter().find(|part| part.shape != inner || part.dtype != dtype) {
            return Err(Error::model(format!(
                "experts have the shapes {inner:?} of {dtype:?} and {:?} of {:?}",
                other.shape, other.dtype
            )));
        }
        let shape = [&[size_of(parts.len() as u64)?], &inner[..]].concat();
        let make = move |files: &ModelFiles| {
            let part = |part: &Value| Ok(ops::expand_dims(&part.array(files)?, 0)?);
            let arrays = parts.iter().map(part).collect::<Result<Vec<Array>>>()?;
            Ok(ops::concatenate(&arrays.iter().collect::<Vec<_>>(), 0)?)
        };
        Ok(Value { shape, dtype, make: Rc::new(make) })
    }

    /// Maps it through `change`, whose result has `shape`.
    pub fn map(
        self,
        shape: Vec<i32>,
        change: impl Fn(&Array) -> mlx_ffi::Result<Array> + 'static,
    ) -> Value {
        let dtype = self.dtype;
        Value { shape, dtype, make: Rc::new(move |files| Ok(change(&self.array(files)?)?)) }
    }

    /// The size of `axis`.
    ///
    /// # Errors
    /// Fewer axes.
    pub fn size(&self, axis: usize) -> Result<i32> {
        self.shape.get(axis).copied().ok_or_else(|| self.no_axes(axis + 1))
    }

    /// The two halves of the rows along `axis`.
    ///
    /// # Errors
    /// Fewer axes; an odd number of rows.
    pub fn halves(self, axis: usize) -> Result<[Value; 2]> {
        let half = self.half_of(axis)?;
        Ok([self.clone().slice(axis, 0, half)?, self.slice(axis, half, 2 * half)?])
    }

    /// The rows `start..stop` along `axis`.
    ///
    /// # Errors
    /// Fewer axes; rows that are not there.
    pub fn slice(self, axis: usize, start: i32, stop: i32) -> Result<Value> {
        let size = self.size(axis)?;
        if !(0 <= start && start <= stop && stop <= size) {
            return Err(Error::model(format!(
                "has {size} rows along axis {axis}, expected rows {start} to {stop} among them"
            )));
        }
        let mut shape = self.shape.clone();
        shape[axis] = stop - start;
        Ok(self.map(shape, move |array| ops::slice_axis(array, axis as i32, start, stop)))
    }

    /// Every second row along `axis`, from the first and from the second on.
    ///
    /// # Errors
    /// Fewer axes; an odd number of rows.
    pub fn in_turn(self, axis: usize) -> Result<[Value; 2]> {
        let mut pairs = self.shape.clone();
        let half = self.half_of(axis)?;
        pairs[axis] = half;
        let shape = pairs.clone();
        pairs.insert(axis + 1, 2);
        let every_second = |first: i32| {
            let pairs = pairs.clone();
            self.clone().map(shape.clone(), move |array| {
                let pairs = ops::reshape(array, &pairs)?;
                let axis = axis as i32 + 1;
                ops::squeeze(&ops::slice_axis(&pairs, axis, first, first + 1)?, axis)
            })
        };
        Ok([every_second(0), every_second(1)])
    }

    fn half_of(&self, axis: usize) -> Result<i32> {
        match self.size(axis)? {
            size if size % 2 == 0 => Ok(size / 2),
            size => Err(Error::model(format!(
                "has {size} rows along axis {axis}, expected two for each row of its halves"
            ))),
        }
    }

    /// The axes in another order.
    ///
    /// # Errors
    /// Another number of axes.
    pub fn transpose(self, axes: &[usize]) -> Result<Value> {
        if self.shape.len() != axes.len() {
            return Err(self.no_axes(axes.len()));
        }
        let shape = axes.iter().map(|&axis| self.size(axis)).collect::<Result<_>>()?;
        let axes: Vec<i32> = axes.iter().map(|&axis| axis as i32).collect();
        Ok(self.map(shape, move |array| ops::transpose(array, &axes)))
    }

    /// Another shape with as many elements.
    ///
    /// # Errors
    /// A shape of more or fewer.
    pub fn reshape(self, shape: Vec<i32>) -> Result<Value> {
        if self.elements() != elements(&shape) {
            return Err(Error::model(format!(
                "has the shape {:?}, which does not become {shape:?}",
                self.shape
            )));
        }
        Ok(self.map(shape.clone(), move |array| ops::reshape(array, &shape)))
    }

    /// All values along one axis.
    ///
    /// # Errors
    /// More than an axis can have.
    pub fn flatten(self) -> Result<Value> {
        let size = size_of(self.elements())?;
        self.reshape(vec![size])
    }

    /// The last two axes as one.
    ///
    /// # Errors
    /// Fewer axes; more values than an axis can have.
    pub fn join_last(self) -> Result<Value> {
        let &[ref leading @ .., first, last] = &self.shape[..] else { return Err(self.no_axes(2)) };
        let both = size_of(elements(&[first, last]))?;
        let shape = [leading, &[both]].concat();
        self.reshape(shape)
    }

    /// Each value plus `number`, in the tensor's own type.
    ///
    /// # Errors
    /// Values that are no floats.
    pub fn plus(self, number: f32) -> Result<Value> {
        let (dtype, shape) = (self.float_type()?, self.shape.clone());
        Ok(self.map(shape, move |array| ops::add(array, &Array::scalar(number, dtype)?)))
    }

    /// Each value times `number`, in the tensor's own type.
    ///
    /// # Errors
    /// Values that are no floats.
    pub fn times(self, number: f64) -> Result<Value> {
        let (dtype, shape) = (self.float_type()?, self.shape.clone());
        Ok(self
            .map(shape, move |array| ops::multiply(array, &Array::scalar(number as f32, dtype)?)))
    }

    /// A matrix whose columns have the Euclidean length 1, in the tensor's own type.
    ///
    /// # Errors
    /// Values that are no floats.
    pub fn unit_columns(self) -> Result<Value> {
        let (dtype, shape) = (self.float_type()?, self.shape.clone());
        Ok(self.map(shape, move |array| {
            let wide = ops::astype(array, Dtype::F32)?;
            let lengths = ops::sqrt(&ops::sum(&ops::multiply(&wide, &wide)?, 0, true)?)?;
            let lengths = ops::add(&lengths, &Array::scalar(1e-7, Dtype::F32)?)?;
            ops::astype(&ops::divide(&wide, &lengths)?, dtype)
        }))
    }

    /// The type of its values.
    ///
    /// # Errors
    /// Values that are no floats.
    pub fn float_type(&self) -> Result<Dtype> {
        match self.dtype.is_float() {
            true => Ok(self.dtype),
            false => Err(Error::model(format!(
                "has the type {:?}, expected a floating-point type",
                self.dtype
            ))),
        }
    }

    /// Its bytes, four in a word.
    ///
    /// # Errors
    /// Values that are no bytes; rows that are no whole words.
    pub fn words(self) -> Result<Value> {
        if self.dtype != Dtype::U8 {
            return Err(Error::model(format!("has the type {:?}, expected bytes", self.dtype)));
        }
        let mut shape = self.shape.clone();
        match shape.last_mut() {
            Some(last) if *last % 4 == 0 => *last /= 4,
            _ => {
                return Err(Error::model(format!(
                    "has the shape {:?}, expected rows of whole words of 4 bytes",
                    self.shape
                )));
            }
        }
        let value = self.map(shape, move |array| ops::view(array, Dtype::U32));
        Ok(Value { dtype: Dtype::U32, ..value })
    }

    /// The values as `dtype`.
    pub fn cast(self, dtype: Dtype) -> Value {
        if self.dtype == dtype {
            return self;
        }
        let value = self.clone().map(self.shape, move |array| ops::astype(array, dtype));
        Value { dtype, ..value }
    }

    /// How many numbers it has.
    pub fn elements(&self) -> u64 {
        elements(&self.shape)
    }

    /// Makes it; nothing is computed yet.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn array(&self, files: &ModelFiles) -> Result<Array> {
        (self.make)(files)
    }

    fn no_axes(&self, expected: usize) -> Error {
        Error::model(format!("has the shape {:?}, expected {expected} dimensions", self.shape))
    }
}

/// How many values a shape has. In another order of its sizes than the file's, they may exceed all
/// bounds before a 0.
fn elements(shape: &[i32]) -> u64 {
    if shape.contains(&0) {
        return 0;
    }
    shape.iter().fold(1, |all: u64, &size| all.saturating_mul(size as u64))
}

/// A size that MLX can count.
fn size_of(count: u64) -> Result<i32> {
    i32::try_from(count).map_err(|_| {
        Error::model(format!("has {count} values along one axis, at most 2³¹ - 1 work"))
    })
}
