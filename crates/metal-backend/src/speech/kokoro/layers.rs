//! Layers of Kokoro over places of time, `[1, n, channels]`: convolutions, norms that a style
//! scales, and recurrences.

use std::thread;

use mlx_ffi::cpu::{AfterNorm, ChannelGroups};
use mlx_ffi::ops::{self, Padding};
use mlx_ffi::{Array, Dtype, Error, Result, eval_all};

use crate::error::{Error as Fault, Result as Read};
use crate::kernels::Kernels;
use crate::layers::Linear;
use crate::weights::Weights;

/// The `eps` of all norms but ALBERT's.
pub(super) const EPS: f32 = 1e-5;

/// The kernels of a convolution under `w`, `[rows, columns, taps]`, a direction and a length made
/// one where they are stored apart (<https://arxiv.org/abs/1602.07868>). Programs for MLX save the
/// taps in the middle.
pub(super) fn folded(w: &Weights, [rows, columns, taps]: [i32; 3]) -> Read<Array> {
    let laid = |name: &str| -> Read<Array> {
        let turned = [rows, taps, columns];
        if taps != columns && w.shape(name).is_some_and(|shape| shape == turned) {
            return Ok(ops::swap_axes(&w.tensor_f32(name, &turned)?, 1, 2)?);
        }
        w.tensor_f32(name, &[rows, columns, taps])
    };
    if !w.has("weight_v") {
        return laid("weight");
    }
    let (direction, length) = (laid("weight_v")?, w.tensor_f32("weight_g", &[rows, 1, 1])?);
    let squares = ops::multiply(&direction, &direction)?;
    let sum = ops::sum(&ops::sum(&squares, 2, true)?, 1, true)?;
    Ok(ops::multiply(&direction, &ops::divide(&length, &ops::sqrt(&sum)?)?)?)
}

/// Sizes of the kernels under `w` as they are stored: rows, columns and taps.
///
/// # Errors
/// No kernels.
pub(super) fn stored(w: &Weights) -> Read<[i32; 3]> {
    let name = if w.has("weight_v") { "weight_v" } else { "weight" };
    let found = w.shape(name).unwrap_or_default();
    found.try_into().map_err(|_| {
        Fault::model(format!("tensor `{}.{name}` is missing or no kernel", w.prefix()))
    })
}

/// `array`, computed and row-major.
pub(super) fn settled(array: &Array) -> Read<Array> {
    let made = ops::contiguous(array)?;
    made.eval()?;
    Ok(made)
}

/// How a convolution moves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moves {
    /// Places from one result to the next.
    pub stride: i32,
    /// Places from one tap to the next.
    pub dilation: i32,
    /// Zeros before and behind.
    pub around: i32,
}

impl Moves {
    /// So that a kernel of so many taps leaves as many places as there were.
    pub fn same(taps: i32) -> Moves {
        Moves { stride: 1, dilation: 1, around: (taps - 1) / 2 }
    }
}

/// A convolution over places.
pub(super) struct Conv {
    /// `[out, taps, 1, channels]`.
    kernel: Array,
    /// `[out]`.
    bias: Option<Array>,
    moves: Moves,
    kernels: Kernels,
}

impl Conv {
    /// The module under `w` from so many channels to so many with so many taps.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn load(w: &Weights, [input, output, taps]: [i32; 3], moves: Moves) -> Read<Conv> {
        let kernel = ops::swap_axes(&folded(w, [output, input, taps])?, 1, 2)?;
        let kernel = settled(&ops::reshape(&kernel, &[output, taps, 1, input])?)?;
        let bias = w.has("bias").then(|| w.tensor_f32("bias", &[output])).transpose()?;
        Ok(Conv { kernel, bias, moves, kernels: w.kernels() })
    }

    /// `[1, n, channels]` to `[1, n', out]`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let [_, n, channels] = x.dims()?;
        let Moves { stride, dilation, around } = self.moves;
        // Places that are a dilation apart lie below each other.
        let rows = (n + dilation - 1) / dilation;
        let x = padded(x, [0, rows * dilation - n])?;
        let x = ops::reshape(&x, &[1, rows, dilation, channels])?;
        let rows_around = [around / dilation, 0];
        let padding = Padding { before: rows_around, after: rows_around };
        let y = self.kernels.conv2d(&x, &self.kernel, stride, padding)?;
        let [_, rows, columns, output] = y.dims()?;
        let mut y = ops::reshape(&y, &[1, rows * columns, output])?;
        if dilation > 1 {
            y = ops::contiguous(&ops::slice_axis(&y, 1, 0, n)?)?;
        }
        match &self.bias {
            None => Ok(y),
            Some(bias) => self.kernels.sum(&y, bias),
        }
    }
}

/// `x`, `[1, n, channels]`, with zeros before and behind it.
fn padded(x: &Array, [before, behind]: [i32; 2]) -> Result<Array> {
    if before + behind == 0 {
        return x.share();
    }
    let [_, _, channels] = x.dims()?;
    let zeros = |count: i32| ops::zeros(&[1, count, channels], x.dtype());
    let (before, behind) = (zeros(before)?, zeros(behind)?);
    let parts = [&before, x, &behind].into_iter().filter(|part| part.size() > 0);
    ops::concatenate(&parts.collect::<Vec<_>>(), 1)
}

