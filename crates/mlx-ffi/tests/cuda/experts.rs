//! Our kernels for mixtures of experts on CUDA against MLX's operations in f32.

use mlx_ffi::cuda::{
    self, Chosen, ExpertGate, ExpertMatrices, ExpertNetwork, IntoExperts, Router, Score, Weights,
};
use mlx_ffi::{
    Activation, Array, Dtype, Indices, QuantMode, Quantization, Quantized, Recorded, Result,
    dequantize, fast, ops, quantize,
};
use mlx_ffi::{Replay, eval_all};

use super::on_cuda::{some, use_cuda};
use super::uniform::{floats, values, wide};

/// Checks each value, and the length of the difference as a part of that of what is expected.
#[track_caller]
fn assert_near(found: &Array, expected: &Array, bound: f32, what: &str) {
    assert_eq!(found.shape(), expected.shape(), "{what}");
    let found = wide(found).to_vec_f32().expect("values");
    let expected = wide(expected).to_vec_f32().expect("values");
    let length = |all: &mut dyn Iterator<Item = f32>| all.map(|x| x * x).sum::<f32>().sqrt();
    let off = length(&mut found.iter().zip(&expected).map(|(a, b)| a - b));
    let all = length(&mut expected.iter().copied());
    let off = off / all;
    assert!(off < bound && found.iter().all(|x| x.is_finite()), "{what}: off by {off}");
    // No value is off by much more than others.
    let usual = all / (expected.len() as f32).sqrt();
    for (at, (a, b)) in found.iter().zip(&expected).enumerate() {
        let near = (a - b).abs() < 8.0 * bound * usual.max(b.abs());
        assert!(near, "{what}: {a} for {b} at {at}, where {usual} is usual");
    }
}

/// The matrices of all experts with their biases.
struct Matrices {
    dense: Option<Array>,
    packed: Option<Quantized>,
    bias: Option<Array>,
}

type Packing = Option<(QuantMode, i32, i32)>;

impl Matrices {
    fn new(shape: [i32; 3], dtype: Dtype, packing: Packing, has_bias: bool) -> Matrices {
        let [experts, rows, columns] = shape;
        let scale = Array::scalar(2.0 / (columns as f32).sqrt(), dtype).expect("a scalar");
        let w = ops::multiply(&values(&shape, 7, dtype), &scale).expect("weights");
        let bias = has_bias.then(|| values(&[experts, rows], 9, dtype));
        match packing {
            None => Matrices { dense: Some(w), packed: None, bias },
            Some((mode, bits, group_size)) => {
                let packed = quantize(&w, Quantization { mode, bits, group_size }).expect("packed");
                Matrices { dense: None, packed: Some(packed), bias }
            }
        }
    }

