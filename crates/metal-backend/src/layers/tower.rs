//! Vision towers: from the patches of a picture to the vectors that stand in a prompt for it.

mod attention;
mod block;
mod entry;
mod exit;
mod network;
mod turns;
mod windows;

use std::collections::VecDeque;

use mlx_ffi::{Array, Result, async_eval, eval_all, ops};

use crate::kernels::Kernels;
use crate::sight::Patches;

pub(crate) use attention::{QkvLinears, TowerAttention};
use block::Passed;
pub(crate) use block::{TowerBlock, TowerNorm};
pub(crate) use entry::{Entry, PatchPositions};
pub(crate) use exit::{Exit, Merger};
pub(crate) use network::{ClippedLinear, Network};
pub(crate) use turns::{Axes, TowerRope};
use turns::{Places, Turns};
use windows::Arrangement;
pub(crate) use windows::Windows;

/// Blocks that a GPU has to compute while the next one is prepared.
const AHEAD: usize = 2;

/// A vision tower and what fits its output to the language model.
#[derive(Debug)]
pub(crate) struct Tower {
    pub entry: Entry,
    pub blocks: Vec<TowerBlock>,
    /// How attention sees positions of patches; `None`: by the entry's positions alone.
    pub rope: Option<TowerRope>,
    /// Parts of a picture that most blocks see by themselves; `None`: all see all of it.
    pub windows: Option<Windows>,
    pub exit: Exit,
    /// Mergers that make further vectors of a picture behind some blocks, in the blocks' order.
    /// These are added behind the language model's first layers (DeepStack).
    pub deepstack: Vec<(usize, Merger)>,
    /// Values of a patch between blocks, and between the projections of a network.
    pub sizes: [i32; 2],
    pub kernels: Kernels,
}

/// A picture's state between two blocks of a tower.
#[derive(Debug)]
pub(crate) struct Look {
    h: Passed,
    turns: Option<Turns>,
    /// The order of patches, where it is not the usual one.
    arrangement: Option<Arrangement>,
    grid: [i32; 2],
    /// Blocks that are done.
    block: usize,
    /// The vectors made behind blocks, `[1, t, hidden_size]` of the language model each.
    deep: Vec<Array>,
    /// The last blocks' results that a GPU may still compute.
    under_way: VecDeque<Array>,
}

impl Look {
    /// Of the next block.
    fn seen(&self, tower: &Tower) -> Places<'_> {
        let sees_whole = |windows: &Windows| windows.whole.contains(&self.block);
        let has_windows = tower.windows.as_ref().is_some_and(|windows| !sees_whole(windows));
        let windows = self.arrangement.as_ref().filter(|_| has_windows);
        Places { turns: self.turns.as_ref(), windows }
    }
}

impl Tower {
    /// A picture before the first block.
    pub fn begin(&self, patches: &Patches) -> Result<Look> {
        let mut h = self.entry.forward(patches)?;
        let mut turns = self.rope.as_ref().map(|rope| rope.turns(patches)).transpose()?;
        let arrangement = self.windows.as_ref().map(|windows| windows.of(patches));
        if let Some(arrangement) = &arrangement {
            h = arrangement.arranged(&h)?;
            turns = turns.map(|turns| turns.arranged(arrangement)).transpose()?;
        }
        Ok(Look {
            h: Passed::new(h),
            turns,
            arrangement,
            grid: patches.grid,
            block: 0,
            deep: Vec::new(),
            under_way: VecDeque::new(),
        })
    }

    /// Takes a picture through its next block, and waits for it; on a GPU, for an earlier one. At
    /// the end, `[n, t, hidden_size]` of the language model: the vectors in the picture's places,
    /// then those for each of the first layers.
    pub fn advance(&self, look: &mut Look) -> Result<Option<Array>> {
        if let Some(block) = self.blocks.get(look.block) {
            let next = self.blocks.get(look.block + 1);
            look.h = block.forward(&look.h, next, look.seen(self), self.kernels)?;
            for (_, merger) in self.deepstack.iter().filter(|(at, _)| *at == look.block) {
                look.deep.push(merger.forward(&look.h.x)?);
            }
            let made = look.h.arrays().chain(&look.deep);
            if self.kernels.is_ours_on_cpu() {
                eval_all(made)?;
            } else {
                async_eval(made)?;
                look.under_way.push_back(look.h.x.share()?);
                if look.under_way.len() > AHEAD {
                    look.under_way.pop_front().map_or(Ok(()), |first| first.eval())?;
                }
            }
            look.block += 1;
            return Ok(None);
        }
        let features = self.exit.forward(&look.h.x, look.grid)?;
        let features = match &look.arrangement {
            None => features,
            Some(arrangement) => arrangement.restored(&features)?,
        };
        let features = match look.deep.is_empty() {
            true => features,
            false => {
                let all: Vec<&Array> = [&features].into_iter().chain(&look.deep).collect();
                ops::concatenate(&all, 0)?
            }
        };
        eval_all([&features])?;
        Ok(Some(features))
    }

    /// Bytes that a picture of so many patches takes on its way, in values of `dtype_size` bytes.
    pub fn bytes(&self, patches: u64, dtype_size: u64) -> u64 {
        let [hidden, inner] = self.sizes.map(|size| size as u64);
        let heads = self.blocks.first().map_or(0, |block| block.attention.n_heads as u64);
        // Values of heads for which MLX attends in one kernel on Metal, without all scores at once.
        let is_fused = [64, 80, 128].contains(&(hidden / heads.max(1)));
        let scores = match self.kernels {
            Kernels::Cpu(_) => 0,
            Kernels::Metal if is_fused => 0,
            _ => 2 * heads * patches * patches * dtype_size,
        };
        patches * (10 * hidden + 3 * inner) * dtype_size.max(4) + scores
    }
}
