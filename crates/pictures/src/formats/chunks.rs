//! The chunks of a PNG as they lie in the file, and those beside the pixels that are packed.

use crate::error::PictureError;
use crate::format::Format;
use crate::orientation::Orientation;
use crate::profile;

/// Most bytes to which a packed chunk is unpacked, whatever it states. The largest profiles of
/// printers have some 4 MiB, and Pillow takes no text above 1 MiB.
const MOST_UNPACKED: usize = 16 << 20;

/// The text of ImageMagick that holds EXIF.
const EXIF: &[u8] = b"Raw profile type exif";
/// The text that holds XMP.
const XMP: &[u8] = b"XML:com.adobe.xmp";

/// A chunk: its name, what it holds, and whether its checksum is right.
#[derive(Clone, Copy)]
struct Chunk<'a> {
    name: [u8; 4],
    data: &'a [u8],
    is_right: bool,
}

/// The chunks of a file up to its end (IEND), or to one that does not fit the file.
fn chunks(file: &[u8]) -> impl Iterator<Item = Chunk<'_>> {
    let mut rest = file.get(8..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*length) as usize;
        let checked = behind.get(..length.checked_add(4)?)?;
        let (sum, next) = behind[checked.len()..].split_first_chunk::<4>()?;
        let (name, data) = checked.split_first_chunk::<4>()?;
        rest = if name == b"IEND" { &[] } else { next };
        let is_right = crc32fast::hash(checked) == u32::from_be_bytes(*sum);
        Some(Chunk { name: *name, data, is_right })
    })
}

/// The chunks of a name whose checksums are right; the others are passed over.
fn right<'a>(file: &'a [u8], name: &'static [u8; 4]) -> impl Iterator<Item = Chunk<'a>> {
    chunks(file).filter(move |chunk| &chunk.name == name && chunk.is_right)
}

/// Holds the colour profile to its frame, where there is one.
///
/// # Errors
/// A profile that cannot be unpacked, unpacks to too much, or is none.
pub fn check_profile(file: &[u8]) -> Result<(), PictureError> {
    let Some(chunk) = chunks(file).find(|chunk| &chunk.name == b"iCCP") else { return Ok(()) };
    let unpacked = match split_keyword(chunk.data) {
        Some((_, [0, packed @ ..])) if chunk.is_right => unpacked(packed, "iCCP")?,
        _ => None,
    };
    match unpacked {
        Some(found) => profile::check(Format::Png, &found),
        None => Err(profile::broken(Format::Png, "it cannot be unpacked")),
    }
}

/// The orientation in `exif`, in the text that ImageMagick writes it to, or in XMP. A text is
/// unpacked only where nothing before it tells.
///
/// # Errors
/// A text that would be needed and unpacks to too much.
pub fn orientation(file: &[u8], exif: Option<&[u8]>) -> Result<Orientation, PictureError> {
    let in_text = match exif {
        Some(_) => None,
        None => text(file, EXIF)?.and_then(|text| bytes_of_profile(&text)),
    };
    let exif = exif.or(in_text.as_deref());
    if let Some(found) = Orientation::of_exif(exif) {
        return Ok(found);
    }
    Ok(Orientation::of(None, international_text(file, XMP)?.as_deref()))
}

/// The text of the first chunk with the `keyword`: of a plain one, or else of a packed one.
fn text(file: &[u8], keyword: &[u8]) -> Result<Option<Vec<u8>>, PictureError> {
    let of = |name: &'static [u8; 4]| {
        right(file, name).find_map(|chunk| {
            let (found, rest) = split_keyword(chunk.data)?;
            (found == keyword).then_some(rest)
        })
    };
    if let Some(plain) = of(b"tEXt") {
        return Ok(Some(plain.to_vec()));
    }
    match of(b"zTXt") {
        Some([0, packed @ ..]) => unpacked(packed, "zTXt"),
        _ => Ok(None),
    }
}

/// The text of the first `iTXt` with the `keyword`, in UTF-8.
fn international_text(file: &[u8], keyword: &[u8]) -> Result<Option<Vec<u8>>, PictureError> {
    let Some(found) = right(file, b"iTXt").find_map(|chunk| {
        let (found, rest) = split_keyword(chunk.data)?;
        let (flags, rest) = rest.split_first_chunk::<2>()?;
        // A language and the keyword in it.
        let mut parts = rest.splitn(3, |byte| *byte == 0);
        let text = parts.nth(2)?;
        (found == keyword).then_some((*flags, text))
    }) else {
        return Ok(None);
    };
    let text = match found {
        ([0, _], text) => Some(text.to_vec()),
        ([1, 0], packed) => unpacked(packed, "iTXt")?,
        _ => None,
    };
    Ok(text.filter(|text| std::str::from_utf8(text).is_ok()))
}

/// A keyword of 1 to 79 bytes, and what follows the 0 behind it.
fn split_keyword(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = data.iter().take(80).position(|byte| *byte == 0)?;
    (end > 0).then(|| (&data[..end], &data[end + 1..]))
}

/// The content of a packed chunk; `None` where it is broken.
fn unpacked(packed: &[u8], part: &'static str) -> Result<Option<Vec<u8>>, PictureError> {
    use fdeflate::BoundedDecompressionError::{DecompressionError, OutputTooLarge};
    match fdeflate::decompress_to_vec_bounded(packed, MOST_UNPACKED) {
        Ok(unpacked) => Ok(Some(unpacked)),
        Err(OutputTooLarge { .. }) => {
            let limit = MOST_UNPACKED;
            Err(PictureError::UnpacksToTooMuch { format: Format::Png, part, limit })
        }
        Err(DecompressionError { .. }) => Ok(None),
    }
}

/// The bytes of a raw profile: an empty line, its name, its length, and lines of hexadecimal
/// digits.
fn bytes_of_profile(text: &[u8]) -> Option<Vec<u8>> {
    let lines = text.split(|byte| *byte == b'\n').skip(3);
    let digits: Vec<u8> = lines.flatten().copied().collect();
    let pairs = digits.chunks_exact(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
