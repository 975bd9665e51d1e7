//! Each format against the tone.

use crate::{decoded, fidelity, file, tone};

/// A file, and what is known of it.
struct Known {
    name: &'static str,
    format: &'static str,
    codec: &'static str,
    rate: u32,
    channels: usize,
    seconds: f64,
    /// The least fidelity, in dB.
    fidelity: f64,
    /// Samples before the tone, where the file does not state them.
    late: usize,
    /// Samples more than the tone has, with those before it, where the file does not state its end.
    more: usize,
}

const fn exact(
    name: &'static str,
    (format, codec): (&'static str, &'static str),
    (rate, channels): (u32, usize),
    (seconds, fidelity): (f64, f64),
) -> Known {
    Known { name, format, codec, rate, channels, seconds, fidelity, late: 0, more: 0 }
}

const fn about(known: Known, late: usize, more: usize) -> Known {
    Known { late, more, ..known }
}

const KNOWN: &[Known] = &[
    exact("u8.wav", ("WAV", "pcm_u8"), (8_000, 1), (0.25, 35.0)),
    exact("s16.wav", ("WAV", "pcm_s16le"), (16_000, 2), (0.125, 80.0)),
    exact("s24.wav", ("WAV", "pcm_s24le"), (16_000, 1), (0.125, 110.0)),
    exact("s32.wav", ("WAV", "pcm_s32le"), (8_000, 1), (0.125, 120.0)),
    exact("f32.wav", ("WAV", "pcm_f32le"), (8_000, 1), (0.125, 120.0)),
    exact("f64.wav", ("WAV", "pcm_f64le"), (8_000, 1), (0.125, 120.0)),
    exact("alaw.wav", ("WAV", "pcm_alaw"), (8_000, 1), (0.25, 30.0)),
    exact("mulaw.wav", ("WAV", "pcm_mulaw"), (8_000, 1), (0.25, 30.0)),
    about(exact("ms.wav", ("WAV", "adpcm_ms"), (22_050, 2), (0.25, 30.0)), 0, 560),
    about(exact("ima.wav", ("WAV", "adpcm_ima_wav"), (22_050, 1), (0.25, 30.0)), 0, 611),
    exact("six.wav", ("WAV", "pcm_s16le"), (8_000, 6), (0.125, 80.0)),
    exact("s16.aiff", ("AIFF", "pcm_s16be"), (16_000, 1), (0.125, 80.0)),
    exact("s16.flac", ("FLAC", "flac"), (22_050, 2), (0.125, 80.0)),
    exact("s24.flac", ("FLAC", "flac"), (11_025, 1), (0.125, 110.0)),
    exact("flac.ogg", ("Ogg", "flac"), (11_025, 1), (0.125, 80.0)),
    exact("lame.mp3", ("MP3", "mp3"), (44_100, 2), (0.5, 20.0)),
    exact("tagged.mp3", ("MP3", "mp3"), (48_000, 2), (0.5, 20.0)),
    about(exact("slow.mp3", ("MP3", "mp3"), (22_050, 1), (0.5, 20.0)), 1_105, 1_647),
    exact("vorbis.ogg", ("Ogg", "vorbis"), (44_100, 2), (0.5, 20.0)),
    exact("opus.ogg", ("Ogg", "opus"), (48_000, 2), (0.5, 20.0)),
    exact("speech.opus", ("Ogg", "opus"), (48_000, 1), (0.5, 9.0)),
    exact("hybrid.opus", ("Ogg", "opus"), (48_000, 1), (0.5, 7.5)),
    exact("six.opus", ("Ogg", "opus"), (48_000, 6), (0.5, 20.0)),
    about(exact("aac.aac", ("AAC", "aac"), (44_100, 2), (0.5, 6.0)), 1_024, 1_502),
    exact("aac.m4a", ("MP4", "aac"), (44_100, 1), (0.5, 20.0)),
    about(exact("fragmented.mp4", ("MP4", "aac"), (48_000, 1), (0.5, 20.0)), 1_024, 1_024),
    exact("alac.m4a", ("MP4", "alac"), (44_100, 1), (0.125, 80.0)),
    exact("opus.mp4", ("MP4", "opus"), (48_000, 1), (0.5, 20.0)),
    about(exact("opus.webm", ("Matroska", "opus"), (48_000, 1), (0.5, 20.0)), 0, 648),
    about(exact("live.webm", ("Matroska", "opus"), (48_000, 1), (0.5, 20.0)), 0, 648),
    about(exact("vorbis.webm", ("Matroska", "vorbis"), (44_100, 2), (0.5, 20.0)), 0, 30),
    // Its times are whole milliseconds.
    about(exact("aac.mka", ("Matroska", "aac"), (44_100, 1), (0.5, 20.0)), 10, 488),
    exact("video.mp4", ("MP4", "aac"), (44_100, 1), (0.5, 20.0)),
];

#[test]
fn each_format_holds_the_tone() {
    let mut wrong = Vec::new();
    for known in KNOWN {
        let sound = match decoded(&file(known.name), known.rate) {
            Ok(sound) => sound,
            Err(error) => {
                wrong.push(format!("{}: {error}", known.name));
                continue;
            }
        };
        let tone = tone(known.rate, known.seconds);
        let fidelity = fidelity(&sound.samples[known.late..], &tone);
        let info = &sound.info;
        let more = sound.samples.len() - tone.len();
        let named = (info.format, info.codec) == (known.format, known.codec);
        let sized = (info.rate, info.channels) == (known.rate, known.channels);
        if fidelity < known.fidelity || more != known.more || !named || !sized {
            wrong.push(format!("{}: {fidelity:.1} dB, {more} more, {info:?}", known.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
