//! A tensor of the result: its type and shape are known before anything is read.

use std::rc::Rc;

use mlx_ffi::{Array, Dtype, ops};

use crate::config::Fp8Format;
use crate::error::{Error, Result};
use crate::files::ModelFiles;
use crate::weights::{Fp8Scales, TensorHeader};

/// Makes the tensor from the files of the source.
type Make = Rc<dyn Fn(&ModelFiles) -> Result<Array>>;

/// A tensor that can be made.
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
                "experts have the shapes {inner:?} and {:?}",
                other.shape
            )));
        }
        let shape = [&[parts.len() as i32], &inner[..]].concat();
        let make = move |files: &ModelFiles| {
            let part = |part: &Value| Ok(ops::expand_dims(&part.array(files)?, 0)?);
            let arrays = parts.iter().map(part).collect::<Result<Vec<Array>>>()?;
            Ok(ops::concatenate(&arrays.iter().collect::<Vec<_>>(), 0)?)
        };
        Ok(Value { shape, dtype, make: Rc::new(make) })
    }

    /// What `change` makes of it, which has `shape`.
    pub fn map(
        self,
        shape: Vec<i32>,
        change: impl Fn(&Array) -> mlx_ffi::Result<Array> + 'static,
    ) -> Value {
        let dtype = self.dtype;
        Value { shape, dtype, make: Rc::new(move |files| Ok(change(&self.array(files)?)?)) }
    }

    /// The rows `start..stop` along `axis`.
    pub fn slice(self, axis: usize, start: i32, stop: i32) -> Value {
        let mut shape = self.shape.clone();
        shape[axis] = stop - start;
        self.map(shape, move |array| ops::slice_axis(array, axis as i32, start, stop))
    }

    /// Every second row along `axis`, from `first` on.
    pub fn every_second(self, axis: usize, first: i32) -> Value {
        let mut pairs = self.shape.clone();
        pairs[axis] /= 2;
        let shape = pairs.clone();
        pairs.insert(axis + 1, 2);
        self.map(shape, move |array| {
            let pairs = ops::reshape(array, &pairs)?;
            let axis = axis as i32 + 1;
            ops::squeeze(&ops::slice_axis(&pairs, axis, first, first + 1)?, axis)
        })
    }

    /// The axes in another order.
    pub fn transpose(self, axes: &[usize]) -> Value {
        let shape = axes.iter().map(|&axis| self.shape[axis]).collect();
        let axes: Vec<i32> = axes.iter().map(|&axis| axis as i32).collect();
        self.map(shape, move |array| ops::transpose(array, &axes))
    }

    /// Another shape with as many elements.
    pub fn reshape(self, shape: Vec<i32>) -> Value {
        self.map(shape.clone(), move |array| ops::reshape(array, &shape))
    }

    /// Each value plus `number`, in the tensor's own type.
    pub fn plus(self, number: f32) -> Value {
        let dtype = self.dtype;
        let shape = self.shape.clone();
        self.map(shape, move |array| ops::add(array, &Array::scalar(number, dtype)?))
    }

    /// Each value times `number`, in the tensor's own type.
    pub fn times(self, number: f64) -> Value {
        let dtype = self.dtype;
        let shape = self.shape.clone();
        self.map(shape, move |array| ops::multiply(array, &Array::scalar(number as f32, dtype)?))
    }

    /// The bytes read as numbers of `dtype`, which are so many times as long.
    pub fn view(self, dtype: Dtype) -> Value {
        let mut shape = self.shape.clone();
        let times = (dtype.size() / self.dtype.size()) as i32;
        if let Some(last) = shape.last_mut() {
            *last /= times;
        }
        let value = self.map(shape, move |array| ops::view(array, dtype));
        Value { dtype, ..value }
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
        self.shape.iter().map(|&size| size as u64).product()
    }

    /// Makes it; nothing is computed yet.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn array(&self, files: &ModelFiles) -> Result<Array> {
        (self.make)(files)
    }
}
