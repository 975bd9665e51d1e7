//! Samples as a WAV file.

/// Bytes of the header.
const HEADER: usize = 44;

/// A WAV file of mono samples with 16 bits. Samples outside of -1 to 1 are cut off.
///
/// A file counts its bytes with 32 bits, so samples after the first 2,147,483,629 are left out.
pub fn wav(samples: &[f32], rate: u32) -> Vec<u8> {
    let most = (u32::MAX as usize - HEADER) / 2;
    let samples = &samples[..samples.len().min(most)];
    let data = 2 * samples.len() as u32;
    let mut file = Vec::with_capacity(HEADER + data as usize);
    file.extend(b"RIFF");
    file.extend((data + HEADER as u32 - 8).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16u32.to_le_bytes());
    // PCM, of one channel.
    file.extend(1u16.to_le_bytes());
    file.extend(1u16.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend(rate.saturating_mul(2).to_le_bytes());
    // Bytes of a frame, and bits of a sample.
    file.extend(2u16.to_le_bytes());
    file.extend(16u16.to_le_bytes());
    file.extend(b"data");
    file.extend(data.to_le_bytes());
    for sample in samples {
        let level = (f64::from(*sample) * 32768.0).round().clamp(-32768.0, 32767.0);
        file.extend((level as i16).to_le_bytes());
    }
    file
}

#[cfg(test)]
mod tests {
    use super::wav;

    #[test]
    fn samples_are_rounded_and_cut_off() {
        let file = wav(&[0.0, 0.5, -1.0, 1.0, 7.0, f32::NAN], 16_000);
        assert_eq!(file.len(), 44 + 12);
        assert_eq!(file[4..8], 48u32.to_le_bytes());
        assert_eq!(file[24..28], 16_000u32.to_le_bytes());
        let levels: Vec<i16> =
            file[44..].chunks(2).map(|two| i16::from_le_bytes([two[0], two[1]])).collect();
        assert_eq!(levels, [0, 16384, -32768, 32767, 32767, 0]);
    }
}
