//! How much is computed before others are served.

use std::time::Duration;

/// How long a part of a prompt, a classification or an inspection may take before others are served.
pub(crate) const QUANTUM: Duration = Duration::from_millis(20);

/// How many times as long as the steps beside it a part is, where that is longer than a quantum: rows that decode then
/// take a fifth of the device's time.
const STEPS: u32 = 4;
/// The longest steps that a part is as many times as long as. Others are rarely steps alone: kernels are compiled, or caches
/// are copied.
const LONGEST_STEPS: Duration = Duration::from_millis(250);

/// How fast parts of prompts are computed, and what is computed beside them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pace {
    /// Seconds that one position takes in one layer; 0 before any was measured.
    position: f64,
    /// How long the steps take that come between two parts.
    steps: Duration,
}

impl Pace {
    /// What was measured of a part: so many layers of so many positions.
    pub fn of(took: Duration, positions: usize, layers: usize) -> Pace {
        let position = took.as_secs_f64() / (positions * layers) as f64;
        Pace { position, steps: Duration::ZERO }
    }

    /// This pace, beside steps that take so long between two parts.
    pub fn beside(self, steps: Duration) -> Pace {
        Pace { steps: steps.min(LONGEST_STEPS), ..self }
    }

    /// How many layers of so many positions take about a quantum, or the time that rows which decode leave: at least one, at
    /// most all `n_layers`.
    pub fn layers(self, positions: usize, n_layers: usize) -> usize {
        let time = QUANTUM.max(STEPS * self.steps);
        match self.position * positions as f64 {
            0.0 => 1,
            layer => ((time.as_secs_f64() / layer) as usize).clamp(1, n_layers),
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

    #[test]
    fn a_part_is_longer_where_steps_are_long() {
        let pace = Pace::of(Duration::from_millis(8), 100, 2);
        // 100 positions take 4 ms a layer.
        for (steps, layers) in
            [(0, 5), (5, 5), (6, 6), (10, 10), (100, 100), (250, 250), (9000, 250)]
        {
            let beside = pace.beside(Duration::from_millis(steps));
            assert_eq!(beside.layers(100, 300), layers, "steps of {steps} ms");
        }
    }
}
