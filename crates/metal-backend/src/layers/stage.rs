//! A stretch of the layers, where several ranks have one each, one behind the other (pipeline
//! parallelism).
//!
//! The first rank has the embeddings, the last one the output layer. A rank sends the hidden states
//! behind its last layer to the next one. Of all other layers it has neither weights nor states.

use std::cmp::Reverse;
use std::ops::Range;

use mlx_ffi::distributed::Group;
use mlx_ffi::{Array, Dtype, Error, Indices, Result, ops};

use super::top_logits::{TopLogits, own_top};
use crate::cache::StateSpec;

/// A part of a model that a rank has or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelPart {
    /// Those of all ids. They may be the output layer, too.
    Embeddings { are_head: bool },
    /// The layer of this index.
    Layer(usize),
    /// The output layer, where it has weights of its own.
    Head,
    /// The parts that every rank has.
    Rest,
}

/// Bytes of the parts of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartBytes {
    pub embeddings: u64,
    pub are_head: bool,
    pub layers: Vec<u64>,
    pub head: u64,
}

impl PartBytes {
    /// Adds `bytes` of a part.
    pub fn add(&mut self, part: ModelPart, bytes: u64) {
        match part {
            ModelPart::Embeddings { are_head } => {
                self.embeddings += bytes;
                self.are_head |= are_head;
            }
            ModelPart::Layer(index) => {
                let count = self.layers.len().max(index + 1);
                self.layers.resize(count, 0);
                self.layers[index] += bytes;
            }
            ModelPart::Head => self.head += bytes,
            ModelPart::Rest => {}
        }
    }

    /// The layers of each of `ranks` ranks, so that the rank with the most bytes has as few as it
    /// may; `None`: fewer layers than ranks.
    fn stretches(&self, ranks: usize) -> Option<Vec<Range<usize>>> {
        let count = self.layers.len();
        if ranks == 0 || count < ranks {
            return None;
        }
        let head = if self.are_head { self.embeddings } else { self.head };
        let bytes = |layers: Range<usize>| {
            let first = if layers.start == 0 { self.embeddings } else { 0 };
            let last = if layers.end == count { head } else { 0 };
            first + last + self.layers[layers].iter().sum::<u64>()
        };
        // For each number of layers, the least that the heaviest of the ranks so far has, and where
        // its last one begins.
        let mut least: Vec<Option<(u64, usize)>> =
            (0..=count).map(|end| (end > 0).then(|| (bytes(0..end), 0))).collect();
        let mut begins = Vec::with_capacity(ranks);
        for _ in 1..ranks {
            begins.push(least.clone());
            let best = |end: usize| {
                let from = |start: usize| {
                    let (before, _) = least[start]?;
                    Some((before.max(bytes(start..end)), start))
                };
                // Of equals, more layers before: embeddings take bytes, and no time.
                (1..end).filter_map(from).min_by_key(|(most, start)| (*most, Reverse(*start)))
            };
            least = (0..=count).map(best).collect();
        }
        begins.push(least);
        let (mut end, mut stretches) = (count, Vec::with_capacity(ranks));
        while let Some(least) = begins.pop() {
            let (_, start) = least[end]?;
            stretches.push(start..end);
            end = start;
        }
        stretches.reverse();
        Some(stretches)
    }
}

/// The layers of a rank.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    ranks: Group,
    /// The layers of each rank.
    all: Vec<Range<usize>>,
}

impl Stage {
    /// This rank's stretch of a model whose parts have so many bytes; `None`: it has fewer layers
    /// than there are ranks.
    pub fn of(ranks: Group, bytes: &PartBytes) -> Option<Stage> {
        Some(Stage { all: bytes.stretches(ranks.size())?, ranks })
    }

    /// The layers of this rank.
    pub fn layers(&self) -> Range<usize> {
        self.all[self.ranks.rank()].clone()
    }

    /// How many ranks there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns true when it begins with the embeddings.
    pub fn is_first(&self) -> bool {
        self.ranks.rank() == 0
    }

    /// Returns true when it ends with the output layer.
    pub fn is_last(&self) -> bool {
        self.ranks.rank() == self.last()
    }

    /// The logits, which the last rank computes.
    pub fn logits(&self, vocab_size: i32) -> LastLogits {
        LastLogits { ranks: self.ranks.clone(), vocab_size }
    }

    fn last(&self) -> usize {
        self.ranks.size() - 1
    }

    /// Returns true when this rank has the part.
    pub fn has(&self, part: ModelPart) -> bool {
        match part {
            ModelPart::Embeddings { are_head } => self.is_first() || are_head && self.is_last(),
            ModelPart::Layer(index) => self.layers().contains(&index),
            ModelPart::Head => self.is_last(),
            ModelPart::Rest => true,
        }
    }

