//! The decoder of a track.

use symphonia::core::codecs::audio::well_known::CODEC_ID_OPUS;
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder};
use symphonia::core::packet::Packet;
use symphonia::default::get_codecs;

use crate::opus::{self, Opus};

/// A decoder: one of symphonia's, or that of Opus.
pub enum Codec {
    /// One of symphonia's.
    Library(Box<dyn AudioDecoder>),
    /// Opus.
    Opus(Box<Opus>),
}

/// Rate and channels of what a packet became.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    pub rate: u32,
    pub channels: usize,
}

impl Codec {
    /// The decoder for a track. The error says why there is none.
    pub fn new(track: &AudioCodecParameters) -> Result<Self, String> {
        if track.codec == CODEC_ID_OPUS {
            return Opus::new(track.extra_data.as_deref()).map(Box::new).map(Self::Opus);
        }
        let decoder = get_codecs().make_audio_decoder(track, &Default::default());
        decoder.map(Self::Library).map_err(|error| error.to_string())
    }

    /// The codec's short name, such as `flac`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Library(decoder) => decoder.codec_info().short_name,
            Self::Opus(_) => "opus",
        }
    }

    /// Frames before the sound that the codec itself states and leaves to its caller.
    pub fn pre_skip(&self) -> Option<u64> {
        match self {
            Self::Library(_) => None,
            Self::Opus(opus) => Some(opus.pre_skip),
        }
    }

    /// Decodes a packet to interleaved samples.
    pub fn decode(&mut self, packet: &Packet, samples: &mut Vec<f32>) -> Result<Spec, String> {
        match self {
            Self::Library(decoder) => {
                let buffer = decoder.decode(packet).map_err(|error| error.to_string())?;
                buffer.copy_to_vec_interleaved(samples);
                let spec = buffer.spec();
                Ok(Spec { rate: spec.rate(), channels: spec.channels().count() })
            }
            Self::Opus(decoder) => {
                decoder.decode(packet, samples)?;
                Ok(Spec { rate: opus::RATE, channels: decoder.channels })
            }
        }
    }
}
