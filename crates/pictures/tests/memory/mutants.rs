//! Thousands of damaged files of each format: none panics, and none takes more memory than is
//! stated.

use pictures::{Arithmetic, Filter, Limits, Picture, PictureError};

use crate::files::{fixture, png_chunk};
use crate::{alone, measured};

/// The memory that the decoders may take by arithmetic, and the other limits.
const LIMITS: Limits = Limits { bytes: 1 << 20, pixels: 1 << 18, memory: 4 << 20 };

/// The memory that a mutant may take.
///
/// It is that by arithmetic, 16 MiB of what is packed or stated beside the pixels, and less than
/// 1 MiB that small files have beside them.
const BOUND: usize = (4 << 20) + (16 << 20) + (1 << 20);

const PNG: [&str; 8] = [
    "type0_16.png",
    "type2_8.png",
    "type3_4.png",
    "type4_16.png",
    "type6_16.png",
    "profile.png",
    "turned_by_text.png",
    "turned_by_xmp.png",
];
const JPEG: [&str; 8] = [
    "photo_75_2.jpg",
    "progressive.jpg",
    "restarts.jpg",
    "cmyk.jpg",
    "grey.jpg",
    "turned6.jpg",
    "turned_by_xmp.jpg",
    "profile.jpg",
];
const WEBP: [&str; 7] = [
    "lossy.webp",
    "lossless.webp",
    "alpha.webp",
    "alpha_lossless.webp",
    "turned8.webp",
    "turned_by_xmp.webp",
    "profile.webp",
];
const GIF: [&str; 6] = [
    "palette.gif",
    "transparent.gif",
    "animated.gif",
    "few.gif",
    "wide_screen.gif",
    "narrow_screen.gif",
];

/// Numbers that follow from a seed (PCG's multiplier).
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

/// One to four changes: bytes, bits, extreme numbers, parts that are taken out, doubled, or come
/// from another file.
fn mutated(file: &[u8], other: &[u8], draws: &mut Draws) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for _ in 0..=draws.below(4) {
        if bytes.len() < 16 {
            break;
        }
        let at = draws.below(bytes.len());
        let length = draws.below(64).min(bytes.len() - at);
        match draws.below(8) {
            0 => bytes[at] = draws.below(256) as u8,
            1 => bytes[at] ^= 1 << draws.below(8),
            2 => bytes.truncate(at.max(16)),
            3 => drop(bytes.drain(at..at + length)),
            4 => bytes.extend_from_within(at..at + length),
            5 => {
                let part = bytes[at..at + length].to_vec();
                bytes.splice(at..at, part);
            }
            6 => {
                let from = draws.below(other.len());
                let part = &other[from..(from + 64).min(other.len())];
                bytes.splice(at..at + length, part.iter().copied());
            }
            _ => {
                const EXTREMES: [[u8; 4]; 6] = [
                    [0; 4],
                    [255; 4],
                    [127, 255, 255, 255],
                    [128, 0, 0, 0],
                    [0, 0, 0, 1],
                    [1, 0, 0, 0],
                ];
                let number = EXTREMES[draws.below(EXTREMES.len())];
                let width = [1, 2, 4][draws.below(3)].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
        }
    }
    bytes
}

/// The checksums of a PNG made right, without which nothing behind them is read.
fn with_checksums(file: &[u8]) -> Vec<u8> {
    let mut made = file[..file.len().min(8)].to_vec();
    let mut rest = file.get(8..).unwrap_or_default();
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let Some((name, data)) = behind.split_first_chunk::<4>() else { break };
        if length.saturating_add(4) > data.len() {
            break;
        }
        made.extend(png_chunk(name, &data[..length]));
        rest = &data[length + 4..];
    }
    [&made, rest].concat()
}

/// How many of the mutants of these files are pictures, and how many are refused.
fn counts(names: &[&str], mutants: usize, mend: fn(&[u8]) -> Vec<u8>) -> (usize, usize) {
    let files: Vec<Vec<u8>> = names.iter().map(|name| fixture(name)).collect();
    let mut draws = Draws(1);
    let (mut taken, mut refused) = (0, 0);
    for mutant in 0..mutants {
        let file = &files[mutant % files.len()];
        let other = &files[draws.below(files.len())];
        let bytes = mend(&mutated(file, other, &mut draws));
        let (result, peak) = measured(|| {
            let picture = Picture::decode(&bytes, &LIMITS)?;
            for (filter, arithmetic) in
                [(Filter::Bicubic, Arithmetic::Torchvision), (Filter::Lanczos, Arithmetic::Pillow)]
            {
                picture.resized(16, 12, filter, arithmetic)?;
            }
            Ok::<_, PictureError>(())
        });
        assert!(peak < BOUND, "mutant {mutant} of {names:?}: {peak} bytes");
        match result {
            Ok(()) => taken += 1,
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    (taken, refused)
}

#[test]
fn mutants_of_png_are_errors_or_pictures_within_the_memory() {
    let _alone = alone();
    let (taken, refused) = counts(&PNG, 6000, with_checksums);
    assert!(taken > 500 && refused > 500, "{taken} {refused}");
}

#[test]
fn mutants_of_jpeg_are_errors_or_pictures_within_the_memory() {
    let _alone = alone();
    let (taken, refused) = counts(&JPEG, 4000, <[u8]>::to_vec);
    assert!(taken > 500 && refused > 500, "{taken} {refused}");
}

#[test]
fn mutants_of_webp_are_errors_or_pictures_within_the_memory() {
    let _alone = alone();
    let (taken, refused) = counts(&WEBP, 6000, <[u8]>::to_vec);
    assert!(taken > 300 && refused > 500, "{taken} {refused}");
}

#[test]
fn mutants_of_gif_are_errors_or_pictures_within_the_memory() {
    let _alone = alone();
    let (taken, refused) = counts(&GIF, 6000, <[u8]>::to_vec);
    assert!(taken > 500 && refused > 500, "{taken} {refused}");
}
