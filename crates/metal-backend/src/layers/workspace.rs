//! Bytes that products take beside what goes in and comes out, for the arithmetic of memory.

/// Bytes that some products take at once, beside their inputs and their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Workspace {
    /// For each row.
    pub row: u64,
    /// For as many rows as are multiplied with unpacked matrices, however many these are.
    pub unpacked: u64,
    /// From so many rows on.
    pub unpacked_from: u64,
}

impl Workspace {
    /// Bytes for so many rows.
    pub fn bytes(self, rows: u64) -> u64 {
        rows * self.row + self.unpacked_bytes(rows)
    }

    /// Of these, those of unpacked matrices.
    pub fn unpacked_bytes(self, rows: u64) -> u64 {
        if rows >= self.unpacked_from { self.unpacked } else { 0 }
    }

    /// The workspace of both at the same time.
    pub fn and(self, other: Workspace) -> Workspace {
        Workspace {
            row: self.row + other.row,
            unpacked: self.unpacked + other.unpacked,
            unpacked_from: self.unpacked_from.max(other.unpacked_from),
        }
    }

    /// The workspace of both, one after the other in a layer. Unpacked matrices are held until the
    /// device has computed the layer.
    pub fn then(self, other: Workspace) -> Workspace {
        Workspace { unpacked: self.unpacked + other.unpacked, ..self.or(other) }
    }

    /// The workspace of both, one after the other.
    pub fn or(self, other: Workspace) -> Workspace {
        Workspace {
            row: self.row.max(other.row),
            unpacked: self.unpacked.max(other.unpacked),
            unpacked_from: self.unpacked_from.max(other.unpacked_from),
        }
    }
}

/// Bytes of one row on its way through an adapter's `[in, rank]` and `[rank, out]`: the row itself
/// and what comes of it, in f32 where the adapter's type is not the model's, and the part that is
/// added, in two types.
pub(super) fn adapter_row_bytes([input, rank, output]: [u64; 3]) -> u64 {
    4 * (input + rank + 2 * output)
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{Array, Dtype, QuantMode, Quantization, ops, quantize};

    use super::*;
    use crate::kernels::{Kernels, Matrix};
    use crate::layers::{ExpertLinear, ExpertLora, Linear, Lora, Weight};

    fn packed(rows: i32, columns: i32) -> Matrix {
        let quantization = Quantization { mode: QuantMode::Affine, bits: 4, group_size: 64 };
        let zeros = ops::zeros(&[rows, columns], Dtype::F32).expect("a matrix");
        Matrix::Quantized(quantize(&zeros, quantization).expect("it is packed"))
    }

    fn linear(kernels: Kernels, matrix: Matrix) -> Linear {
        Linear::new(Weight { matrix, kernels }, None)
    }

    #[test]
    fn many_rows_on_cuda_need_the_unpacked_matrix() {
        let of = |kernels, dtype| linear(kernels, packed(32, 128)).workspace(dtype);
        let cuda = of(Kernels::Cuda, Dtype::Bf16);
        assert_eq!((cuda.bytes(8), cuda.bytes(9), cuda.bytes(9000)), (0, 8192, 8192));
        let f32 = of(Kernels::Cuda, Dtype::F32);
        assert_eq!((f32.bytes(1), f32.bytes(2), f32.bytes(512)), (0, 16384, 16384));
        // Other devices do not unpack.
        assert_eq!(of(Kernels::Mlx, Dtype::Bf16).bytes(512), 0);
        assert_eq!(of(Kernels::CPU, Dtype::Bf16).bytes(512), 0);
        // Two that are multiplied at once are unpacked at once.
        let smaller = linear(Kernels::Cuda, packed(8, 64)).workspace(Dtype::Bf16);
        assert_eq!(cuda.and(smaller).bytes(512), 8192 + 1024);
        assert_eq!(smaller.or(cuda).bytes(512), 8192);
        assert_eq!(smaller.then(cuda).bytes(512), 8192 + 1024);
        assert_eq!(smaller.or(Workspace::default()).bytes(8), 0);
    }

    #[test]
    fn an_adapter_needs_what_passes_it() {
        let zeros =
            |shape: [i32; 2]| -> Array { ops::zeros(&shape, Dtype::F32).expect("a matrix") };
        let lora = Lora { a: zeros([128, 4]), b: zeros([4, 32]), scale: 1.0 };
        let matrix = Matrix::Dense(zeros([32, 128]));
        let adapted = linear(Kernels::Mlx, matrix).with_lora(Some(lora));
        let taken = adapted.workspace(Dtype::Bf16);
        assert_eq!(taken.bytes(1), 4 * (128 + 4 + 2 * 32));
        assert_eq!(taken.bytes(700), 700 * taken.bytes(1));
        let weight = |shape: [i32; 3]| {
            let zeros = ops::zeros(&shape, Dtype::F32).expect("matrices");
            Weight { matrix: Matrix::Dense(zeros), kernels: Kernels::Mlx }
        };
        let lora = ExpertLora { a: weight([8, 4, 128]), b: weight([8, 32, 4]), scale: 1.0 };
        let experts = ExpertLinear::new(weight([8, 32, 128]), None).with_lora(Some(lora));
        assert_eq!(experts.workspace(Dtype::Bf16, 2).bytes(1), 2 * taken.bytes(1));
    }
}
