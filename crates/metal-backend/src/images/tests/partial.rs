//! Pictures on the way: where diffusers' steps would lead, and nothing else changes.

use inference_core::Picture;

use super::super::bill::Bill;
use super::golden::{Case, Golden};
use super::*;

/// The partial pictures of what was told, by their numbers.
fn partials(seen: &Seen) -> Vec<Picture> {
    let partial = |event: &ImageEvent| match event {
        ImageEvent::Partial { index, picture } => Some((*index, picture.as_ref().clone())),
        _ => None,
    };
    let told: Vec<_> = seen.events.iter().filter_map(partial).collect();
    let numbers: Vec<_> = told.iter().map(|(index, _)| *index).collect();
    assert_eq!(numbers, (0..told.len()).collect::<Vec<_>>());
    told.into_iter().map(|(_, picture)| picture).collect()
}

/// The picture at the end of a straight way through the reference's latents before and after
/// `step`.
fn straight(studio: &Studio, case: &Case<'_>, step: usize) -> Picture {
    let sigmas = {
        let (shape, _) = case.tensor("initial_latents");
        let tokens = (shape[2] * shape[3] / 4) as usize;
        studio.painter.pipeline().schedule.sigmas(case.steps, tokens)
    };
    let name = match step {
        1 => "initial_latents".to_owned(),
        _ => format!("latents_after_{}", step - 1),
    };
    let ((shape, before), (_, after)) =
        (case.tensor(&name), case.tensor(&format!("latents_after_{step}")));
    let share = sigmas[step - 1] / (sigmas[step - 1] - sigmas[step]);
    let end: Vec<f32> = before.iter().zip(&after).map(|(b, a)| b + (a - b) * share).collect();
    let latents = Array::from_f32(&end, &shape).expect("latents");
    let latents = ops::transpose(&latents, &[0, 2, 3, 1]).expect("channels last");
    let vae = studio.painter.pipeline().vae(false).expect("a decoder").0;
    let colours = super::super::vae::decode(vae.as_ref(), &latents, None).expect("colours");
    super::super::vae::picture(&colours).expect("a picture")
}

#[test]
fn partial_pictures_are_where_the_references_steps_lead() {
    for (name, case, options) in [
        ("z_image", "square", ImageLoadOptions::default()),
        ("qwen_image", "wide", ImageLoadOptions { keep_components: true, ..Default::default() }),
    ] {
        let golden = Golden::read(name);
        let case = golden.case(case);
        let mut studio = Studio::open(name, &options, Kernels::CPU);
        let (mut plain, mut seen) = (Seen::default(), Seen::default());
        let without = studio.paint(&case.request(), &mut plain).expect("a picture");
        let request = ImageRequest { partial_images: 2, ..case.request() };
        let with = studio.paint(&request, &mut seen).expect("a picture");
        assert_eq!(with.picture, without.picture, "{name}: the last picture stays the same");
        assert!(partials(&plain).is_empty());
        let told = partials(&seen);
        let steps: Vec<_> =
            (1..=2.min(case.steps - 1)).map(|i| i * case.steps / case.steps.min(3)).collect();
        assert_eq!(told.len(), steps.len(), "{name}");
        for (picture, step) in told.iter().zip(steps) {
            let expected = straight(&studio, &case, step);
            let apart = picture.rgb.iter().zip(&expected.rgb).map(|(a, b)| a.abs_diff(*b));
            let levels = apart.max().unwrap_or(0);
            assert!(levels <= 2, "{name} step {step}: {levels} levels");
            assert_ne!(picture, &with.picture, "{name} step {step}");
        }
    }
}

#[test]
fn the_decoder_beside_the_transformer_counts_in_what_is_admitted() {
    let studio = Studio::plain("z_image");
    let pipeline = studio.painter.pipeline();
    // The least memory that the picture is made in, with and without partial ones.
    let least = |partial_images| {
        let request = ImageRequest {
            prompt: "birds".into(),
            width: Some(64),
            height: Some(64),
            steps: Some(2),
            partial_images,
            ..ImageRequest::default()
        };
        let plan = studio.planner.plan(&request).expect("a good request");
        let bill = Bill::of(&plan, pipeline.sizes, pipeline.tiles().expect("MLX tells"));
        (1..400).map(|part| part << 18).find(|available| bill.check(*available).is_ok())
    };
    let (without, with) = (least(0).expect("it fits"), least(1).expect("it fits"));
    assert!(without < with, "{without} {with}");
}
