//! Weights released as floats of 8 bits with scales: they are unpacked as they are read.

use std::ops::Range;

use mlx_ffi::{Array, Dtype, ops};

use super::Weights;
use crate::config::Fp8Format;
use crate::error::{Error, Result};
use crate::weights::cut::Part;
use crate::weights::source::TensorHeader;

impl Weights {
    /// The tensor `name`, whose values are floats of 8 bits (e4m3), in the model's type.
    ///
    /// `name_scale_inv` has a scale for each block of the config's `weight_block_size`, or one for
    /// all of a matrix. Scales are floats, or exponents of two (e8m0). Scales of activations beside
    /// it are left aside: activations are not rounded to 8 bits here.
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
        if self.describes() {
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
        let format = self.shared.config.fp8_format()?;
        let scale_name = format!("{name}_scale_inv");
        let Some(scale) = self.shared.left.borrow().get(&self.name(&scale_name)).cloned() else {
            return Err(Error::model(format!(
                "tensor `{}` has floats of 8 bits, and its scales `{}` are missing",
                self.name(name),
                self.name(&scale_name)
            )));
        };
        let scales_of = Fp8Scales::of(header, &scale, format).ok_or_else(|| {
            let blocks = format.block.map_or("the whole".to_owned(), |[rows, columns]| {
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
        let elements = header.elements();
        let bytes = self.take(name, header, Dtype::U8, elements)?;
        let scales = self.take(&scale_name, &scale, scale.dtype, 0)?;
        // What is held is what they stand for.
        self.shared.totals.borrow_mut().bytes = before + elements * dtype.size() as u64;
        let stem = name.strip_suffix("weight").map_or(format!("{name}_"), str::to_owned);
        for of_activations in ["activation_scale", "input_scale"] {
            let name = self.name(&format!("{stem}{of_activations}"));
            self.shared.left.borrow_mut().remove(&name);
        }
        if self.describes() {
            return Ok(ops::zeros(&[0], dtype)?);
        }
        let weight = scales_of.unpack(&bytes, &scales, dtype)?;
        // Before the next one is read: what is in F32 is then free.
        weight.eval()?;
        if dtype == Dtype::F16 {
            self.check_f16(&self.name(name), &weight)?;
        }
        Ok(weight)
    }
}

/// The values that share a scale of floats of 8 bits.
pub(crate) enum Fp8Scales {
    /// The whole tensor.
    One,
    /// So many rows and columns, of each matrix.
    Of([i32; 2]),
}

impl Fp8Scales {
    /// The values that share a scale of `scale`; `None` where it has no scales of the tensor.
    pub fn of(tensor: &TensorHeader, scale: &TensorHeader, format: Fp8Format) -> Option<Fp8Scales> {
        let are_exponents = scale.dtype == Dtype::U8 && (scale.is_e8m0 || format.has_exponents);
        if scale.is_fp8 || !(scale.dtype.is_float() || are_exponents) {
            return None;
        }
        let [leading @ .., rows, columns] = &tensor.shape[..] else { return None };
        let whole = [*rows, *columns];
        if whole.contains(&0) {
            return None;
        }
        let of = |block: [i32; 2]| {
            let grid = grid(whole, block);
            (scale.shape == [leading, &grid].concat()).then_some(Fp8Scales::Of(block))
        };
        let one_each =
            (!leading.is_empty() && scale.shape == leading).then_some(Fp8Scales::Of(whole));
        let one = || scale.shape.iter().all(|&dim| dim == 1).then_some(Fp8Scales::One);
        let each_row = || of([1, *columns]);
        format.block.and_then(of).or_else(|| of(whole)).or(one_each).or_else(each_row).or_else(one)
    }

    /// Unpacks the floats of 8 bits `bytes` with their `scales`, which are floats or exponents of
    /// two.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn unpack(&self, bytes: &Array, scales: &Array, dtype: Dtype) -> mlx_ffi::Result<Array> {
        let values = ops::from_fp8(bytes, Dtype::F32)?;
        let scales = match scales.dtype() {
            Dtype::U8 => powers_of_two(scales)?,
            _ => ops::astype(scales, Dtype::F32)?,
        };
        let scales = self.spread(&scales, bytes.shape())?;
        ops::astype(&ops::multiply(&values, &scales)?, dtype)
    }

    /// `scales` as they multiply a tensor of `shape`.
    fn spread(&self, scales: &Array, shape: &[i32]) -> mlx_ffi::Result<Array> {
        let (&Fp8Scales::Of([rows, columns]), &[ref leading @ .., all_rows, all_columns]) =
            (self, shape)
        else {
            return ops::reshape(scales, &[1]);
        };
        let [of_rows, of_columns] = grid([all_rows, all_columns], [rows, columns]);
        let one = [leading, &[of_rows, 1, of_columns, 1]].concat();
        let each = [leading, &[of_rows, rows, of_columns, columns]].concat();
        let whole = [leading, &[of_rows * rows, of_columns * columns]].concat();
        let spread = ops::broadcast_to(&ops::reshape(scales, &one)?, &each)?;
        let spread = ops::reshape(&spread, &whole)?;
        ops::slice_axis(&ops::slice_axis(&spread, -1, 0, all_columns)?, -2, 0, all_rows)
    }
}

/// Blocks of rows, and of columns, of a matrix.
fn grid([rows, columns]: [i32; 2], [of_rows, of_columns]: [i32; 2]) -> [i32; 2] {
    let count = |size: i32, of: i32| size / of + i32::from(size % of != 0);
    [count(rows, of_rows), count(columns, of_columns)]
}

/// The powers of two whose exponents are `bytes`, in F32.
fn powers_of_two(bytes: &Array) -> mlx_ffi::Result<Array> {
    let values = bytes.read_bytes(|bytes| bytes.iter().copied().map(power_of_two).collect());
    let values: Vec<f32> = values?;
    Array::from_f32(&values, bytes.shape())
}

/// 2 to the power of `byte` - 127; 255 is not a number.
fn power_of_two(byte: u8) -> f32 {
    // By its bits: a function for powers may round, and the smallest one is subnormal.
    match byte {
        0 => f32::from_bits(1 << 22),
        u8::MAX => f32::NAN,
        exponent => f32::from_bits(u32::from(exponent) << 23),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_of_two_are_powers_to_the_bit() {
        let mut expected = 2f64.powi(-127);
        for byte in 0..u8::MAX {
            assert_eq!(f64::from(power_of_two(byte)), expected, "{byte}");
            expected *= 2.0;
        }
        assert!(power_of_two(u8::MAX).is_nan());
        let all: Vec<u8> = (0..=u8::MAX).collect();
        let bytes = Array::from_bytes(&all, &[16, 16], Dtype::U8).expect("bytes");
        let powers = powers_of_two(&bytes).expect("powers");
        assert_eq!(powers.shape(), [16, 16]);
        let bits = |value: f32| value.to_bits();
        let found = powers.to_vec_f32().expect("floats").into_iter().map(bits);
        assert!(found.eq(all.iter().map(|&byte| bits(power_of_two(byte)))));
    }
}
