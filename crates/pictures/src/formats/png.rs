//! PNG of every colour type and depth.

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, DecodingError, Info, Reader, Transformations};

use super::kept::keep_first_bytes;
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
    let (mut reader, (width, height)) = open(bytes, limits)?;
    let length = reader.output_buffer_size().and_then(|length| u64::try_from(length).ok());
    let mut pixels = vec![0; check_memory(Format::Png, length, limits)?];
    let of_file = reader.info().color_type;
    let (colour, depth) = reader.output_color_type();
    reader.next_frame(&mut pixels).map_err(|error| broken(error, limits))?;
    // Behind the pixels there may be EXIF and texts, and there must be the end.
    reader.finish().map_err(|error| broken(error, limits))?;
    match &reader.info().icc_profile {
        Some(found) => profile::check(Format::Png, found)?,
        // The decoder passes over what it cannot unpack.
        None if has_profile(bytes) => {
            return Err(profile::broken(Format::Png, "it cannot be unpacked"));
        }
        None => {}
    }
    let orientation = orientation(reader.info());

    // The file's type says how grey of 16 bits is read: Pillow cuts it off at 255 where it is alone, and
    // takes the upper byte where alpha comes with it.
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

type Opened<'a> = (Reader<Cursor<&'a [u8]>>, (u32, u32));

fn open<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Opened<'a>, PictureError> {
    let memory = usize::try_from(limits.memory).unwrap_or(usize::MAX);
    let of_decoder = png::Limits { bytes: memory };
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), of_decoder);
    decoder.set_transformations(Transformations::EXPAND);
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

/// Whether one of the chunks holds a colour profile.
fn has_profile(bytes: &[u8]) -> bool {
    let mut at = 8;
    while let Some(&[a, b, c, d, ref name @ ..]) = bytes.get(at..at + 8) {
        if name == b"iCCP" {
            return true;
        }
        // Behind the length and the name come the data and four bytes of their checksum.
        at = at.saturating_add(12).saturating_add(u32::from_be_bytes([a, b, c, d]) as usize);
    }
    false
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

/// The orientation in its EXIF chunk, in the text that ImageMagick writes it to, or in its XMP.
fn orientation(info: &Info<'_>) -> Orientation {
    let in_text = || {
        let latin =
            info.uncompressed_latin1_text.iter().map(|text| (&text.keyword, text.text.clone()));
        let packed = info
            .compressed_latin1_text
            .iter()
            .filter_map(|text| Some((&text.keyword, text.get_text().ok()?)));
        let (_, text) =
            latin.chain(packed).find(|(keyword, _)| *keyword == "Raw profile type exif")?;
        bytes_of_profile(&text)
    };
    let exif = info.exif_metadata.as_deref().map(<[u8]>::to_vec).or_else(in_text);
    let xmp = info
        .utf8_text
        .iter()
        .find(|text| text.keyword == "XML:com.adobe.xmp")
        .and_then(|text| text.get_text().ok());
    Orientation::of(exif.as_deref(), xmp.as_deref().map(str::as_bytes))
}

/// The bytes of a raw profile: an empty line, its name, its length, and lines of hexadecimal digits.
fn bytes_of_profile(text: &str) -> Option<Vec<u8>> {
    let digits: String = text.split('\n').skip(3).flat_map(str::chars).collect();
    let pairs = digits.as_bytes().chunks_exact(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// A grey of 16 bits, cut off at 255.
fn low_byte(grey: &[u8]) -> u8 {
    if grey[0] == 0 { grey[1] } else { 255 }
}

/// Three times the grey that `of` takes out of each `stride` bytes.
fn repeated(pixels: &[u8], stride: usize, of: fn(&[u8]) -> u8) -> Vec<u8> {
    pixels.chunks_exact(stride).flat_map(|pixel| [of(pixel); 3]).collect()
}
