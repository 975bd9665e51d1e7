//! The beginning of a track that an MP4's edit list leaves out (ISO/IEC 14496-12).
//!
//! Encoders of AAC put some 1,000 to 2,000 frames before the sound. The reader of MP4 does not look
//! at the list.

/// Most boxes that are looked at inside of one.
const MOST_BOXES: usize = 1_000;

/// More is an edit rather than priming.
const MOST_FRAMES: u64 = 8_192;

/// Frames to leave out at the beginning of the track, in the track's time scale.
pub fn of_track(file: &[u8], track: u32) -> Option<u64> {
    let trak = boxes(find(file, b"moov")?).filter(|(name, _)| name == b"trak");
    let trak = trak.map(|(_, body)| body).find(|trak| id(trak) == Some(track))?;
    let list = find(find(trak, b"edts")?, b"elst")?;
    let wide = *list.first()? == 1;
    let media_time = if wide { number(list, 16, 8)? } else { number(list, 12, 4)? };
    // All ones mean that nothing is played for a while.
    (media_time <= MOST_FRAMES).then_some(media_time)
}

/// The number of a track, by its header.
fn id(trak: &[u8]) -> Option<u32> {
    let header = find(trak, b"tkhd")?;
    let wide = *header.first()? == 1;
    u32::try_from(number(header, if wide { 20 } else { 12 }, 4)?).ok()
}

fn find<'a>(body: &'a [u8], name: &[u8; 4]) -> Option<&'a [u8]> {
    boxes(body).find(|(found, _)| found == name).map(|(_, body)| body)
}

/// Names and bodies of the boxes in a body, as far as they are whole.
fn boxes(mut body: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    let next = move || {
        let size = number(body, 0, 4)?;
        let name: [u8; 4] = body.get(4..8)?.try_into().ok()?;
        let (begin, size) = match size {
            0 => (8, body.len() as u64),
            1 => (16, number(body, 8, 8)?),
            size => (8, size),
        };
        let end = usize::try_from(size).ok()?;
        let inside = body.get(begin..end)?;
        body = &body[end..];
        Some((name, inside))
    };
    std::iter::from_fn(next).take(MOST_BOXES)
}

/// A number with its highest byte first.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + size)?;
    Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
