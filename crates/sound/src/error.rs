//! Why a sound is refused.

use std::ops::RangeInclusive;

/// Why a sound is refused. The text names what is wrong; the caller names the sound.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SoundError {
    /// There is no byte.
    #[error("the sound is empty")]
    Empty,
    /// The file is larger than [`Limits::bytes`](crate::Limits::bytes).
    #[error("the sound has {bytes} bytes; at most {limit} are taken: cut or compress it")]
    TooManyBytes {
        /// Its bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The bytes are no format that is read here.
    #[error(
        "the file is no sound that is read here: {reason}; WAV, AIFF, FLAC, MP3, MP4, AAC, Ogg and \
         WebM are read"
    )]
    UnknownFormat {
        /// The fault, by the reader of formats.
        reason: String,
    },
    /// The file has no track of sound, such as a video without one.
    #[error("the {format} has no track of sound; give a file that has one")]
    NoTrack {
        /// The file's format.
        format: &'static str,
    },
    /// The codec of the track is not read here.
    #[error(
        "the codec of the {format} is not read here ({reason}); convert it to FLAC, MP3 or WAV"
    )]
    UnknownCodec {
        /// The file's format.
        format: &'static str,
        /// The fault, by the decoder.
        reason: String,
    },
    /// A rate, of the file or asked for, that is none of sound.
    #[error("a rate of {rate} Hz is not taken; it is from {} to {} Hz", range.start(), range.end())]
    Rate {
        /// The rate.
        rate: u32,
        /// The rates that are taken.
        range: RangeInclusive<u32>,
    },
    /// No channel, or more than are taken.
    #[error("the {format} has {channels} channels; 1 to {limit} are taken: mix them down")]
    Channels {
        /// The file's format.
        format: &'static str,
        /// Its channels.
        channels: usize,
        /// The most that are taken.
        limit: usize,
    },
    /// The sound is longer than [`Limits::seconds`](crate::Limits::seconds).
    #[error("the sound is longer than {limit} seconds; cut it into parts")]
    TooLong {
        /// The limit.
        limit: f64,
    },
    /// The rate changes within the file, more often than a recording has reason to.
    #[error("the rate of the sound changes more than {limit} times; convert it to one rate")]
    Rates {
        /// The limit.
        limit: usize,
    },
    /// Nothing of the file could be decoded.
    #[error("the {format} cannot be decoded: {reason}; convert it anew")]
    Broken {
        /// The file's format.
        format: &'static str,
        /// The fault, by its decoder.
        reason: String,
    },
    /// The file is well-formed and has no sample.
    #[error("the {format} has no sample; record it anew")]
    NoSamples {
        /// The file's format.
        format: &'static str,
    },
    /// A library panicked over the file.
    #[error(
        "the file cannot be decoded: its decoder failed inside; convert it to FLAC, MP3 or WAV"
    )]
    Panicked,
}