    fn given(&self) -> ExpertMatrices<'_> {
        let weights = match (&self.dense, &self.packed) {
            (Some(w), _) => Weights::Dense(w),
            (None, Some(w)) => Weights::Packed(w),
            (None, None) => panic!("there are weights"),
        };
        ExpertMatrices { weights, bias: self.bias.as_ref() }
    }

    /// `x`, `[experts or 1, t, in]` F32, by each expert: `[experts, t, out]`.
    fn by_all(&self, x: &Array) -> Result<Array> {
        let w = match (&self.dense, &self.packed) {
            (Some(w), _) => wide(w),
            (None, Some(w)) => dequantize(w, Dtype::F32)?,
            (None, None) => panic!("there are weights"),
        };
        let y = ops::matmul(x, &ops::swap_axes(&w, 1, 2)?)?;
        match &self.bias {
            None => Ok(y),
            Some(bias) => ops::add(&y, &ops::expand_dims(&wide(bias), 1)?),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Layout {
    Separate,
    Halves,
    Interleaved,
    Same,
}

struct Network {
    into: Vec<Matrices>,
    layout: Layout,
    gate: ExpertGate,
    down: Matrices,
}

impl Network {
    fn given(&self) -> ExpertNetwork<'_> {
        let into = match self.layout {
            Layout::Separate => IntoExperts::Separate([self.into[0].given(), self.into[1].given()]),
            Layout::Halves => IntoExperts::Halves(self.into[0].given()),
            Layout::Interleaved => IntoExperts::Interleaved(self.into[0].given()),
            Layout::Same => IntoExperts::Same(self.into[0].given()),
        };
        ExpertNetwork { into, gate: self.gate, down: self.down.given() }
    }

    /// The weighted sums by MLX in f32 for `x`, `[t, in]`, and `weights` of all experts, `[experts,
    /// t, 1]`.
    fn by_mlx(&self, x: &Array, weights: &Array) -> Result<Array> {
        let x = ops::expand_dims(x, 0)?;
        let both = self.into.iter().map(|of| of.by_all(&x)).collect::<Result<Vec<_>>>()?;
        let [experts, t, all] = both[0].dims()?;
        let [gate, up] = match self.layout {
            Layout::Separate => [both[0].share()?, both[1].share()?],
            Layout::Same => [both[0].share()?, both[0].share()?],
            Layout::Halves => [
                ops::slice_axis(&both[0], 2, 0, all / 2)?,
                ops::slice_axis(&both[0], 2, all / 2, all)?,
            ],
            Layout::Interleaved => {
                let pairs = ops::reshape(&both[0], &[experts, t, all / 2, 2])?;
                [0, 1].map(|at| {
                    let one = ops::slice_axis(&pairs, 3, at, at + 1).expect("a half");
                    ops::squeeze(&one, 3).expect("a half")
                })
            }
        };
        let scalar = |value: f32| Array::scalar(value, Dtype::F32);
        let inner = match self.gate {
            ExpertGate::Plain(Activation::Silu) => {
                ops::multiply(&ops::multiply(&gate, &ops::sigmoid(&gate)?)?, &up)?
            }
            ExpertGate::Plain(Activation::GeluTanh) => {
                let cube = ops::multiply(&ops::multiply(&gate, &gate)?, &gate)?;
                let sum = ops::add(&gate, &ops::multiply(&cube, &scalar(0.044_715)?)?)?;
                let tanh = ops::tanh(&ops::multiply(&sum, &scalar(0.797_884_6)?)?)?;
                let open = ops::multiply(&ops::add(&tanh, &scalar(1.0)?)?, &scalar(0.5)?)?;
                ops::multiply(&ops::multiply(&gate, &open)?, &up)?
            }
            ExpertGate::Plain(Activation::Gelu) => {
                let erf =
                    ops::erf(&ops::multiply(&gate, &scalar(std::f32::consts::FRAC_1_SQRT_2)?)?)?;
                let open = ops::multiply(&ops::add(&erf, &scalar(1.0)?)?, &scalar(0.5)?)?;
                ops::multiply(&ops::multiply(&gate, &open)?, &up)?
            }
            ExpertGate::Plain(Activation::Relu) => {
                ops::multiply(&ops::maximum(&gate, &scalar(0.0)?)?, &up)?
            }
            ExpertGate::Plain(other) => panic!("no experts here have the gate {other:?}"),
            ExpertGate::Clipped { alpha, limit } => {
                let gate = ops::minimum(&gate, &scalar(limit)?)?;
                let up = ops::maximum(&ops::minimum(&up, &scalar(limit)?)?, &scalar(-limit)?)?;
                let open = ops::sigmoid(&ops::multiply(&gate, &scalar(alpha)?)?)?;
                let up = ops::add(&up, &scalar(1.0)?)?;
                ops::multiply(&ops::multiply(&gate, &open)?, &up)?
            }
        };
        let y = ops::multiply(&self.down.by_all(&inner)?, weights)?;
        ops::sum(&y, 0, false)
    }
}

/// Sizes of a mixture.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    experts: i32,
    choices: i32,
    hidden: i32,
    inner: i32,
}

fn network(
    sizes: Sizes,
    dtype: Dtype,
    packing: Packing,
    layout: Layout,
    gate: ExpertGate,
) -> Network {
    let Sizes { experts, hidden, inner, .. } = sizes;
    let has_bias = matches!(layout, Layout::Interleaved | Layout::Same);
    let new = |rows, columns| Matrices::new([experts, rows, columns], dtype, packing, has_bias);
    let into = match layout {
        Layout::Separate => vec![new(inner, hidden), new(inner, hidden)],
        Layout::Halves | Layout::Interleaved => vec![new(2 * inner, hidden)],
        Layout::Same => vec![new(inner, hidden)],
    };
    Network { into, layout, gate, down: new(hidden, inner) }
}

