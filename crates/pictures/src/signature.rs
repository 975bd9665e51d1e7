//! Which format bytes are of, by their beginning.

use crate::error::PictureError;
use crate::format::Format;

impl Format {
    /// The format that the first bytes of a file tell.
    ///
    /// # Errors
    /// When they tell another format, or none.
    pub fn of(bytes: &[u8]) -> Result<Self, PictureError> {
        match bytes {
            [] => Err(PictureError::Empty),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Ok(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Ok(Self::Jpeg),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Ok(Self::WebP),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Ok(Self::Gif),
            _ => Err(PictureError::UnknownFormat { found: told(bytes) }),
        }
    }
}

/// Names the format of bytes that no decoder here reads, or shows how they begin.
fn told(bytes: &[u8]) -> String {
    let brand = bytes.get(4..12);
    let known = match bytes {
        [b'B', b'M', ..] => "a BMP",
        [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => "a TIFF",
        [b'%', b'P', b'D', b'F', ..] => "a PDF",
        [0, 0, 1, 0, ..] => "an ICO",
        [0xff, 0x0a, ..] | [0, 0, 0, 12, b'J', b'X', b'L', b' ', ..] => "a JPEG XL",
        [0, 0, 0, 12, b'j', b'P', ..] => "a JPEG 2000",
        _ if matches!(brand, Some(b"ftypavif" | b"ftypavis")) => "an AVIF",
        _ if matches!(brand, Some(b"ftypheic" | b"ftypheix" | b"ftypmif1" | b"ftypmsf1")) => {
            "a HEIC"
        }
        _ if brand.is_some_and(|brand| brand.starts_with(b"ftyp")) => "an MP4 or MOV",
        _ if text(bytes).contains("<svg") => "an SVG",
        _ if text(bytes).contains("<html") || text(bytes).contains("<!DOCTYPE") => "an HTML page",
        _ => "",
    };
    if !known.is_empty() {
        return known.to_owned();
    }
    let beginning: Vec<String> = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("of an unknown format (it begins with the bytes {})", beginning.join(" "))
}

/// The beginning of the bytes as text.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(256)]).into_owned()
}
