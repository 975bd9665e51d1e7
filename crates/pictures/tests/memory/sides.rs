//! Pictures that are long and thin, which a resize must refuse before it works.

use pictures::{Arithmetic, Filter, Picture, PictureError};

use crate::{alone, measured};

const FILTERS: [Filter; 3] = [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos];
const BOTH: [Arithmetic; 2] = [Arithmetic::Torchvision, Arithmetic::Pillow];

#[test]
fn weights_of_a_long_side_are_counted_before_they_are_made() {
    let _alone = alone();
    for (width, height) in [(64_000_000, 1), (1, 64_000_000), (2_200_000, 29), (29, 2_200_000)] {
        let rgb = vec![9; 3 * width as usize * height as usize];
        let picture = Picture::new(width, height, rgb).expect("a picture");
        for to in [(896, 896), (width, 2), (2, height), (width / 2, height), (height, width)] {
            for (filter, arithmetic) in FILTERS.iter().flat_map(|f| BOTH.map(|a| (*f, a))) {
                if to.0 == 0 || to == (width, height) {
                    continue;
                }
                let (result, peak) = measured(|| picture.resized(to.0, to.1, filter, arithmetic));
                let refused = matches!(result, Err(PictureError::TooLong { .. }));
                assert!(refused, "{width} x {height} to {to:?}: {result:?}");
                assert!(peak < 1 << 16, "{peak} bytes");
            }
        }
    }
}

#[test]
fn a_small_picture_is_not_made_so_long_that_its_weights_fill_the_memory() {
    let _alone = alone();
    let dot = Picture::new(2, 2, vec![9; 12]).expect("a picture");
    for to in [(u32::MAX, 1), (1, u32::MAX), (2_000_000, 4), (4, 2_000_000), (1 << 20, 64)] {
        for (filter, arithmetic) in FILTERS.iter().flat_map(|f| BOTH.map(|a| (*f, a))) {
            let (result, peak) = measured(|| dot.resized(to.0, to.1, filter, arithmetic));
            let bound = 64 << 20;
            let fits = result.as_ref().map_or(0, |made| made.rgb().len() * 2);
            assert!(peak < bound + fits, "{to:?}: {peak} bytes");
        }
    }
}

#[test]
fn the_longest_sides_of_real_pictures_are_resized() {
    let _alone = alone();
    for (width, height) in [(65_535, 4), (4, 65_535), (600_000, 1)] {
        let rgb = vec![9; 3 * width as usize * height as usize];
        let picture = Picture::new(width, height, rgb).expect("a picture");
        for arithmetic in BOTH {
            let made = picture.resized(64, 48, Filter::Lanczos, arithmetic).expect("a picture");
            assert!(made.rgb().iter().all(|level| *level == 9));
        }
    }
}
