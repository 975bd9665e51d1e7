//! Sounds that are refused, and sounds of which a part is taken.

use sound::{Limits, Sound, SoundError};

use crate::{decoded, fidelity, file, tone};

/// Why a file is refused.
fn refused(bytes: &[u8], rate: u32) -> SoundError {
    match decoded(bytes, rate) {
        Ok(sound) => panic!("{} samples were taken", sound.samples.len()),
        Err(error) => error,
    }
}

#[test]
fn what_is_no_sound_is_refused() {
    assert_eq!(decoded(&[], 16_000), Err(SoundError::Empty));
    let text = "Sound is a wave of pressure. ".repeat(1_000);
    let picture = [b"\x89PNG\r\n\x1a\n".as_slice(), &[7; 3_000]].concat();
    for bytes in [text.as_bytes(), &picture, &[0; 100_000], b"RIFF", b"OggS", b"ID3"] {
        let error = refused(bytes, 16_000);
        assert!(matches!(error, SoundError::UnknownFormat { .. }), "{error:?}");
    }
}

#[test]
fn a_video_without_sound_is_refused() {
    let error = refused(&file("silent.mp4"), 16_000);
    assert_eq!(error.to_string(), "the MP4 has no track of sound; give a file that has one");
}

#[test]
fn absurd_rates_and_channels_are_refused() {
    for rate in [0, 999, 384_001, u32::MAX] {
        let error = refused(&file("s16.wav"), rate);
        assert!(matches!(error, SoundError::Rate { rate: found, .. } if found == rate));
    }
    // The header's rate, and its channels.
    let mut bytes = file("s16.wav");
    bytes[24..28].copy_from_slice(&5u32.to_le_bytes());
    assert!(matches!(decoded(&bytes, 16_000), Err(SoundError::Rate { rate: 5, .. })));
    for channels in [0u16, 33, 255, 65_535] {
        let mut bytes = file("s16.wav");
        bytes[22..24].copy_from_slice(&channels.to_le_bytes());
        bytes[32..34].copy_from_slice(&(channels.wrapping_mul(2)).to_le_bytes());
        assert!(decoded(&bytes, 16_000).is_err(), "{channels} channels");
    }
}

#[test]
fn limits_are_held_before_and_while_decoding() {
    let bytes = file("s16.wav");
    let small = Limits { bytes: 1_000, ..Limits::default() };
    let error = Sound::decode(&bytes, 16_000, &small).err();
    assert_eq!(error, Some(SoundError::TooManyBytes { bytes: bytes.len(), limit: 1_000 }));
    // WAV is not believed, FLAC and MP4 are, and Matroska states nothing.
    for name in ["s16.wav", "s16.flac", "alac.m4a", "opus.webm", "slow.mp3"] {
        let short = Limits { seconds: 0.1, ..Limits::default() };
        let error = Sound::decode(&file(name), 16_000, &short).err();
        assert_eq!(error, Some(SoundError::TooLong { limit: 0.1 }), "{name}");
    }
}

#[test]
fn a_wav_that_states_the_greatest_length_is_taken() {
    let mut bytes = file("s16.wav");
    let data = bytes.windows(4).position(|four| four == b"data").expect("there are samples");
    bytes[4..8].fill(0xff);
    bytes[data + 4..data + 8].fill(0xff);
    let sound = decoded(&bytes, 16_000).expect("players take it");
    assert_eq!(sound.samples.len(), 2_000);
}

#[test]
fn a_file_that_ends_early_is_taken_as_far_as_it_goes() {
    for (name, rate) in [("s16.wav", 16_000), ("lame.mp3", 44_100), ("live.webm", 48_000)] {
        let bytes = file(name);
        let whole = decoded(&bytes, rate).expect("it is whole").samples;
        let part = decoded(&bytes[..bytes.len() * 3 / 4], rate).expect(name).samples;
        assert!(part.len() > whole.len() / 3 && part.len() < whole.len(), "{name}");
        // The last frames of a part may lack what the next would add.
        let same = part.len() - 3_000.min(part.len() / 2);
        assert!(fidelity(&part[..same], &whole[..same]) > 60.0, "{name}");
    }
    assert!(decoded(&file("s16.wav")[..44], 16_000).is_err(), "it has no sample");
}

