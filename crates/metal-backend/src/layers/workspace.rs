//! Bytes that products take beside what goes in and comes out, for the arithmetic of memory.

use mlx_ffi::{Array, Dtype};

use super::{
    Block, Decoder, ExpertLinear, FeedForward, GateUp, Head, Linear, Lora, Matrix, Qkv, Weight,
};

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

    /// What both take at the same time.
    fn and(self, other: Workspace) -> Workspace {
        Workspace {
            row: self.row + other.row,
            unpacked: self.unpacked + other.unpacked,
            unpacked_from: self.unpacked_from.max(other.unpacked_from),
        }
    }

    /// What either takes, one after the other in a layer: unpacked matrices are held until the device
    /// has computed the layer.
    fn then(self, other: Workspace) -> Workspace {
        Workspace { unpacked: self.unpacked + other.unpacked, ..self.or(other) }
    }

    /// What either takes, one after the other.
    fn or(self, other: Workspace) -> Workspace {
        Workspace {
            row: self.row.max(other.row),
            unpacked: self.unpacked.max(other.unpacked),
            unpacked_from: self.unpacked_from.max(other.unpacked_from),
        }
    }
}

impl Decoder {
    /// What the layers take, and the embeddings before them.
    pub fn workspace(&self) -> Workspace {
        let dtype = self.embed_tokens.dtype();
        // A row of the first factor is taken, not multiplied.
        let embedded = self.embed_tokens.lora().map(|lora| {
            let [_, rank, hidden_size] = sizes(lora);
            row_bytes([0, rank, hidden_size])
        });
        let embeddings = Workspace { row: embedded.unwrap_or(0), ..Workspace::default() };
        let layers = self.layers.iter().map(|layer| of_block(layer, dtype));
        let largest = layers.fold(embeddings, Workspace::or);
        // While the device computes a layer, the next one is prepared.
        Workspace { unpacked: 2 * largest.unpacked, ..largest }
    }

    /// What the output layer takes.
    pub fn head_workspace(&self) -> Workspace {
        let dtype = self.embed_tokens.dtype();
        match &self.lm_head {
            Head::Own(linear) => of_linear(linear, dtype),
            Head::Tied => {
                let tied = self.embed_tokens.lora().map(|lora| {
                    let [vocab_size, rank, hidden_size] = sizes(lora);
                    row_bytes([hidden_size, rank, vocab_size])
                });
                of(self.embed_tokens.weight(), tied, dtype)
            }
        }
    }
}

/// What a block takes; projections of the same values may be computed at once.
fn of_block(block: &Block, dtype: Dtype) -> Workspace {
    let of = |linear| of_linear(linear, dtype);
    let qkv = match &block.attention.qkv {
        Qkv::Separate { q_proj, k_proj, v_proj } => of(q_proj).and(of(k_proj)).and(of(v_proj)),
        Qkv::Fused { qkv_proj, .. } => of(qkv_proj),
    };
    let attention = qkv.then(of(&block.attention.o_proj));
    match &block.mlp {
        FeedForward::Mlp(mlp) => {
            let gate_up = match &mlp.gate_up {
                GateUp::Separate { gate_proj, up_proj } => of(gate_proj).and(of(up_proj)),
                GateUp::Halves(both) | GateUp::Interleaved(both) => of(both),
            };
            attention.then(gate_up).then(of(&mlp.down_proj))
        }
        FeedForward::Moe(moe) => {
            let of_experts = |linear| of_experts(linear, moe.experts_per_token as u64);
            let gate_up = match &moe.gate_up {
                GateUp::Separate { gate_proj, up_proj } => {
                    of_experts(gate_proj).and(of_experts(up_proj))
                }
                GateUp::Halves(both) | GateUp::Interleaved(both) => of_experts(both),
            };
            attention.then(of(&moe.router)).then(gate_up).then(of_experts(&moe.down_proj))
        }
    }
}

/// What the projections of experts take, of which a row passes `per_row`; they are multiplied as they
/// are.
fn of_experts(linear: &ExpertLinear, per_row: u64) -> Workspace {
    let row = linear.lora().map_or(0, |lora| {
        let (Matrix::Dense(a), Matrix::Dense(b)) = (&lora.a.matrix, &lora.b.matrix) else {
            return 0;
        };
        // [experts, r, in] and [experts, out, r]
        per_row * row_bytes([size(a, 2), size(a, 1), size(b, 1)])
    });
    Workspace { row, ..Workspace::default() }
}

fn of_linear(linear: &Linear, dtype: Dtype) -> Workspace {
    of(linear.weight(), linear.lora().map(|lora| row_bytes(sizes(lora))), dtype)
}

