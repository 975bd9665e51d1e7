//! That the kernels compute what the weights stand for.

use mlx_ffi::{Array, Dtype, Indices, Quantized, cpu, dequantize, ops};

use super::Weights;
use crate::error::{Error, RANGE_OF_F16, Result};
use crate::kernels::{Activations, Kernels, Matrix, Order};
use crate::layers::Weight;

/// Rows of a matrix, and of activations, that are looked at.
const ROWS: i32 = 32;
/// Experts that are looked at.
const EXPERTS: i32 = 4;

impl Weights {
    /// That a tensor still has numbers in f16, which it was not stored in.
    pub(super) fn check_f16(&self, name: &str, array: &Array) -> Result<()> {
        if array.size() == 0 {
            return Ok(());
        }
        // Infinity times zero is no number, and neither is a sum with it.
        let flat = ops::reshape(&ops::multiply(array, &Array::scalar(0.0, Dtype::F16)?)?, &[-1])?;
        if ops::sum(&flat, 0, false)?.item_f32()? == 0.0 {
            return Ok(());
        }
        Err(Error::model(format!(
            "tensor `{name}` has values beyond ±65504, {RANGE_OF_F16}: take bf16 or f32 as `dtype`"
        )))
    }

    /// Compares the product with a matrix, as the model will compute it, against that with the
    /// weights that it stands for, once for each kind: a kernel that is wrong on this device shows
    /// here, not in the text. Kernels differ for one row and for many.
    pub(super) fn check_kernel(&self, weight: &Weight, shape: &[i32]) -> Result<()> {
        let columns = shape.last().copied().unwrap_or(0);
        let kind = match &weight.matrix {
            Matrix::Dense(w) => (None, w.dtype(), shape.len()),
            Matrix::Quantized(w) => (Some(w.quantization), self.float_dtype(), shape.len()),
        };
        let mut totals = self.shared.totals.borrow_mut();
        let (form, dtype, dims) = kind;
        totals.rounds |= form.is_some_and(|form| cpu::rounds(form, dtype, dims > 2));
        if self.describes() || totals.checks.contains(&kind) {
            return Ok(());
        }
        totals.checks.push(kind);
        let (quantization, dtype, _) = kind;
        let part = few(&weight.matrix)?;
        let plain = match &part {
            Matrix::Dense(w) => w.share()?,
            Matrix::Quantized(w) => dequantize(w, dtype)?,
        };
        let plain = Plain::new(&plain)?;
        let weight = Weight { matrix: part, kernels: weight.kernels };
        let is_rounded = weight.kernels == Kernels::Cpu(Activations::Int8);
        let tolerance = if dtype == Dtype::F32 && !is_rounded { 1e-4 } else { 2e-2 };
        for rows in [1, 32] {
            let wave: Vec<f32> = (0..rows * columns).map(|i| (0.7 * i as f32).sin()).collect();
            let x = Array::from_floats(&wave, &[rows, columns], dtype)?;
            let product = self.product(&weight, &x)?.to_vec_f32()?;
            let (expected, sizes) = plain.times(&x.to_vec_f32()?);
            for ((got, want), size) in product.iter().zip(&expected).zip(&sizes) {
                if !want.is_finite() {
                    return Err(Error::model(format!(
                        "`{}` stands for {want}, which is not a number to compute with: it is damaged",
                        self.prefix
                    )));
                }
                let distance = (got - want).abs();
                if distance.is_nan() || distance > tolerance * size.max(1e-6) {
                    let form = quantization.map_or("unpacked weights".to_owned(), |q| {
                        let mode = q.mode.as_str();
                        format!("{mode} weights of {} bits in groups of {}", q.bits, q.group_size)
                    });
                    return Err(Error::model(format!(
                        "the kernel for {form} and {rows} rows of {dtype:?} computes {got} where {want} is right on this device; refused rather than speak nonsense"
                    )));
                }
            }
        }
        Ok(())
    }

    /// The product of the rows of `x` with `weight`, or with one of its experts each, in turn.
    fn product(&self, weight: &Weight, x: &Array) -> Result<Array> {
        let shape = match &weight.matrix {
            Matrix::Dense(w) => w.shape(),
            Matrix::Quantized(w) => w.weight.shape(),
        };
        let &[experts, _, _] = shape else { return Ok(weight.project(x)?) };
        let product =
            weight.gather(&ops::expand_dims(x, 1)?, &turns(experts, x.shape()[0])?, Order::Any);
        product.map_err(|error| {
            Error::model(format!(
                "the experts of `{}` cannot be multiplied on this device: {error}; load the model as f32, take a quantised one, or leave the kernels for CPUs on",
                self.prefix
            ))
        })
    }
}

/// The expert of each of `rows`, in turn, `[rows, 1]`.
fn turns(experts: i32, rows: i32) -> mlx_ffi::Result<Indices> {
    let turns: Vec<u32> = (0..rows).map(|row| (row % experts) as u32).collect();
    Indices::from_u32(&turns, &[rows, 1])
}

