//! Projections of the same values as one matrix, so that a step asks for fewer products.

use std::ops::Range;

use mlx_ffi::{Array, Quantized, ops};

use super::Weights;
use crate::error::Result;
use crate::kernels::{Kernels, Matrix};
use crate::layers::{Linear, Lora, Weight};

/// Projections of the same values.
pub(crate) enum Linears<const N: usize> {
    /// One matrix: the rows of each in turn.
    Joined(Linear),
    /// One matrix for each.
    Separate([Linear; N]),
}

impl Weights {
    /// The projection `name` with the rows of its matrix in another order: `rows` in turn, which
    /// are all of them.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn linear_in_order(
        &self,
        name: &str,
        input: i32,
        rows: &[Range<i32>],
        bias: bool,
    ) -> Result<Linear> {
        let output = rows.iter().map(|rows| rows.end - rows.start).sum();
        let linear = self.linear(name, input, output, bias)?;
        if self.describes() {
            return Ok(linear);
        }
        in_order(linear, rows, self.kernels())
    }

    /// The projections `parts`, each a name and its number of output values, from `input` values.
    ///
    /// They are joined where all have one form and no adapter, on a CPU, where our kernels compute
    /// every value by itself and no number changes, and on CUDA, where each operation costs the
    /// processor more than the device. At most these parts are in memory twice.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn linears<const N: usize>(
        &self,
        parts: [(&str, i32); N],
        input: i32,
        bias: bool,
    ) -> Result<Linears<N>> {
        let mut linears = Vec::with_capacity(N);
        for (name, output) in parts {
            linears.push(self.linear(name, input, output, bias)?);
        }
        self.join(linears.try_into().expect("one for each part"), bias)
    }

    /// Projections of the same values, as one where [`linears`](Self::linears) would join them.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn join<const N: usize>(&self, linears: [Linear; N], bias: bool) -> Result<Linears<N>> {
        if matches!(self.kernels(), Kernels::Mlx | Kernels::Metal) || !have_one_form(&linears) {
            return Ok(Linears::Separate(linears));
        }
        let kernels = self.kernels();
        let matrices = linears.each_ref().map(|linear| &linear.weight().matrix);
        let weight = Weight { matrix: joined_matrix(&matrices, kernels)?, kernels };
        let biases: Vec<&Array> = linears.iter().filter_map(Linear::bias).collect();
        let bias = bias.then(|| joined(&biases, kernels)).transpose()?;
        Ok(Linears::Joined(Linear::new(weight, bias)))
    }
}

/// `linear` with the rows of its matrix in another order: `rows` in turn, which are all of them.
fn in_order(linear: Linear, rows: &[Range<i32>], kernels: Kernels) -> Result<Linear> {
    let turn = |array: &Array, axis: i32| -> Result<Array> {
        let parts = rows.iter().map(|rows| ops::slice_axis(array, axis, rows.start, rows.end));
        let parts = parts.collect::<mlx_ffi::Result<Vec<_>>>()?;
        let turned = ops::concatenate(&parts.iter().collect::<Vec<_>>(), axis)?;
        turned.eval()?;
        Ok(turned)
    };
    let matrix = match &linear.weight().matrix {
        Matrix::Dense(w) => Matrix::Dense(turn(w, 0)?),
        Matrix::Quantized(w) => Matrix::Quantized(Quantized {
            weight: turn(&w.weight, 0)?,
            scales: turn(&w.scales, 0)?,
            biases: w.biases.as_ref().map(|biases| turn(biases, 0)).transpose()?,
            quantization: w.quantization,
        }),
    };
    let bias = linear.bias().map(|bias| turn(bias, 0)).transpose()?;
    let lora = match linear.lora() {
        None => None,
        Some(Lora { a, b, scale }) => Some(Lora { a: a.share()?, b: turn(b, 1)?, scale: *scale }),
    };
    Ok(Linear::new(Weight { matrix, kernels }, bias).with_lora(lora))
}

/// Returns true when the rows of all can be those of one matrix.
fn have_one_form(linears: &[Linear]) -> bool {
    let form = |linear: &Linear| {
        let matrix = match &linear.weight().matrix {
            Matrix::Dense(w) => (w.dtype(), None),
            Matrix::Quantized(w) => (w.scales.dtype(), Some(w.quantization)),
        };
        (matrix, linear.bias().map(Array::dtype))
    };
    let first = linears.first().map(form);
    linears.iter().all(|linear| linear.lora().is_none() && Some(form(linear)) == first)
}

/// The rows of matrices of one form in turn.
fn joined_matrix(matrices: &[&Matrix], kernels: Kernels) -> Result<Matrix> {
    let (mut dense, mut packed) = (Vec::new(), Vec::new());
    for matrix in matrices {
        match matrix {
            Matrix::Dense(w) => dense.push(w),
            Matrix::Quantized(w) => packed.push(w),
        }
    }
    let Some(first) = packed.first() else { return joined(&dense, kernels).map(Matrix::Dense) };
    let joined = |parts: &[&Array]| joined(parts, kernels);
    let biases: Vec<&Array> = packed.iter().filter_map(|w| w.biases.as_ref()).collect();
    Ok(Matrix::Quantized(Quantized {
        weight: joined(&packed.iter().map(|w| &w.weight).collect::<Vec<_>>())?,
        scales: joined(&packed.iter().map(|w| &w.scales).collect::<Vec<_>>())?,
        biases: first.biases.as_ref().map(|_| joined(&biases)).transpose()?,
        quantization: first.quantization,
    }))
}

