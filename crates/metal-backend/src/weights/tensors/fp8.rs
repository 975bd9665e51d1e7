//! Weights released as floats of 8 bits with scales: they are unpacked as they are read.

use std::ops::Range;

use mlx_ffi::{Array, Dtype, ops};

use super::Weights;
use crate::error::{Error, Result};
use crate::weights::cut::Part;
use crate::weights::source::TensorHeader;

impl Weights {
    /// The tensor `name`, whose values are floats of 8 bits (e4m3), in the model's type.
    ///
    /// `name_scale_inv` has a scale for each block of the config's `weight_block_size`, or one for all.
    /// Scales of activations beside it are left aside: activations are not rounded to 8 bits here.
    ///
    /// # Errors
    /// Scales that are missing or do not fit.
    pub(super) fn fp8(&self, name: &str, header: &TensorHeader) -> Result<Array> {
        let Some(Part { axis, ranges, .. }) = &header.part else {
            return self.whole_fp8(name, header);
        };
        // Scales are those of blocks, which need not end where a part does.
        let (whole, before) = (header.whole(), self.shared.totals.borrow().bytes);
        let all = self.whole_fp8(name, &whole)?;
        self.shared.totals.borrow_mut().bytes = before + header.bytes_as(Some(all.dtype()));
        if self.shared.only_describe {
            return Ok(all);
        }
        let part = |range: &Range<i32>| ops::slice_axis(&all, *axis as i32, range.start, range.end);
        let parts = ranges.iter().map(part).collect::<mlx_ffi::Result<Vec<_>>>()?;
        let part = ops::concatenate(&parts.iter().collect::<Vec<_>>(), *axis as i32)?;
        // A copy of this part alone, which keeps nothing of the others.
        let part = ops::contiguous(&part)?;
        part.eval()?;
        Ok(part)
    }

    fn whole_fp8(&self, name: &str, header: &TensorHeader) -> Result<Array> {
        let dtype = self.float_dtype();
        let block = self.shared.config.fp8_block()?;
        let scale_name = format!("{name}_scale_inv");
        let Some(scale) = self.shared.left.borrow().get(&self.name(&scale_name)).cloned() else {
            return Err(Error::model(format!(
                "tensor `{}` has floats of 8 bits, and its scales `{}` are missing",
                self.name(name),
                self.name(&scale_name)
            )));
        };
        let scales_of = Fp8Scales::of(header, &scale, block).ok_or_else(|| {
            let blocks = block.map_or("the whole".to_owned(), |[rows, columns]| {
                format!("blocks of {rows} × {columns}")
            });
            Error::model(format!(
                "tensor `{}` has the type {:?} and shape {:?}, which are no scales of {blocks} of `{name}`, {:?}",
                self.name(&scale_name),
                scale.dtype,
                scale.shape,
                header.shape
            ))
        })?;
        let before = self.shared.totals.borrow().bytes;
        let elements: u64 = header.shape.iter().map(|&dim| dim as u64).product();
        let bytes = self.take(name, header, Dtype::U8, elements)?;
        let scales = self.take(&scale_name, &scale, Dtype::F32, 0)?;
        // What is held is what they stand for.
        self.shared.totals.borrow_mut().bytes = before + elements * dtype.size() as u64;
        let stem = name.strip_suffix("weight").map_or(format!("{name}_"), str::to_owned);
        for of_activations in ["activation_scale", "input_scale"] {
            let name = self.name(&format!("{stem}{of_activations}"));
            self.shared.left.borrow_mut().remove(&name);
        }
        if self.shared.only_describe {
            return Ok(ops::zeros(&[0], dtype)?);
        }
        let weight = scales_of.unpack(&bytes, &scales, dtype)?;
        // Before the next one is read: what is in F32 is then free.
        weight.eval()?;
        Ok(weight)
    }
}

/// What shares a scale of floats of 8 bits.
pub(crate) enum Fp8Scales {
    /// The whole tensor.
    One,
    /// So many rows and columns, of each matrix.
    Of([i32; 2]),
}

impl Fp8Scales {
    /// What shares a scale of `scale`; `None` where it has no scales of the tensor.
    pub fn of(
        tensor: &TensorHeader,
        scale: &TensorHeader,
        block: Option<[i32; 2]>,
    ) -> Option<Fp8Scales> {
        if !scale.dtype.is_float() || scale.is_fp8 {
            return None;
        }
        let [leading @ .., rows, columns] = &tensor.shape[..] else { return None };
        let [of_rows, of_columns] = block.unwrap_or([*rows, *columns]);
        let count = |size: i32, of: i32| (size + of - 1) / of;
        let grid = [leading, &[count(*rows, of_rows), count(*columns, of_columns)]].concat();
        if scale.shape == grid {
            return Some(Fp8Scales::Of([of_rows, of_columns]));
        }
        scale.shape.iter().all(|&dim| dim == 1).then_some(Fp8Scales::One)
    }

    /// What the floats of 8 bits `bytes` stand for with their `scales`, which are in F32.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn unpack(&self, bytes: &Array, scales: &Array, dtype: Dtype) -> mlx_ffi::Result<Array> {
        let values = ops::from_fp8(bytes, Dtype::F32)?;
        let scales = self.spread(scales, bytes.shape())?;
        ops::astype(&ops::multiply(&values, &scales)?, dtype)
    }

    /// `scales` as they multiply a tensor of `shape`.
    fn spread(&self, scales: &Array, shape: &[i32]) -> mlx_ffi::Result<Array> {
        let (Fp8Scales::Of([rows, columns]), [leading @ .., all_rows, all_columns]) = (self, shape)
        else {
            return ops::reshape(scales, &[1]);
        };
        let [.., of_rows, of_columns] = scales.shape() else { return scales.share() };
        let (of_rows, of_columns) = (*of_rows, *of_columns);
        let one = [leading, &[of_rows, 1, of_columns, 1]].concat();
        let each = [leading, &[of_rows, *rows, of_columns, *columns]].concat();
        let whole = [leading, &[of_rows * rows, of_columns * columns]].concat();
        let spread = ops::broadcast_to(&ops::reshape(scales, &one)?, &each)?;
        let spread = ops::reshape(&spread, &whole)?;
        ops::slice_axis(&ops::slice_axis(&spread, -1, 0, *all_columns)?, -2, 0, *all_rows)
    }
}
