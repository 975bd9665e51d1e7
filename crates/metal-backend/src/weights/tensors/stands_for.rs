//! The type in which weights of bf16 are computed.

use std::rc::Rc;

use mlx_ffi::{Array, Dtype, QuantMode, Quantization, ops};

use super::Weights;
use crate::error::{Error, RANGE_OF_F16, Result};
use crate::kernels::Bf16;
use crate::weights::source::TensorHeader;

/// The largest finite f16.
const LARGEST: f32 = 65_504.0;
/// The smallest f16 with all bits of its fraction.
const SMALLEST: f32 = 1.0 / 16_384.0;

impl Weights {
    /// Computes weights of bf16 so where the user asks for no type.
    pub fn with_bf16(mut self, bf16: Bf16) -> Weights {
        let shared = Rc::get_mut(&mut self.shared);
        shared.expect("it is set before cursors are handed out").bf16 = bf16;
        self
    }

    /// The type of the checkpoint, where another one stands for it.
    pub fn replaced(&self) -> Option<Dtype> {
        let (stored, bf16) = (self.shared.stored, self.shared.bf16);
        let is_replaced = self.shared.dtype.is_none() && bf16.computed(stored) != stored;
        is_replaced.then_some(stored)
    }

    /// The type of an adapter's factor of `stored`: its own, where the user names none and none
    /// stands for it.
    pub(super) fn factor_dtype(&self, stored: Dtype) -> Dtype {
        let own = self.replaced().map_or(stored, |_| self.shared.bf16.computed(stored));
        self.shared.dtype.unwrap_or(own)
    }

    /// That what is packed under this cursor with these scales and biases has its values in f16,
    /// where that stands for bf16.
    ///
    /// # Errors
    /// A group whose values may be beyond f16; scales that all lose bits in f16.
    pub(super) fn check_packed_f16(
        &self,
        way: Quantization,
        scales: &TensorHeader,
        biases: Option<&TensorHeader>,
    ) -> Result<()> {
        if !self.reads_f16_for_bf16() {
            return Ok(());
        }
        let stored = |header: &TensorHeader| self.read(&self.shared.files, header, header.dtype);
        let scales = stored(scales)?;
        match biases {
            None => self.check_exponents_f16(way.mode, &scales),
            Some(biases) => self.refuse(refuses_affine(way.bits, &scales, &stored(biases)?)?),
        }
    }

    /// [`check_packed_f16`](Self::check_packed_f16), of scales of 8 bits.
    ///
    /// # Errors
    /// A group whose values may be beyond f16; scales that all lose bits in f16.
    pub(super) fn check_exponents_f16(&self, mode: QuantMode, scales: &Array) -> Result<()> {
        if !self.reads_f16_for_bf16() {
            return Ok(());
        }
        self.refuse(match mode {
            QuantMode::Mxfp4 => refuses_exponents(scales, 6.0)?,
            QuantMode::Mxfp8 => refuses_exponents(scales, 448.0)?,
            // Products of e2m1 and e4m3 are all within f16.
            QuantMode::Nvfp4 | QuantMode::Affine => None,
        })
    }

    fn reads_f16_for_bf16(&self) -> bool {
        self.replaced().is_some() && !self.describes() && !self.is_random()
    }

    fn refuse(&self, reason: Option<&str>) -> Result<()> {
        match reason {
            None => Ok(()),
            Some(reason) => Err(Error::model(format!(
                "`{}` is packed with {reason} for {RANGE_OF_F16}: take bf16 or f32 as `dtype`",
                self.prefix
            ))),
        }
    }
}

const TOO_LARGE: &str = "values that may be too large";
const TOO_SMALL: &str = "scales that are all too small";

