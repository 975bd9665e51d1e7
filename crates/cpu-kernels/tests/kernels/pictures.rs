//! Convolutions and norms of pictures against plain arithmetic written out here.

use super::numbers::{push, random, value};
use cpu_kernels::{AfterNorm, Conv2d, Dtype, GroupNorm, Level, conv2d_at, group_norm_at};

fn some(count: usize) -> Vec<f32> {
    let mut state = count as u64;
    (0..count).map(|_| random(&mut state)).collect()
}

fn bytes(dtype: Dtype, values: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    values.iter().for_each(|value| push(dtype, &mut bytes, *value));
    bytes
}

fn floats(dtype: Dtype, bytes: &[u8]) -> Vec<f64> {
    (0..bytes.len() / dtype.size()).map(|index| value(dtype, bytes, index)).collect()
}

/// How far a result of `dtype` may be from an exact one of about 1.
fn distance(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F32 => 2e-5,
        Dtype::F16 => 4e-3,
        Dtype::Bf16 => 2e-2,
    }
}

fn assert_near(found: &[f64], expected: &[f64], dtype: Dtype, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let near = distance(dtype) * expected.abs().max(1.0);
        assert!((found - expected).abs() <= near, "{what}: {i}: {found}, not {expected}");
    }
}

struct Case {
    sizes: [usize; 4],
    kernels: [usize; 3],
    stride: usize,
    before: [usize; 2],
    after: [usize; 2],
}

impl Case {
    fn places(&self) -> [usize; 2] {
        [0, 1].map(|axis| {
            let padded = self.sizes[axis + 1] + self.before[axis] + self.after[axis];
            (padded - self.kernels[axis + 1]) / self.stride + 1
        })
    }

    fn by_hand(&self, x: &[f64], weight: &[f64]) -> Vec<f64> {
        let [pictures, height, width, channels] = self.sizes;
        let [n, rows, columns] = self.kernels;
        let [out_rows, out_columns] = self.places();
        let mut sums = Vec::new();
        for picture in 0..pictures {
            for (y, at) in (0..out_rows).flat_map(|y| (0..out_columns).map(move |at| (y, at))) {
                for o in 0..n {
                    let mut sum = 0.0f64;
                    for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                        let row = (y * self.stride + i).wrapping_sub(self.before[0]);
                        let column = (at * self.stride + j).wrapping_sub(self.before[1]);
                        if row >= height || column >= width {
                            continue;
                        }
                        let from = ((picture * height + row) * width + column) * channels;
                        let factor = ((o * rows + i) * columns + j) * channels;
                        for c in 0..channels {
                            sum += x[from + c] * weight[factor + c];
                        }
                    }
                    sums.push(sum);
                }
            }
        }
        sums
    }
}

#[test]
fn convolutions_are_sums_over_kernel_and_channels() {
    let case =
        |sizes, kernels, stride, before, after| Case { sizes, kernels, stride, before, after };
    let cases = [
        case([1, 5, 7, 3], [4, 3, 3], 1, [1, 1], [1, 1]),
        case([2, 6, 4, 2], [3, 3, 3], 2, [0, 0], [1, 1]),
        case([1, 4, 4, 8], [5, 1, 1], 1, [0, 0], [0, 0]),
        case([1, 4, 4, 8], [5, 1, 1], 2, [0, 0], [0, 0]),
        case([1, 3, 9, 16], [16, 3, 3], 1, [2, 0], [0, 1]),
        case([3, 2, 2, 5], [7, 2, 1], 1, [0, 3], [0, 4]),
        case([1, 41, 37, 32], [24, 3, 3], 1, [1, 1], [1, 1]),
        case([1, 2, 3, 4], [2, 2, 2], 3, [5, 0], [5, 9]),
    ];
    for &level in Level::available() {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            for case in &cases {
                let [n, rows, columns] = case.kernels;
                let size = case.sizes.iter().product();
                let x = bytes(dtype, &some(size));
                let k = rows * columns * case.sizes[3];
                let weight: Vec<f32> = some(n * k).iter().map(|w| w / (k as f32).sqrt()).collect();
                let weight = bytes(dtype, &weight);
                let [out_rows, out_columns] = case.places();
                let mut out = vec![0; case.sizes[0] * out_rows * out_columns * n * dtype.size()];
                let &Case { sizes, kernels, stride, before, after } = case;
                let (x_ref, weight_ref) = (&x[..], &weight[..]);
                let task = Conv2d {
                    dtype,
                    sizes,
                    kernels,
                    stride,
                    before,
                    after,
                    x: x_ref,
                    weight: weight_ref,
                    out: &mut out,
                };
                conv2d_at(level, task).expect("it fits");
                let expected = case.by_hand(&floats(dtype, &x), &floats(dtype, &weight));
                let what = format!("{level:?} {dtype:?} {sizes:?} {kernels:?}");
                assert_near(&floats(dtype, &out), &expected, dtype, &what);
            }
        }
    }
}

/// Larger than a strip of gathered pixels, so that several of them meet.
#[test]
fn strips_of_pixels_are_one_convolution() {
    let (height, width, channels, n) = (96, 80, 64, 8);
    let x = bytes(Dtype::F32, &some(height * width * channels));
    let weight = bytes(Dtype::F32, &some(n * 9 * channels));
    let run = |level: Level, rows: std::ops::Range<usize>, above: usize, below: usize| {
        let mut out = vec![0; (rows.len() + above + below - 2) * width * n * 4];
        let x = &x[rows.start * width * channels * 4..rows.end * width * channels * 4];
        let task = Conv2d {
            dtype: Dtype::F32,
            sizes: [1, rows.len(), width, channels],
            kernels: [n, 3, 3],
            stride: 1,
            before: [above, 1],
            after: [below, 1],
            x,
            weight: &weight,
            out: &mut out,
        };
        conv2d_at(level, task).expect("it fits");
        out
    };
    for &level in Level::available() {
        let whole = run(level, 0..height, 1, 1);
        let halves = [run(level, 0..49, 1, 0), run(level, 47..height, 0, 1)].concat();
        assert!(whole == halves, "{level:?}");
    }
}

