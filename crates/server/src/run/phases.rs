//! The stretches of a generation: its wait, its prompt, and its tokens.

use std::time::Instant;

use inference_core::{GenerateMetrics, PrefillProgress};

/// A kind of stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits for its turn.
    Queue,
    /// Its prompt is computed.
    Prompt,
    /// Its tokens are.
    Decode,
}

impl Stage {
    /// `queue`, `prompt` or `decode`.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Queue => "queue",
            Stage::Prompt => "prompt",
            Stage::Decode => "decode",
        }
    }
}

/// A stretch of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Which one.
    pub stage: Stage,
    /// The number of its generation.
    pub generation: usize,
    /// When it began.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
}

/// A generation as it was told of while it ran.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// Its number.
    pub generation: usize,
    /// When it entered the queue.
    pub began: Instant,
    /// When its first token and its last one came.
    pub came: Option<(Instant, Instant)>,
    /// How far its prompt was read.
    pub prefill: Option<PrefillProgress>,
}

impl Course {
    /// The phases of a generation that ended by `now`, as the engine measured them.
    pub fn measured(&self, metrics: &GenerateMetrics, now: Instant) -> Vec<Phase> {
        let times = [
            (Stage::Queue, metrics.queue_duration),
            (Stage::Prompt, metrics.prefill_duration),
            (Stage::Decode, metrics.decode_duration),
        ];
        let mut at = self.began.min(now);
        let mut phases = Vec::new();
        for (stage, time) in times {
            let ended = at.checked_add(time).map_or(now, |end| end.min(now));
            if stage == Stage::Queue || !time.is_zero() {
                phases.push(self.phase(stage, at, ended));
            }
            at = ended;
        }
        phases
    }

    /// The phases of a generation that was broken off at `now`. The engine did not tell how long it
    /// waited. Its last word of the prompt came shortly before the first token, and has the time
    /// since the prompt was begun. Before a token, the wait counts as the prompt's time.
    pub fn broken_off(&self, now: Instant) -> Vec<Phase> {
        match (self.came, self.prefill) {
            (Some((first, _)), Some(prefill)) => {
                let begun = first.checked_sub(prefill.elapsed);
                let begun = begun.map_or(self.began, |begun| begun.max(self.began));
                vec![
                    self.phase(Stage::Queue, self.began, begun),
                    self.phase(Stage::Prompt, begun, first),
                    self.phase(Stage::Decode, first, now),
                ]
            }
            (Some((first, _)), None) => vec![
                self.phase(Stage::Prompt, self.began, first),
                self.phase(Stage::Decode, first, now),
            ],
            (None, Some(_)) => vec![self.phase(Stage::Prompt, self.began, now)],
            (None, None) => vec![self.phase(Stage::Queue, self.began, now)],
        }
    }

    fn phase(&self, stage: Stage, began: Instant, ended: Instant) -> Phase {
        Phase { stage, generation: self.generation, began, ended }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use inference_core::{GenerateMetrics, PrefillProgress};

    use super::{Course, Phase, Stage};

    fn seconds(phases: &[Phase], began: Instant) -> Vec<(Stage, u64, u64)> {
        let of = |phase: &Phase| {
            let [from, to] = [phase.began, phase.ended].map(|at| (at - began).as_secs());
            (phase.stage, from, to)
        };
        phases.iter().map(of).collect()
    }

    #[test]
    fn measured_times_follow_each_other_and_end_by_now() {
        let began = Instant::now();
        let course = Course { generation: 0, began, came: None, prefill: None };
        let [queue_duration, prefill_duration, decode_duration] =
            [1, 2, 4].map(Duration::from_secs);
        let metrics = GenerateMetrics {
            queue_duration,
            prefill_duration,
            decode_duration,
            ..GenerateMetrics::default()
        };
        let told = course.measured(&metrics, began + Duration::from_secs(9));
        let expected = [(Stage::Queue, 0, 1), (Stage::Prompt, 1, 3), (Stage::Decode, 3, 7)];
        assert_eq!(seconds(&told, began), expected);
        let early = course.measured(&metrics, began + Duration::from_secs(2));
        let expected = [(Stage::Queue, 0, 1), (Stage::Prompt, 1, 2), (Stage::Decode, 2, 2)];
        assert_eq!(seconds(&early, began), expected);
        let none = course.measured(&GenerateMetrics::default(), began);
        assert_eq!(seconds(&none, began), [(Stage::Queue, 0, 0)]);
    }

    #[test]
    fn a_generation_that_is_broken_off_has_the_phases_that_it_reached() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let course = Course { generation: 0, began, came: None, prefill: None };
        assert_eq!(seconds(&course.broken_off(at(5)), began), [(Stage::Queue, 0, 5)]);
        let elapsed = Duration::from_secs(1);
        let prefill = Some(PrefillProgress { total: 9, cached: 0, processed: 3, elapsed });
        let reading = Course { prefill, ..course };
        assert_eq!(seconds(&reading.broken_off(at(5)), began), [(Stage::Prompt, 0, 5)]);
        let saying = Course { came: Some((at(3), at(4))), ..reading };
        let expected = [(Stage::Queue, 0, 2), (Stage::Prompt, 2, 3), (Stage::Decode, 3, 5)];
        assert_eq!(seconds(&saying.broken_off(at(5)), began), expected);
        let untold = Course { prefill: None, ..saying };
        let expected = [(Stage::Prompt, 0, 3), (Stage::Decode, 3, 5)];
        assert_eq!(seconds(&untold.broken_off(at(5)), began), expected);
    }
}
