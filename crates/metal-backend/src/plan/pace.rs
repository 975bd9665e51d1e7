//! How much is computed before others are served.

use std::time::Duration;

/// How long a part of a prompt, a classification or an inspection may take before others are
/// served.
pub(crate) const QUANTUM: Duration = Duration::from_millis(20);

/// How many times as long as the steps beside it a part is, where that is longer than a quantum:
/// rows that decode then take a fifth of the device's time.
const STEPS: u32 = 4;
/// The longest steps that a part is as many times as long as. Others are rarely steps alone:
/// kernels are compiled, or caches are copied.
const LONGEST_STEPS: Duration = Duration::from_millis(250);

/// The most positions of a pass in which a batch takes its step. With fewer, each pass costs the
/// host as much as with these. With more, rows wait longer for a token.
pub(super) const MIXED: usize = 4096;
/// How long a pass of [`MIXED`] positions has to take. The host prepares its operations anew, which
/// it need not do for steps and short prompts that are captured: 64 requests of lengths of their
/// own make 13,618 tokens/s with steps behind the passes and 10,999 with steps in them where it
/// takes 17 ms (Qwen3-0.6B, H200). Llama 3.2 1B makes 17,809 and 15,689, and Qwen3-4B as many
/// either way.
const LEAST_MIXED: Duration = Duration::from_millis(40);
/// How long such a pass may take, which is the time between two tokens then.
const LONGEST_MIXED: Duration = Duration::from_millis(150);

/// The time that a pass takes however few its positions are, where the host prepares it.
const BEGINNING: Duration = Duration::from_millis(2);

/// How fast parts of prompts are computed, and what is computed beside them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pace {
    /// Seconds that one position takes in one layer; 0 before any was measured.
    position: f64,
    /// How long the steps take that come between two parts.
    steps: Duration,
}

impl Pace {
    /// The pace of a measured part: so many layers of so many positions.
    pub fn of(took: Duration, positions: usize, layers: usize) -> Pace {
        let position = took.as_secs_f64() / (positions * layers) as f64;
        Pace { position, steps: Duration::ZERO }
    }

    /// This pace, beside steps that take so long between two parts.
    pub fn beside(self, steps: Duration) -> Pace {
        Pace { steps: steps.min(LONGEST_STEPS), ..self }
    }

    /// Returns true when a batch is to take its step in a pass of so many positions of a prompt.
    pub fn mixes(self, positions: usize, n_layers: usize) -> bool {
        let of = |positions: usize| self.position * (positions * n_layers) as f64;
        of(MIXED) >= LEAST_MIXED.as_secs_f64() && of(positions) <= LONGEST_MIXED.as_secs_f64()
    }

    /// Returns true when so many positions take no longer than a pass of their own takes to begin.
    pub fn is_free(self, positions: usize, n_layers: usize) -> bool {
        let takes = self.position * (positions * n_layers) as f64;
        self.position > 0.0 && takes <= BEGINNING.as_secs_f64()
    }

    /// How many layers of so many positions take about a quantum, or the time that rows which
    /// decode leave: at least one, at most all `n_layers`.
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
    fn steps_are_taken_in_passes_that_keep_a_device_busy_and_not_for_too_long() {
        let pace = |millis| Pace::of(Duration::from_millis(millis), MIXED, 10);
        let cases = [(39, 1), (40, 1), (60, MIXED), (150, MIXED), (151, MIXED), (80, 2 * MIXED)];
        let mixes = cases.map(|(millis, positions)| pace(millis).mixes(positions, 10));
        assert_eq!(mixes, [false, true, true, true, false, false]);
        assert!(!Pace::default().mixes(1, 10), "nothing was measured");
    }

    #[test]
    fn few_positions_of_a_fast_device_are_free() {
        let pace = Pace::of(Duration::from_millis(8), 4000, 10);
        assert_eq!([1000, 1001].map(|positions| pace.is_free(positions, 10)), [true, false]);
        assert!(!Pace::default().is_free(1, 1), "nothing was measured");
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
