//! The matrices of a mixture's experts, and in which form kernels know them.

use super::constants::{CLIPPED, DENSE, HALVES, INTERLEAVED, SAME, SEPARATE, SORTING, code};
use super::product::Weights;
use super::unpack::packing;
use crate::{Activation, Array, Dtype};

/// The most rows or columns of a matrix.
const MOST_SIDE: i32 = 1 << 18;

/// A projection that each expert has for itself.
#[derive(Clone, Copy, Debug)]
pub struct ExpertMatrices<'a> {
    /// `[experts, out, in]`.
    pub weights: Weights<'a>,
    /// Added to the products, `[experts, out]`.
    pub bias: Option<&'a Array>,
}

/// The projections into an expert's network: the gate and what it lets through.
#[derive(Clone, Copy, Debug)]
pub enum IntoExperts<'a> {
    /// A matrix for each.
    Separate([ExpertMatrices<'a>; 2]),
    /// One matrix: the rows of the gate, then the others.
    Halves(ExpertMatrices<'a>),
    /// One matrix: a row of the gate, then one of the others, and so on.
    Interleaved(ExpertMatrices<'a>),
    /// One matrix: what it gives is the gate of itself.
    Same(ExpertMatrices<'a>),
}

/// How a gate acts on what it lets through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExpertGate {
    /// It is activated.
    Plain(Activation),
    /// `g · sigmoid(alpha · g)` of the gate, and 1 more than what it lets through, both clipped at
    /// `limit`.
    Clipped {
        /// Factor of the gate in the sigmoid.
        alpha: f32,
        /// The largest value.
        limit: f32,
    },
}

impl ExpertGate {
    pub(super) fn code(self) -> i32 {
        match self {
            ExpertGate::Plain(activation) => code(activation),
            ExpertGate::Clipped { .. } => CLIPPED,
        }
    }

    pub(super) fn limits(self) -> [f32; 4] {
        match self {
            ExpertGate::Plain(_) => [0.0; 4],
            ExpertGate::Clipped { alpha, limit } => [alpha, limit, 0.0, 0.0],
        }
    }
}

/// The networks of a mixture's experts: `down(gate(x) · up(x))`.
#[derive(Clone, Copy, Debug)]
pub struct ExpertNetwork<'a> {
    /// `in` to the inner size, twice.
    pub into: IntoExperts<'a>,
    /// The gate.
    pub gate: ExpertGate,
    /// The inner size to `in`.
    pub down: ExpertMatrices<'a>,
}

/// In which form matrices are, and their sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) kind: i32,
    pub(super) bits: i32,
    pub(super) group_size: i32,
    pub(super) experts: i32,
    /// Rows of results.
    pub(super) rows: i32,
    pub(super) columns: i32,
    pub(super) has_bias: bool,
}

impl Form {
    /// Columns that a lane reads at once.
    fn values(self) -> i32 {
        128 / self.bits
    }

    /// Columns in places for whole warps, of so many matrices after each other.
    pub(super) fn held(self, matrices: i32) -> i64 {
        let parts = i64::from(matrices) * i64::from(self.columns / self.values());
        (parts + 31) / 32 * 32 * i64::from(self.values())
    }
}

impl ExpertMatrices<'_> {
    /// The form, where kernels know it for activations of `dtype`.
    pub(super) fn form(&self, dtype: Dtype) -> Option<Form> {
        let (kind, bits, group_size, [experts, rows, columns]) = match self.weights {
            Weights::Dense(w) => (DENSE, 16, 0, w.dims().ok().filter(|_| w.dtype() == dtype)?),
            Weights::Packed(w) => {
                let (kind, bits) = packing(w, dtype)?;
                let [experts, rows, groups] = w.scales.dims().ok()?;
                let group_size = w.quantization.group_size;
                (kind, bits, group_size, [experts, rows, groups * group_size])
            }
        };
        let sizes_fit = (1..=SORTING).contains(&experts)
            && (1..=MOST_SIDE).contains(&rows)
            && (32..=MOST_SIDE).contains(&columns)
            && columns % 32 == 0;
        let bias_fits =
            self.bias.is_none_or(|bias| bias.shape() == [experts, rows] && bias.dtype() == dtype);
        let has_bias = self.bias.is_some();
        let form = Form { kind, bits, group_size, experts, rows, columns, has_bias };
        (dtype.is_half() && sizes_fit && bias_fits).then_some(form)
    }

    /// Returns true when kernels know these matrices for activations of `dtype`.
    pub fn are_known(&self, dtype: Dtype) -> bool {
        self.form(dtype).is_some()
    }

    /// Weights, scales and minima, and the bias; `other` stands for what is not there.
    pub(super) fn arrays<'b>(&'b self, other: &'b Array) -> [&'b Array; 4] {
        let [w, scales, minima] = match self.weights {
            Weights::Dense(w) => [w, other, other],
            Weights::Packed(w) => [&w.weight, &w.scales, w.biases.as_ref().unwrap_or(other)],
        };
        [w, scales, minima, self.bias.unwrap_or(other)]
    }
}

impl ExpertNetwork<'_> {
    /// The forms of the matrices in and out, where kernels know them for activations of `dtype`.
    pub(super) fn forms(&self, dtype: Dtype) -> Option<[Form; 2]> {
        let into = match &self.into {
            IntoExperts::Separate([gate, up]) => {
                gate.form(dtype).filter(|form| up.form(dtype) == Some(*form))?
            }
            IntoExperts::Halves(both) | IntoExperts::Interleaved(both) => {
                let form = both.form(dtype).filter(|form| form.rows % 2 == 0)?;
                Form { rows: form.rows / 2, ..form }
            }
            IntoExperts::Same(both) => both.form(dtype)?,
        };
        let down = self.down.form(dtype)?;
        let sizes_fit = (down.rows, down.columns) == (into.columns, into.rows);
        (sizes_fit && down.experts == into.experts).then_some([into, down])
    }

    /// The layout of the gate's rows.
    pub(super) fn layout(&self) -> i32 {
        match self.into {
            IntoExperts::Separate(_) => SEPARATE,
            IntoExperts::Halves(_) => HALVES,
            IntoExperts::Interleaved(_) => INTERLEAVED,
            IntoExperts::Same(_) => SAME,
        }
    }

    /// The matrices in: those of the gate, or both, then what it lets through, or the same.
    pub(super) fn pair(&self) -> [&ExpertMatrices<'_>; 2] {
        match &self.into {
            IntoExperts::Separate([gate, up]) => [gate, up],
            IntoExperts::Halves(both)
            | IntoExperts::Interleaved(both)
            | IntoExperts::Same(both) => [both, both],
        }
    }
}
