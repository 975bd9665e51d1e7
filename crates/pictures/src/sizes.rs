//! To which size a model wants a picture resized.

use std::fmt;

/// How a family of models chooses the size. The formulas are those of transformers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sizing {
    /// One size for all pictures (Gemma 3).
    Fixed {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// Both sides multiples of `factor`, the area within bounds (`smart_resize` of Qwen 2 VL to
    /// Qwen 3.5).
    Area {
        /// Patch times merge, in pixels.
        factor: u32,
        /// Least pixels.
        min_pixels: u64,
        /// Most pixels.
        max_pixels: u64,
    },
    /// As many patches as fit, the ratio of the sides kept (Gemma 4).
    Patches {
        /// Side of a patch in pixels.
        patch: u32,
        /// Patches a side that become one token.
        pooling: u32,
        /// Most tokens.
        max_tokens: u32,
    },
    /// No side longer than a bound, both sides up to a multiple (Pixtral).
    LongestEdge {
        /// Longest width in pixels.
        longest_width: u32,
        /// Longest height in pixels.
        longest_height: u32,
        /// Patch times merge, in pixels.
        multiple: u32,
    },
}

/// Why there is no size for a picture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// One side is more than 200 times the other.
    #[error(
        "a picture of {width} x {height} pixels is too long: one side may be 200 times the other; crop it"
    )]
    TooLong {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// The formula gives a size without pixels, or beyond the model's bounds.
    #[error("a picture of {width} x {height} pixels cannot be brought to {wanted}: crop it")]
    NoSize {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// The sizes that the model takes.
        wanted: String,
    },
}

/// Longest side over the other in Qwen's formula.
const LONGEST_RATIO: f64 = 200.0;

impl Sizing {
    /// The size, as (width, height), for a picture of at least one pixel.
    ///
    /// # Errors
    /// When the picture is too long and thin for the model.
    pub fn of(&self, width: u32, height: u32) -> Result<(u32, u32), SizeError> {
        let sides = (f64::from(width), f64::from(height));
        let (to_width, to_height) = match *self {
            Self::Fixed { width, height } => return Ok((width, height)),
            Self::Area { factor, min_pixels, max_pixels } => {
                if sides.0.max(sides.1) / sides.0.min(sides.1) > LONGEST_RATIO {
                    return Err(SizeError::TooLong { width, height });
                }
                smart(sides, f64::from(factor), (min_pixels as f64, max_pixels as f64))
            }
            Self::Patches { patch, pooling, max_tokens } => {
                within_patches(sides, patch, pooling, max_tokens)
            }
            Self::LongestEdge { longest_width, longest_height, multiple } => {
                let ratio =
                    (sides.1 / f64::from(longest_height)).max(sides.0 / f64::from(longest_width));
                let multiple = f64::from(multiple);
                let up = |side: f64| {
                    let side = if ratio > 1.0 { (side / ratio).floor() } else { side };
                    (side / multiple).ceil() * multiple
                };
                (up(sides.0), up(sides.1))
            }
        };
        let side = |side: f64| (1.0..=f64::from(u32::MAX)).contains(&side).then_some(side as u32);
        match (side(to_width), side(to_height)) {
            (Some(to_width), Some(to_height)) => Ok((to_width, to_height)),
            _ => Err(SizeError::NoSize { width, height, wanted: self.to_string() }),
        }
    }
}

/// Describes the sizes that a picture is brought to.
impl fmt::Display for Sizing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Fixed { width, height } => write!(f, "{width} x {height} pixels"),
            Self::Area { factor, min_pixels, max_pixels } => write!(
                f,
                "multiples of {factor} pixels with an area of {min_pixels} to {max_pixels}"
            ),
            Self::Patches { patch, pooling, max_tokens } => {
                let side = u64::from(patch) * u64::from(pooling);
                write!(f, "at most {max_tokens} tokens of {side} pixels a side")
            }
            Self::LongestEdge { longest_width, longest_height, .. } => {
                write!(f, "at most {longest_width} x {longest_height} pixels")
            }
        }
    }
}

/// `smart_resize`; `round_ties_even` is Python's `round`.
fn smart((width, height): (f64, f64), factor: f64, (min, max): (f64, f64)) -> (f64, f64) {
    let nearest = |side: f64| (side / factor).round_ties_even() * factor;
    let (w, h) = (nearest(width), nearest(height));
    if h * w > max {
        let beta = (height * width / max).sqrt();
        let down = |side: f64| ((side / beta / factor).floor() * factor).max(factor);
        return (down(width), down(height));
    }
    if h * w < min {
        let beta = (min / (height * width)).sqrt();
        let up = |side: f64| (side * beta / factor).ceil() * factor;
        return (up(width), up(height));
    }
    (w, h)
}

/// `get_aspect_ratio_preserving_size`. A size that breaks the bound becomes 0 x 0, which is
/// refused.
fn within_patches(
    (width, height): (f64, f64),
    patch: u32,
    pooling: u32,
    tokens: u32,
) -> (f64, f64) {
    let side = f64::from(patch) * f64::from(pooling);
    let patches = f64::from(tokens) * f64::from(pooling) * f64::from(pooling);
    let target = patches * f64::from(patch) * f64::from(patch);
    let factor = (target / (height * width)).sqrt();
    let down = |length: f64| (factor * length / side).floor() * side;
    let longest = f64::from(tokens) * side;
    let (w, h) = match (down(width), down(height)) {
        (w, h) if h == 0.0 && w > 0.0 => (((width / height).floor() * side).min(longest), side),
        (w, h) if w == 0.0 && h > 0.0 => (side, ((height / width).floor() * side).min(longest)),
        sides => sides,
    };
    if h * w > target { (0.0, 0.0) } else { (w, h) }
}
