//! PNG of every colour type and depth.

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, DecodingError, Reader, Transformations};

use super::chunks;
use super::kept::keep_first_bytes;
use crate::error::PictureError;
use crate::format::Format;
use crate::limits::{Limits, check_memory, check_sides};
use crate::orientation::Orientation;
use crate::picture::Picture;

pub fn size(bytes: &[u8], limits: &Limits) -> Result<(u32, u32), PictureError> {
    open(bytes, limits).map(|(_, sides)| sides)
}

pub fn decode(bytes: &[u8], limits: &Limits) -> Result<(Picture, Orientation), PictureError> {
    let (mut reader, (width, height)) = open(bytes, limits)?;
    check_memory(Format::Png, need(&reader), limits)?;
    let length = reader.output_buffer_size().and_then(|length| u64::try_from(length).ok());
    let mut pixels = vec![0; check_memory(Format::Png, length, limits)?];
    let of_file = reader.info().color_type;
    let (colour, depth) = reader.output_color_type();
    reader.next_frame(&mut pixels).map_err(|error| broken(error, limits))?;
    // Behind the pixels there may be EXIF, and there must be the end.
    reader.finish().map_err(|error| broken(error, limits))?;
    chunks::check_profile(bytes)?;
    let orientation = chunks::orientation(bytes, reader.info().exif_metadata.as_deref())?;

    // The file's type says how grey of 16 bits is read: Pillow cuts it off at 255 where it is
    // alone, and takes the upper byte where alpha comes with it.
    let cut_off = of_file == ColorType::Grayscale;
    let wide = depth == BitDepth::Sixteen;
    match (colour, wide) {
        (ColorType::Rgb, false) => {}
        (ColorType::Rgb, true) => keep_first_bytes(&mut pixels, 6, &[0, 2, 4]),
        (ColorType::Rgba, false) => keep_first_bytes(&mut pixels, 4, &[0, 1, 2]),
        (ColorType::Rgba, true) => keep_first_bytes(&mut pixels, 8, &[0, 2, 4]),
        (ColorType::Grayscale, false) => pixels = repeated(&pixels, 1, |grey| grey[0]),
        (ColorType::GrayscaleAlpha, false) => pixels = repeated(&pixels, 2, |grey| grey[0]),
        (ColorType::Grayscale, true) => pixels = repeated(&pixels, 2, low_byte),
        (ColorType::GrayscaleAlpha, true) if cut_off => pixels = repeated(&pixels, 4, low_byte),
        (ColorType::GrayscaleAlpha, true) => pixels = repeated(&pixels, 4, |grey| grey[0]),
        // Palettes are looked up by the decoder, as `open` asks it to.
        (ColorType::Indexed, _) => {
            let reason = "its palette was not looked up".to_owned();
            return Err(PictureError::Broken { format: Format::Png, reason });
        }
    }
    Ok((Picture::new(width, height, pixels)?, orientation))
}

/// Rows that the decoder may hold at once: it moves them up behind the fourth, in a buffer that
/// grows to twice its length and is copied for that, beside a row of its own and one that is given
/// out.
const ROWS: u64 = 6 * 3 + 2;

/// Bytes that decoding takes at most: the pixels as the file has them, the decoder's rows and the
/// RGB of what is grey, or the picture twice, to be turned.
fn need(reader: &Reader<Cursor<&[u8]>>) -> Option<u64> {
    let info = reader.info();
    let pixels = u64::from(info.width) * u64::from(info.height);
    let length = u64::try_from(reader.output_buffer_size()?).ok()?;
    let row = length.div_ceil(u64::from(info.height)) + 1;
    let rows = row.checked_mul(ROWS.min(3 * u64::from(info.height) + 2))?;
    let is_grey =
        matches!(reader.output_color_type().0, ColorType::Grayscale | ColorType::GrayscaleAlpha);
    let beside = if is_grey { 3 * pixels } else { 0 };
    Some(length.checked_add(rows)?.checked_add(beside)?.max(6 * pixels))
}

type Opened<'a> = (Reader<Cursor<&'a [u8]>>, (u32, u32));

fn open<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Opened<'a>, PictureError> {
    let memory = usize::try_from(limits.memory).unwrap_or(usize::MAX);
    let of_decoder = png::Limits { bytes: memory };
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), of_decoder);
    decoder.set_transformations(Transformations::EXPAND);
    // It would keep each text, and unpack profiles up to its own limit. `chunks` reads the few that
    // count.
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let sides = match decoder.read_header_info() {
        Ok(info) => (info.width, info.height),
        Err(error) => return Err(no_pixels(bytes).unwrap_or_else(|| broken(error, limits))),
    };
    check_sides(Format::Png, sides, limits)?;
    let reader = decoder.read_info().map_err(|error| broken(error, limits))?;
    if reader.info().is_animated() {
        return Err(PictureError::Animated { format: Format::Png });
    }
    Ok((reader, sides))
}

/// The error for a header with a side of 0, which the decoder calls broken.
fn no_pixels(bytes: &[u8]) -> Option<PictureError> {
    let side = |at: usize| {
        let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_be_bytes(four))
    };
    let (width, height) = (side(16)?, side(20)?);
    (width == 0 || height == 0).then_some(PictureError::NoPixels {
        format: Format::Png,
        width,
        height,
    })
}

fn broken(error: DecodingError, limits: &Limits) -> PictureError {
    let format = Format::Png;
    match error {
        DecodingError::LimitsExceeded => {
            PictureError::TooMuchMemory { format, limit: limits.memory }
        }
        DecodingError::IoError(error) => PictureError::Broken {
            format,
            reason: format!("it ends before its pixels do; it is cut off ({error})"),
        },
        other => PictureError::Broken { format, reason: other.to_string() },
    }
}

/// A grey of 16 bits, cut off at 255.
fn low_byte(grey: &[u8]) -> u8 {
    if grey[0] == 0 { grey[1] } else { 255 }
}

/// Three times the grey that `of` takes out of each `stride` bytes.
fn repeated(pixels: &[u8], stride: usize, of: fn(&[u8]) -> u8) -> Vec<u8> {
    let mut rgb = Vec::with_capacity(pixels.len() / stride * 3);
    rgb.extend(pixels.chunks_exact(stride).flat_map(|pixel| [of(pixel); 3]));
    rgb
}
