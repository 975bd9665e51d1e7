//! Checks of colour profiles (ICC.1:2022). They are not applied, so only their frame is read.

use crate::error::PictureError;
use crate::format::Format;

/// The header, of which the last field ends here.
const HEADER: usize = 128;

/// One entry of the table of tags: its name, where its data begins, and how many bytes they are.
const ENTRY: usize = 12;

/// Holds a file's profile to the frame that every profile has: its size, its mark, and tags inside
/// of it. More bytes than the profile counts are padding.
///
/// # Errors
/// [`PictureError::BrokenProfile`] with the fault, and the part of the file that it is in.
pub fn check(format: Format, profile: &[u8]) -> Result<(), PictureError> {
    fault(profile).map_or(Ok(()), |reason| Err(broken(format, reason)))
}

/// The error for a profile that is broken for the `reason`.
pub fn broken(format: Format, reason: impl Into<String>) -> PictureError {
    let part = match format {
        Format::Png => "iCCP",
        Format::Jpeg => "APP2",
        Format::WebP | Format::Gif => "ICCP",
    };
    PictureError::BrokenProfile { format, part, reason: reason.into() }
}

fn fault(profile: &[u8]) -> Option<String> {
    let bytes = profile.len();
    let u32_at = |at: usize| {
        let four: [u8; 4] = profile.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_be_bytes(four) as usize)
    };
    let (Some(size), Some(tags)) = (u32_at(0), u32_at(HEADER)) else {
        let least = HEADER + 4;
        return Some(format!("it has {bytes} bytes, and a profile has at least {least}"));
    };
    if &profile[36..40] != b"acsp" {
        return Some("it has not the mark `acsp` of a profile".to_owned());
    }
    if size > bytes {
        return Some(format!("it states {size} bytes and has {bytes}"));
    }
    let table = HEADER + 4;
    if tags > (bytes - table) / ENTRY {
        return Some(format!("it states {tags} tags, which {bytes} bytes cannot hold"));
    }
    (0..tags).find_map(|tag| {
        let entry = table + ENTRY * tag;
        let (begin, length) = (u32_at(entry + 4)?, u32_at(entry + 8)?);
        let inside = begin.checked_add(length).is_some_and(|end| end <= bytes);
        (!inside).then(|| format!("tag {tag} of {tags} ends outside of its {bytes} bytes"))
    })
}
