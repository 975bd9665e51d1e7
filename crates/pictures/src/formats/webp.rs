//! WebP, lossy and lossless.

use std::io::Cursor;

use image_webp::{DecodingError, WebPDecoder};

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
    let (mut decoder, (width, height)) = open(bytes, limits)?;
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

type Opened<'a> = (WebPDecoder<Cursor<&'a [u8]>>, (u32, u32));

fn open<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Opened<'a>, PictureError> {
    let mut decoder =
        WebPDecoder::new(Cursor::new(bytes)).map_err(|error| broken(error, limits))?;
    decoder.set_memory_limit(usize::try_from(limits.memory).unwrap_or(usize::MAX));
    let sides = check_sides(Format::WebP, decoder.dimensions(), limits)?;
    if decoder.is_animated() {
        return Err(PictureError::Animated { format: Format::WebP });
    }
    Ok((decoder, sides))
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
