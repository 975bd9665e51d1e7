//! The memory that a picture takes, phase by phase, before any of it is made.

use inference_core::Error;

use super::pipeline::Sizes;
use super::plan::Plan;
use super::vae::{self, Tiles};
use crate::error::Result;

/// The pictures that are decoded in tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiling {
    /// Partial ones, beside the transformer.
    pub on_the_way: bool,
    /// The finished one.
    pub at_the_end: bool,
}

/// Bytes of each phase.
pub(super) struct Bill {
    size: [i32; 2],
    sizes: Sizes,
    /// The name of each phase, bytes of its weights, and bytes of its activations.
    phases: [(&'static str, u64, u64); 4],
    /// Activations of the transformer.
    positions: u64,
    /// Activations of a decoder that works on the whole picture.
    whole: u64,
}

impl Bill {
    /// The bytes for the picture of `plan`, decoded in `tiles`.
    pub fn of(plan: &Plan, sizes: Sizes, tiles: Tiles) -> Bill {
        let negative = plan.negative.as_ref().map_or(0, |prompt| prompt.ids.len());
        let ids = (plan.prompt.ids.len() + negative) as u64;
        let given: u64 =
            plan.edited.iter().map(|edited| edited.patches.iter().product::<i32>() as u64).sum();
        let positions = (plan.tokens() as u64 + given + 2 * ids + 64) * sizes.position;
        let given_pixels =
            plan.edited.iter().map(|e| u64::from(e.given.width()) * u64::from(e.given.height()));
        let given_pixels = given_pixels.max().unwrap_or(0);
        let pixels = plan.width as u64 * plan.height as u64;
        let tile = tiles.size as u64 * vae::SCALE as u64;
        let in_tiles = pixels * 3 * 8 + (tile * tile).min(pixels) * sizes.pixel;
        // A partial picture is decoded while the transformer stays.
        let (decoder, partial) = if plan.partials > 0 { (sizes.vae, in_tiles) } else { (0, 0) };
        let phases = [
            ("encoding the prompt", sizes.encoder, ids * sizes.id),
            ("encoding the pictures", sizes.vae, given_pixels * sizes.pixel),
            ("denoising", sizes.transformer + decoder, positions + partial),
            ("decoding", sizes.vae, in_tiles),
        ];
        let size = [plan.width, plan.height];
        Bill { size, sizes, phases, positions, whole: pixels * sizes.pixel }
    }

    fn components(&self) -> u64 {
        self.sizes.encoder + self.sizes.transformer + 2 * self.sizes.vae
    }

    /// All components at once, with the largest work.
    pub fn kept(&self) -> u64 {
        let work = self.phases.iter().map(|(_, _, work)| *work).max().unwrap_or(0);
        self.components() + work
    }

    /// # Errors
    /// A phase that takes more than is `available`, with the numbers.
    pub fn check(&self, available: u64) -> Result<()> {
        for (phase, weights, work) in self.phases {
            let needed = weights + work;
            if needed > available {
                let [width, height] = self.size;
                return Err(Error::Memory {
                    what: format!("{phase} a picture of {width} × {height}"),
                    needed,
                    available,
                    remedy: "ask for a smaller picture, pack the weights to fewer bits, or raise the memory limit".into(),
                }
                .into());
            }
        }
        Ok(())
    }

    /// Returns which pictures need tiles: those that do not fit `available` bytes as a whole.
    /// With `keeps`, components stay.
    pub fn tiling(&self, available: u64, keeps: bool) -> Tiling {
        let weights = |few: u64| if keeps { self.components() } else { few };
        let way = weights(self.sizes.transformer + self.sizes.vae) + self.positions;
        Tiling {
            on_the_way: way + self.whole > available,
            at_the_end: weights(self.sizes.vae) + self.whole > available,
        }
    }
}
