//! Qwen-Image, its edits, and their parts.

use super::golden::Golden;
use super::*;
use crate::images::denoise::packed;

#[test]
fn qwen_image_makes_the_pictures_of_diffusers_step_by_step() {
    let golden = Golden::read("qwen_image");
    let mut studio = Studio::plain("qwen_image");
    for case in golden.cases() {
        studio.check(&case);
    }
}

// The pictures that are edited have thousands of positions, however small what is made of them. So
// one case of each pipeline is made whole, and of one with guidance the first step.

#[test]
fn one_picture_is_edited_as_diffusers_edits_it() {
    let golden = Golden::read("qwen_image_edit");
    let mut studio = Studio::plain("qwen_image_edit");
    studio.check(&golden.case("tall"));
    studio.check_steps(&golden.case("wide"), 1);
}

#[test]
fn one_and_two_pictures_are_edited_as_diffusers_edits_them() {
    let golden = Golden::read("qwen_image_edit_plus");
    let mut studio = Studio::plain("qwen_image_edit_plus");
    studio.check(&golden.case("one"));
    studio.check_steps(&golden.case("two"), 1);
}

#[test]
fn mlxs_own_kernels_make_the_same_pictures() {
    let golden = Golden::read("qwen_image");
    let mut studio = Studio::open("qwen_image", &ImageLoadOptions::default(), Kernels::Mlx);
    studio.check(&golden.case("wide"));
}

#[test]
fn prompts_with_and_without_pictures_are_encoded_as_transformers_encodes_them() {
    for name in ["qwen_image", "qwen_image_edit", "qwen_image_edit_plus"] {
        let golden = Golden::read(name);
        let studio = Studio::plain(name);
        let pipeline = studio.painter.pipeline();
        let encoder = pipeline.encoder(false).expect("an encoder").0;
        for case in golden.cases() {
            let plan = studio.planner.plan(&case.request()).expect("a good request");
            let features = encoder.features(&plan.edited).expect("features");
            let prompts = [Some(&plan.prompt), plan.negative.as_ref()];
            for (which, prompt) in ["prompt", "negative_prompt"].iter().zip(prompts) {
                let Some(prompt) = prompt else { continue };
                let states = encoder
                    .encode(prompt, &features, &plan.edited, pipeline.style())
                    .expect("states");
                let (shape, expected) = case.tensor(&format!("{which}_embeds"));
                assert_eq!(states.shape()[1..], shape);
                let far = golden::farthest(&states.to_vec_f32().expect("values"), &expected);
                assert!(far < 2e-3, "{name} {} {which}: {far}", case.name);
            }
        }
    }
}

#[test]
fn pictures_become_latents_and_latents_pictures_as_in_diffusers() {
    let golden = Golden::read("qwen_image");
    let studio = Studio::plain("qwen_image");
    let pipeline = studio.painter.pipeline();
    let last = |name: &str| {
        let (shape, values) = golden.tensor(name);
        let array = Array::from_f32(&values, &shape).expect("values");
        let array = match shape.len() {
            5 => ops::squeeze(&array, 2).expect("one frame"),
            _ => array,
        };
        ops::transpose(&array, &[0, 2, 3, 1]).expect("channels last")
    };
    let first = |array: &Array, like: &Value| {
        let array = ops::transpose(array, &[0, 3, 1, 2]).expect("channels first");
        match like["shape"].as_array().map(Vec::len) {
            Some(5) => ops::expand_dims(&array, 2).expect("one frame"),
            _ => array,
        }
    };
    let colours = pipeline.vae(false).expect("a decoder").0.decode(&last("vae.latents"));
    let told = &golden.json["vae"];
    let far = Golden::near(&told["decoded"], &first(&colours.expect("colours"), &told["decoded"]));
    // Of colours from -1 to 1, whose step is 8e-3: random weights make much of the order of sums.
    assert!(far < 4e-4, "{far}");
    let encoder = pipeline.vae_encoder(false).expect("an encoder").0;
    let moments = encoder.moments(&last("vae.pixels")).expect("moments");
    for (part, range) in [("encoded_mean", (0, 16)), ("encoded_logvar", (16, 32))] {
        let half = ops::slice_axis(&moments, -1, range.0, range.1).expect("a half");
        let far = Golden::near(&told[part], &first(&half, &told[part]));
        assert!(far < 2e-4, "{part}: {far}");
    }
}

