//! Sound as models take it: from the bytes of a file to mono samples at a wanted rate, and from
//! there to the features that a model was trained on.
//!
//! - [`Sound::decode`] reads WAV, AIFF, FLAC, MP3, AAC, ALAC, Vorbis and Opus, bare or in Ogg, MP4
//!   or WebM. [`Limits`] are held before and while it decodes.
//! - [`Resampler`] changes the rate of samples, a part at a time.
//! - [`Mel`] makes the features of Whisper as transformers does, [`LogMel`] those of Gemma, and
//!   [`NormalizedMel`] those of Parakeet.
//! - [`wav`] writes samples as a file.
//!
//! ```
//! use sound::{Limits, Sound};
//!
//! let file = sound::wav(&[0.0, 0.5, -0.5, 0.0], 8_000);
//! let sound = Sound::decode(&file, 16_000, &Limits::default())?;
//! assert_eq!(sound.samples.len(), 8);
//! assert_eq!(sound.info.rate, 8_000);
//! # Ok::<(), sound::SoundError>(())
//! ```

#![forbid(unsafe_code)]

#[cfg(feature = "decode")]
mod codec;
#[cfg(feature = "decode")]
mod container;
#[cfg(feature = "decode")]
mod decode;
mod error;
#[cfg(feature = "decode")]
mod limits;
mod log_mel;
mod mel;
mod normalized_mel;
#[cfg(feature = "decode")]
mod opus;
#[cfg(feature = "decode")]
pub mod panics;
#[cfg(feature = "decode")]
mod priming;
mod resample;
mod wav;

#[cfg(feature = "decode")]
pub use decode::{Sound, SoundInfo};
pub use error::SoundError;
#[cfg(feature = "decode")]
pub use limits::Limits;
pub use log_mel::{Floor, Frames, LogMel};
pub use mel::{Features, Mel, MelError};
pub use normalized_mel::NormalizedMel;
pub use resample::Resampler;
pub use wav::wav;