/// What a product of activations of `dtype` takes, with so many bytes for each row of an adapter's.
fn of(weight: &Weight, lora: Option<u64>, dtype: Dtype) -> Workspace {
    let row = lora.unwrap_or(0);
    let (Matrix::Quantized(packed), Some(from)) =
        (&weight.matrix, weight.product.unpacked_from(dtype))
    else {
        return Workspace { row, ..Workspace::default() };
    };
    let rows = packed.weight.shape().first().copied().unwrap_or(0) as u64;
    let groups = packed.scales.shape().last().copied().unwrap_or(0) as u64;
    let elements = rows * groups * packed.quantization.group_size as u64;
    Workspace { row, unpacked: elements * dtype.size() as u64, unpacked_from: from as u64 }
}

/// `in`, `r` and `out` of an adapter's `[in, r]` and `[r, out]`.
fn sizes(lora: &Lora) -> [u64; 3] {
    [size(&lora.a, 0), size(&lora.b, 0), size(&lora.b, 1)]
}

fn size(array: &Array, axis: usize) -> u64 {
    array.shape().get(axis).copied().unwrap_or(0) as u64
}

/// Bytes of one row on its way through an adapter: the row itself and what comes of it, in f32 where
/// the adapter's type is not the model's, and the part that is added, in two types.
fn row_bytes([input, rank, output]: [u64; 3]) -> u64 {
    4 * (input + rank + 2 * output)
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{QuantMode, Quantization, ops, quantize};

    use super::*;
    use crate::layers::{ExpertLora, Product};

    fn packed(rows: i32, columns: i32) -> Matrix {
        let quantization = Quantization { mode: QuantMode::Affine, bits: 4, group_size: 64 };
        let zeros = ops::zeros(&[rows, columns], Dtype::F32).expect("a matrix");
        Matrix::Quantized(quantize(&zeros, quantization).expect("it is packed"))
    }

    fn linear(product: Product, matrix: Matrix) -> Linear {
        Linear::new(Weight { matrix, product }, None)
    }

    #[test]
    fn many_rows_on_cuda_need_the_unpacked_matrix() {
        let of = |product, dtype| of_linear(&linear(product, packed(32, 128)), dtype);
        let cuda = of(Product::Cuda, Dtype::Bf16);
        assert_eq!((cuda.bytes(32), cuda.bytes(33), cuda.bytes(9000)), (0, 8192, 8192));
        // The faster kernels know no f32, and other devices do not unpack.
        assert_eq!(of(Product::Cuda, Dtype::F32).bytes(512), 0);
        assert_eq!(of(Product::Mlx, Dtype::Bf16).bytes(512), 0);
        assert_eq!(of(Product::CpuKernels, Dtype::Bf16).bytes(512), 0);
        // Two that are multiplied at once are unpacked at once.
        let smaller = of_linear(&linear(Product::Cuda, packed(8, 64)), Dtype::Bf16);
        assert_eq!(cuda.and(smaller).bytes(512), 8192 + 1024);
        assert_eq!(smaller.or(cuda).bytes(512), 8192);
        assert_eq!(smaller.then(cuda).bytes(512), 8192 + 1024);
        assert_eq!(smaller.or(Workspace::default()).bytes(32), 0);
    }

    #[test]
    fn an_adapter_needs_what_passes_it() {
        let zeros =
            |shape: [i32; 2]| -> Array { ops::zeros(&shape, Dtype::F32).expect("a matrix") };
        let lora = Lora { a: zeros([128, 4]), b: zeros([4, 32]), scale: 1.0 };
        let matrix = Matrix::Dense(zeros([32, 128]));
        let adapted = linear(Product::Mlx, matrix).with_lora(Some(lora));
        let taken = of_linear(&adapted, Dtype::Bf16);
        assert_eq!(taken.bytes(1), 4 * (128 + 4 + 2 * 32));
        assert_eq!(taken.bytes(700), 700 * taken.bytes(1));
        let weight = |shape: [i32; 3]| {
            let zeros = ops::zeros(&shape, Dtype::F32).expect("matrices");
            Weight { matrix: Matrix::Dense(zeros), product: Product::Mlx }
        };
        let lora = ExpertLora { a: weight([8, 4, 128]), b: weight([8, 32, 4]), scale: 1.0 };
        let experts = ExpertLinear::new(weight([8, 32, 128]), None).with_lora(Some(lora));
        assert_eq!(of_experts(&experts, 2).bytes(1), 2 * taken.bytes(1));
    }
}
