//! A decoded picture.

use std::fmt;

use crate::error::PictureError;

/// A picture in RGB with 8 bits a channel, rows from the top, without gaps. It has at least one
/// pixel.
#[derive(Clone, PartialEq, Eq)]
pub struct Picture {
    width: u32,
    height: u32,
    rgb: Vec<u8>,
}

impl Picture {
    /// A picture of pixels `[height, width, 3]`.
    ///
    /// # Errors
    /// When a side is 0, or the bytes are not 3 times the pixels.
    pub fn new(width: u32, height: u32, rgb: Vec<u8>) -> Result<Self, PictureError> {
        let expected = (u64::from(width) * u64::from(height)).saturating_mul(3);
        if expected == 0 || rgb.len() as u64 != expected {
            let found = rgb.len();
            return Err(PictureError::WrongLength { width, height, expected, found });
        }
        Ok(Self { width, height, rgb })
    }

    /// Width in pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height in pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// The pixels, `[height, width, 3]`.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }
}

impl fmt::Debug for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Picture({} x {})", self.width, self.height)
    }
}
