//! The product itself.

use half::{bf16, f16};

use crate::{Dtype, Error, Packing, Problem, Weights};

/// Computes `problem.out`.
///
/// # Errors
/// Buffers whose sizes do not fit; nothing is written then.
pub fn matmul(problem: Problem<'_>) -> Result<(), Error> {
    problem.check()?;
    let Problem { m, n, k, dtype, x, weights, out } = problem;
    for row in 0..m {
        for column in 0..n {
            let sum: f64 = (0..k)
                .map(|i| f64::from(load(dtype, x, row * k + i)) * weight(&weights, k, column, i))
                .sum();
            store(dtype, out, row * n + column, sum as f32);
        }
    }
    Ok(())
}

fn load(dtype: Dtype, data: &[u8], index: usize) -> f32 {
    let at = index * dtype.size();
    match dtype {
        Dtype::F32 => f32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]),
        Dtype::F16 => f16::from_le_bytes([data[at], data[at + 1]]).to_f32(),
        Dtype::Bf16 => bf16::from_le_bytes([data[at], data[at + 1]]).to_f32(),
    }
}

fn store(dtype: Dtype, data: &mut [u8], index: usize, value: f32) {
    let at = index * dtype.size();
    match dtype {
        Dtype::F32 => data[at..at + 4].copy_from_slice(&value.to_le_bytes()),
        Dtype::F16 => data[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes()),
        Dtype::Bf16 => data[at..at + 2].copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
    }
}

/// The weight in row `n` and column `i`.
fn weight(weights: &Weights<'_>, k: usize, n: usize, i: usize) -> f64 {
    match *weights {
        Weights::Dense { dtype, data } => f64::from(load(dtype, data, n * k + i)),
        Weights::Packed { packing, group_size, data, scales, biases } => {
            let group = n * (k / group_size) + i / group_size;
            let bits = packing.bits();
            let first = (n * k + i) * bits;
            let code = (0..bits)
                .map(|bit| u32::from(data[(first + bit) / 8] >> ((first + bit) % 8) & 1) << bit)
                .sum::<u32>();
            match packing {
                Packing::Affine { scales: dtype, .. } => {
                    f64::from(code) * f64::from(load(dtype, scales, group))
                        + f64::from(load(dtype, biases, group))
                }
                Packing::Mxfp4 => e2m1(code) * e8m0(scales[group]),
                Packing::Mxfp8 => e4m3(code) * e8m0(scales[group]),
                Packing::Nvfp4 => e2m1(code) * e4m3(u32::from(scales[group])),
            }
        }
    }
}

fn e2m1(code: u32) -> f64 {
    let value = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][(code & 7) as usize];
    if code & 8 == 0 { value } else { -value }
}

fn e8m0(code: u8) -> f64 {
    (f64::from(code) - 127.0).exp2()
}

fn e4m3(code: u32) -> f64 {
    let (exponent, mantissa) = ((code >> 3 & 15) as i32, f64::from(code & 7) / 8.0);
    let value = match exponent {
        0 => mantissa * (-6f64).exp2(),
        _ => (1.0 + mantissa) * f64::from(exponent - 7).exp2(),
    };
    if code & 0x80 == 0 { value } else { -value }
}
