//! Each format and kind is decoded to Pillow's pixels.

use pictures::{Format, Header, Limits, Picture};

use crate::{answers, decoded, file, hash, number};

#[test]
fn pixels_are_those_of_pillow_bit_for_bit() {
    for row in answers("decoded.json") {
        let name = row[0].as_str().expect("a name");
        let picture = decoded(&file(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let found = (picture.width(), picture.height());
        assert_eq!(found, (number(&row[1]), number(&row[2])), "{name}");
        assert_eq!(hash(picture.rgb()), row[3], "{name}");
    }
}

#[test]
fn a_header_tells_format_and_sides_without_the_pixels() {
    let limits = Limits::default();
    for (name, format, sides) in [
        ("rgb.png", Format::Png, (97, 64)),
        ("turned6.jpg", Format::Jpeg, (13, 9)),
        ("lossy.webp", Format::WebP, (57, 38)),
        ("wide_screen.gif", Format::Gif, (70, 45)),
    ] {
        let bytes = file(name);
        let header = Header::read(&bytes, &limits).expect(name);
        assert_eq!((header.format, (header.width, header.height)), (format, sides), "{name}");
        assert!(format.media_type().starts_with("image/"));
    }
}

#[test]
fn a_written_png_is_the_picture_again_with_its_texts() {
    let picture = decoded(&file("photo_75_2.jpg")).expect("a picture");
    let written = picture.to_png(&[("parameters", "größer\nals"), ("seed", "7")]).expect("a PNG");
    assert_eq!(decoded(&written).expect("a picture"), picture);
    let text = String::from_utf8_lossy(&written);
    assert!(text.contains("größer\nals") && text.contains("seed"));

    assert!(picture.to_png(&[("Schlüssel 鍵", "")]).is_err());
}

#[test]
fn pixels_have_three_bytes_each() {
    assert!(Picture::new(2, 1, vec![0; 6]).is_ok());
    for (width, height, bytes) in [(2, 1, 5), (0, 3, 0), (u32::MAX, u32::MAX, 3)] {
        let error = Picture::new(width, height, vec![0; bytes]).expect_err("too few");
        assert!(error.to_string().contains("of RGB are"), "{error}");
    }
}
