//! Sums of several ranks' values.

use half::{bf16, f16};

use crate::Dtype;

/// The sum of `terms`, floats of `dtype` of as many bytes as `out`, in their order. Halves are
/// summed in F32 and rounded once.
pub(super) fn sum(dtype: Dtype, terms: &[&[u8]], out: &mut [u8]) {
    match dtype {
        Dtype::F16 => {
            let from = |bytes| f16::from_ne_bytes(bytes).to_f32();
            halves(terms, out, from, |sum| f16::from_f32(sum).to_ne_bytes());
        }
        Dtype::Bf16 => {
            let from = |bytes| bf16::from_ne_bytes(bytes).to_f32();
            halves(terms, out, from, |sum| bf16::from_f32(sum).to_ne_bytes());
        }
        _ => {
            let Some((first, rest)) = terms.split_first() else { return };
            out.copy_from_slice(first);
            for term in rest {
                let values = term.as_chunks::<4>().0.iter();
                for (sum, value) in out.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                    *sum = (f32::from_ne_bytes(*sum) + f32::from_ne_bytes(*value)).to_ne_bytes();
                }
            }
        }
    }
}

/// Values that are summed at a time, in F32.
const BLOCK: usize = 1024;

fn halves(
    terms: &[&[u8]],
    out: &mut [u8],
    from: impl Fn([u8; 2]) -> f32,
    to: impl Fn(f32) -> [u8; 2],
) {
    let mut sums = [0.0_f32; BLOCK];
    for (number, out) in out.chunks_mut(2 * BLOCK).enumerate() {
        let sums = &mut sums[..out.len() / 2];
        sums.fill(0.0);
        for term in terms {
            let values = term[2 * BLOCK * number..][..out.len()].as_chunks::<2>().0.iter();
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += from(*value);
            }
        }
        for (out, sum) in out.as_chunks_mut::<2>().0.iter_mut().zip(sums) {
            *out = to(*sum);
        }
    }
}