/// A transposed convolution, as one that makes all places between two at once.
pub(super) struct Upsample {
    /// `[rate · out, taps / rate, 1, channels]`, the last taps first.
    kernel: Array,
    /// `[out]`.
    bias: Array,
    rate: i32,
    taps: i32,
    kernels: Kernels,
}

impl Upsample {
    /// The module under `w` from so many channels to so many, with so many taps that move by
    /// `rate`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn load(w: &Weights, [input, output]: [i32; 2], [rate, taps]: [i32; 2]) -> Read<Upsample> {
        let kernel = folded(w, [input, output, taps])?;
        let steps = (taps + rate - 1) / rate;
        let lack = ops::zeros(&[input, output, steps * rate - taps], Dtype::F32)?;
        let parts = [&kernel, &lack];
        let parts: Vec<&Array> = parts.into_iter().filter(|part| part.size() > 0).collect();
        let kernel = ops::concatenate(&parts, 2)?;
        let kernel = ops::reshape(&kernel, &[input, output, steps, rate])?;
        let each = (0..steps).rev().map(|step| ops::slice_axis(&kernel, 2, step, step + 1));
        let each = each.collect::<Result<Vec<_>>>()?;
        let kernel = ops::concatenate(&each.iter().collect::<Vec<_>>(), 2)?;
        let kernel = ops::contiguous(&ops::transpose(&kernel, &[3, 1, 2, 0])?)?;
        let kernel = settled(&ops::reshape(&kernel, &[rate * output, steps, 1, input])?)?;
        let bias = w.tensor_f32("bias", &[output])?;
        Ok(Upsample { kernel, bias, rate, taps, kernels: w.kernels() })
    }

    /// `[1, n, channels]` to `[1, n', out]`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let [_, n, channels] = x.dims()?;
        let [_, steps, ..] = self.kernel.dims::<4>()?;
        let x = ops::reshape(x, &[1, n, 1, channels])?;
        let padding = Padding { before: [steps - 1, 0], after: [steps - 1, 0] };
        let y = self.kernels.conv2d(&x, &self.kernel, 1, padding)?;
        let output = self.bias.size() as i32;
        let y = ops::reshape(&y, &[1, (n + steps - 1) * self.rate, output])?;
        let cut = (self.taps - self.rate) / 2;
        let count = (n - 1) * self.rate + self.taps - 2 * cut;
        let y = ops::contiguous(&ops::slice_axis(&y, 1, cut, cut + count)?)?;
        self.kernels.sum(&y, &self.bias)
    }
}

/// A norm of each channel over all places, which a style scales and moves
/// (<https://arxiv.org/abs/1703.06868>).
pub(super) struct AdaIn {
    /// From a style to what each channel is scaled by beside 1, then to what is added.
    style: Linear,
    /// The norm's own factors and summands, `[channels]`.
    own: Option<[Array; 2]>,
    kernels: Kernels,
}

impl AdaIn {
    /// The module under `w`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn load(w: &Weights, channels: i32, style: i32) -> Read<AdaIn> {
        let own = w.has("norm.weight").then(|| -> Read<[Array; 2]> {
            let norm = |name: &str| w.tensor_f32(name, &[channels]);
            Ok([norm("norm.weight")?, norm("norm.bias")?])
        });
        let style = w.linear("fc", style, 2 * channels, true)?;
        Ok(AdaIn { style, own: own.transpose()?, kernels: w.kernels() })
    }

    /// `[1, n, channels]` to the same; `style` is `[1, size]`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn forward(&self, x: &Array, style: &Array, after: AfterNorm<'_>) -> Result<Array> {
        let [_, n, channels] = x.dims()?;
        let [weight, bias] = scales(&self.style, style)?;
        let (weight, bias) = match &self.own {
            None => (weight, bias),
            Some([own, summand]) => {
                let moved = ops::add(&ops::multiply(&weight, summand)?, &bias)?;
                (ops::multiply(&weight, own)?, moved)
            }
        };
        let groups =
            ChannelGroups { weight: &weight, bias: &bias, groups: channels, eps: EPS, after };
        let x = ops::reshape(x, &[1, n, 1, channels])?;
        ops::reshape(&self.kernels.group_norm(&x, groups)?, &[1, n, channels])
    }
}

/// Factors and summands of channels that a style makes, `[channels]` each.
pub(super) fn scales(linear: &Linear, style: &Array) -> Result<[Array; 2]> {
    let both = linear.forward(style)?;
    let [_, all] = both.dims()?;
    let part = |at: i32| -> Result<Array> {
        let part = ops::slice_axis(&both, 1, at * all / 2, (at + 1) * all / 2)?;
        ops::contiguous(&ops::reshape(&part, &[all / 2])?)
    };
    Ok([ops::add(&part(0)?, &Array::scalar(1.0, Dtype::F32)?)?, part(1)?])
}

