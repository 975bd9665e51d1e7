//! Colour profiles: sound ones change nothing, broken ones are refused with the part of the file.

use pictures::PictureError;

use crate::{decoded, file};

/// The file with its profile changed by `change`, which gets the bytes from the profile's first on.
fn with_profile(name: &str, change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = file(name);
    let mark = bytes.windows(4).position(|four| four == b"acsp").expect("a profile");
    change(&mut bytes[mark - 36..]);
    bytes
}

fn reason(bytes: &[u8], part: &str) -> String {
    match decoded(bytes) {
        Err(PictureError::BrokenProfile { part: found, reason, .. }) => {
            assert_eq!(found, part);
            reason
        }
        other => panic!("{part}: {other:?}"),
    }
}

#[test]
fn a_sound_profile_is_not_applied() {
    let plain = decoded(&file("profile.webp")).expect("a picture");
    assert_eq!(decoded(&file("profile.png")), Ok(plain));
    assert!(decoded(&file("profile.jpg")).is_ok());
}

#[test]
fn garbage_in_the_place_of_a_profile_is_refused_with_its_part() {
    for (name, part, told) in [
        ("refused_profile.png", "iCCP", "it cannot be unpacked"),
        ("refused_profile.jpg", "APP2", "it has 63 bytes, and a profile has at least 132"),
        ("refused_profile.webp", "ICCP", "it has 63 bytes, and a profile has at least 132"),
    ] {
        assert_eq!(reason(&file(name), part), told, "{name}");
        let error = decoded(&file(name)).expect_err(name).to_string();
        assert!(error.starts_with(&format!("the colour profile ({part}) of the ")), "{error}");
        assert!(error.ends_with("save the picture without it"), "{error}");
    }
}

#[test]
fn what_every_profile_has_is_looked_at() {
    for (name, part) in [("profile.jpg", "APP2"), ("profile.webp", "ICCP")] {
        let of = |change: fn(&mut [u8])| reason(&with_profile(name, change), part);
        assert_eq!(of(|profile| profile[36] = b'A'), "it has not the mark `acsp` of a profile");
        assert_eq!(of(|profile| profile[1] = 1), "it states 66124 bytes and has 588");
        let tags = of(|profile| profile[130] = 1);
        assert!(tags.contains(" tags, which 588 bytes cannot hold"), "{tags}");
        let outside = of(|profile| profile[132 + 12 + 4] = 0xff);
        assert!(outside.starts_with("tag 1 of "), "{outside}");
        // Bytes behind what the profile counts are padding.
        assert!(decoded(&with_profile(name, |profile| profile[3] -= 4)).is_ok());
    }
}

#[test]
fn a_profile_of_a_png_must_unpack_and_have_its_checksum() {
    let bytes = file("profile.png");
    let at = bytes.windows(4).position(|four| four == b"iCCP").expect("its chunk");
    for place in [at + 40, at + 100] {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0xff;
        assert_eq!(reason(&damaged, "iCCP"), "it cannot be unpacked", "{place}");
    }
}

#[test]
fn parts_of_a_profile_in_a_jpeg_are_numbered_without_gaps() {
    let bytes = file("profile.jpg");
    let at = bytes.windows(11).position(|name| name == b"ICC_PROFILE").expect("its segment") + 12;
    for numbers in [[2, 1], [1, 2], [0, 1], [1, 0]] {
        let mut damaged = bytes.clone();
        damaged[at..at + 2].copy_from_slice(&numbers);
        assert_eq!(reason(&damaged, "APP2"), "its 1 parts are not numbered from 1 to 1");
    }

    // The same profile in two segments, the second one first.
    let begin = at - 16;
    let profile = bytes[at + 2..at + 2 + 588].to_vec();
    let segment = |number: u8, part: &[u8]| {
        let mut held = vec![0xff, 0xe2];
        held.extend((16 + part.len() as u16).to_be_bytes());
        held.extend(b"ICC_PROFILE\0");
        held.extend([number, 2]);
        held.extend(part);
        held
    };
    let (first, second) = (segment(1, &profile[..200]), segment(2, &profile[200..]));
    let rest = &bytes[at + 2 + 588..];
    let whole = [&bytes[..begin], &second, &first, rest].concat();
    assert_eq!(decoded(&whole), decoded(&bytes));
    assert!(decoded(&whole).is_ok());
    let lacking = [&bytes[..begin], &first, rest].concat();
    assert_eq!(reason(&lacking, "APP2"), "its 1 parts are not numbered from 1 to 1");
}
