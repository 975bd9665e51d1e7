//! How a picture is to be turned, by its EXIF or its XMP.

use crate::error::PictureError;
use crate::picture::Picture;

/// The value of EXIF's orientation, 1 to 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orientation(u8);

/// EXIF's tag of the orientation.
const TAG: u16 = 0x0112;

impl Orientation {
    /// The picture is as it is to be seen.
    pub const AS_IT_IS: Self = Self(1);

    /// The orientation by EXIF, or else by XMP, as Pillow reads them. Unreadable ones turn nothing.
    pub fn of(exif: Option<&[u8]>, xmp: Option<&[u8]>) -> Self {
        let in_xmp = || xmp.and_then(of_xmp).map(Self);
        Self::of_exif(exif).or_else(in_xmp).unwrap_or(Self::AS_IT_IS)
    }

    /// The orientation by EXIF; `None` where it states none.
    pub fn of_exif(exif: Option<&[u8]>) -> Option<Self> {
        exif.and_then(of_exif).map(Self)
    }

    /// The picture, turned and mirrored.
    pub fn applied(self, picture: Picture) -> Result<Picture, PictureError> {
        if !(2..=8).contains(&self.0) {
            return Ok(picture);
        }
        let (width, height) = (picture.width() as usize, picture.height() as usize);
        let swaps = self.0 >= 5;
        let (to_width, to_height) = if swaps { (height, width) } else { (width, height) };
        let rgb = picture.rgb();
        let mut turned = Vec::with_capacity(rgb.len());
        for y in 0..to_height {
            for x in 0..to_width {
                let (from_x, from_y) = match self.0 {
                    2 => (width - 1 - x, y),
                    3 => (width - 1 - x, height - 1 - y),
                    4 => (x, height - 1 - y),
                    5 => (y, x),
                    6 => (y, height - 1 - x),
                    7 => (width - 1 - y, height - 1 - x),
                    _ => (width - 1 - y, x),
                };
                let at = 3 * (from_y * width + from_x);
                turned.extend_from_slice(&rgb[at..at + 3]);
            }
        }
        let (width, height) = (picture.width(), picture.height());
        let (width, height) = if swaps { (height, width) } else { (width, height) };
        Picture::new(width, height, turned)
    }
}

/// The orientation in the first directory of a block of EXIF, with or without its leading mark.
fn of_exif(block: &[u8]) -> Option<u8> {
    let block = block.strip_prefix(b"Exif\0\0").unwrap_or(block);
    let little = match block.get(..4)? {
        [b'I', b'I', 42, 0] => true,
        [b'M', b'M', 0, 42] => false,
        _ => return None,
    };
    let u16_at = |at: usize| {
        let two: [u8; 2] = block.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if little { u16::from_le_bytes(two) } else { u16::from_be_bytes(two) })
    };
    let u32_at = |at: usize| {
        let four: [u8; 4] = block.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if little { u32::from_le_bytes(four) } else { u32::from_be_bytes(four) })
    };
    let directory = u32_at(4)? as usize;
    for entry in 0..usize::from(u16_at(directory)?) {
        let at = directory.checked_add(2 + 12 * entry)?;
        if u16_at(at)? != TAG {
            continue;
        }
        // 3 is a short, which stands at the beginning of the field; 4 is a long.
        let value = match u16_at(at + 2)? {
            3 => u32::from(u16_at(at + 8)?),
            4 => u32_at(at + 8)?,
            _ => return None,
        };
        return u8::try_from(value).ok();
    }
    None
}

/// The digit behind `tiff:Orientation="` or `tiff:Orientation>`.
fn of_xmp(packet: &[u8]) -> Option<u8> {
    const NAME: &[u8] = b"tiff:Orientation";
    packet.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME).find_map(
        |(at, _)| {
            let rest = &packet[at + NAME.len()..];
            let digit = rest.strip_prefix(b"=\"").or_else(|| rest.strip_prefix(b">"))?.first()?;
            digit.is_ascii_digit().then(|| digit - b'0')
        },
    )
}
