//! Rows of 64 weights as `mlx.core.quantize` of MLX 0.32.2 packs them, and what its `dequantize`
//! makes of them in f32.

use cpu_kernels::{Dtype, Level, Packing, Problem, Weights, matmul_at};

fn affine(bits: usize) -> Packing {
    Packing::Affine { bits, scales: Dtype::Bf16 }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().as_chunks::<2>().0;
    let text = digits.iter().map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    text.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
}

#[test]
fn rows_packed_by_mlx_have_the_values_that_mlx_gives_them() {
    // Packing, group size, codes, scales, biases, weights 0 to 5 and 32 to 37.
    let rows = [
        (
            affine(2),
            32,
            "7be39d7827deb837de8937ee8d77e29d",
            "00c0f8bf",
            "80407840",
            [-2.0, 0.0, -2.0, 2.0, -2.0, 4.0, 0.0, -1.9375, 1.9375, -1.9375, 1.9375, 0.0],
        ),
        (
            affine(3),
            32,
            "dfd5f0b30a5e4eb1cbe16715fc9c6297c3ef6af839052fa7",
            "80bf78bf",
            "80407840",
            [-3.0, 1.0, -3.0, 2.0, -1.0, 3.0, 0.0, -2.90625, 0.96875, -1.9375, 2.90625, -0.96875],
        ),
        (
            affine(4),
            32,
            "6f4d2bf8c6a3815e2c09e7b4826f4d1af8c5a3704e2bf9d6b4815f3c0ae7c592",
            "00bff8be",
            "80407840",
            [
                -3.5, 1.0, -2.5, 2.0, -1.5, 3.0, 0.0, -3.390625, 1.453125, -1.9375, 2.421875,
                -0.96875,
            ],
        ),
        (
            affine(5),
            32,
            "bf696407f42c1b2a1e57b848e036b2247aa60f15af2b5c26703c5d223fd3a70ae8573634389e2e91",
            "80be78be",
            "80407840",
            [
                -3.75, 0.75, -2.5, 2.0, -1.5, 3.25, 0.2421875, -3.1484375, 1.453125, -1.9375,
                2.6640625, -0.7265625,
            ],
        ),
        (
            affine(6),
            32,
            "bf5643ab11f297dca0839753af52029b1db187d863b39312df5ec58a0970b8d41ee39fd58e4a80bc252f67d0e5938b90",
            "00bef8bd",
            "80407840",
            [
                -3.875, 0.75, -2.625, 2.0, -1.375, 3.25, 0.12109375, -3.2695312, 1.3320312,
                -2.0585938, 2.6640625, -0.7265625,
            ],
        ),
        (
            affine(8),
            32,
            "ff6ad741af1886f45dcb35a20c7ae851bf2996006edb45b31c8af862cf39a7107eef54c52a9b0071e247b91d8fff65d63bac1182f358c92e9f0475e74bbd2293",
            "fcbcf4bc",
            "80407840",
            [
                -3.8442383, 0.7392578, -2.6137695, 2.0004883, -1.3833008, 3.2617188, 0.12207031,
                -3.2436523, 1.3730469, -1.9926758, 2.6240234, -0.7416992,
            ],
        ),
        (
            Packing::Mxfp4,
            32,
            "1e4d5bd0c2a4063d5c69d1b4052e4c5ad0c395163d5be9c2a4052d4c6ad1b395",
            "7f7f",
            "",
            [-4.0, 0.5, -3.0, 2.0, -1.5, 3.0, 0.0, -3.0, 1.5, -2.0, 3.0, -0.5],
        ),
        (
            Packing::Mxfp8,
            32,
            "f864f270eb75d0f669f172e87658f46cef73e27862f36fec74d8f668f271e97650f56bf072e47860f46eed74dcf766f270ea7600f66af072e6775cf46dee74e0",
            "7979",
            "",
            [-4.0, 0.75, -2.5, 2.0, -1.375, 3.25, 0.125, -3.25, 1.375, -2.0, 2.5, -0.75],
        ),
        (
            Packing::Nvfp4,
            16,
            "2f5e7cf0e4b6174e6d7ae2c5963f5d7bf0d4a6275e6df9e3c5074f6d7be1d5a6",
            "32333232",
            "",
            [-3.75, 0.625, -2.5, 1.875, -1.25, 3.75, 0.0, -3.75, 1.25, -1.875, 2.5, -0.625],
        ),
    ];
    // The identity, so that column i of x gives weight i.
    let x: Vec<u8> = (0..64 * 64)
        .flat_map(|i| (if i / 64 == i % 64 { 1f32 } else { 0.0 }).to_le_bytes())
        .collect();
    for level in Level::available() {
        for (packing, group_size, data, scales, biases, expected) in &rows {
            let (data, scales, biases) = (bytes(data), bytes(scales), bytes(biases));
            let mut out = vec![0; 64 * 4];
            let weights = Weights::Packed {
                packing: *packing,
                group_size: *group_size,
                data: &data,
                scales: &scales,
                biases: &biases,
            };
            let (m, n, k, dtype) = (64, 1, 64, Dtype::F32);
            let problem = Problem { m, positions: 1, n, k, dtype, x: &x, weights, out: &mut out };
            matmul_at(*level, problem).expect("the sizes fit");
            for (value, i) in expected.iter().zip((0..6).chain(32..38)) {
                let result = f32::from_le_bytes(out.as_chunks::<4>().0[i]);
                assert!(
                    (result - value).abs() < 1e-6,
                    "{packing:?} {level:?} {i}: {result} {value}"
                );
            }
        }
    }
}
