//! How much a picture may be, held before its pixels are decoded.

use crate::error::PictureError;
use crate::format::Format;

/// Limits that [`Picture::decode`](crate::Picture::decode) checks before it decodes pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of the file. Default: 32 MiB.
    pub bytes: usize,
    /// Most pixels, width times height, by the header. Default: 64 million.
    pub pixels: u64,
    /// Most bytes of memory that decoding takes, by arithmetic. Default: 512 MiB.
    ///
    /// They are the decoder's own buffers, the RGB, and the pixels as the file has them: 8 bytes a
    /// pixel for 16 bits a channel and alpha. Data beside the pixels takes some times the file's
    /// bytes more, and unpacked at most 16 MiB.
    pub memory: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 32 << 20, pixels: 64_000_000, memory: 512 << 20 }
    }
}

/// Holds a header's sides to the limits.
pub fn check_sides(
    format: Format,
    (width, height): (u32, u32),
    limits: &Limits,
) -> Result<(u32, u32), PictureError> {
    if width == 0 || height == 0 {
        return Err(PictureError::NoPixels { format, width, height });
    }
    if u64::from(width) * u64::from(height) > limits.pixels {
        return Err(PictureError::TooManyPixels { format, width, height, limit: limits.pixels });
    }
    Ok((width, height))
}

/// Holds a buffer to the limit of memory, and gives its length.
pub fn check_memory(
    format: Format,
    bytes: Option<u64>,
    limits: &Limits,
) -> Result<usize, PictureError> {
    bytes
        .filter(|bytes| *bytes <= limits.memory)
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or(PictureError::TooMuchMemory { format, limit: limits.memory })
}
