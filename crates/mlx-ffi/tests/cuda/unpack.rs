//! Packed matrices that our kernel for CUDA unpacks against those that MLX does.

use mlx_ffi::cuda::{takes_unpacked, unpacked};
use mlx_ffi::{Array, Dtype, QuantMode, Quantization, dequantize, ops, quantize};

use super::arrays::{assert_near, cast, values, wide};
use super::on_cuda::{some, use_cuda};

const KINDS: [(QuantMode, i32, i32); 8] = [
    (QuantMode::Affine, 4, 32),
    (QuantMode::Affine, 4, 64),
    (QuantMode::Affine, 4, 128),
    (QuantMode::Affine, 8, 32),
    (QuantMode::Affine, 8, 64),
    (QuantMode::Affine, 8, 128),
    (QuantMode::Mxfp4, 4, 32),
    (QuantMode::Nvfp4, 4, 16),
];

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn packed_matrices_are_unpacked_as_mlx_does() {
    use_cuda();
    for dtype in [Dtype::Bf16, Dtype::F16] {
        for (mode, bits, group_size) in KINDS {
            for &(n, k) in some(&[(1, 128), (7, 256), (1000, 1152), (2560, 9728)], 2) {
                let what = format!("{n} x {k} {mode:?} {bits} {group_size} {dtype:?}");
                let w = cast(&values(&[n, k], 7), dtype);
                let packed = quantize(&w, Quantization { mode, bits, group_size }).expect("packed");
                assert!(takes_unpacked(&packed, dtype), "{what}");
                let expected = wide(&dequantize(&packed, dtype).expect("a matrix"));
                let found = unpacked(&packed, dtype).expect("a matrix");
                assert_near(&found, &expected, 1e-2, &what);
            }
        }
    }
}

#[test]
fn packings_that_no_kernel_knows_are_refused() {
    let w = Array::from_f32(&[0.5; 4 * 128], &[4, 128]).expect("values");
    let of = |dtype, bits| {
        let w = ops::astype(&w, dtype).expect("a cast");
        let quantization = Quantization { mode: QuantMode::Affine, bits, group_size: 64 };
        quantize(&w, quantization).expect("packed")
    };
    assert!(!takes_unpacked(&of(Dtype::Bf16, 3), Dtype::Bf16));
    assert!(!takes_unpacked(&of(Dtype::F32, 4), Dtype::F32));
    assert!(!takes_unpacked(&of(Dtype::Bf16, 4), Dtype::F16));
    let error = unpacked(&of(Dtype::Bf16, 3), Dtype::Bf16).expect_err("three bits");
    assert!(error.to_string().contains("no kernel unpacks"), "{error}");
}
