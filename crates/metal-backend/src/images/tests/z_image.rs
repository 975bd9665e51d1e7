//! Z-Image.

use super::golden::Golden;
use super::*;
use crate::images::edit::Style;

#[test]
fn z_image_makes_the_pictures_of_diffusers_step_by_step() {
    let golden = Golden::read("z_image");
    let mut studio = Studio::plain("z_image");
    for case in golden.cases() {
        studio.check(&case);
    }
}

#[test]
fn z_image_on_mlxs_own_kernels_makes_the_same_pictures() {
    let golden = Golden::read("z_image");
    let mut studio = Studio::open("z_image", &ImageLoadOptions::default(), Kernels::Mlx);
    studio.check(&golden.case("square"));
    studio.check(&golden.case("wide"));
}

#[test]
fn components_that_stay_make_the_same_pictures() {
    let golden = Golden::read("z_image");
    let keep = ImageLoadOptions { keep_components: true, ..Default::default() };
    let mut studio = Studio::open("z_image", &keep, Kernels::CPU);
    studio.check(&golden.case("square"));
    studio.check(&golden.case("square"));
}

#[test]
fn prompts_are_encoded_as_diffusers_encodes_them() {
    let golden = Golden::read("z_image");
    let studio = Studio::plain("z_image");
    let encoder = studio.painter.pipeline().encoder(false).expect("an encoder").0;
    for case in golden.cases() {
        let plan = studio.planner.plan(&case.request()).expect("a good request");
        let states = encoder.encode(&plan.prompt, &[], &[], Style::Plain).expect("states");
        let (shape, expected) = case.tensor("prompt_embeds");
        assert_eq!(states.shape()[1..], shape);
        let far = golden::farthest(&states.to_vec_f32().expect("values"), &expected);
        assert!(far < 2e-3, "{}: {far}", case.name);
    }
}

#[test]
fn latents_are_decoded_as_diffusers_decodes_them() {
    let golden = Golden::read("z_image");
    let studio = Studio::plain("z_image");
    let vae = studio.painter.pipeline().vae(false).expect("a decoder").0;
    let (shape, values) = golden.tensor("vae.latents");
    let latents = Array::from_f32(&values, &shape).expect("latents");
    let latents = ops::transpose(&latents, &[0, 2, 3, 1]).expect("channels last");
    let colours = vae.decode(&latents).expect("colours");
    let colours = ops::transpose(&colours, &[0, 3, 1, 2]).expect("channels first");
    let far = Golden::near(&golden.json["vae"]["decoded"], &colours);
    assert!(far < 2e-4, "{far}");
}

#[test]
fn schedules_are_those_of_diffusers() {
    for name in ["z_image", "qwen_image"] {
        let golden = Golden::read(name);
        let studio = Studio::plain(name);
        for schedule in golden.json["schedules"].as_array().expect("schedules") {
            let count = |key: &str| schedule[key].as_u64().expect("a count") as usize;
            let sigmas = studio.painter.pipeline().schedule.sigmas(count("steps"), count("tokens"));
            let expected: Vec<f32> = schedule["sigmas"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|s| s.as_f64().expect("a number") as f32)
                .collect();
            assert!(golden::farthest(&sigmas, &expected) < 2e-6, "{name}: {sigmas:?}");
        }
    }
}

fn request() -> ImageRequest {
    ImageRequest {
        prompt: "Three white birds".into(),
        width: Some(64),
        height: Some(48),
        steps: Some(2),
        seed: Some(7),
        ..ImageRequest::default()
    }
}

#[test]
fn equal_seeds_make_equal_pictures_and_others_make_others() {
    let mut studio = Studio::plain("z_image");
    let mut paint = |seed| {
        let request = ImageRequest { seed: Some(seed), ..request() };
        studio.paint(&request, &mut Seen::default()).expect("a picture").picture
    };
    let (first, again, other) = (paint(7), paint(7), paint(8));
    assert_eq!(first, again);
    assert_ne!(first, other);
}

