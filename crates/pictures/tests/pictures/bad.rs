//! Pictures that are refused: each with an error that names what is wrong, none with a panic.

use pictures::{Format, Limits, Picture, PictureError};

use crate::{answers, decoded, file};

fn names() -> Vec<String> {
    let rows = answers("decoded.json");
    rows.iter().map(|row| row[0].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_file_cut_off_at_any_tenth_is_refused_as_its_format() {
    let mut tried = 0;
    for name in names() {
        let bytes = file(&name);
        for tenth in 1..10 {
            // Of an animation the first frame is whole before the file is.
            if name == "animated.gif" && tenth > 2 {
                continue;
            }
            let cut = &bytes[..bytes.len() * tenth / 10];
            let error = match decoded(cut) {
                Err(error) => error.to_string(),
                Ok(picture) => panic!("{name} at {tenth} tenths is {picture:?}"),
            };
            let format = Format::of(&bytes).expect("a format");
            let named = error.contains(&format!("the {format} cannot be decoded: "))
                || error.contains("unknown format");
            assert!(named, "{name} at {tenth} tenths: {error}");
            tried += 1;
        }
    }
    assert!(tried > 400, "{tried}");
}

#[test]
fn damaged_bytes_are_an_error_or_a_picture_but_never_a_panic() {
    let mut state = 1_u64;
    let mut draw = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let limits = Limits { pixels: 1_000_000, memory: 16 << 20, ..Limits::default() };
    let (mut refused, mut taken) = (0, 0);
    for name in names() {
        let bytes = file(&name);
        for _ in 0..40 {
            let mut damaged = bytes.clone();
            for _ in 0..=draw(4) {
                let at = draw(damaged.len());
                damaged[at] = draw(256) as u8;
            }
            match Picture::decode(&damaged, &limits) {
                Ok(picture) => {
                    taken += 1;
                    assert_eq!(picture.rgb().len() as u32, 3 * picture.width() * picture.height());
                }
                Err(error) => {
                    refused += 1;
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    }
    assert!(refused > 300 && taken > 300, "{refused} {taken}");
}

/// A PNG's header alone.
fn png_of(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = file("type2_8.png");
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    let mut crc = !0_u32;
    for byte in &bytes[12..29] {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    bytes[29..33].copy_from_slice(&(!crc).to_be_bytes());
    bytes
}

/// The JPEG with other sides in its frame header.
fn jpeg_of(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = file("photo_75_2.jpg");
    let at = bytes.windows(2).position(|two| two == [0xff, 0xc0]).expect("a frame header");
    bytes[at + 5..at + 7].copy_from_slice(&height.to_be_bytes());
    bytes[at + 7..at + 9].copy_from_slice(&width.to_be_bytes());
    bytes
}

/// The GIF with another screen.
fn gif_of(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = file("palette.gif");
    bytes[6..8].copy_from_slice(&width.to_le_bytes());
    bytes[8..10].copy_from_slice(&height.to_le_bytes());
    bytes
}

/// The lossless WebP with other sides, at most 16,383.
fn webp_of(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = file("lossless.webp");
    let at = bytes.windows(4).position(|four| four == b"VP8L").expect("its chunk") + 9;
    let flags = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) & 0xf000_0000;
    let sides = flags | (height - 1) << 14 | (width - 1);
    bytes[at..at + 4].copy_from_slice(&sides.to_le_bytes());
    bytes
}

#[test]
fn a_bomb_is_refused_by_its_header() {
    for (bytes, sides) in [
        (png_of(10_000, 10_000), "10000 x 10000"),
        (png_of(0x7fff_ffff, 0x7fff_ffff), "2147483647 x 2147483647"),
        (png_of(1, 64_000_001), "1 x 64000001"),
        (jpeg_of(65_000, 65_000), "65000 x 65000"),
        (gif_of(65_535, 65_535), "65535 x 65535"),
        (webp_of(16_383, 16_383), "16383 x 16383"),
    ] {
        let error = decoded(&bytes).expect_err(sides);
        assert!(matches!(error, PictureError::TooManyPixels { limit: 64_000_000, .. }), "{error}");
        assert!(error.to_string().contains(sides), "{error}");
    }
}

#[test]
fn a_picture_within_the_pixels_may_still_need_too_much_memory() {
    let bytes = file("type6_16.png");
    let limits = Limits { memory: 600, ..Limits::default() };
    let error = Picture::decode(&bytes, &limits).expect_err("11 x 7 x 8 bytes").to_string();
    assert!(error.contains("more than 600 bytes of memory"), "{error}");
    for name in ["photo_75_2.jpg", "palette.gif", "lossless.webp"] {
        let error = Picture::decode(&file(name), &limits).expect_err(name).to_string();
        assert!(error.contains("more than 600 bytes of memory"), "{name}: {error}");
    }
}

#[test]
fn a_picture_without_pixels_is_refused() {
    for bytes in [png_of(0, 5), png_of(5, 0), jpeg_of(0, 9), jpeg_of(9, 0), gif_of(0, 0)] {
        let error = decoded(&bytes).expect_err("no pixels").to_string();
        assert!(error.contains("without pixels") || error.contains("cannot be decoded"), "{error}");
    }
    assert_eq!(decoded(&[]), Err(PictureError::Empty));
}

#[test]
fn animations_but_gifs_are_refused_by_name() {
    for (name, format) in [("refused_animated.webp", "WebP"), ("refused_animated.png", "PNG")] {
        let error = decoded(&file(name)).expect_err(name).to_string();
        assert!(error.contains(&format!("the {format} is an animation")), "{error}");
    }
    assert_eq!(decoded(&file("animated.gif")), decoded(&file("palette.gif")));
}

#[test]
fn other_files_are_named() {
    for (bytes, told) in [
        (&b"BM\x8a\0\0\0"[..], "a BMP"),
        (b"II*\0\x08\0\0\0", "a TIFF"),
        (b"%PDF-1.7", "a PDF"),
        (b"\0\0\0\x1cftypavif\0\0\0\0", "an AVIF"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "a HEIC"),
        (b"<?xml version='1.0'?><svg xmlns=''/>", "an SVG"),
        (b"<!DOCTYPE html>", "an HTML page"),
        (b"hello", "begins with the bytes 68 65 6c 6c 6f"),
    ] {
        let error = decoded(bytes).expect_err(told).to_string();
        assert!(error.contains(told) && error.contains("PNG, JPEG, WebP and GIF"), "{error}");
    }
}

#[test]
fn too_many_bytes_are_refused_unread() {
    let limits = Limits { bytes: 9, ..Limits::default() };
    let error = Picture::decode(&[0; 10], &limits).expect_err("10 bytes").to_string();
    assert_eq!(error, "the picture has 10 bytes; at most 9 are taken");
}