#[test]
fn broken_packets_are_skipped() {
    let mut bytes = file("aac.m4a");
    let whole = decoded(&bytes, 44_100).expect("it is whole").samples;
    let data = bytes.windows(4).position(|four| four == b"mdat").expect("there are packets");
    bytes[data + 3_000..data + 3_040].fill(0xff);
    let part = decoded(&bytes, 44_100).expect("the other packets are whole").samples;
    assert!(part.len() <= whole.len() && part.len() + 2_048 >= whole.len(), "{}", part.len());
    // All of them.
    let mut bytes = file("alac.m4a");
    let data = bytes.windows(4).position(|four| four == b"mdat").expect("there are packets");
    let end = bytes.windows(4).position(|four| four == b"moov").expect("there is a list") - 4;
    bytes[data + 4..end].fill(0xff);
    let error = refused(&bytes, 44_100);
    let empty = matches!(error, SoundError::Broken { .. } | SoundError::NoSamples { .. });
    assert!(empty, "{error:?}");
    let mut bytes = file("lame.mp3");
    let middle = bytes.len() / 2;
    bytes[middle..middle + 20].fill(0);
    let sound = decoded(&bytes, 44_100).expect("the rest is whole");
    assert!(sound.samples.len() > 10_000, "{}", sound.samples.len());
}

#[test]
fn samples_that_are_no_number_become_silence() {
    let mut bytes = file("f32.wav");
    let data = bytes.windows(4).position(|four| four == b"data").expect("there are samples") + 8;
    for (at, wrong) in [(100, f32::NAN), (200, f32::INFINITY), (300, f32::MAX)] {
        bytes[data + 4 * at..data + 4 * at + 4].copy_from_slice(&wrong.to_le_bytes());
    }
    let sound = decoded(&bytes, 8_000).expect("it is whole").samples;
    assert_eq!((sound[100], sound[200]), (0.0, 0.0));
    let sound = decoded(&bytes, 16_000).expect("it is whole").samples;
    assert!(sound.iter().all(|sample| sample.is_finite()));
}

#[test]
fn a_written_wav_is_read_again() {
    let tone = tone(16_000, 0.5);
    let sound = decoded(&sound::wav(&tone, 16_000), 16_000).expect("it is a WAV");
    assert_eq!(sound.samples.len(), tone.len());
    assert_eq!(sound.seconds(), 0.5);
    assert!(fidelity(&sound.samples, &tone) > 75.0);
}

/// A small generator of numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// A file with some bytes changed, taken out or put in.
fn mutated(file: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for _ in 0..1 + random.below(6) {
        // Headers are at the beginning, so that half of the changes are there.
        let end = if random.below(2) == 0 { bytes.len().min(200) } else { bytes.len() };
        let at = random.below(end.max(1)).min(bytes.len().saturating_sub(1));
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.below(256) as u8),
            2 => drop(bytes.drain(at..(at + random.below(40)).min(bytes.len()))),
            3 => bytes[at] = [0, 1, 0x7f, 0x80, 0xfe, 0xff][random.below(6)],
            _ => bytes[at] ^= 1 << random.below(8),
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

/// Each call returns, and what it takes is held to the limits.
#[test]
fn mutated_files_are_taken_or_refused() {
    let rounds =
        std::env::var("SOUND_ROUNDS").map_or(10, |rounds| rounds.parse().expect("a number"));
    let limits = Limits { seconds: 5.0, ..Limits::default() };
    let folder = crate::fixtures().join("files");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the fixtures are there")
        .map(|entry| entry.expect("it can be listed").path())
        .collect();
    files.sort();
    assert!(files.len() > 30);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for path in files {
        let file = std::fs::read(&path).expect("it can be read");
        for _ in 0..rounds {
            let bytes = mutated(&file, &mut random);
            if let Ok(sound) = Sound::decode(&bytes, 16_000, &limits) {
                assert!(!sound.samples.is_empty() && sound.seconds() <= 5.0, "{path:?}");
                assert!(sound.samples.iter().all(|sample| sample.is_finite()), "{path:?}");
            }
        }
    }
}
