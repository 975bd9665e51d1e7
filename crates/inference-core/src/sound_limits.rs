//! Limits of a model's sounds.

use crate::{EncodedSound, Result};

/// Limits of a model's sounds, as data: [`ModelInfo::sounds`](crate::ModelInfo::sounds). A sound
/// above a limit is refused by name before anything is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoundLimits {
    /// The formats that are read, such as `wav`, `flac` and `mp3`.
    pub formats: Vec<&'static str>,
    /// The most bytes of one encoded sound.
    pub max_bytes: u64,
    /// The most seconds of one sound: a longer one is refused, not cut.
    pub max_seconds: u32,
    /// The most sounds of one prompt.
    pub max_sounds: usize,
    /// The most positions of the prompt that a sound takes, without the marks around it.
    pub max_tokens: usize,
}

impl SoundLimits {
    /// Refuses more sounds than a prompt may have, and one that has too many bytes or none.
    ///
    /// # Errors
    /// [`Error::Prompt`](crate::Error::Prompt) with the name of the first bad sound.
    pub fn check<'a>(&self, sounds: impl IntoIterator<Item = &'a EncodedSound>) -> Result<()> {
        for (index, sound) in sounds.into_iter().enumerate() {
            let bytes = sound.bytes.len() as u64;
            if index >= self.max_sounds {
                let most = self.max_sounds;
                return Err(sound.error(format!("a prompt may have {most} sounds at most")));
            }
            if bytes == 0 {
                return Err(sound.error("is empty"));
            }
            if bytes > self.max_bytes {
                let most = self.max_bytes;
                return Err(sound.error(format!("has {bytes} bytes, at most {most} are read")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::SoundLimits;
    use crate::EncodedSound;

    #[test]
    fn limits_name_the_sound_that_exceeds_them() {
        let limits = SoundLimits {
            formats: vec!["wav"],
            max_bytes: 9,
            max_seconds: 30,
            max_sounds: 2,
            max_tokens: 750,
        };
        let checked = |sizes: &[usize]| {
            let sound = |size: &usize| EncodedSound::new(vec![7; *size], "talk.wav");
            let sounds: Vec<EncodedSound> = sizes.iter().map(sound).collect();
            limits.check(&sounds).map_err(|error| error.to_string())
        };
        assert_eq!(checked(&[9, 1]), Ok(()));
        let refused = |sizes: &[usize]| checked(sizes).unwrap_err();
        assert_eq!(refused(&[1, 0]), "prompt: sound `talk.wav`: is empty");
        assert!(refused(&[10]).ends_with("has 10 bytes, at most 9 are read"));
        assert!(refused(&[1, 1, 1]).ends_with("a prompt may have 2 sounds at most"));
    }
}