/// Choices of `t` rows, their weights, and those of all experts, `[experts, t, 1]`.
fn choices(t: i32, sizes: Sizes, dtype: Dtype) -> Result<(Indices, Array, Array)> {
    let Sizes { experts, choices, .. } = sizes;
    let weights: Vec<f32> = floats((t * choices) as usize, 3).iter().map(|x| x + 1.1).collect();
    let weights = Array::from_f32(&weights, &[t, choices])?;
    let weights = ops::astype(&weights, dtype)?;
    let rounded = wide(&weights).to_vec_f32()?;
    let mut all = vec![0.0; (experts * t) as usize];
    let mut indices = Vec::new();
    for row in 0..t {
        // Some experts are chosen more often than others, and some never.
        let first = (row * row / 3 + row) % experts;
        for choice in 0..choices {
            let expert = (first + choice * choice) % experts;
            let expert = (0..experts).map(|more| (expert + more) % experts);
            let start = indices.len() - choice as usize;
            let taken: &[u32] = &indices[start..];
            let free = expert.into_iter().find(|expert| !taken.contains(&(*expert as u32)));
            let expert = free.expect("there are enough");
            all[(expert * t + row) as usize] = rounded[(row * choices + choice) as usize];
            indices.push(expert as u32);
        }
    }
    let all = Array::from_f32(&all, &[experts, t, 1])?;
    Ok((Indices::from_u32(&indices, &[t, choices])?, weights, all))
}

const SILU: ExpertGate = ExpertGate::Plain(Activation::Silu);
const GELU: ExpertGate = ExpertGate::Plain(Activation::GeluTanh);
const RELU: ExpertGate = ExpertGate::Plain(Activation::Relu);
const CLIPPED: ExpertGate = ExpertGate::Clipped { alpha: 1.702, limit: 1.5 };

const MANY: Sizes = Sizes { experts: 10, choices: 4, hidden: 256, inner: 384 };
/// Odd numbers of groups in a row, so that scales begin within words.
const ODD: Sizes = Sizes { experts: 10, choices: 4, hidden: 256, inner: 320 };
const SINGLE: Sizes = Sizes { experts: 5, choices: 1, hidden: 384, inner: 128 };

