//! Opus, by its identification header (RFC 7845, section 5.1).

use ropus::OpusMSDecoder;
use symphonia::core::packet::Packet;

/// The rate at which Opus is decoded, whatever the rate of what was encoded.
pub const RATE: u32 = 48_000;

/// Most frames of a packet: 120 ms.
const MOST_FRAMES: usize = 5_760;

/// A decoder of all streams of an Opus track.
pub struct Opus {
    decoder: OpusMSDecoder,
    /// Channels of the track.
    pub channels: usize,
    /// Frames before the sound.
    pub pre_skip: u64,
    gain: f32,
    levels: Vec<i16>,
}

impl Opus {
    /// The decoder for an identification header. The error says what is wrong with it.
    pub fn new(head: Option<&[u8]>) -> Result<Self, String> {
        let head = head.filter(|head| head.len() >= 19 && head.starts_with(b"OpusHead"));
        let head = head.ok_or("there is no OpusHead")?;
        // MP4 has version 0, and the highest byte of a number first.
        let two = |at: usize| match head[8] {
            0 => u16::from_be_bytes([head[at], head[at + 1]]),
            _ => u16::from_le_bytes([head[at], head[at + 1]]),
        };
        let channels = usize::from(head[9]);
        let (streams, coupled, mapping) = match head[18] {
            0 if channels == 1 || channels == 2 => (1, channels as u8 - 1, &[0, 1][..channels]),
            0 => return Err(format!("a stream of Opus has 1 or 2 channels, not {channels}")),
            _ => {
                let table = head.get(19..21 + channels).ok_or("OpusHead ends too early")?;
                (table[0], table[1], &table[2..])
            }
        };
        let decoder = OpusMSDecoder::new(
            RATE as i32,
            channels as i32,
            i32::from(streams),
            i32::from(coupled),
            mapping,
        )
        .map_err(|code| format!("OpusHead has no such channels ({code})"))?;
        Ok(Self {
            decoder,
            channels,
            pre_skip: u64::from(two(10)),
            // In units of 1/256 dB.
            gain: 10f32.powf(f32::from(two(16) as i16) / 256.0 / 20.0) / 32768.0,
            levels: vec![0; MOST_FRAMES * channels],
        })
    }

    /// Decodes a packet to interleaved samples.
    pub fn decode(&mut self, packet: &Packet, samples: &mut Vec<f32>) -> Result<(), String> {
        samples.clear();
        let length = i32::try_from(packet.data.len()).map_err(|_| "the packet is too large")?;
        if length == 0 {
            return Ok(());
        }
        let frames = self
            .decoder
            .decode(Some(&packet.data), length, &mut self.levels, MOST_FRAMES as i32, false)
            .map_err(|code| format!("Opus has error {code}"))?;
        let frames = usize::try_from(frames).unwrap_or(0).min(MOST_FRAMES);
        let kept = frames.saturating_sub(packet.trim_end.get() as usize);
        let levels = &self.levels[..kept * self.channels];
        samples.extend(levels.iter().map(|level| f32::from(*level) * self.gain));
        Ok(())
    }
}
