//! Numbers as they are stored.

use crate::Dtype;

/// Writes the elements of `data` to `to`.
#[inline(always)]
pub(crate) fn widen(dtype: Dtype, data: &[u8], to: &mut [f32]) {
    match dtype {
        Dtype::F32 => {
            for (to, from) in to.iter_mut().zip(data.as_chunks::<4>().0) {
                *to = f32::from_le_bytes(*from);
            }
        }
        Dtype::F16 => {
            for (to, from) in to.iter_mut().zip(data.as_chunks::<2>().0) {
                *to = from_f16(u16::from_le_bytes(*from));
            }
        }
        Dtype::Bf16 => {
            for (to, from) in to.iter_mut().zip(data.as_chunks::<2>().0) {
                *to = f32::from_bits(u32::from(u16::from_le_bytes(*from)) << 16);
            }
        }
    }
}

/// Writes `values` as elements of `dtype`, some of them at a time: `write` gets the number of those
/// before them, and their bytes.
#[inline(always)]
pub(crate) fn narrow(dtype: Dtype, values: &[f32], mut write: impl FnMut(usize, &[u8])) {
    const SOME: usize = 64;
    for (i, values) in values.chunks(SOME).enumerate() {
        let mut bytes = [0; 4 * SOME];
        let size = dtype.size();
        match dtype {
            Dtype::F32 => {
                for (to, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                    *to = value.to_le_bytes();
                }
            }
            Dtype::F16 => {
                for (to, value) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(values) {
                    *to = to_f16(*value).to_le_bytes();
                }
            }
            Dtype::Bf16 => {
                for (to, value) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(values) {
                    *to = to_bf16(*value).to_le_bytes();
                }
            }
        }
        write(i * SOME, &bytes[..values.len() * size]);
    }
}

/// The nearest bf16, of two equally near ones the even one.
#[inline(always)]
pub(crate) fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    // What is no number stays so without its low bits.
    (if value.is_nan() { bits | 0x0040_0000 } else { rounded } >> 16) as u16
}

/// The value of an f16. Without branches, so that it becomes vectors wherever it is inlined.
#[inline(always)]
pub(crate) fn from_f16(half: u16) -> f32 {
    let (sign, size) = (u32::from(half & 0x8000) << 16, u32::from(half & 0x7fff));
    // The exponent's bias is 15 in place of 127.
    let normal = (size << 13) + (112 << 23);
    // Behind a leading one of the smallest exponent, which is subtracted again.
    let subnormal = f32::from_bits((size << 13) + (113 << 23)) - f32::from_bits(113 << 23);
    // What is no number is made quiet.
    let special = (normal + (112 << 23)) | (u32::from(size > 0x7c00) << 22);
    let bits = if size >= 0x7c00 { special } else { normal };
    let bits = if size < 0x400 { subnormal.to_bits() } else { bits };
    f32::from_bits(bits | sign)
}

/// The nearest f16, of two equally near ones the even one. Without branches, as [`from_f16`].
#[inline(always)]
pub(crate) fn to_f16(value: f32) -> u16 {
    let (sign, size) = (value.to_bits() >> 16 & 0x8000, value.to_bits() & 0x7fff_ffff);
    let normal = size.wrapping_sub(112 << 23).wrapping_add(0xfff + (size >> 13 & 1)) >> 13;
    // The sum's last bit is the smallest of f16.
    let subnormal = (f32::from_bits(size) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let bits = if size < 113 << 23 { subnormal } else { normal };
    let bits = if size >= 143 << 23 { 0x7c00 } else { bits };
    let bits = if size > 255 << 23 { 0x7e00 | (size >> 13 & 0x3ff) } else { bits };
    (bits | sign) as u16
}

/// The nearest value that `dtype` has.
#[inline(always)]
pub(crate) fn rounded(dtype: Dtype, value: f32) -> f32 {
    match dtype {
        Dtype::F32 => value,
        Dtype::F16 => from_f16(to_f16(value)),
        Dtype::Bf16 => f32::from_bits(u32::from(to_bf16(value)) << 16),
    }
}

/// The value of a four-bit float: 2 bits of exponent, 1 of mantissa.
pub(crate) const fn e2m1(code: u8) -> f32 {
    let value = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][(code & 7) as usize];
    if code & 8 == 0 { value } else { -value }
}

/// The value of an exponent: 2^(code − 127).
pub(crate) const fn e8m0(code: u8) -> f32 {
    // The lowest is a subnormal number.
    f32::from_bits(if code == 0 { 0x0040_0000 } else { (code as u32) << 23 })
}

/// The value of an eight-bit float: 4 bits of exponent, 3 of mantissa.
pub(crate) const fn e4m3(code: u8) -> f32 {
    let (exponent, mantissa) = ((code >> 3 & 15) as u32, (code & 7) as f32);
    let value = match exponent {
        0 => mantissa / 512.0,
        _ => (8.0 + mantissa) / 8.0 * f32::from_bits((exponent + 120) << 23),
    };
    if code & 0x80 == 0 { value } else { -value }
}

/// The values of four-bit floats.
pub(crate) static E2M1: [f32; 16] = {
    let mut table = [0.0; 16];
    let mut i = 0;
    while i < 16 {
        table[i] = e2m1(i as u8);
        i += 1;
    }
    table
};

/// The values of eight-bit floats.
pub(crate) static E4M3: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = e4m3(i as u8);
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use half::f16;

    use super::{from_f16, to_f16};

    #[test]
    fn every_f16_is_what_it_is() {
        for bits in 0..=u16::MAX {
            let expected = f16::from_bits(bits).to_f32();
            assert_eq!(from_f16(bits).to_bits(), expected.to_bits(), "{bits:#x}");
            assert_eq!(to_f16(expected), f16::from_f32(expected).to_bits(), "{bits:#x}");
        }
    }

    #[test]
    fn the_nearest_f16_is_even_between_two() {
        // Around what lies between two neighbours, and what has no neighbour left.
        for bits in 0..0x7c00u16 {
            let (a, b) = (f16::from_bits(bits).to_f64(), f16::from_bits(bits + 1).to_f64());
            let next = if bits == 0x7bff { 65536.0 } else { b };
            let middle = ((a + next) / 2.0) as f32;
            for value in [middle.next_down(), middle, middle.next_up()] {
                for value in [value, -value] {
                    let expected = f16::from_f32(value).to_bits();
                    assert_eq!(to_f16(value), expected, "{value:e}");
                }
            }
        }
        for value in [f32::MIN_POSITIVE, 1e-45, 1e9, f32::MAX, f32::INFINITY, f32::NAN, -f32::NAN] {
            assert_eq!(to_f16(value), f16::from_f32(value).to_bits(), "{value:e}");
        }
    }
}