#[test]
fn packed_weights_make_nearly_the_same_picture() {
    let plain = Studio::plain("z_image").paint(&request(), &mut Seen::default()).expect("one");
    let far = |bits| {
        let options = ImageLoadOptions { quantize: Some(bits), ..Default::default() };
        let mut studio = Studio::open("z_image", &options, Kernels::CPU);
        assert_eq!(studio.planner.info.quant_bits, bits);
        let picture = studio.paint(&request(), &mut Seen::default()).expect("one").picture;
        let apart =
            picture.rgb.iter().zip(&plain.picture.rgb).map(|(a, b)| u64::from(a.abs_diff(*b)));
        apart.sum::<u64>() as f64 / picture.rgb.len() as f64
    };
    let (four, eight) = (far(4), far(8));
    assert!(eight > 0.0 && eight < four && four < 40.0, "{four} {eight}");
}

#[test]
fn a_cancelled_picture_ends_between_two_steps() {
    let mut studio = Studio::plain("z_image");
    let mut seen = Seen { last: Some(1), ..Seen::default() };
    let request = ImageRequest { steps: Some(5), ..request() };
    let error = studio.paint(&request, &mut seen).expect_err("cancelled");
    assert!(matches!(Error::from(error), Error::Cancelled));
    assert_eq!(seen.latents.len(), 1);
    studio.paint(&request, &mut Seen::default()).expect("the next one is made");
}

#[test]
fn a_picture_that_does_not_fit_is_refused_with_the_numbers() {
    let mut studio = Studio::plain("z_image");
    studio.painter.set_limit(1 << 20);
    let error = Error::from(studio.paint(&request(), &mut Seen::default()).expect_err("too big"));
    assert!(matches!(&error, Error::Memory { available, .. } if *available <= 1 << 20), "{error}");
}

#[test]
fn tiles_are_near_the_whole_and_equal_where_one_holds_all() {
    let golden = Golden::read("z_image");
    let studio = Studio::plain("z_image");
    let vae = studio.painter.pipeline().vae(false).expect("a decoder").0;
    let (shape, values) = golden.case("tall_empty_negative").tensor("latents_after_4");
    let latents = Array::from_f32(&values, &shape).expect("latents");
    let latents = ops::transpose(&latents, &[0, 2, 3, 1]).expect("channels last");
    let decode = |tiles| super::super::vae::decode(vae.as_ref(), &latents, tiles).expect("colours");
    let whole = decode(None);
    let of = |size, stride| decode(Some(super::super::vae::Tiles { size, stride }));
    let values = |colours: &Array| colours.to_vec_f32().expect("values");
    assert_eq!(values(&of(20, 15)), values(&whole));
    let tiled = of(8, 6);
    assert_eq!(tiled.shape(), whole.shape());
    let (tiled, whole) = (values(&tiled), values(&whole));
    let apart: f32 = tiled.iter().zip(&whole).map(|(a, b)| (a - b).abs()).sum();
    let size: f32 = whole.iter().map(|value| value.abs()).sum();
    assert!(apart > 0.0 && apart < 0.8 * size, "{apart} of {size}");
}

/// The option or thing that a request is refused for.
fn refused(change: impl FnOnce(&mut ImageRequest)) -> String {
    let studio = Studio::plain("z_image");
    let mut asked = request();
    change(&mut asked);
    studio.planner.plan(&asked).expect_err("a bad request").to_string()
}

#[test]
fn what_a_request_may_not_ask_is_refused_by_name() {
    let told = refused(|r| r.width = Some(100));
    assert!(told.contains("`width`") && told.contains("96 and 112"), "{told}");
    let told = refused(|r| r.height = Some(16_384));
    assert!(told.contains("`height`") && told.contains("8192"), "{told}");
    let told = refused(|r| r.negative_prompt = Some("dark".into()));
    assert!(told.contains("`negative_prompt`") && told.contains("guidance"), "{told}");
    let told = refused(|r| r.guidance_truncation = Some(0.5));
    assert!(told.contains("`guidance_truncation`"), "{told}");
    let told = refused(|r| {
        r.seed = None;
        r.latents = Some(Latents { shape: [1, 16, 6, 6], values: vec![0.0; 576] });
    });
    assert!(told.contains("`latents`") && told.contains("[1, 16, 6, 8]"), "{told}");
    let told = refused(|r| r.prompt = "word ".repeat(600));
    assert!(told.contains("tokens") && told.contains("512"), "{told}");
}