/// The values that weights stand for, in the host's memory, for products by code of this file.
/// On CUDA these need no library, which takes a tenth of a second to load in each process.
struct Plain {
    /// The rows of each expert in turn, of `columns` values.
    values: Vec<f32>,
    columns: usize,
    /// Values of an expert; all of them where there are none.
    of_expert: usize,
}

impl Plain {
    /// Of `[rows, columns]`, or `[experts, rows, columns]`.
    fn new(weights: &Array) -> mlx_ffi::Result<Plain> {
        // Of the last axes, so many; none is empty, so that there is something to cut.
        let values = |axes: usize| {
            let sizes = weights.shape().iter().rev().take(axes);
            sizes.map(|size| *size as usize).product::<usize>().max(1)
        };
        Ok(Plain { values: weights.to_vec_f32()?, columns: values(1), of_expert: values(2) })
    }

    /// The products of the rows of `x`, each with all rows, or with those of one expert, in turn.
    /// And the scale of rounding: their terms' magnitudes added up.
    fn times(&self, x: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let experts: Vec<&[f32]> = self.values.chunks(self.of_expert).collect();
        let products = x
            .chunks(self.columns)
            .zip(experts.iter().cycle())
            .flat_map(|(x, expert)| expert.chunks(self.columns).map(|row| product(x, row)));
        products.map(|(sum, size)| (sum as f32, size as f32)).unzip()
    }
}

/// The product of two rows, and its terms' magnitudes added up.
fn product(x: &[f32], w: &[f32]) -> (f64, f64) {
    // Sums that do not wait for each other.
    const SUMS: usize = 8;
    let ((x, x_rest), (w, w_rest)) = (x.as_chunks::<SUMS>(), w.as_chunks::<SUMS>());
    let (mut sums, mut sizes) = ([0.0; SUMS], [0.0; SUMS]);
    for (x, w) in x.iter().zip(w) {
        for i in 0..SUMS {
            let term = f64::from(x[i] * w[i]);
            sums[i] += term;
            sizes[i] += term.abs();
        }
    }
    let terms = x_rest.iter().zip(w_rest).map(|(x, w)| f64::from(x * w));
    let of_rest = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
    (of_rest.0 + sums.iter().sum::<f64>(), of_rest.1 + sizes.iter().sum::<f64>())
}

/// The first rows of a matrix, and the first experts.
fn few(matrix: &Matrix) -> mlx_ffi::Result<Matrix> {
    let few = |array: &Array| {
        let &[first, .., _] = array.shape() else { return array.share() };
        match array.shape() {
            [_, rows, _] => {
                let experts = ops::slice_axis(array, 0, 0, first.min(EXPERTS))?;
                ops::slice_axis(&experts, 1, 0, (*rows).min(ROWS))
            }
            _ => ops::slice_axis(array, 0, 0, first.min(ROWS)),
        }
    };
    Ok(match matrix {
        Matrix::Dense(w) => Matrix::Dense(few(w)?),
        Matrix::Quantized(w) => Matrix::Quantized(Quantized {
            weight: few(&w.weight)?,
            scales: few(&w.scales)?,
            biases: w.biases.as_ref().map(few).transpose()?,
            quantization: w.quantization,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::files::ModelFiles;
    use crate::weights::Checkpoint;

    #[test]
    fn rows_are_multiplied_with_those_of_each_expert_in_turn() {
        let weights = [1.0, 2.0, 3.0, -4.0, 10.0, 20.0, 30.0, 40.0];
        let plain = |shape: &[i32]| Plain::new(&Array::from_f32(&weights, shape)?);
        let x = [1.0, 2.0, 0.5, 1.0];
        let experts = plain(&[2, 2, 2]).expect("two experts of two rows");
        assert_eq!(experts.times(&x), (vec![5.0, -5.0, 25.0, 55.0], vec![5.0, 11.0, 25.0, 55.0]));
        let one = plain(&[4, 2]).expect("four rows").times(&x);
        assert_eq!(one.0, [5.0, -5.0, 50.0, 110.0, 2.5, -2.5, 25.0, 55.0]);
        let (long, alternating) = ([2.0; 19], [1.0, -1.0].repeat(10));
        assert_eq!(product(&long, &alternating[..19]), (2.0, 38.0));
    }

    #[test]
    fn weights_that_are_no_numbers_are_refused() {
        let files = ModelFiles::Random("{}".into());
        let config = Config::parse("config.json", "{}").expect("an object");
        let checkpoint = Checkpoint::open(&files).expect("no files are read");
        for kernels in [Kernels::Mlx, Kernels::CPU] {
            for value in [f32::INFINITY, f32::NAN] {
                let weights = Weights::of(&checkpoint, &config, None, kernels, false);
                let mut values = vec![0.5; 64 * 64];
                values[70] = value;
                let matrix = Array::from_floats(&values, &[64, 64], Dtype::Bf16).expect("weights");
                let refused = weights.weight(Matrix::Dense(matrix), &[64, 64]).err();
                let text = refused.expect("a refusal").to_string();
                assert!(text.contains("it is damaged"), "{text}");
            }
        }
    }
}
