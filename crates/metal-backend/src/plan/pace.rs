//! How much is computed before others are served.

use std::time::Duration;

/// How long a part of a prompt, a classification or an inspection may take before others are served.
pub(crate) const QUANTUM: Duration = Duration::from_millis(20);

/// Seconds that one position takes in one layer; 0 before any was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pace(f64);

impl Pace {
    /// What was measured of a part: so many layers of so many positions.
    pub fn of(took: Duration, positions: usize, layers: usize) -> Pace {
        Pace(took.as_secs_f64() / (positions * layers) as f64)
    }

    /// How many layers of so many positions take about a quantum: at least one, at most all `n_layers`.
    pub fn layers(self, positions: usize, n_layers: usize) -> usize {
        match self.0 * positions as f64 {
            0.0 => 1,
            layer => ((QUANTUM.as_secs_f64() / layer) as usize).clamp(1, n_layers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_as_many_layers_as_a_quantum_holds() {
        assert_eq!(Pace::default().layers(512, 30), 1, "nothing was measured");
        let pace = Pace::of(Duration::from_millis(8), 100, 2);
        // 100 positions take 4 ms a layer.
        let cases = [(100, 5), (200, 2), (500, 1), (5000, 1), (10, 30), (0, 1)];
        for (positions, layers) in cases {
            assert_eq!(pace.layers(positions, 30), layers, "{positions} positions");
        }
        // No more than the model has, and never none.
        assert_eq!(pace.layers(1, 3), 3);
    }
}