#[test]
fn convolutions_that_do_not_fit_are_refused() {
    let good = |x: &[u8], weight: &[u8], out: &mut [u8], change: &dyn Fn(&mut Conv2d<'_>)| {
        let mut task = Conv2d {
            dtype: Dtype::F32,
            sizes: [1, 4, 4, 2],
            kernels: [3, 3, 3],
            stride: 1,
            before: [0; 2],
            after: [0; 2],
            x,
            weight,
            out,
        };
        change(&mut task);
        cpu_kernels::conv2d(task)
    };
    let (x, weight, mut out) = (vec![0; 128], vec![0; 216], vec![0; 48]);
    assert_eq!(good(&x, &weight, &mut out, &|_| ()), Ok(()));
    let changes: [&dyn Fn(&mut Conv2d<'_>); 8] = [
        &|task| task.stride = 0,
        &|task| task.sizes[1] = 5,
        &|task| task.kernels = [3, 5, 3],
        &|task| task.kernels[0] = 0,
        &|task| task.before = [usize::MAX; 2],
        &|task| task.after = [1, 0],
        &|task| task.sizes = [usize::MAX, 4, 4, 0],
        &|task| task.dtype = Dtype::Bf16,
    ];
    for change in changes {
        assert!(good(&x, &weight, &mut out, change).is_err());
    }
}

#[test]
fn group_norms_have_mean_and_variance_of_their_weights() {
    for (pictures, pixels, channels, groups) in [(2, 5, 6, 3), (1, 2500, 96, 32), (1, 1025, 64, 1)]
    {
        let values: Vec<f32> =
            some(pictures * pixels * channels).iter().map(|value| value + 3.0).collect();
        let (weight, bias) = (some(channels), some(2 * channels));
        let bias = &bias[channels..];
        let factors: Vec<f32> = weight.iter().map(|weight| weight + 1.5).collect();
        let snake = AfterNorm::Snake(&factors);
        let all = [AfterNorm::Nothing, AfterNorm::Silu, AfterNorm::LeakyRelu(0.2), snake];
        for (level, dtype, after) in Level::available()
            .iter()
            .flat_map(|&level| [Dtype::F32, Dtype::F16, Dtype::Bf16].map(|dtype| (level, dtype)))
            .flat_map(|(level, dtype)| all.map(|after| (level, dtype, after)))
        {
            let x = bytes(dtype, &values);
            let mut out = vec![0; x.len()];
            let (weight, eps) = (&weight[..], 1e-6);
            let task = GroupNorm {
                dtype,
                pictures,
                pixels,
                channels,
                groups,
                eps,
                after,
                x: &x,
                weight,
                bias,
                out: &mut out,
            };
            group_norm_at(level, task).expect("it fits");
            let (x, each) = (floats(dtype, &x), channels / groups);
            let mut expected = vec![0.0; x.len()];
            for (picture, group) in (0..pictures).flat_map(|p| (0..groups).map(move |g| (p, g))) {
                let first = picture * pixels * channels;
                let of: Vec<usize> = (first..first + pixels * channels)
                    .filter(|i| i % channels / each == group)
                    .collect();
                let count = of.len() as f64;
                let mean = of.iter().map(|i| x[*i]).sum::<f64>() / count;
                let square = |i: &usize| (x[*i] - mean).powi(2);
                let deviation = (of.iter().map(square).sum::<f64>() / count + 1e-6).sqrt();
                for i in of {
                    let channel = i % channels;
                    let value = (x[i] - mean) / deviation * f64::from(weight[channel])
                        + f64::from(bias[channel]);
                    expected[i] = match after {
                        AfterNorm::Nothing => value,
                        AfterNorm::Silu => value / (1.0 + (-value).exp()),
                        AfterNorm::LeakyRelu(slope) => value.max(f64::from(slope) * value),
                        AfterNorm::Snake(factors) => {
                            let factor = f64::from(factors[channel]);
                            value + (factor * value).sin().powi(2) / factor
                        }
                    };
                }
            }
            let what = format!("{level:?} {dtype:?} {pixels} pixels of {channels}, {after:?}");
            assert_near(&floats(dtype, &out), &expected, dtype, &what);
        }
    }
}

#[test]
fn group_norms_that_do_not_fit_are_refused() {
    let (x, mut out) = (vec![0; 64], vec![0; 64]);
    let (four, three) = (vec![1.0; 4], vec![1.0; 3]);
    let mut run = |groups, weight: &[f32], bias: &[f32], pixels| {
        let task = GroupNorm {
            dtype: Dtype::F32,
            pictures: 1,
            pixels,
            channels: 4,
            groups,
            eps: 1e-6,
            after: AfterNorm::Nothing,
            x: &x,
            weight,
            bias,
            out: &mut out,
        };
        cpu_kernels::group_norm(task)
    };
    assert_eq!(run(2, &four, &four, 4), Ok(()));
    assert!(run(0, &four, &four, 4).is_err());
    assert!(run(3, &four, &four, 4).is_err());
    assert!(run(2, &three, &four, 4).is_err());
    assert!(run(2, &four, &three, 4).is_err());
    assert!(run(2, &four, &four, 5).is_err());
}