/// An LSTM in both directions. Products with what comes in are computed at once; the recurrence
/// runs on plain numbers, as its steps are too small for a device.
pub(super) struct Lstm {
    /// To the four gates of each direction.
    input: [Linear; 2],
    /// From a state to the gates of each direction, `[size, 4 size]`.
    state: [Vec<f32>; 2],
    size: usize,
}

impl Lstm {
    /// The module under `w`, whose result has `output` channels.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn load(w: &Weights, input: i32, output: i32) -> Read<Lstm> {
        let size = output / 2;
        let direction = |end: &str| -> Read<(Linear, Vec<f32>)> {
            let bias = |kind: &str| w.tensor_f32(&format!("bias_{kind}_l0{end}"), &[4 * size]);
            let bias = settled(&ops::add(&bias("ih")?, &bias("hh")?)?)?;
            let matrix = w.tensor_f32(&format!("weight_ih_l0{end}"), &[4 * size, input])?;
            let weight = crate::layers::Weight {
                matrix: crate::kernels::Matrix::Dense(matrix),
                kernels: w.kernels(),
            };
            let state = w.tensor_f32(&format!("weight_hh_l0{end}"), &[4 * size, size])?;
            let state = settled(&ops::swap_axes(&state, 0, 1)?)?.to_vec_f32()?;
            Ok((Linear::new(weight, Some(bias)), state))
        };
        let ((ahead, of_ahead), (back, of_back)) = (direction("")?, direction("_reverse")?);
        Ok(Lstm { input: [ahead, back], state: [of_ahead, of_back], size: size as usize })
    }

    /// `[1, n, channels]` to `[1, n, 2 size]`: the states of both directions.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let [_, n, _] = x.dims()?;
        let gates = [self.input[0].forward(x)?, self.input[1].forward(x)?];
        eval_all(&gates)?;
        let gates = [gates[0].to_vec_f32()?, gates[1].to_vec_f32()?];
        let (size, count, from_state) = (self.size, n as usize, &self.state);
        let run = |at: usize, steps: &mut dyn Iterator<Item = usize>| {
            states(&gates[at], &from_state[at], size, steps)
        };
        let both = thread::scope(|scope| {
            let back = scope.spawn(|| run(1, &mut (0..count).rev()));
            let ahead = run(0, &mut (0..count));
            back.join().map(|back| [ahead, back])
        });
        let [ahead, back] = both.map_err(|_| Error::new("a recurrence failed"))?;
        let pairs = ahead.chunks_exact(size).zip(back.chunks_exact(size));
        let values: Vec<f32> = pairs.flat_map(|(a, b)| [a, b]).flatten().copied().collect();
        Array::from_f32(&values, &[1, n, 2 * size as i32])
    }
}

/// The states behind each of `steps`, in the order of places: `gates` are what comes in, `[n, 4
/// size]`, for the input, what is forgotten, the candidate and the output.
fn states(
    gates: &[f32],
    from_state: &[f32],
    size: usize,
    steps: &mut dyn Iterator<Item = usize>,
) -> Vec<f32> {
    let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
    let mut made = vec![0.0; gates.len() / 4];
    let (mut state, mut cell) = (vec![0.0f32; size], vec![0.0f32; size]);
    let mut sums = vec![0.0f32; 4 * size];
    for step in steps {
        sums.copy_from_slice(&gates[step * 4 * size..(step + 1) * 4 * size]);
        add_products(&mut sums, &state, from_state);
        let (input, rest) = sums.split_at(size);
        let (forget, rest) = rest.split_at(size);
        let (candidate, output) = rest.split_at(size);
        for at in 0..size {
            cell[at] = sigmoid(forget[at]) * cell[at] + sigmoid(input[at]) * candidate[at].tanh();
            state[at] = sigmoid(output[at]) * cell[at].tanh();
        }
        made[step * size..(step + 1) * size].copy_from_slice(&state);
    }
    made
}

/// Adds to `sums` the rows of `matrix`, `[state, sums]`, each times its value of `state`. Four
/// rows at a time, so that sums are seldom written.
fn add_products(sums: &mut [f32], state: &[f32], matrix: &[f32]) {
    let count = sums.len();
    for (values, rows) in state.chunks(4).zip(matrix.chunks(4 * count)) {
        if let ([a, b, c, d], 4) = (values, rows.len() / count.max(1)) {
            let (first, rest) = rows.split_at(count);
            let (second, rest) = rest.split_at(count);
            let (third, fourth) = rest.split_at(count);
            let rows = first.iter().zip(second).zip(third.iter().zip(fourth));
            for (sum, ((w, x), (y, z))) in sums.iter_mut().zip(rows) {
                *sum += a * w + b * x + (c * y + d * z);
            }
            continue;
        }
        for (value, row) in values.iter().zip(rows.chunks_exact(count)) {
            sums.iter_mut().zip(row).for_each(|(sum, weight)| *sum += value * weight);
        }
    }
}
