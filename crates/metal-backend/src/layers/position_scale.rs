//! Queries that grow with their position.

use mlx_ffi::{Array, Result, ops};

use super::Positions;

/// The factor of queries after their rotation: `1 + beta · ln(1 + ⌊position / original⌋)`
/// (Ministral 3, Llama 4). Up to the original context it is 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PositionScale {
    pub beta: f64,
    /// Positions of the original context.
    pub original: i32,
    /// The number of the first position: 0, or 1 (Llama 4).
    pub first: i32,
}

impl PositionScale {
    fn at(&self, position: i32) -> f32 {
        let contexts = position.saturating_add(self.first) / self.original.max(1);
        (1.0 + self.beta * f64::from(contexts).ln_1p()) as f32
    }

    /// `q`, `[b, n, l, head_dim]`, at these positions.
    pub fn apply(&self, q: &Array, positions: &Positions) -> Result<Array> {
        let [b, _, l, _] = q.dims()?;
        let first = positions.offsets();
        let factors: Vec<f32> =
            first.iter().flat_map(|first| (0..l).map(move |i| self.at(first + i))).collect();
        if factors.iter().all(|factor| *factor == 1.0) {
            return q.share();
        }
        let factors = ops::astype(&Array::from_f32(&factors, &[b, 1, l, 1])?, q.dtype())?;
        ops::multiply(q, &factors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_grow_with_each_context_that_lies_before_them() {
        let scale = PositionScale { beta: 0.1, original: 16, first: 0 };
        assert_eq!([scale.at(0), scale.at(15)], [1.0, 1.0]);
        assert_eq!(PositionScale { first: 1, ..scale }.at(15), scale.at(16));
        assert!((scale.at(16) - 1.069_314_7).abs() < 1e-6);
        assert!((scale.at(47) - 1.109_861_2).abs() < 1e-6);
    }
}
