//! How much a sound may be.

/// Limits that [`Sound::decode`](crate::Sound::decode) holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Most bytes of the file. Default: 512 MiB.
    pub bytes: usize,
    /// Most seconds of sound, by the header and while it is decoded. Default: 4 hours.
    ///
    /// They bound the memory: 4 bytes for each sample at the wanted rate.
    pub seconds: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 512 << 20, seconds: 4.0 * 3600.0 }
    }
}
