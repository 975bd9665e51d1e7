//! From the bytes of a file to mono samples.

use symphonia::core::packet::Packet;

use crate::codec::{Codec, Spec};
use crate::container::{Container, Next};
use crate::error::SoundError;
use crate::limits::Limits;
use crate::panics::caught;
use crate::resample::{RATES, Resampler};

/// Most channels that are mixed.
const MOST_CHANNELS: usize = 32;

/// Broken packets that are skipped, beyond as many as there are good ones.
const MOST_BROKEN: u64 = 100;

/// Samples further from zero are cut off, so that no sum of some overflows.
const LOUDEST: f32 = 65_536.0;

/// Mono samples, mostly of -1 to 1, at a rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Sound {
    /// The samples.
    pub samples: Vec<f32>,
    /// Samples of a second.
    pub rate: u32,
    /// The file that they are from.
    pub info: SoundInfo,
}

/// How a sound lay in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SoundInfo {
    /// The file's format, such as `MP4`.
    pub format: &'static str,
    /// The codec's short name, such as `aac`.
    pub codec: &'static str,
    /// Frames of a second as they were decoded; 48,000 for all Opus.
    pub rate: u32,
    /// Channels of the file, from which the samples are the mean.
    pub channels: usize,
}

impl Sound {
    /// The sound in a file's bytes: its first track, the mean of all channels, at `rate` Hz.
    ///
    /// Broken packets are skipped, and a file that ends early is taken as far as it goes. Samples
    /// that are no finite number become 0.
    ///
    /// # Errors
    /// When it is no such file, has no sound, is more than `limits` allow, or nothing of it can be
    /// decoded.
    pub fn decode(bytes: &[u8], rate: u32, limits: &Limits) -> Result<Self, SoundError> {
        if bytes.is_empty() {
            return Err(SoundError::Empty);
        }
        if bytes.len() > limits.bytes {
            return Err(SoundError::TooManyBytes { bytes: bytes.len(), limit: limits.bytes });
        }
        if !RATES.contains(&rate) {
            return Err(SoundError::Rate { rate, range: RATES });
        }
        caught(|| decode(bytes, rate, limits)).unwrap_or(Err(SoundError::Panicked))
    }

    /// The length in seconds.
    pub fn seconds(&self) -> f64 {
        self.samples.len() as f64 / f64::from(self.rate)
    }
}

fn decode(bytes: &[u8], rate: u32, limits: &Limits) -> Result<Sound, SoundError> {
    let mut container = Container::open(bytes)?;
    if container.seconds().is_some_and(|seconds| seconds > limits.seconds) {
        return Err(SoundError::TooLong { limit: limits.seconds });
    }
    let mut codec = codec(&container)?;
    let mut mix = Mix::new(container.name, rate, limits);
    let mut interleaved = Vec::new();
    let (mut good, mut broken, mut fault) = (0, 0, None);
    loop {
        let packet = match container.next() {
            Next::Packet(packet) => packet,
            Next::Track => {
                codec = self::codec(&container)?;
                mix.begins = true;
                continue;
            }
            Next::End => break,
        };
        match codec.decode(&packet, &mut interleaved) {
            Ok(spec) => {
                mix.take(&container, (&codec, &packet), spec, &interleaved)?;
                good += 1;
            }
            Err(error) => {
                fault = Some(error);
                broken += 1;
                if broken > good + MOST_BROKEN {
                    break;
                }
            }
        }
    }
    mix.finish();
    mix.check_length()?;
    let Some(spec) = mix.first.filter(|_| !mix.samples.is_empty()) else {
        let format = container.name;
        return Err(match fault.or(container.fault) {
            Some(reason) => SoundError::Broken { format, reason },
            None => SoundError::NoSamples { format },
        });
    };
    let info = SoundInfo {
        format: container.name,
        codec: codec.name(),
        rate: spec.rate,
        channels: spec.channels,
    };
    Ok(Sound { samples: mix.samples, rate, info })
}

/// The decoder of the track, whose header is held to the limits first.
fn codec(container: &Container) -> Result<Codec, SoundError> {
    let track = &container.codec;
    if let Some(rate) = track.sample_rate.filter(|rate| !RATES.contains(rate)) {
        return Err(SoundError::Rate { rate, range: RATES });
    }
    if let Some(channels) = &track.channels {
        check_channels(container.name, channels.count())?;
    }
    Codec::new(track).map_err(|reason| SoundError::UnknownCodec { format: container.name, reason })
}

