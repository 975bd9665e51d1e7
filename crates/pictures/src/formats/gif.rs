//! The first frame of a GIF.

use gif::{ColorOutput, DecodeOptions, Decoder, DecodingError, MemoryLimit};

use crate::error::PictureError;
use crate::format::Format;
use crate::limits::{Limits, check_memory, check_sides};
use crate::picture::Picture;

pub fn size(bytes: &[u8], limits: &Limits) -> Result<(u32, u32), PictureError> {
    let decoder = open(bytes, limits)?;
    let screen = (u32::from(decoder.width()), u32::from(decoder.height()));
    check_sides(Format::Gif, screen, limits)
}

/// The first frame on its screen, as Pillow shows it: what it leaves free has the transparent
/// colour, or else the first one; a frame that is larger than the screen widens it.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Picture, PictureError> {
    let mut decoder = open(bytes, limits)?;
    let screen = (u32::from(decoder.width()), u32::from(decoder.height()));
    check_sides(Format::Gif, screen, limits)?;
    let global = decoder.global_palette().map(<[u8]>::to_vec);

    let frame = decoder.next_frame_info().map_err(|error| broken(error, limits))?;
    let Some(frame) = frame else {
        let reason = "it has no frame".to_owned();
        return Err(PictureError::Broken { format: Format::Gif, reason });
    };
    let [left, top, columns, rows] =
        [frame.left, frame.top, frame.width, frame.height].map(u32::from);
    let transparent = frame.transparent;
    let palette = frame.palette.clone().or(global);
    let (width, height) = (screen.0.max(left + columns), screen.1.max(top + rows));
    check_sides(Format::Gif, (width, height), limits)?;
    check_sides(Format::Gif, (columns, rows), limits)?;
    let pixels = u64::from(width) * u64::from(height);
    check_memory(Format::Gif, Some(4 * pixels), limits)?;

    let mut indices = vec![0; decoder.buffer_size()];
    decoder.read_into_buffer(&mut indices).map_err(|error| broken(error, limits))?;

    // Without a palette, and beyond its end, an index is a grey.
    let colours: Vec<[u8; 3]> = (0..=255_u8)
        .map(|index| {
            let at = 3 * usize::from(index);
            let colour = palette.as_deref().and_then(|palette| palette.get(at..at + 3));
            colour.map_or([index; 3], |colour| [colour[0], colour[1], colour[2]])
        })
        .collect();
    let mut rgb = colours[usize::from(transparent.unwrap_or(0))].repeat(pixels as usize);
    for (row, indices) in indices.chunks_exact(columns as usize).enumerate() {
        let begin = 3 * ((top as usize + row) * width as usize + left as usize);
        let target = rgb[begin..].chunks_exact_mut(3);
        for (target, index) in target.zip(indices) {
            target.copy_from_slice(&colours[usize::from(*index)]);
        }
    }
    Picture::new(width, height, rgb)
}

fn open<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Decoder<&'a [u8]>, PictureError> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    let memory = std::num::NonZeroU64::new(limits.memory).unwrap_or(std::num::NonZeroU64::MIN);
    options.set_memory_limit(MemoryLimit::Bytes(memory));
    options.read_info(bytes).map_err(|error| broken(error, limits))
}

fn broken(error: DecodingError, limits: &Limits) -> PictureError {
    let format = Format::Gif;
    match error {
        DecodingError::OutOfMemory => PictureError::TooMuchMemory { format, limit: limits.memory },
        DecodingError::Io(error) => PictureError::Broken {
            format,
            reason: format!("it ends before its pixels do; it is cut off ({error})"),
        },
        other => PictureError::Broken { format, reason: other.to_string() },
    }
}
