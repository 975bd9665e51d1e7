//! The file around the sound, and the track of it that is taken.

use std::io::Cursor;

use symphonia::core::codecs::CodecParameters;
use symphonia::core::codecs::audio::AudioCodecParameters;
use symphonia::core::codecs::audio::well_known::CODEC_ID_VORBIS;
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::well_known::{
    FORMAT_ID_AIFF, FORMAT_ID_ISOMP4, FORMAT_ID_MKV, FORMAT_ID_WAVE,
};
use symphonia::core::formats::{FormatId, FormatReader, Track, TrackType};
use symphonia::core::io::MediaSourceStream;
use symphonia::core::packet::Packet;
use symphonia::default::get_probe;

use crate::error::SoundError;
use crate::priming;

/// Faults between packets after which a file ends.
const MOST_FAULTS: u32 = 100;

/// An open file, and the track that is taken.
pub struct Container<'a> {
    reader: Box<dyn FormatReader + 'a>,
    /// The format's name.
    pub name: &'static str,
    /// The last fault between packets.
    pub fault: Option<String>,
    faults: u32,
    track: Track,
    /// The track's parameters.
    pub codec: AudioCodecParameters,
    /// Frames before the sound, as an MP4's edit list states them.
    priming: u64,
}

/// The next thing in a file.
pub enum Next {
    /// A packet of the track.
    Packet(Packet),
    /// Another stream begins, with another track.
    Track,
    /// The end.
    End,
}

impl<'a> Container<'a> {
    /// The file with its first track of sound.
    pub fn open(bytes: &'a [u8]) -> Result<Self, SoundError> {
        let stream = MediaSourceStream::new(Box::new(Cursor::new(bytes)), Default::default());
        let reader = get_probe()
            .probe(&Hint::new(), stream, Default::default(), Default::default())
            .map_err(|error| SoundError::UnknownFormat { reason: error.to_string() })?;
        let info = reader.format_info();
        let name = name(info.format).unwrap_or(info.short_name);
        let (track, codec) = track(&*reader).ok_or(SoundError::NoTrack { format: name })?;
        let priming = match info.format {
            FORMAT_ID_ISOMP4 => priming::of_track(bytes, track.id).unwrap_or(0),
            _ => 0,
        };
        Ok(Self { reader, name, fault: None, faults: 0, track, codec, priming })
    }

    /// Seconds by the header, where it is to be believed.
    ///
    /// Programs that write WAV as it is recorded state the most that there can be, so that of WAV
    /// and AIFF the bytes alone count.
    pub fn seconds(&self) -> Option<f64> {
        if matches!(self.reader.format_info().format, FORMAT_ID_WAVE | FORMAT_ID_AIFF) {
            return None;
        }
        let base = self.track.time_base?;
        let ticks = self.track.duration?.get() as f64;
        Some(ticks * f64::from(base.numer.get()) / f64::from(base.denom.get()))
    }

    /// The next packet of the track.
    pub fn next(&mut self) -> Next {
        loop {
            match self.reader.next_packet() {
                Ok(Some(packet)) if packet.track_id == self.track.id => {
                    return Next::Packet(packet);
                }
                Ok(Some(_)) => {}
                Ok(None) => return Next::End,
                Err(Error::ResetRequired) => {
                    let Some((track, codec)) = track(&*self.reader) else { return Next::End };
                    (self.track, self.codec) = (track, codec);
                    return Next::Track;
                }
                // Players play what there is of a file that is cut off or broken in its middle. A
                // reader of frames finds the next one by itself.
                Err(error) => {
                    self.fault = Some(error.to_string());
                    self.faults += 1;
                    if !matches!(error, Error::DecodeError(_)) || self.faults > MOST_FAULTS {
                        return Next::End;
                    }
                }
            }
        }
    }

    /// Frames at the beginning of the first packet that are not of the sound, at the track's rate.
    pub fn skipped(&self, first: &Packet, rate: u32) -> u64 {
        let Some(base) = self.track.time_base else { return 0 };
        match self.reader.format_info().format {
            FORMAT_ID_ISOMP4 if base.denom.get() == rate => self.priming,
            // The decoder of Vorbis leaves out what is before the sound.
            FORMAT_ID_MKV if self.codec.codec != CODEC_ID_VORBIS => {
                let seconds = -(first.pts.get() as f64) * f64::from(base.numer.get())
                    / f64::from(base.denom.get());
                (seconds.clamp(0.0, 1.0) * f64::from(rate)).round() as u64
            }
            _ => 0,
        }
    }

    /// Frames of a packet that are of the sound, where the file states it and the decoder does not
    /// hold to it.
    pub fn frames(&self, packet: &Packet, rate: u32) -> Option<u64> {
        let base = self.track.time_base?;
        let counts = self.reader.format_info().format == FORMAT_ID_ISOMP4
            && (base.numer.get(), base.denom.get()) == (1, rate)
            && packet.dur.get() > 0;
        counts.then_some(packet.dur.get())
    }
}

fn track(reader: &dyn FormatReader) -> Option<(Track, AudioCodecParameters)> {
    let track =
        reader.default_track(TrackType::Audio).or_else(|| reader.first_track(TrackType::Audio))?;
    match &track.codec_params {
        Some(CodecParameters::Audio(codec)) => Some((track.clone(), codec.clone())),
        _ => None,
    }
}

/// The format as people write it.
fn name(format: FormatId) -> Option<&'static str> {
    use symphonia::core::formats::well_known as known;
    Some(match format {
        FORMAT_ID_WAVE => "WAV",
        FORMAT_ID_AIFF => "AIFF",
        FORMAT_ID_ISOMP4 => "MP4",
        FORMAT_ID_MKV => "Matroska",
        known::FORMAT_ID_ADTS => "AAC",
        known::FORMAT_ID_FLAC => "FLAC",
        known::FORMAT_ID_MP3 => "MP3",
        known::FORMAT_ID_OGG => "Ogg",
        _ => return None,
    })
}
