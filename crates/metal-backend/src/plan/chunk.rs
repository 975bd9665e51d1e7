//! How many positions of a prompt are computed at once, where memory is small.

/// No chunk is shorter because of memory: each reads all weights once more.
const LEAST: usize = 256;
/// Of what weights leave, one part in so many is for what a chunk is computed with. The other one
/// is for keys and values.
const PARTS: u64 = 2;

/// The memory that a model leaves, and its longest prompt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes that weights leave of the limit.
    pub free: u64,
    /// Bytes that a position takes in the caches; 0: nothing grows.
    pub position: u64,
    /// Positions of the model's context.
    pub context: usize,
}

impl Room {
    /// Positions of the longest prompt whose keys and values have their part of the memory.
    fn longest(&self) -> usize {
        let most = (self.free / PARTS).checked_div(self.position).unwrap_or(u64::MAX);
        self.context.min(usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// The positions of a chunk: the `usual` ones, or half as often as it takes until the last
    /// chunk of the longest prompt has room. `work` returns the bytes that a chunk of so many
    /// positions takes in a prompt of so many.
    ///
    /// The chunk depends on the model and on the limit alone, not on what else runs: results would
    /// depend on that.
    pub fn chunk(&self, usual: usize, work: impl Fn(usize, usize) -> u64) -> usize {
        let longest = self.longest();
        let mut chunk = usual;
        while chunk / 2 >= LEAST && work(chunk, longest) > self.free / PARTS {
            chunk /= 2;
        }
        chunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// A model.
    #[derive(Clone, Copy)]
    struct Sizes {
        weights: u64,
        /// Bytes of a position's keys and values.
        position: u64,
        /// Bytes of a position's activations.
        activations: u64,
        heads: u64,
        context: usize,
    }

    /// Qwen3-4B in 4 bits.
    const QWEN3: Sizes = Sizes {
        weights: 2_260 << 20,
        position: 147_456,
        activations: 90_000,
        heads: 32,
        context: 40_960,
    };
    /// Llama 3.1 8B in 4 bits.
    const LLAMA: Sizes = Sizes {
        weights: 4_300 << 20,
        position: 131_072,
        activations: 130_000,
        heads: 32,
        context: 131_072,
    };
    /// Qwen3-0.6B in bf16.
    const SMALL: Sizes = Sizes {
        weights: 1_140 << 20,
        position: 114_688,
        activations: 40_000,
        heads: 16,
        context: 40_960,
    };

    /// The chunk and the longest prompt of a model where arrays may take `limit` bytes.
    fn chosen(limit: u64, sizes: Sizes) -> (usize, usize) {
        let Sizes { weights, position, activations, heads, context } = sizes;
        let room = Room { free: limit.saturating_sub(weights), position, context };
        let work =
            |chunk: usize, prompt: usize| chunk as u64 * (activations + 4 * heads * prompt as u64);
        let chunk = room.chunk(2048, work);
        let fits = work(chunk, room.longest()) <= room.free / PARTS;
        assert!(fits || chunk < 2 * LEAST, "{chunk}");
        (chunk, room.longest())
    }

    #[test]
    fn chunks_are_shorter_on_small_macs_and_as_usual_on_large_ones() {
        // Three quarters of the memory, or two thirds where that is small: what Metal recommends.
        let [m1, m2, m4_max, m3_ultra] = [8 * GIB * 2 / 3, 16 * GIB * 2 / 3, 96 * GIB, 384 * GIB];
        let of = |sizes| [m1, m2, m4_max, m3_ultra].map(|limit| chosen(limit, sizes));
        let whole = (2048, 40_960);
        assert_eq!(of(QWEN3), [(1024, 11_382), (1024, 30_800), whole, whole]);
        assert_eq!(of(SMALL), [(1024, 19_754), (1024, 40_960), whole, whole]);
        let whole = (2048, 131_072);
        assert_eq!(of(LLAMA), [(512, 4645), (512, 26_490), whole, whole]);
    }

    #[test]
    fn a_chunk_has_a_least_length_and_stays_where_nothing_grows() {
        let none = Room { free: 0, position: 100, context: 4096 };
        assert_eq!(none.chunk(2048, |chunk, _| chunk as u64), LEAST);
        assert_eq!(none.chunk(300, |chunk, _| chunk as u64), 300);
        let recurrent = Room { free: 1000, position: 0, context: 1 << 20 };
        assert_eq!(recurrent.longest(), 1 << 20);
        assert_eq!(recurrent.chunk(2048, |_, prompt| u64::from(prompt < 1 << 20)), 2048);
    }

    #[test]
    fn more_memory_makes_no_chunk_shorter_once_the_context_fits() {
        for sizes in [QWEN3, LLAMA, SMALL] {
            let mut before = 0;
            for limit in (24..400).map(|gib| gib * GIB) {
                let (chunk, longest) = chosen(limit, sizes);
                if longest == sizes.context {
                    assert!(chunk >= before, "{limit}");
                    before = chunk;
                }
            }
            assert_eq!(before, 2048);
        }
    }
}
