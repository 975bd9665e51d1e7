//! Pictures: options, the registry, and a generation's two ends.

use std::path::Path;
use std::sync::Arc;

use fake_model::FakeBackend;
use inference_core::{
    Backend, CancelToken, EncodedPicture, EngineStatus, Error, GeneratedImage, ImageEvent,
    ImageFacts, ImageGeneration, ImageLoadOptions, ImageModel, ImageModelInfo, ImagePhase,
    ImageRequest, Latents, LoadOptions, Picture, Registry, Result, TextModel,
};

/// A backend whose pictures are of one colour.
struct Painter;

struct Paint(ImageModelInfo);

impl Backend for Painter {
    fn name(&self) -> &str {
        "painter"
    }

    fn available(&self) -> Result<(), String> {
        Ok(())
    }

    fn load_model(&self, _: &Path, _: &LoadOptions) -> Result<Box<dyn TextModel>> {
        Err(Error::Closed)
    }

    fn load_image_model(
        &self,
        _: &Path,
        options: &ImageLoadOptions,
    ) -> Result<Box<dyn ImageModel>> {
        options.validate()?;
        Ok(Box::new(Paint(ImageModelInfo::default())))
    }
}

impl ImageModel for Paint {
    fn info(&self) -> &ImageModelInfo {
        &self.0
    }

    fn generate(&self, request: &ImageRequest) -> Result<ImageGeneration> {
        request.validate()?;
        let (sender, generation) = ImageGeneration::new(&request.cancel);
        sender.send(ImageEvent::Phase(ImagePhase::Denoise));
        sender.send(ImageEvent::Step { step: 1, steps: 1 });
        let picture = Picture::new(2, 1, vec![7; 6])?;
        sender.finish(Ok(GeneratedImage { picture, facts: ImageFacts::default() }));
        Ok(generation)
    }

    fn close(&self) {}
}

#[test]
fn an_image_model_is_loaded_through_the_registry_and_tells_of_its_steps() {
    let registry = Registry::new();
    registry.register(Arc::new(Painter)).unwrap();
    let model = registry.load_image_model(Path::new("."), &ImageLoadOptions::default()).unwrap();
    let request = ImageRequest { prompt: "a fox".into(), ..Default::default() };
    let events: Vec<_> = model.generate(&request).unwrap().map(Result::unwrap).collect();
    assert_eq!(events[0], ImageEvent::Phase(ImagePhase::Denoise));
    assert_eq!(events[1], ImageEvent::Step { step: 1, steps: 1 });
    assert!(matches!(&events[2], ImageEvent::Done(image) if image.picture.width == 2));
    assert_eq!(model.generate(&request).unwrap().finish().unwrap().picture.rgb, [7; 6]);
    assert_eq!(model.status(), EngineStatus::default());
}

#[test]
fn a_backend_that_makes_no_pictures_refuses_image_models_by_name() {
    let registry = Registry::new();
    registry.register(FakeBackend::available("cpu")).unwrap();
    let load = |options| registry.load_image_model(Path::new("."), &options).err().unwrap();
    let error = load(ImageLoadOptions::default());
    assert!(matches!(&error, Error::Unsupported { what, .. } if what == "image models"), "{error}");
    assert!(error.to_string().contains("`cpu`"), "{error}");
    let named = ImageLoadOptions { backend: Some("none".into()), ..Default::default() };
    assert!(matches!(load(named), Error::BackendNotRegistered { .. }));
    let bits = ImageLoadOptions { quantize: Some(5), ..Default::default() };
    assert!(matches!(load(bits), Error::InvalidOption { option: "quantize", .. }));
}

#[test]
fn a_dropped_generation_and_a_fired_token_cancel_the_work() {
    let token = CancelToken::new();
    let (sender, generation) = ImageGeneration::new(&token);
    assert!(!sender.is_cancelled());
    drop(generation);
    assert!(sender.is_cancelled() && !token.is_cancelled());
    let (sender, generation) = ImageGeneration::new(&token);
    token.cancel();
    assert!(sender.is_cancelled());
    sender.finish(Err(Error::Cancelled));
    assert_eq!(generation.finish().unwrap_err(), Error::Cancelled);
}

#[test]
fn a_sender_that_is_dropped_tells_that_the_model_was_closed_once() {
    let (sender, mut generation) = ImageGeneration::new(&CancelToken::new());
    drop(sender);
    assert_eq!(generation.next(), Some(Err(Error::Closed)));
    assert_eq!(generation.next(), None);
}

/// The option that a request is refused for.
fn refused(request: ImageRequest) -> &'static str {
    match request.validate() {
        Err(Error::InvalidOption { option, .. }) => option,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_value_of_a_request_is_held_to_its_range() {
    let request = ImageRequest::default;
    request().validate().unwrap();
    assert_eq!(refused(ImageRequest { width: Some(0), ..request() }), "width");
    assert_eq!(refused(ImageRequest { height: Some(16_385), ..request() }), "height");
    assert_eq!(refused(ImageRequest { steps: Some(0), ..request() }), "steps");
    assert_eq!(refused(ImageRequest { steps: Some(1001), ..request() }), "steps");
    assert_eq!(refused(ImageRequest { guidance: Some(-0.1), ..request() }), "guidance");
    assert_eq!(refused(ImageRequest { guidance: Some(f32::NAN), ..request() }), "guidance");
    let truncation = ImageRequest { guidance_truncation: Some(1.1), ..request() };
    assert_eq!(refused(truncation), "guidance_truncation");
    let normalization = ImageRequest { guidance_normalization: Some(f32::INFINITY), ..request() };
    assert_eq!(refused(normalization), "guidance_normalization");
    let many = vec![EncodedPicture::new([0], "fox.png"); ImageRequest::MAX_IMAGES + 1];
    assert_eq!(refused(ImageRequest { images: many, ..request() }), "images");
    assert_eq!(refused(ImageRequest { partial_images: 4, ..request() }), "partial_images");
    ImageRequest { partial_images: 3, ..request() }.validate().unwrap();
    assert!(Picture::new(2, 2, vec![0; 11]).is_err() && Picture::new(0, 2, vec![]).is_err());
    assert_eq!(format!("{:?}", Picture::new(2, 2, vec![0; 12]).unwrap()), "Picture(2 × 2)");
}

#[test]
fn latents_fill_their_shape_are_numbers_and_stand_in_place_of_a_seed() {
    let latents = |shape, values: Vec<f32>| ImageRequest {
        latents: Some(Latents { shape, values }),
        ..Default::default()
    };
    latents([1, 1, 2, 2], vec![0.5; 4]).validate().unwrap();
    assert_eq!(refused(latents([1, 1, 2, 2], vec![0.5; 5])), "latents");
    assert_eq!(refused(latents([usize::MAX, 2, 2, 2], vec![0.5; 8])), "latents");
    assert_eq!(refused(latents([1, 1, 1, 1], vec![f32::NAN])), "latents");
    let both = ImageRequest { seed: Some(1), ..latents([1, 1, 1, 1], vec![0.0]) };
    assert_eq!(refused(both), "latents");
}
