//! Projections of the same values as one matrix, so that a step asks for fewer products.

use mlx_ffi::{Array, Quantized, ops};

use super::Weights;
use crate::error::Result;
use crate::layers::{Linear, Matrix, Product, Weight};

/// Projections of the same values.
pub(crate) enum Linears<const N: usize> {
    /// One matrix: the rows of each in turn.
    Joined(Linear),
    /// One matrix for each.
    Separate([Linear; N]),
}

impl Weights {
    /// The projections `parts`, each a name and its number of output values, from `input` values.
    ///
    /// They are joined where the kernels compute every value by itself, so that no number changes,
    /// and where all have one form and no adapter. At most these parts are in memory twice.
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
        let linears: [Linear; N] = linears.try_into().expect("one for each part");
        if self.kernels() != Product::CpuKernels || !have_one_form(&linears) {
            return Ok(Linears::Separate(linears));
        }
        let product = self.kernels();
        let matrices = linears.each_ref().map(|linear| &linear.weight().matrix);
        let weight = Weight { matrix: joined_matrix(&matrices)?, product };
        let biases: Vec<&Array> = linears.iter().filter_map(Linear::bias).collect();
        let bias = bias.then(|| joined(&biases)).transpose()?;
        Ok(Linears::Joined(Linear::new(weight, bias)))
    }
}

/// Whether the rows of all can be those of one matrix.
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
fn joined_matrix(matrices: &[&Matrix]) -> Result<Matrix> {
    let (mut dense, mut packed) = (Vec::new(), Vec::new());
    for matrix in matrices {
        match matrix {
            Matrix::Dense(w) => dense.push(w),
            Matrix::Quantized(w) => packed.push(w),
        }
    }
    let Some(first) = packed.first() else { return joined(&dense).map(Matrix::Dense) };
    let biases: Vec<&Array> = packed.iter().filter_map(|w| w.biases.as_ref()).collect();
    Ok(Matrix::Quantized(Quantized {
        weight: joined(&packed.iter().map(|w| &w.weight).collect::<Vec<_>>())?,
        scales: joined(&packed.iter().map(|w| &w.scales).collect::<Vec<_>>())?,
        biases: first.biases.as_ref().map(|_| joined(&biases)).transpose()?,
        quantization: first.quantization,
    }))
}

/// The rows of all in turn, evaluated.
fn joined(parts: &[&Array]) -> Result<Array> {
    let all = ops::concatenate(parts, 0)?;
    // Before the next parts are read: those of this one are then free.
    all.eval()?;
    Ok(all)
}