/// The rows of all in turn, evaluated.
fn joined(parts: &[&Array], kernels: Kernels) -> Result<Array> {
    if kernels.is_ours_on_cpu() {
        return Ok(Array::joined(parts)?);
    }
    let all = ops::concatenate(parts, 0)?;
    // Before the next parts are read: those of this one are then free.
    all.eval()?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{Dtype, QuantMode, Quantization, quantize, random};

    use super::*;
    use crate::config::Config;
    use crate::files::ModelFiles;
    use crate::weights::Checkpoint;

    const PARTS: [(&str, i32); 3] = [("q_proj", 96), ("k_proj", 32), ("v_proj", 40)];

    fn weights(config: &str, kernels: Kernels, only_describe: bool) -> Weights {
        let files = ModelFiles::Random(config.into());
        let config = Config::parse("config.json", config).expect("an object");
        let checkpoint = Checkpoint::open(&files).expect("no files are read");
        Weights::of(&checkpoint, &config, None, kernels, only_describe)
    }

    #[test]
    fn joined_projections_give_each_value_to_the_bit() {
        let packed = r#"{"quantization": {"bits": 4, "group_size": 64}}"#;
        let sixteen = r#"{"quantization": {"bits": 6, "group_size": 16}}"#;
        for (config, bias) in
            [("{}", false), ("{}", true), (packed, false), (packed, true), (sixteen, false)]
        {
            let w = weights(config, Kernels::CPU, false);
            let Ok(Linears::Joined(joined)) = w.linears(PARTS, 128, bias) else {
                panic!("{config}: they have one form");
            };
            for rows in [1, 5, 40] {
                let key = random::key(3).expect("a key");
                let x = random::normal(&[1, rows, 128], Dtype::Bf16, &key).expect("values");
                let all = joined.forward(&x).expect("a product");
                let mut first = 0;
                for (name, output) in PARTS {
                    let alone = w.linear(name, 128, output, bias).expect("drawn");
                    let alone = alone.forward(&x).expect("a product").to_vec_f32().expect("floats");
                    let part = ops::slice_axis(&all, -1, first, first + output).expect("columns");
                    assert_eq!(part.to_vec_f32().expect("floats"), alone, "{config} {name} {rows}");
                    first += output;
                }
            }
        }
    }

    #[test]
    fn the_totals_are_those_of_the_parts_and_descriptions_are_joined_too() {
        let totals = |only_describe| {
            let w = weights("{}", Kernels::CPU, only_describe);
            assert!(matches!(w.linears(PARTS, 128, true), Ok(Linears::Joined(_))));
            let totals = w.finish().expect("nothing is left");
            (totals.parameters, totals.bytes)
        };
        assert_eq!(totals(false), (168 * 129, 2 * 168 * 129));
        assert_eq!(totals(true), totals(false));
    }

    #[test]
    fn what_has_several_forms_or_an_adapter_stays_separate() {
        let w = weights("{}", Kernels::Mlx, false);
        assert!(matches!(w.linears(PARTS, 128, false), Ok(Linears::Separate(_))));
        let zeros = |shape: [i32; 2], dtype| ops::zeros(&shape, dtype).expect("a matrix");
        let of = |matrix, bias: Option<Dtype>| {
            let bias = bias.map(|dtype| ops::zeros(&[32], dtype).expect("a bias"));
            Linear::new(Weight { matrix, kernels: Kernels::CPU }, bias)
        };
        let dense = |dtype, bias| of(Matrix::Dense(zeros([32, 128], dtype)), bias);
        let packed = |bits, dtype| {
            let form = Quantization { mode: QuantMode::Affine, bits, group_size: 64 };
            let packed = quantize(&zeros([32, 128], dtype), form).expect("it is packed");
            of(Matrix::Quantized(packed), None)
        };
        let (f32, bf16) = (Dtype::F32, Dtype::Bf16);
        assert!(have_one_form(&[dense(f32, Some(f32)), dense(f32, Some(f32))]));
        assert!(have_one_form(&[packed(4, f32), packed(4, f32), packed(4, f32)]));
        for pair in [
            [dense(f32, None), dense(bf16, None)],
            [dense(f32, None), dense(f32, Some(f32))],
            [dense(f32, Some(bf16)), dense(f32, Some(f32))],
            [dense(f32, None), packed(4, f32)],
            [packed(4, f32), packed(8, f32)],
            [packed(4, f32), packed(4, bf16)],
        ] {
            assert!(!have_one_form(&pair), "{pair:?}");
        }
        let lora = Lora { a: zeros([128, 4], f32), b: zeros([4, 32], f32), scale: 1.0 };
        let adapted = dense(f32, None).with_lora(Some(lora));
        assert!(!have_one_form(&[dense(f32, None), adapted]));
    }
}