/// Names the fault of affine groups that do not fit f16.
fn refuses_affine(bits: i32, scales: &Array, biases: &Array) -> Result<Option<&'static str>> {
    let magnitude = |array: &Array| ops::abs(&ops::astype(array, Dtype::F32)?);
    let [of_scales, of_biases] = [magnitude(scales)?, magnitude(biases)?];
    let largest_code = Array::scalar(((1u32 << bits) - 1) as f32, Dtype::F32)?;
    let bound = largest(&ops::add(&ops::multiply(&of_scales, &largest_code)?, &of_biases)?)?;
    // One that is no number is none of f16 either.
    if bound.is_nan() || bound > LARGEST {
        return Ok(Some(TOO_LARGE));
    }
    // Beside a scale that keeps its bits, smaller ones lose no more than it loses by its rounding.
    // What is f16 already stays as it is.
    let most = largest(&of_scales)?;
    let loses = scales.dtype() != Dtype::F16 && most > 0.0 && most < SMALLEST;
    Ok(loses.then_some(TOO_SMALL))
}

/// Names the fault of groups that do not fit f16, whose scales are powers of two: the bytes less
/// 127 are their exponents, and `code` is the largest one.
fn refuses_exponents(scales: &Array, code: f32) -> Result<Option<&'static str>> {
    let most = largest(&ops::astype(scales, Dtype::F32)?)?;
    if (most - 127.0).exp2() * code > LARGEST {
        return Ok(Some(TOO_LARGE));
    }
    // Groups of zeros have the exponent 0.
    Ok((most > 0.0 && most < 127.0 - 14.0).then_some(TOO_SMALL))
}

fn largest(values: &Array) -> Result<f32> {
    Ok(ops::max(&ops::reshape(values, &[-1])?, 0, false)?.item_f32()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: [f32; 2]) -> Array {
        Array::from_floats(&values, &[1, 2], Dtype::Bf16).expect("two groups")
    }

    #[test]
    fn affine_groups_beyond_f16_are_refused() {
        let refused = |bits, scales, biases| {
            refuses_affine(bits, &floats(scales), &floats(biases)).expect("it is computed")
        };
        assert_eq!(refused(4, [0.01, 4096.0], [-0.5, 0.0]), None);
        // 15 · 4096 + 8192 is more than 65504, and so is 255 · 512.
        assert_eq!(refused(4, [0.01, 4096.0], [-0.5, -8192.0]), Some(TOO_LARGE));
        assert_eq!(refused(8, [0.01, -512.0], [0.0, 0.0]), Some(TOO_LARGE));
        assert_eq!(refused(4, [0.01, f32::NAN], [0.0, 0.0]), Some(TOO_LARGE));
    }

    #[test]
    fn affine_groups_that_all_lose_bits_in_f16_are_refused() {
        let refused = |scales, biases| {
            refuses_affine(4, &floats(scales), &floats(biases)).expect("it is computed")
        };
        assert_eq!(refused([SMALLEST, 0.0], [-SMALLEST, 0.0]), None);
        assert_eq!(refused([SMALLEST / 2.0, 0.0], [0.0, 0.0]), Some(TOO_SMALL));
        assert_eq!(refused([-1e-9, 1e-9], [0.1, 0.0]), Some(TOO_SMALL));
        // One group of many that is nearly zero.
        assert_eq!(refused([1e-9, 0.01], [-1e-9, 0.0]), None);
        let f16 = ops::astype(&floats([SMALLEST / 2.0, 0.0]), Dtype::F16).expect("they are f16");
        let kept = refuses_affine(4, &f16, &floats([0.0, 0.0])).expect("it is computed");
        assert_eq!(kept, None);
    }

    #[test]
    fn exponents_beyond_f16_are_refused() {
        let refused = |exponents: [u8; 2], code| {
            let scales = Array::from_bytes(&exponents, &[1, 2], Dtype::U8).expect("two groups");
            refuses_exponents(&scales, code).expect("it is computed")
        };
        // 6 · 2^13 is within f16, 6 · 2^14 is not.
        assert_eq!(refused([0, 127 + 13], 6.0), None);
        assert_eq!(refused([0, 127 + 14], 6.0), Some(TOO_LARGE));
        assert_eq!(refused([120, 127 + 8], 448.0), Some(TOO_LARGE));
        assert_eq!(refused([127 - 40, 127 - 14], 6.0), None);
        assert_eq!(refused([0, 127 - 15], 6.0), Some(TOO_SMALL));
        assert_eq!(refused([0, 0], 6.0), None);
    }
}
