//! Small files that state, or unpack to, much.

use pictures::{Limits, Picture, PictureError};

use crate::files::{
    codes_of_one_pixel, fixture, png_chunk, png_of, png_with, webp, webp_chunk, webp_header,
};
use crate::{alone, measured};

const MIB: usize = 1 << 20;

/// The packed content of the bombs: zeros alone.
fn packed() -> Vec<u8> {
    fdeflate::compress_to_vec(&vec![0; 64 * MIB])
}

fn decoded(file: &[u8]) -> (Result<Picture, PictureError>, usize) {
    measured(|| Picture::decode(file, &Limits::default()))
}

#[test]
fn a_packed_part_of_a_png_that_counts_is_unpacked_to_16_mib_at_most() {
    let _alone = alone();
    let packed = packed();
    for (name, begin) in [
        (b"zTXt", &b"Raw profile type exif\0\0"[..]),
        (b"iTXt", b"XML:com.adobe.xmp\0\x01\0\0\0"),
        (b"iCCP", b"icc\0\0"),
    ] {
        let file = png_with(&[png_chunk(name, &[begin, &packed].concat())]);
        let (result, peak) = decoded(&file);
        let error = result.expect_err("a bomb").to_string();
        let part = String::from_utf8_lossy(name);
        let told = format!("the {part} of the PNG unpacks to more than 16777216 bytes");
        assert!(error.contains(&told), "{error}");
        // The last growth of what holds them copies a half of it.
        assert!(peak < 33 * MIB, "{part}: {peak} bytes");
    }
}

#[test]
fn a_packed_part_of_a_png_that_changes_no_pixel_is_passed_over() {
    let _alone = alone();
    let packed = packed();
    let exif = png_chunk(b"eXIf", b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x01\0\0\0");
    let plain = png_chunk(b"tEXt", b"Raw profile type exif\0\nexif\n0\n");
    let bomb = |begin: &[u8], name| png_chunk(name, &[begin, &packed].concat());
    let of_exif = bomb(b"Raw profile type exif\0\0", b"zTXt");
    let whole = fixture("type2_8.png");
    let (pixels, _) = decoded(&whole);
    for chunks in [
        vec![bomb(b"Comment\0\0", b"zTXt")],
        vec![bomb(b"Comment\0\x01\0\0\0", b"iTXt")],
        // Something before it tells how the picture is turned.
        vec![exif, of_exif.clone()],
        vec![of_exif.clone(), plain],
        // Its checksum is wrong, so that nobody reads it.
        vec![[&of_exif[..of_exif.len() - 1], &[!of_exif[of_exif.len() - 1]]].concat()],
        vec![bomb(b"Comment\0\0", b"zTXt"); 20],
    ] {
        let (result, peak) = decoded(&png_with(&chunks));
        assert_eq!(result, pixels);
        assert!(peak < MIB, "{peak} bytes");
    }
}

#[test]
fn a_chunk_of_a_webp_that_states_more_than_the_file_has_makes_no_room() {
    let _alone = alone();
    let lossless = fixture("lossless.webp");
    let stream = &lossless[12..];
    for name in [b"ICCP", b"EXIF", b"XMP "] {
        let flags = if name == b"ICCP" { 0x20 } else { 0x0c };
        let stated = webp_chunk(name, 500 << 20, b"few");
        let file = webp(&[webp_header(flags, 57, 38), stream.to_vec(), stated]);
        let (_, peak) = decoded(&file);
        assert!(peak < MIB, "{peak} bytes");
    }
}

#[test]
fn the_prefix_codes_of_a_webp_are_counted_before_they_are_made() {
    let _alone = alone();
    let stream = codes_of_one_pixel();
    let alpha = [&[1], &stream[5..]].concat();
    let lossy = fixture("alpha.webp");
    let at = lossy.windows(4).position(|name| name == b"ALPH").expect("its alpha");
    let length = u32::from_le_bytes([4, 5, 6, 7].map(|byte| lossy[at + byte])) as usize;
    let behind = at + 8 + length + length % 2;
    let chunk = webp_chunk(b"ALPH", alpha.len() as u32, &alpha);
    let in_alpha = webp(&[lossy[12..at].to_vec(), chunk, lossy[behind..].to_vec()]);
    for file in [webp(&[webp_chunk(b"VP8L", stream.len() as u32, &stream)]), in_alpha] {
        let (result, peak) = decoded(&file);
        let error = result.expect_err("a bomb").to_string();
        assert!(error.contains("decoding the WebP needs more than 536870912 bytes"), "{error}");
        assert!(peak < MIB, "{peak} bytes");
    }
}

#[test]
fn a_frame_of_a_webp_with_other_sides_than_the_file_is_not_decoded() {
    let _alone = alone();
    let lossy = fixture("lossy.webp");
    let mut frame = lossy[12..].to_vec();
    frame[14..18].copy_from_slice(&[0xff, 0x3f, 0xff, 0x3f]);
    let (result, peak) = decoded(&webp(&[webp_header(0, 57, 38), frame]));
    let error = result.expect_err("another frame").to_string();
    assert!(error.contains("its frame has 16383 x 16383 pixels"), "{error}");
    assert!(peak < MIB, "{peak} bytes");
}

#[test]
fn rows_of_a_png_count_beside_its_pixels() {
    let _alone = alone();
    let (result, peak) = decoded(&png_of(64_000_000, 1));
    let error = result.expect_err("a long row").to_string();
    assert!(error.contains("decoding the PNG needs more than 536870912 bytes"), "{error}");
    assert!(peak < MIB, "{peak} bytes");
}

#[test]
fn scans_of_a_jpeg_are_counted_by_their_pixels() {
    let _alone = alone();
    let file = fixture("progressive.jpg");
    let at = file.windows(2).position(|marker| marker == [0xff, 0xda]).expect("a scan");
    // The first one, with nothing in it, again and again.
    let length = usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
    let scan = &file[at..at + 2 + length];
    let mut file = [&file[..at], &scan.repeat(400), &[0xff, 0xd9]].concat();
    let frame = file.windows(2).position(|marker| marker == [0xff, 0xc2]).expect("a frame");
    file[frame + 5..frame + 9].copy_from_slice(&[0x10, 0, 0x10, 0]);
    let (result, _) = decoded(&file);
    let error = result.expect_err("scans").to_string();
    assert!(error.contains("400 scans of 4096 x 4096 pixels are too many"), "{error}");
}

#[test]
fn parts_of_a_profile_beyond_255_are_refused() {
    let _alone = alone();
    let part = [&b"\xff\xe2\0\x10ICC_PROFILE\0"[..], &[1, 1]].concat();
    let mut file = fixture("photo_75_2.jpg");
    file.splice(2..2, part.repeat(100_000));
    let (result, peak) = decoded(&file);
    let error = result.expect_err("parts").to_string();
    assert!(error.contains("parts are not numbered"), "{error}");
    assert!(peak < 16 * MIB, "{peak} bytes");
}