/// Experts of one packing, for all numbers of rows that are computed in ways of their own.
fn of_packing(packing: Packing, layout: Layout, gate: ExpertGate, sizes: Sizes) {
    use_cuda();
    for &dtype in some(&[Dtype::Bf16, Dtype::F16], 1) {
        let network = network(sizes, dtype, packing, layout, gate);
        for &t in some(&[1, 17, 40, 3, 22, 90, 300], 3) {
            let what = format!("{t} rows of {dtype:?} {packing:?} {layout:?} {sizes:?}");
            mixed(t, sizes, dtype, &network, &what).expect("experts");
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn experts_as_they_are_are_those_of_mlx() {
    of_packing(None, Layout::Separate, SILU, MANY);
    of_packing(None, Layout::Interleaved, GELU, SINGLE);
    of_packing(None, Layout::Same, RELU, MANY);
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn experts_in_four_bits_are_those_of_mlx() {
    of_packing(Some((QuantMode::Affine, 4, 64)), Layout::Separate, SILU, MANY);
    of_packing(Some((QuantMode::Affine, 4, 32)), Layout::Halves, GELU, SINGLE);
    of_packing(Some((QuantMode::Affine, 4, 128)), Layout::Interleaved, CLIPPED, MANY);
    of_packing(Some((QuantMode::Affine, 4, 64)), Layout::Same, RELU, ODD);
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn experts_in_eight_bits_are_those_of_mlx() {
    of_packing(Some((QuantMode::Affine, 8, 32)), Layout::Separate, SILU, MANY);
    of_packing(Some((QuantMode::Affine, 8, 128)), Layout::Interleaved, CLIPPED, SINGLE);
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn experts_in_floats_are_those_of_mlx() {
    of_packing(Some((QuantMode::Mxfp4, 4, 32)), Layout::Interleaved, CLIPPED, ODD);
    of_packing(Some((QuantMode::Nvfp4, 4, 16)), Layout::Separate, SILU, SINGLE);
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn experts_of_released_sizes_are_those_of_mlx() {
    use_cuda();
    let qwen = Sizes { experts: 12, choices: 8, hidden: 2048, inner: 768 };
    let gpt_oss = Sizes { experts: 6, choices: 4, hidden: 2880, inner: 2880 };
    let wide = Sizes { experts: 3, choices: 2, hidden: 1024, inner: 14_336 };
    let all = [
        (qwen, None, Layout::Separate, SILU),
        (qwen, Some((QuantMode::Affine, 4, 64)), Layout::Separate, SILU),
        (gpt_oss, Some((QuantMode::Mxfp4, 4, 32)), Layout::Interleaved, CLIPPED),
        // More than a block holds of a row.
        (wide, None, Layout::Halves, SILU),
    ];
    for &(sizes, packing, layout, gate) in some(&all, 0) {
        let network = network(sizes, Dtype::Bf16, packing, layout, gate);
        for t in [1, 33] {
            let what = format!("{t} rows of {packing:?} {sizes:?}");
            mixed(t, sizes, Dtype::Bf16, &network, &what).expect("experts");
        }
    }
}

fn mixed(t: i32, sizes: Sizes, dtype: Dtype, network: &Network, what: &str) -> Result<()> {
    let Sizes { choices: count, hidden, .. } = sizes;
    let (given, x) = (network.given(), values(&[1, t, hidden], 1, dtype));
    let (indices, weights, all) = choices(t, sizes, dtype)?;
    let chosen = Chosen::These { indices: &indices, weights: &weights };
    assert!(cuda::takes_experts(&x, &given, count, false), "{what}");
    let whole = |y: &Array| ops::expand_dims(y, 0);
    let expected = network.by_mlx(&ops::squeeze(&wide(&x), 0)?, &all)?;
    let found = cuda::experts(&x, &given, chosen, None, None)?;
    assert_near(&found, &whole(&expected)?, 1.5e-2, &format!("{what}, plain"));
    let onto = values(&[1, t, hidden], 4, dtype);
    let expected = ops::add(&expected, &ops::squeeze(&wide(&onto), 0)?)?;
    let found = cuda::experts(&x, &given, chosen, None, Some(&onto))?;
    assert_near(&found, &whole(&expected)?, 1.5e-2, &format!("{what}, onto"));
    if cuda::takes_experts(&x, &given, count, true) {
        let norm = values(&[hidden], 5, dtype);
        let normed = fast::rms_norm(&wide(&x), Some(&wide(&norm)), 1e-5)?;
        let expected = network.by_mlx(&ops::squeeze(&normed, 0)?, &all)?;
        let found = cuda::experts(&x, &given, chosen, Some((&norm, 1e-5)), None)?;
        assert_near(&found, &whole(&expected)?, 2e-2, &format!("{what}, normed"));
    }
    routed_within(&x, &given, sizes, what)
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn a_row_is_the_same_beside_any_others() {
    use_cuda();
    let packings = [Some((QuantMode::Affine, 4, 64)), Some((QuantMode::Mxfp4, 4, 32)), None];
    for &packing in some(&packings, 1) {
        // Tiles of 8 rows, of 16 and of 32.
        beside_others(packing, some(&[11, 20, 45], 2)).expect("experts");
    }
}

/// Rows of batches that begin with the same rows.
fn beside_others(packing: Packing, batches: &[i32]) -> Result<()> {
    let (sizes, dtype) = (MANY, Dtype::Bf16);
    let network = network(sizes, dtype, packing, Layout::Separate, SILU);
    let most = batches.iter().copied().max().unwrap_or(0);
    let x = values(&[1, most, sizes.hidden], 1, dtype);
    let mut first: Option<Vec<f32>> = None;
    for &t in batches {
        let (indices, weights, _) = choices(t, sizes, dtype)?;
        let chosen = Chosen::These { indices: &indices, weights: &weights };
        let rows = ops::slice_axis(&x, 1, 0, t)?;
        let found = wide(&cuda::experts(&rows, &network.given(), chosen, None, None)?);
        let found = found.to_vec_f32()?;
        match &first {
            None => first = Some(found),
            Some(first) => assert!(found[..first.len()] == first[..], "{packing:?}, {t} rows"),
        }
    }
    Ok(())
}

/// Checks that a choice by the kernel gives the same as one made before.
fn routed_within(x: &Array, given: &ExpertNetwork<'_>, sizes: Sizes, what: &str) -> Result<()> {
    let Sizes { experts, choices: count, .. } = sizes;
    let (t, dtype) = (x.rows(), x.dtype());
    let logits = values(&[1, t, experts], 13, dtype);
    let (added, scales) =
        (Array::from_f32(&floats(experts as usize, 8), &[experts])?, values(&[experts], 9, dtype));
    let plain = Router {
        score: Score::Softmax,
        correction: None,
        normaliser: Some(0.0),
        factor: 1.0,
        choices: count,
        groups: None,
        scales: Some(&scales),
    };
    let corrected =
        Router { score: Score::Sigmoid, correction: Some(&added), scales: None, ..plain };
    for router in [plain, corrected] {
        let (indices, weights) = cuda::route(&logits, &router)?;
        let before = Chosen::These { indices: &indices, weights: &weights };
        let expected = wide(&cuda::experts(x, given, before, None, Some(x))?).to_vec_f32()?;
        let within = Chosen::By { logits: &logits, router };
        let found = wide(&cuda::experts(x, given, within, None, Some(x))?).to_vec_f32()?;
        assert!(found == expected, "{what}, {router:?}");
    }
    Ok(())
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn mixtures_are_kept_and_repeated() {
    use_cuda();
    // A processor keeps no launches of kernels.
    for t in some(&[1, 3, 12], 0) {
        repeated(*t).expect("steps");
    }
}

/// Steps of a mixture by themselves and as repetitions.
fn repeated(t: i32) -> Result<()> {
    let sizes = Sizes { experts: 10, choices: 4, hidden: 256, inner: 384 };
    let packing = Some((QuantMode::Mxfp4, 4, 32));
    let network = network(sizes, Dtype::Bf16, packing, Layout::Interleaved, CLIPPED);
    let router = Router {
        score: Score::Softmax,
        correction: None,
        normaliser: Some(0.0),
        factor: 1.0,
        choices: sizes.choices,
        groups: None,
        scales: None,
    };
    let (given, w) = (network.given(), values(&[sizes.experts, sizes.hidden], 6, Dtype::Bf16));
    eval_all([&w])?;
    let step = |x: &Array| -> Result<Array> {
        let logits = match t {
            1 => cuda::one_row(x, Weights::Dense(&w), &cuda::Around::default())?,
            _ => cuda::several_rows(x, Weights::Dense(&w))?,
        };
        cuda::experts(x, &given, Chosen::By { logits: &logits, router }, None, Some(x))
    };
    let input = |seed| values(&[t, 1, sizes.hidden], seed, Dtype::Bf16);
    // What is not evaluated yet would be an operation of the step.
    eval_all([&step(&input(19))?])?;
    let mut kept = None;
    // A minute for their compilation.
    for _ in 0..6000 {
        let x = input(20);
        match Replay::record(&step(&x)?, &[&x], &[], t == 1, None)? {
            Recorded::Kept(replay) => {
                kept = Some(replay);
                break;
            }
            Recorded::NotYet => {}
            Recorded::Impossible => panic!("a mixture of {t} rows is not kept"),
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let mut kept = kept.expect("kernels that are compiled within a minute");
    for seed in 30..50 {
        let x = input(seed);
        let expected = step(&x)?;
        eval_all([&expected])?;
        let found = kept.run(&[&x], &[])?.expect("a repetition");
        let (found, expected) = (wide(&found).to_vec_f32()?, wide(&expected).to_vec_f32()?);
        assert_eq!(found, expected, "{t} rows, {seed}");
    }
    Ok(())
}
