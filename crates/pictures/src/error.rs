//! Why a picture is refused.

use crate::format::Format;

/// Why a picture is refused. The text names what is wrong; the caller names the picture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PictureError {
    /// There is no byte.
    #[error("the picture is empty")]
    Empty,
    /// The file is larger than [`Limits::bytes`](crate::Limits::bytes).
    #[error("the picture has {bytes} bytes; at most {limit} are taken")]
    TooManyBytes {
        /// Its bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The bytes are no format that is read here.
    #[error("the picture is {found}; PNG, JPEG, WebP and GIF are read")]
    UnknownFormat {
        /// The format with its article, if it is a known one; else how the bytes begin.
        found: String,
    },
    /// The header states more pixels than [`Limits::pixels`](crate::Limits::pixels).
    #[error(
        "the {format} has {width} x {height} pixels; at most {limit} pixels are taken: scale it down"
    )]
    TooManyPixels {
        /// The file's format.
        format: Format,
        /// The header's width.
        width: u32,
        /// The header's height.
        height: u32,
        /// The limit.
        limit: u64,
    },
    /// A side is 0.
    #[error("the {format} has {width} x {height} pixels: a picture without pixels")]
    NoPixels {
        /// The file's format.
        format: Format,
        /// The header's width.
        width: u32,
        /// The header's height.
        height: u32,
    },
    /// Decoding would need more memory than [`Limits::memory`](crate::Limits::memory).
    #[error("decoding the {format} needs more than {limit} bytes of memory: scale it down")]
    TooMuchMemory {
        /// The file's format.
        format: Format,
        /// The limit.
        limit: u64,
    },
    /// A packed part beside the pixels that becomes more than any such part has.
    #[error(
        "the {part} of the {format} unpacks to more than {limit} bytes; save the picture without it"
    )]
    UnpacksToTooMuch {
        /// The file's format.
        format: Format,
        /// The part of the file, as the format calls it.
        part: &'static str,
        /// The limit.
        limit: usize,
    },
    /// An animation in a format of which no first frame is taken.
    #[error("the {format} is an animation; give one of its frames as a picture of its own")]
    Animated {
        /// The file's format.
        format: Format,
    },
    /// The file ends too early, or does not hold to its format.
    #[error("the {format} cannot be decoded: {reason}")]
    Broken {
        /// The file's format.
        format: Format,
        /// The fault, by its decoder.
        reason: String,
    },
    /// The colour profile in the file is no profile, or is cut off.
    #[error(
        "the colour profile ({part}) of the {format} is broken: {reason}; save the picture without it"
    )]
    BrokenProfile {
        /// The file's format.
        format: Format,
        /// The part of the file that holds it, as the format calls it.
        part: &'static str,
        /// The fault in the profile.
        reason: String,
    },
    /// Pixels that are not 3 bytes times the sides.
    #[error("{width} x {height} pixels of RGB are {expected} bytes, not {found}")]
    WrongLength {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// The bytes that there must be.
        expected: u64,
        /// The bytes given.
        found: usize,
    },
    /// A resize whose middle step or result would have too many pixels.
    #[error(
        "a picture of {width} x {height} pixels cannot be resized to {to_width} x {to_height}: it is too \
         long and thin; crop it"
    )]
    TooLong {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// Width asked for.
        to_width: u32,
        /// Height asked for.
        to_height: u32,
    },
}
