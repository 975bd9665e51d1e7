//! From the bytes of a file to a header, or to pixels.

use crate::error::PictureError;
use crate::format::Format;
use crate::formats::{gif, jpeg, png, webp};
use crate::limits::Limits;
use crate::orientation::Orientation;
use crate::picture::Picture;

/// A file's header, read before anything is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The file's format.
    pub format: Format,
    /// Width in pixels, before the picture is turned.
    pub width: u32,
    /// Height in pixels, before the picture is turned.
    pub height: u32,
}

impl Header {
    /// Reads the header alone, within the limits.
    ///
    /// # Errors
    /// Those of [`Picture::decode`] that a header shows.
    pub fn read(bytes: &[u8], limits: &Limits) -> Result<Self, PictureError> {
        let format = sized(bytes, limits)?;
        let (width, height) = match format {
            Format::Png => png::size(bytes, limits)?,
            Format::Jpeg => jpeg::size(bytes, limits)?,
            Format::WebP => webp::size(bytes, limits)?,
            Format::Gif => gif::size(bytes, limits)?,
        };
        Ok(Self { format, width, height })
    }
}

impl Picture {
    /// The picture in a file's bytes: PNG, JPEG, WebP or the first frame of a GIF, turned as its
    /// EXIF says.
    ///
    /// # Errors
    /// When it is no such file, breaks its format, ends too early, or is more than `limits` allow.
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Self, PictureError> {
        let (picture, orientation) = match sized(bytes, limits)? {
            Format::Png => png::decode(bytes, limits)?,
            Format::Jpeg => jpeg::decode(bytes, limits)?,
            Format::WebP => webp::decode(bytes, limits)?,
            Format::Gif => (gif::decode(bytes, limits)?, Orientation::AS_IT_IS),
        };
        orientation.applied(picture)
    }
}

/// The format of a file that is not too large.
fn sized(bytes: &[u8], limits: &Limits) -> Result<Format, PictureError> {
    if bytes.len() > limits.bytes {
        return Err(PictureError::TooManyBytes { bytes: bytes.len(), limit: limits.bytes });
    }
    Format::of(bytes)
}
