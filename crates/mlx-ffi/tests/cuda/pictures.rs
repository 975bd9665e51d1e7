//! Our kernels for layers over pictures on CUDA against MLX's operations in f32.

use mlx_ffi::cuda::{self, Branch, ScaledNorm, StreamHeads};
use mlx_ffi::{Array, Dtype, Result, fast, ops};

use super::arrays::{assert_near, cast, values, wide};
use super::on_cuda::{some, use_cuda};

const EPS: f32 = 1e-5;

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn modulated_norms_are_those_of_mlx() {
    use_cuda();
    for dtype in [Dtype::Bf16, Dtype::F16] {
        for &(rows, columns) in some(&[(1, 64), (37, 1152), (300, 3072), (9, 3840), (3, 16_384)], 1)
        {
            for for_each in [false, true] {
                modulated([1, rows, columns], for_each, dtype).expect("norms");
            }
        }
    }
}

fn modulated(shape: [i32; 3], for_each: bool, dtype: Dtype) -> Result<()> {
    let what = |of: &str| format!("{of} {shape:?} {for_each} {dtype:?}");
    let [_, _, columns] = shape;
    let of = |shape: &[i32], seed| cast(&values(shape, seed), dtype);
    let rows: &[i32] = if for_each { &shape } else { &[1, columns] };
    let (x, y, gate) = (of(&shape, 1), of(&shape, 2), of(rows, 3));
    let (scale, shift) = (of(rows, 4), of(rows, 5));
    let (weight, out_weight) = (of(&[columns], 6), of(&[columns], 7));
    let one = Array::scalar(1.0, Dtype::F32)?;
    let more = |x: &Array| ops::add(&wide(x), &one);

    // A layer norm with scale and shift, without a branch.
    let norm =
        ScaledNorm { weight: None, scale: Some(&scale), one_more: true, shift: Some(&shift) };
    let layer = |x: &Array| -> Result<Array> {
        let normed = ops::multiply(&fast::layer_norm(x, None, None, EPS)?, &more(&scale)?)?;
        ops::add(&normed, &wide(&shift))
    };
    assert!(cuda::takes_modulated(&x, None, Some(&norm)));
    let (same, normed) = cuda::modulated(&x, None, Some(&norm), EPS)?;
    assert_near(&same, &wide(&x), 1e-6, &what("x"));
    assert_near(&normed.expect("a norm"), &layer(&wide(&x))?, 2e-2, &what("a layer norm"));

    // A branch before it.
    let branch = Branch { y: &y, norm: None, gate: Some(&gate), tanh: false };
    let sum = ops::add(&wide(&x), &ops::multiply(&wide(&gate), &wide(&y))?)?;
    let (h, normed) = cuda::modulated(&x, Some(&branch), Some(&norm), EPS)?;
    assert_near(&h, &sum, 1e-2, &what("a gated sum"));
    assert_near(&normed.expect("a norm"), &layer(&wide(&h))?, 2e-2, &what("its layer norm"));

    // Root-mean-square norms on both sides.
    let branch = Branch { norm: Some(&out_weight), tanh: true, ..branch };
    let norm = ScaledNorm { weight: Some(&weight), shift: None, ..norm };
    let normed = fast::rms_norm(&wide(&y), Some(&wide(&out_weight)), EPS)?;
    let sum = ops::add(&wide(&x), &ops::multiply(&ops::tanh(&wide(&gate))?, &normed)?)?;
    let (h, normed) = cuda::modulated(&x, Some(&branch), Some(&norm), EPS)?;
    assert_near(&h, &sum, 1e-2, &what("a normed sum"));
    let rms = |x: &Array| fast::rms_norm(x, Some(&wide(&weight)), EPS);
    let expected = ops::multiply(&rms(&wide(&h))?, &more(&scale)?)?;
    assert_near(&normed.expect("a norm"), &expected, 2e-2, &what("its norm"));
    let (h, nothing) = cuda::modulated(&x, Some(&branch), None, EPS)?;
    assert_near(&h, &sum, 1e-2, &what("a normed sum alone"));
    assert!(nothing.is_none());

    // As vision towers have it: no gate, and weights in place of a modulation.
    let branch = Branch { y: &y, norm: None, gate: None, tanh: false };
    let norm = ScaledNorm {
        weight: None,
        scale: Some(&weight),
        one_more: false,
        shift: Some(&out_weight),
    };
    let sum = ops::add(&wide(&x), &wide(&y))?;
    let (h, normed) = cuda::modulated(&x, Some(&branch), Some(&norm), EPS)?;
    assert_near(&h, &sum, 1e-2, &what("a sum"));
    let (weight, bias) = (wide(&weight), wide(&out_weight));
    let expected = fast::layer_norm(&wide(&h), Some(&weight), Some(&bias), EPS)?;
    assert_near(&normed.expect("a norm"), &expected, 2e-2, &what("its weighted norm"));
    Ok(())
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn heads_of_two_streams_are_those_of_mlx() {
    use_cuda();
    for dtype in [Dtype::Bf16, Dtype::F16] {
        for &head_dim in some(&[72, 8, 64, 128, 256], 2) {
            for (lengths, n_heads, n_kv_heads) in
                [(&[5, 40][..], 24, 24), (&[130], 6, 2), (&[1, 1], 1, 1)]
            {
                for is_normed in [false, true] {
                    let sizes = [n_heads, n_kv_heads, head_dim];
                    heads(lengths, sizes, is_normed, dtype).expect("heads");
                }
            }
        }
    }
}

fn heads(lengths: &[i32], sizes: [i32; 3], is_normed: bool, dtype: Dtype) -> Result<()> {
    let [n_heads, n_kv_heads, d] = sizes;
    let what = |of: &str| format!("{of} {lengths:?} {sizes:?} {is_normed} {dtype:?}");
    let of = |shape: &[i32], seed| cast(&values(shape, seed), dtype);
    let made: Vec<([Array; 3], [Array; 2])> = (10..)
        .step_by(10)
        .zip(lengths)
        .map(|(seed, l)| {
            let part = |n: i32, own: u32| of(&[1, *l, n * d], seed + own);
            let norms = [of(&[d], seed + 4), of(&[d], seed + 5)];
            ([part(n_heads, 1), part(n_kv_heads, 2), part(n_kv_heads, 3)], norms)
        })
        .collect();
    let streams: Vec<StreamHeads<'_>> = made
        .iter()
        .map(|(qkv, norms)| StreamHeads {
            qkv: qkv.each_ref(),
            norms: is_normed.then_some(norms.each_ref()),
        })
        .collect();
    let l: i32 = lengths.iter().sum();
    let turn = |turn: fn(f32) -> f32| {
        let angles = (0..l * d / 2).map(|i| turn(i as f32 * 0.37));
        Array::from_f32(&angles.collect::<Vec<_>>(), &[l, d / 2, 1])
    };
    let (cos, sin) = (turn(f32::cos)?, turn(f32::sin)?);
    assert!(cuda::takes_picture_heads(&streams, [&cos, &sin], d));
    let found = cuda::picture_heads(&streams, [&cos, &sin], d, EPS)?;
    for (index, found) in found.iter().enumerate() {
        let n = if index == 0 { n_heads } else { n_kv_heads };
        let parts = made.iter().map(|(qkv, norms)| {
            let x = wide(&qkv[index]);
            let x = ops::reshape(&x, &[1, x.shape()[1], n, d])?;
            match norms.get(index) {
                Some(norm) if is_normed => fast::rms_norm(&x, Some(&wide(norm)), EPS),
                _ => Ok(x),
            }
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let all = ops::concatenate(&parts.iter().collect::<Vec<_>>(), 1)?;
        let expected = match index {
            2 => all,
            _ => {
                let pairs = ops::reshape(&all, &[1, l, n, d / 2, 2])?;
                let (a, b) =
                    (ops::slice_axis(&pairs, -1, 0, 1)?, ops::slice_axis(&pairs, -1, 1, 2)?);
                let turn = |x: &Array| ops::reshape(x, &[1, l, 1, d / 2, 1]);
                let (cos, sin) = (turn(&cos)?, turn(&sin)?);
                let times = |x: &Array, y: &Array| ops::multiply(x, y);
                let first = ops::subtract(&times(&a, &cos)?, &times(&b, &sin)?)?;
                let second = ops::add(&times(&a, &sin)?, &times(&b, &cos)?)?;
                ops::concatenate(&[&first, &second], -1)?
            }
        };
        let expected = ops::reshape(&expected, &[1, l, n, d])?;
        assert_near(found, &expected, 1e-2, &what(["queries", "keys", "values"][index]));
    }
    Ok(())
}
