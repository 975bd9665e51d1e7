//! WebP, lossy and lossless.

use std::io::Cursor;

use image_webp::{DecodingError, WebPDecoder};

use super::kept::keep_first_bytes;
use super::prefix_codes::{Fault, bytes_of_codes};
use crate::error::PictureError;
use crate::format::Format;
use crate::limits::{Limits, check_memory, check_sides};
use crate::orientation::Orientation;
use crate::picture::Picture;
use crate::profile;

pub fn size(bytes: &[u8], limits: &Limits) -> Result<(u32, u32), PictureError> {
    open(bytes, limits).map(|(_, sides)| sides)
}

pub fn decode(bytes: &[u8], limits: &Limits) -> Result<(Picture, Orientation), PictureError> {
    let (mut decoder, (width, height)) = open(bytes, limits)?;
    check_memory(Format::WebP, need(bytes, &decoder, limits)?, limits)?;
    let length = decoder.output_buffer_size().and_then(|length| u64::try_from(length).ok());
    let mut pixels = vec![0; check_memory(Format::WebP, length, limits)?];
    decoder.read_image(&mut pixels).map_err(|error| broken(error, limits))?;
    if decoder.has_alpha() {
        keep_first_bytes(&mut pixels, 4, &[0, 1, 2]);
    }
    if let Some(found) = decoder.icc_profile().map_err(|error| broken(error, limits))? {
        profile::check(Format::WebP, &found)?;
    }
    let exif = decoder.exif_metadata().ok().flatten();
    let xmp = decoder.xmp_metadata().ok().flatten();
    let orientation = Orientation::of(exif.as_deref(), xmp.as_deref());
    Ok((Picture::new(width, height, pixels)?, orientation))
}

/// Bytes that decoding takes at most: buffers by the pixel, and the prefix codes of what is
/// lossless. A lossy one takes up to 16 MiB more for a part that states a length which it has not.
fn need(bytes: &[u8], decoder: &Decoder<'_>, limits: &Limits) -> Result<Option<u64>, PictureError> {
    let sides = decoder.dimensions();
    let lossless = chunk(bytes, b"VP8L");
    let alpha = chunk(bytes, b"ALPH").filter(|_| lossless.is_none() && decoder.has_alpha());
    // The picture and, where it has other bytes, the lossless pixels; a lossy one's luma and
    // chroma; its alpha, which is lossless or plain. What describes blocks of lossless pixels takes
    // 1.5 bytes at most.
    let half_bytes_of_a_pixel = match (lossless.is_some(), decoder.has_alpha()) {
        (true, true) => 2 * 4 + 3,
        (true, false) => 2 * (3 + 4) + 3,
        (false, true) => 2 * (4 + 4 + 1) + 3 + 3,
        (false, false) => 2 * 3 + 3,
    };
    let lossless = match (lossless, alpha) {
        // Behind the mark and the sides; and behind the byte that says how alpha is packed.
        (Some(stream), _) => stream.get(5..),
        (None, Some([how, stream @ ..])) if how & 3 == 1 => Some(stream),
        _ => None,
    };
    let codes = match lossless {
        Some(stream) => bytes_of_codes(stream, sides, limits.memory).map_err(unreadable)?,
        None => 0,
    };
    let pixels = u64::from(sides.0) * u64::from(sides.1);
    // Turning takes the picture twice.
    Ok((pixels * half_bytes_of_a_pixel.max(12) / 2).checked_add(codes))
}

/// The content of the first chunk of this name, as far as the file goes.
fn chunk<'a>(file: &'a [u8], name: &[u8; 4]) -> Option<&'a [u8]> {
    let mut rest = file.get(12..)?;
    loop {
        let (found, behind) = rest.split_first_chunk::<4>()?;
        let (length, behind) = behind.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length) as usize;
        if found == name {
            return Some(&behind[..length.min(behind.len())]);
        }
        rest = behind.get(length.saturating_add(length % 2)..)?;
    }
}

/// Holds the sides of a lossy picture to those of the file, which the decoder does behind its
/// decoding.
fn check_frame(bytes: &[u8], sides: (u32, u32)) -> Result<(), PictureError> {
    let Some(frame) = chunk(bytes, b"VP8 ").and_then(|frame| frame.get(6..10)) else {
        return Ok(());
    };
    let side = |at: usize| u32::from(u16::from_le_bytes([frame[at], frame[at + 1]]) & 0x3fff);
    let found = (side(0), side(2));
    if found == sides {
        return Ok(());
    }
    let reason = format!(
        "its frame has {} x {} pixels, and the file states {} x {}",
        found.0, found.1, sides.0, sides.1
    );
    Err(PictureError::Broken { format: Format::WebP, reason })
}

type Decoder<'a> = WebPDecoder<Cursor<&'a [u8]>>;
type Opened<'a> = (Decoder<'a>, (u32, u32));

fn open<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Opened<'a>, PictureError> {
    let mut decoder =
        WebPDecoder::new(Cursor::new(bytes)).map_err(|error| broken(error, limits))?;
    // A chunk may state more bytes than the file has, for which room would be made.
    decoder.set_memory_limit(bytes.len());
    let sides = check_sides(Format::WebP, decoder.dimensions(), limits)?;
    if decoder.is_animated() {
        return Err(PictureError::Animated { format: Format::WebP });
    }
    check_frame(bytes, sides)?;
    Ok((decoder, sides))
}

fn unreadable(fault: Fault) -> PictureError {
    let reason = match fault {
        Fault::CutOff => "it ends before its pixels do; it is cut off",
        Fault::Broken => "its prefix codes are broken",
    };
    PictureError::Broken { format: Format::WebP, reason: reason.to_owned() }
}

fn broken(error: DecodingError, limits: &Limits) -> PictureError {
    let format = Format::WebP;
    match error {
        DecodingError::MemoryLimitExceeded => {
            PictureError::TooMuchMemory { format, limit: limits.memory }
        }
        DecodingError::IoError(error) => PictureError::Broken {
            format,
            reason: format!("it ends before its pixels do; it is cut off ({error})"),
        },
        other => PictureError::Broken { format, reason: other.to_string() },
    }
}
