//! Run-ahead: draws that a step queues before those of the step before are read.

use serde::{Deserialize, Serialize};

use crate::sampling::Sampler;

/// The draws that a step queues before those of the step before are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Ahead {
    /// A row has to know what was drawn.
    Nothing,
    /// Each row's own draw.
    Draws,
    /// The most likely ids, which ranks find without the logits of each other.
    MostLikely,
    /// Each row's own draw among so many of the most likely ids, which ranks exchange.
    Top(usize),
}

impl Ahead {
    /// The run-ahead that rows with these samplers allow.
    /// If ranks split the logits, each rank has those of at least `fewest` ids.
    pub fn of<'a>(
        mut samplers: impl Iterator<Item = &'a Sampler> + Clone,
        fewest: Option<usize>,
    ) -> Ahead {
        let widest = |most: usize, sampler: &Sampler| Some(most.max(sampler.narrow()?));
        let narrow = fewest.and_then(|fewest| {
            samplers.clone().try_fold(1, widest).filter(|count| *count <= fewest)
        });
        match narrow {
            Some(1) => Ahead::MostLikely,
            Some(count) => Ahead::Top(count),
            None if samplers.any(Sampler::needs_history) => Ahead::Nothing,
            None => Ahead::Draws,
        }
    }
}

#[cfg(test)]
mod tests {
    use inference_core::GenerateOptions;
    use mlx_ffi::{Device, use_device};

    use super::*;

    /// The run-ahead of rows with these options that have drawn once.
    fn allowed(all: &[GenerateOptions], fewest: Option<usize>) -> Ahead {
        use_device(Device::Cpu).expect("a CPU");
        let sampler = |options: &GenerateOptions| {
            let mut sampler = Sampler::new(options.clone(), 1, &[], &[], 90).expect("a sampler");
            sampler.count_draw();
            sampler
        };
        let samplers: Vec<Sampler> = all.iter().map(sampler).collect();
        Ahead::of(samplers.iter(), fewest)
    }

    #[test]
    fn ranks_exchange_all_logits_only_where_a_row_needs_them() {
        let greedy = || GenerateOptions { temperature: Some(0.0), ..Default::default() };
        let drawn = || GenerateOptions { temperature: Some(0.7), ..Default::default() };
        let of = |top_k, top_p| GenerateOptions { top_k: Some(top_k), top_p, ..drawn() };
        let told = || GenerateOptions { logprobs: true, ..greedy() };
        let penalised = || GenerateOptions { repetition_penalty: Some(1.2), ..of(20, None) };
        for (rows, fewest, expected) in [
            (vec![greedy(), greedy()], Some(40), Ahead::MostLikely),
            (vec![greedy(), of(20, Some(0.9)), of(5, None)], Some(40), Ahead::Top(20)),
            (vec![of(20, None)], Some(19), Ahead::Draws),
            (vec![of(20, None)], None, Ahead::Draws),
            (vec![greedy(), drawn()], Some(40), Ahead::Draws),
            (vec![greedy(), told()], Some(40), Ahead::Draws),
            (vec![greedy(), penalised()], Some(40), Ahead::Nothing),
        ] {
            assert_eq!(allowed(&rows, fewest), expected, "{rows:?}");
        }
    }
}