    /// The states that this rank keeps, of `specs` for all layers. The batch operations that are
    /// possible depend on all kinds of layers. So, for a kind that only other ranks have, one
    /// narrow state is kept.
    pub fn specs(&self, specs: &[StateSpec]) -> Vec<StateSpec> {
        let own = self.layers();
        let mut known: Vec<StateSpec> =
            specs[own.clone()].iter().map(|spec| spec.narrow()).collect();
        let of_layer = |(index, spec): (usize, &StateSpec)| {
            let narrow = spec.narrow();
            if own.contains(&index) {
                return *spec;
            }
            if known.contains(&narrow) {
                return StateSpec::Nothing;
            }
            known.push(narrow);
            narrow
        };
        specs.iter().enumerate().map(of_layer).collect()
    }

    /// The states of the rank whose layers weigh the most; `weigh` gives the weight of one layer's
    /// state.
    pub fn heaviest(
        &self,
        specs: &[StateSpec],
        weigh: impl Fn(StateSpec) -> u64,
    ) -> Vec<StateSpec> {
        let weight = |layers: &&Range<usize>| -> u64 {
            specs[(*layers).clone()].iter().map(|spec| weigh(*spec)).sum()
        };
        let heaviest = self.all.iter().max_by_key(weight).cloned().unwrap_or_default();
        specs[heaviest].to_vec()
    }

    /// The hidden states, `shape`, behind the last layer of the rank before this one.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn receive(&self, shape: &[i32], dtype: Dtype) -> Result<Array> {
        self.ranks.receive(shape, dtype, self.ranks.rank() - 1)
    }

    /// `h` of `dtype`, behind this rank's last layer, which the next rank gets once it is
    /// evaluated.
    ///
    /// # Errors
    /// Another type, which the next rank would not know of.
    pub fn send(&self, h: &Array, dtype: Dtype) -> Result<Array> {
        if h.dtype() != dtype {
            return Err(Error::new(format!(
                "hidden states are {:?} behind a layer, expected {dtype:?}: ranks cannot have layers each",
                h.dtype()
            )));
        }
        self.ranks.send(h, self.ranks.rank() + 1)
    }
}

/// Logits that the last of several ranks computes.
#[derive(Debug)]
pub(crate) struct LastLogits {
    ranks: Group,
    pub vocab_size: i32,
}

impl LastLogits {
    /// The logits, F32, in the first rank and in the last one, which has them. Others have an array
    /// of that shape.
    pub fn of_all(&self, own: &Array) -> Result<Array> {
        let (rank, last) = (self.ranks.rank(), self.ranks.size() - 1);
        if rank == last {
            return self.ranks.send(&ops::astype(own, Dtype::F32)?, 0);
        }
        if rank == 0 { self.ranks.receive(own.shape(), Dtype::F32, last) } else { own.share() }
    }

    /// The `count` most likely ids of each row, `[rows, vocab_size]`, in the first rank and in the
    /// last one, which has the logits.
    pub fn top(&self, own: &Array, count: i32) -> Result<TopLogits> {
        let (rank, last) = (self.ranks.rank(), self.ranks.size() - 1);
        let shape = [1, own.rows(), 2 * count + 1];
        let sent = match rank {
            0 => self.ranks.receive(&shape, Dtype::F32, last)?,
            _ if rank == last => self.ranks.send(&own_top(own, 0, count)?, 0)?,
            _ => ops::after(&ops::zeros(&shape, Dtype::F32)?, own)?,
        };
        TopLogits::of_sent(&sent, self.vocab_size)
    }

    /// The most likely id of each row of the last rank's logits, `[rows, vocab_size]`: `[rows]`.
    /// Only ids are sent.
    pub fn most_likely(&self, own: &Array) -> Result<Indices> {
        let last = self.ranks.size() - 1;
        if self.ranks.rank() == last {
            return self.ranks.indices_of_rank(&ops::argmax(own, -1, false)?, last);
        }
        let [rows, vocab_size] = own.dims()?;
        self.ranks.indices_after(last, own, rows, vocab_size as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(embeddings: u64, layers: &[u64], head: u64) -> PartBytes {
        PartBytes { embeddings, are_head: false, layers: layers.to_vec(), head }
    }

    #[test]
    fn the_heaviest_rank_has_as_little_as_it_may() {
        let even = parts(0, &[1; 8], 0);
        assert_eq!(even.stretches(2), Some(vec![0..4, 4..8]));
        assert_eq!(even.stretches(8).map(|all| all.len()), Some(8));
        assert_eq!(even.stretches(9), None);
        assert_eq!(parts(6, &[2; 6], 0).stretches(2), Some(vec![0..2, 2..6]));
        assert_eq!(parts(0, &[2; 6], 4).stretches(2), Some(vec![0..4, 4..6]));
        assert_eq!(parts(0, &[9, 1, 1, 1], 0).stretches(3).map(|all| all[0].clone()), Some(0..1));
        let tied = PartBytes { are_head: true, ..parts(4, &[2; 6], 0) };
        assert_eq!(tied.stretches(3), Some(vec![0..2, 2..5, 5..6]));
    }
}
