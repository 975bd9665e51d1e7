//! JPEG, with the pixels of libjpeg-turbo.

use libjpeg_turbo_rs::{ColorSpace, DecodeLimits, Decoder, JpegError, PixelFormat};

use crate::error::PictureError;
use crate::format::Format;
use crate::limits::{Limits, check_memory, check_sides};
use crate::orientation::Orientation;
use crate::picture::Picture;
use crate::profile;

/// Most scans of a progressive file; encoders make about ten.
const SCANS: usize = 500;

/// Most pixels of all scans together, of which each is gone through whole, even one of a few bytes.
const SCANNED: u64 = 1 << 32;

/// Most parts of a colour profile, whose numbers are bytes.
const PARTS: usize = 255;

pub fn size(bytes: &[u8], limits: &Limits) -> Result<(u32, u32), PictureError> {
    open(bytes, limits).map(|(_, sides)| sides)
}

pub fn decode(bytes: &[u8], limits: &Limits) -> Result<(Picture, Orientation), PictureError> {
    let (mut decoder, (width, height)) = open(bytes, limits)?;
    let segments = segments(bytes);
    if !segments.reach_the_end {
        return Err(cut_off());
    }
    let pixels = u64::from(width) * u64::from(height);
    if pixels.saturating_mul(segments.scans) > SCANNED {
        let reason = format!("{} scans of {width} x {height} pixels are too many", segments.scans);
        return Err(PictureError::Broken { format: Format::Jpeg, reason });
    }
    if let Some(found) = profile_in(&segments)? {
        profile::check(Format::Jpeg, &found)?;
    }
    let cmyk = matches!(decoder.jpeg_color_space(), ColorSpace::Cmyk | ColorSpace::Ycck);
    let bytes_of_a_pixel = if cmyk { 4 } else { 3 };
    check_memory(Format::Jpeg, pixels.checked_mul(bytes_of_a_pixel), limits)?;
    decoder.set_output_format(if cmyk { PixelFormat::Cmyk } else { PixelFormat::Rgb });

    let image = decoder.decode_image().map_err(|error| broken(error, limits))?;
    let orientation = Orientation::of(image.exif_data.as_deref(), image.xmp_data.as_deref());
    let rgb = if cmyk { rgb_of_cmyk(image.data) } else { image.data };
    Ok((Picture::new(width, height, rgb)?, orientation))
}

fn open<'a>(bytes: &'a [u8], limits: &Limits) -> Result<(Decoder<'a>, (u32, u32)), PictureError> {
    // The number of pixels is checked below, for one text of error.
    let of_decoder = DecodeLimits {
        max_scans: SCANS,
        max_memory: Some(limits.memory),
        ..DecodeLimits::default()
    };
    let decoder =
        Decoder::new_with_limits(bytes, of_decoder).map_err(|error| broken(error, limits))?;
    let header = decoder.header();
    let sides = (u32::from(header.width), u32::from(header.height));
    check_sides(Format::Jpeg, sides, limits)?;
    Ok((decoder, sides))
}

fn broken(error: JpegError, limits: &Limits) -> PictureError {
    match error {
        JpegError::LimitExceeded { what, .. } if what.contains("memory") => {
            PictureError::TooMuchMemory { format: Format::Jpeg, limit: limits.memory }
        }
        JpegError::UnexpectedEof => cut_off(),
        other => PictureError::Broken { format: Format::Jpeg, reason: other.to_string() },
    }
}

fn cut_off() -> PictureError {
    let reason = "it ends before its pixels do; it is cut off".to_owned();
    PictureError::Broken { format: Format::Jpeg, reason }
}

/// Facts from the segments of a file up to the marker of its end (EOI).
struct Segments<'a> {
    /// Content of the segments of a colour profile (APP2); at most one more than allowed.
    of_profile: Vec<&'a [u8]>,
    /// Scans (SOS).
    scans: u64,
    /// The marker of the end comes behind the pixels.
    ///
    /// Without it decoders fill up what is missing, and Pillow refuses the file.
    reach_the_end: bool,
}

fn segments(bytes: &[u8]) -> Segments<'_> {
    let mut found = Segments { of_profile: Vec::new(), scans: 0, reach_the_end: false };
    let mut at = 2;
    while let Some(marker) = bytes.get(at..at + 2) {
        match marker {
            [0xff, 0xd9] => return Segments { reach_the_end: true, ..found },
            // Markers of their own: fill bytes, restarts and the beginning.
            [0xff, 0xff] => at += 1,
            [0xff, 0x01 | 0xd0..=0xd8] => at += 2,
            [0xff, of] if *of >= 2 => {
                let Some(length) = bytes.get(at + 2..at + 4) else { break };
                let end = at + 2 + usize::from(u16::from_be_bytes([length[0], length[1]]));
                let held = bytes.get(at + 4..end).unwrap_or_default();
                let is_of_profile = *of == 0xe2 && held.starts_with(PROFILE);
                if is_of_profile && found.of_profile.len() <= PARTS {
                    found.of_profile.push(&held[PROFILE.len()..]);
                }
                found.scans += u64::from(*of == 0xda);
                at = if *of == 0xda { behind_scan(bytes, end) } else { end };
            }
            // Bytes between the segments are passed over.
            _ => at += 1,
        }
    }
    found
}

/// The colour profile in the segments APP2, which come in any order: each begins with its number,
/// from 1, and with how many there are.
fn profile_in(segments: &Segments<'_>) -> Result<Option<Vec<u8>>, PictureError> {
    let mut parts = segments.of_profile.clone();
    if parts.is_empty() {
        return Ok(None);
    }
    parts.sort_by_key(|part| part.first().copied());
    let count = parts.len();
    let in_order = parts.iter().zip(1..).all(|(part, number)| {
        part.get(..2).is_some_and(|begin| [number, count] == [begin[0], begin[1]].map(usize::from))
    });
    if !in_order {
        let reason = format!("its {count} parts are not numbered from 1 to {count}");
        return Err(profile::broken(Format::Jpeg, reason));
    }
    Ok(Some(parts.iter().flat_map(|part| &part[2..]).copied().collect()))
}

/// The beginning of a segment with a part of a colour profile.
const PROFILE: &[u8] = b"ICC_PROFILE\0";

/// The offset of the first marker after a scan's data. A 0 behind 0xff is data, as is a restart.
fn behind_scan(bytes: &[u8], mut at: usize) -> usize {
    while let Some(two) = bytes.get(at..at + 2) {
        match two {
            [0xff, 0 | 0xd0..=0xd7] => at += 2,
            [0xff, 0xff] => at += 1,
            [0xff, _] => return at,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// CMYK to RGB as Pillow does it. The four inks are stored inverted, by Adobe's convention.
fn rgb_of_cmyk(mut pixels: Vec<u8>) -> Vec<u8> {
    let count = pixels.len() / 4;
    for pixel in 0..count {
        let [c, m, y, k] = [0, 1, 2, 3].map(|ink| u32::from(255 - pixels[4 * pixel + ink]));
        for (channel, ink) in [c, m, y].into_iter().enumerate() {
            // Division by 255, rounded, as in Pillow's MULDIV255.
            let product = ink * (255 - k) + 128;
            let part = ((product >> 8) + product) >> 8;
            pixels[3 * pixel + channel] = (255 - k).saturating_sub(part) as u8;
        }
    }
    pixels.truncate(3 * count);
    pixels
}
