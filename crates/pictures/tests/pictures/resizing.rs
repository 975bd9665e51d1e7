//! Resizing gives the bits of torchvision and of Pillow.

use pictures::{Arithmetic, Filter, Picture, Rescale};
use serde_json::Value;

use crate::{answers, decoded, file, hash, number};

#[test]
fn levels_are_those_of_torchvision_and_pillow_bit_for_bit() {
    let picture = decoded(&file("rgb.png")).expect("a picture");
    for row in answers("resized.json") {
        let filter = match row[2].as_str().expect("a filter") {
            "bilinear" => Filter::Bilinear,
            "bicubic" => Filter::Bicubic,
            _ => Filter::Lanczos,
        };
        let arithmetic = match row[3].as_str().expect("a library") {
            "torchvision" => Arithmetic::Torchvision,
            _ => Arithmetic::Pillow,
        };
        let (width, height) = (number(&row[0]), number(&row[1]));
        let resized = picture.resized(width, height, filter, arithmetic).expect("a picture");
        assert_eq!((resized.width(), resized.height()), (width, height), "{row}");
        assert_eq!(hash(resized.rgb()), row[4], "{row}");
    }
}

#[test]
fn the_same_size_is_the_same_picture() {
    let picture = decoded(&file("rgb.png")).expect("a picture");
    let same = picture.resized(97, 64, Filter::Lanczos, Arithmetic::Pillow).expect("a picture");
    assert_eq!(same, picture);
}

#[test]
fn a_thread_of_pixels_is_refused_before_it_fills_the_memory() {
    let thread = Picture::new(1, 3_000_000, vec![7; 9_000_000]).expect("a picture");
    let error = thread
        .resized(896, 896, Filter::Bilinear, Arithmetic::Torchvision)
        .expect_err("2.7 thousand million pixels");
    assert!(
        error.to_string().contains("1 x 3000000 pixels cannot be resized to 896 x 896"),
        "{error}"
    );
    assert!(thread.resized(0, 5, Filter::Bilinear, Arithmetic::Torchvision).is_err());
}

#[test]
fn numbers_of_levels_are_those_of_transformers_bit_for_bit() {
    let three =
        |value: &Value| std::array::from_fn(|at| value[at].as_f64().expect("a number") as f32);
    for row in answers("numbers.json") {
        let normalize = (!row[0].is_null()).then(|| (three(&row[0][0]), three(&row[0][1])));
        let rescale = Rescale { factor: Some(1.0 / 255.0), normalize };
        let bytes: Vec<u8> =
            rescale.table().as_flattened().iter().flat_map(|number| number.to_le_bytes()).collect();
        assert_eq!(hash(&bytes), row[1], "{row}");
    }
}
