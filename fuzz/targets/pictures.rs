//! Bytes that a client calls a picture: the header, then the pixels.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pictures::{Header, Limits, Picture};

/// Larger than each seed, and so small that inputs stay quick.
const PIXELS: u64 = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { pixels: PIXELS, memory: 64 << 20, ..Limits::default() };
    let header = Header::read(bytes, &limits);
    if let Ok(picture) = Picture::decode(bytes, &limits) {
        let pixels = u64::from(picture.width()) * u64::from(picture.height());
        assert!(pixels <= PIXELS, "{pixels} pixels");
        assert_eq!(picture.rgb().len() as u64, 3 * pixels);
        assert!(header.is_ok(), "a picture with a header that is refused: {header:?}");
    }
});