#[test]
fn edited_pictures_have_the_sizes_pixels_and_latents_of_diffusers() {
    for name in ["qwen_image_edit", "qwen_image_edit_plus"] {
        let golden = Golden::read(name);
        let studio = Studio::plain(name);
        let encoder = studio.painter.pipeline().vae_encoder(false).expect("an encoder").0;
        for case in golden.cases() {
            let plan = studio.planner.plan(&case.request()).expect("a good request");
            let told = case.told("vae_inputs").as_array().expect("pictures").clone();
            assert_eq!(plan.edited.len(), told.len());
            for (edited, told) in plan.edited.iter().zip(&told) {
                let picture = &edited.given;
                let level = |byte: &u8| f32::from(*byte) / 127.5 - 1.0;
                let colours: Vec<f32> = picture.rgb().iter().map(level).collect();
                let shape = [1, picture.height() as i32, picture.width() as i32, 3];
                let colours = Array::from_f32(&colours, &shape).expect("colours");
                let first = |x: &Array| {
                    let x = ops::transpose(x, &[0, 3, 1, 2]).expect("channels first");
                    ops::expand_dims(&x, 2).expect("one frame")
                };
                let far = Golden::near(&told["pixels"], &first(&colours));
                assert!(far < 1e-5, "{name} {}: pixels {far}", case.name);
                let latents = encoder.encode(&colours).expect("latents");
                let latents = ops::transpose(&latents, &[0, 3, 1, 2]).expect("channels first");
                let latents = match told["latents_normalised"]["shape"].as_array().map(Vec::len) {
                    Some(5) => ops::expand_dims(&latents, 2).expect("one frame"),
                    Some(3) => packed(&latents).expect("rows"),
                    _ => latents,
                };
                let far = Golden::near(&told["latents_normalised"], &latents);
                assert!(far < 1e-3, "{name} {}: latents {far}", case.name);
            }
        }
    }
}

#[test]
fn an_edit_without_a_size_has_that_of_its_last_picture() {
    let golden = Golden::read("qwen_image_edit_plus");
    let studio = Studio::plain("qwen_image_edit_plus");
    let case = golden.case("two");
    let request = ImageRequest { width: None, height: None, latents: None, ..case.request() };
    let plan = studio.planner.plan(&request).expect("a good request");
    // alpha.png has 60 × 84 pixels.
    assert_eq!((plan.width, plan.height), (864, 1216));
}

#[test]
fn guidance_that_is_asked_for_leads_away_from_the_empty_text() {
    for name in ["qwen_image", "qwen_image_edit", "qwen_image_edit_plus"] {
        let studio = Studio::plain(name);
        let plan = |guidance: Option<f32>, negative_prompt: Option<&str>| {
            let negative_prompt = negative_prompt.map(str::to_owned);
            let case = Golden::read(name).cases()[0].request();
            let asked = ImageRequest { guidance, negative_prompt, ..case };
            let plan = studio.planner.plan(&asked).expect("a good request");
            (plan.negative, plan.guidance)
        };
        let (negative, guidance) = plan(Some(4.0), None);
        assert_eq!((negative, guidance), plan(Some(4.0), Some("")));
        assert_eq!(plan(Some(4.0), None).1, 4.0);
        assert_ne!(plan(Some(4.0), None).0, plan(Some(4.0), Some("dark")).0);
        for guidance in [None, Some(1.0), Some(0.0)] {
            assert_eq!(plan(guidance, None), (None, 0.0), "{name} {guidance:?}");
        }
    }
}

/// The error for a bad request of `name`.
fn refused(name: &'static str, change: impl FnOnce(&mut ImageRequest)) -> String {
    let studio = Studio::plain(name);
    let mut asked = Golden::read(name).cases()[0].request();
    change(&mut asked);
    studio.planner.plan(&asked).expect_err("a bad request").to_string()
}

#[test]
fn what_the_pipelines_may_not_be_asked_is_refused_by_name() {
    let told = refused("qwen_image", |r| {
        (r.negative_prompt, r.guidance) = (Some("dark".into()), Some(1.0));
    });
    assert!(told.contains("`negative_prompt`"), "{told}");
    let told = refused("qwen_image", |r| r.guidance_truncation = Some(0.5));
    assert!(told.contains("`guidance_truncation`"), "{told}");
    let picture = || EncodedPicture::new(*b"no picture", "fox.png");
    let told = refused("qwen_image", |r| r.images = vec![picture()]);
    assert!(told.contains("`images`") && told.contains("text alone"), "{told}");
    let told = refused("qwen_image_edit", |r| r.images.clear());
    assert!(told.contains("`images`") && told.contains("one"), "{told}");
    let told = refused("qwen_image_edit", |r| r.images.extend(r.images.clone()));
    assert!(told.contains("2 pictures"), "{told}");
    let told = refused("qwen_image_edit_plus", |r| r.images[1] = picture());
    assert!(told.contains("fox.png"), "{told}");
}

#[test]
fn other_pipelines_are_refused_by_name() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let write = |class: &str| {
        let text = format!("{{\"_class_name\": \"{class}\"}}");
        std::fs::write(folder.path().join("model_index.json"), text).expect("a file");
        PipelineFolder::open(folder.path()).expect_err("not known").to_string()
    };
    let told = write("QwenImage21Pipeline");
    assert!(told.contains("QwenImage21Pipeline") && told.contains("ZImagePipeline"), "{told}");
}