fn check_channels(format: &'static str, channels: usize) -> Result<(), SoundError> {
    if (1..=MOST_CHANNELS).contains(&channels) {
        return Ok(());
    }
    Err(SoundError::Channels { format, channels, limit: MOST_CHANNELS })
}

/// Changes of the rate within a file, each of which makes another filter.
const MOST_RATES: usize = 16;

/// Channels that become one, at the wanted rate.
struct Mix {
    format: &'static str,
    rate: u32,
    seconds: f64,
    samples: Vec<f32>,
    /// Rate and channels of the first packet.
    first: Option<Spec>,
    /// The rate that arrives, and the change from it.
    resampler: Option<(u32, Resampler)>,
    /// Rates that have arrived, one after the other.
    rates: usize,
    /// A track begins with the next packet.
    begins: bool,
    /// Frames that are still to be left out.
    skip: u64,
    /// The mean of a packet's channels.
    mono: Vec<f32>,
}

impl Mix {
    fn new(format: &'static str, rate: u32, limits: &Limits) -> Self {
        Self {
            format,
            rate,
            seconds: limits.seconds,
            samples: Vec::new(),
            first: None,
            resampler: None,
            rates: 0,
            begins: true,
            skip: 0,
            mono: Vec::new(),
        }
    }

    /// Takes what a packet became.
    fn take(
        &mut self,
        container: &Container,
        (codec, packet): (&Codec, &Packet),
        spec: Spec,
        interleaved: &[f32],
    ) -> Result<(), SoundError> {
        check_channels(self.format, spec.channels)?;
        self.first.get_or_insert(spec);
        if self.begins {
            let by_container = || container.skipped(packet, spec.rate);
            self.skip = codec.pre_skip().unwrap_or_else(by_container);
            self.begins = false;
        }
        let frames = (interleaved.len() / spec.channels) as u64;
        let end = container.frames(packet, spec.rate).map_or(frames, |stated| stated.min(frames));
        let begin = self.skip.min(end);
        self.skip -= begin;
        self.mono.clear();
        let kept = &interleaved[begin as usize * spec.channels..end as usize * spec.channels];
        self.mono.extend(kept.chunks_exact(spec.channels).map(mean));
        self.resample(spec.rate)?;
        self.check_length()
    }

    fn check_length(&self) -> Result<(), SoundError> {
        if self.samples.len() as f64 > self.seconds * f64::from(self.rate) {
            return Err(SoundError::TooLong { limit: self.seconds });
        }
        Ok(())
    }

    /// Appends the mono samples, which have a rate of their own.
    fn resample(&mut self, from: u32) -> Result<(), SoundError> {
        if self.resampler.as_ref().is_none_or(|(rate, _)| *rate != from) {
            self.finish();
            self.rates += 1;
            if self.rates > MOST_RATES {
                return Err(SoundError::Rates { limit: MOST_RATES });
            }
            self.resampler = Some((from, Resampler::new(from, self.rate)?));
        }
        if let Some((_, resampler)) = &mut self.resampler {
            resampler.push(&self.mono, &mut self.samples);
        }
        Ok(())
    }

    /// Appends what the change of rate still holds.
    fn finish(&mut self) {
        if let Some((_, mut resampler)) = self.resampler.take() {
            resampler.finish(&mut self.samples);
        }
    }
}

fn mean(frame: &[f32]) -> f32 {
    let finite = |sample: &f32| if sample.is_finite() { *sample } else { 0.0 };
    let sum: f32 = frame.iter().map(|sample| finite(sample).clamp(-LOUDEST, LOUDEST)).sum();
    sum / frame.len() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_changes_all_the_time_is_refused() {
        let mut mix = Mix::new("Ogg", 16_000, &Limits::default());
        mix.mono = vec![0.0; 16];
        for at in 0..MOST_RATES {
            let rate = 48_000 - at as u32 % 2;
            assert_eq!(mix.resample(rate), Ok(()), "change {at}");
            assert_eq!(mix.resample(rate), Ok(()), "the same rate is no change");
        }
        assert_eq!(mix.resample(44_100), Err(SoundError::Rates { limit: MOST_RATES }));
    }
}
