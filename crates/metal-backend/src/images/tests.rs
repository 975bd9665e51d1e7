//! The tiny pipelines of the fixtures against diffusers' numbers, stage by stage.

use std::path::{Path, PathBuf};

use inference_core::{
    EncodedPicture, Error, GeneratedImage, ImageEvent, ImageLoadOptions, ImagePhase, ImageRequest,
    Latents,
};
use mlx_ffi::{Array, Device, ops, use_device};
use serde_json::Value;

use super::folder::PipelineFolder;
use super::painter::{Observer, Painter};
use super::pipeline::Pipeline;
use super::planner::Planner;
use crate::error::Result;
use crate::files::ModelFiles;
use crate::kernels::Kernels;
use crate::weights::Checkpoint;

mod golden;
mod mflux;
mod partial;
mod qwen_image;
mod z_image;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/images")
}

/// Records the events and the latents of each step.
#[derive(Default)]
struct Seen {
    latents: Vec<Vec<f32>>,
    events: Vec<ImageEvent>,
    /// Cancelled from this step on.
    last: Option<usize>,
}

impl Observer for Seen {
    fn is_cancelled(&self) -> bool {
        self.last.is_some_and(|last| self.latents.len() >= last)
    }

    fn tell(&mut self, event: ImageEvent) {
        self.events.push(event);
    }

    fn latents(&mut self, step: usize, latents: &dyn Fn() -> Result<Array>) -> Result<()> {
        assert_eq!(step, self.latents.len() + 1);
        self.latents.push(latents()?.to_vec_f32()?);
        Ok(())
    }
}

/// A pipeline of the fixtures on the CPU.
struct Studio {
    name: &'static str,
    painter: Painter,
    planner: Planner,
}

impl Studio {
    fn open(name: &'static str, options: &ImageLoadOptions, kernels: Kernels) -> Studio {
        Studio::at(&fixtures().join(name), name, options, kernels)
    }

    /// A pipeline in the folder `path`, which stands for the fixture `name`.
    fn at(path: &Path, name: &'static str, options: &ImageLoadOptions, kernels: Kernels) -> Studio {
        use_device(Device::Cpu).expect("a CPU");
        let folder = PipelineFolder::open(path).expect("a known pipeline");
        let pipeline = Pipeline::open(&folder, options, kernels).expect("sound files");
        let planner = Planner::new(&pipeline, &folder, Device::Cpu).expect("a tokenizer");
        let painter = Painter::new(pipeline, 4 << 30, options.keep_components);
        Studio { name, painter, planner }
    }

    fn plain(name: &'static str) -> Studio {
        Studio::open(name, &ImageLoadOptions::default(), Kernels::CPU)
    }

    fn paint(&mut self, request: &ImageRequest, seen: &mut Seen) -> Result<GeneratedImage> {
        let plan = self.planner.plan(request)?;
        self.painter.paint(&plan, seen)
    }

    /// A case of the goldens: the prompt's ids, the latents after each step, the last pixels.
    fn check(&mut self, case: &golden::Case) {
        let image = self.check_steps(case, case.steps).expect("a picture");
        let (width, height, rgb) = case.picture();
        assert_eq!((image.picture.width, image.picture.height), (width, height));
        let apart = |(a, b): (&u8, &u8)| a.abs_diff(*b);
        let levels = image.picture.rgb.iter().zip(&rgb).map(apart).max().unwrap_or(0);
        assert!(levels <= 1, "{} {}: {levels} levels", self.name, case.name);
        assert_eq!((image.facts.steps, image.facts.seed), (case.steps, None));
    }

    /// The ids of a case and the latents of its first steps; the picture where these are all.
    fn check_steps(&mut self, case: &golden::Case, steps: usize) -> Option<GeneratedImage> {
        let request = case.request();
        let plan = self.planner.plan(&request).expect("a good request");
        let (positive, negative) = case.ids();
        assert_eq!(plan.prompt.ids, positive, "{} {}", self.name, case.name);
        assert_eq!(plan.negative.as_ref().map(|prompt| &prompt.ids), negative.as_ref());
        let last = (steps < case.steps).then_some(steps);
        let mut seen = Seen { last, ..Seen::default() };
        let made = self.painter.paint(&plan, &mut seen).map_err(Error::from);
        assert_eq!(seen.latents.len(), steps);
        for (step, latents) in seen.latents.iter().enumerate() {
            let expected = case.tensor(&format!("latents_after_{}", step + 1)).1;
            let far = golden::farthest(latents, &expected);
            assert!(far < 2e-4, "{} {} step {}: {far}", self.name, case.name, step + 1);
        }
        if last.is_some() {
            assert!(matches!(made, Err(Error::Cancelled)));
            return None;
        }
        let phases = [ImagePhase::Encode, ImagePhase::Denoise, ImagePhase::Decode];
        let told: Vec<_> = phases.map(ImageEvent::Phase).to_vec();
        assert_eq!(seen.events[..2], told[..2]);
        assert_eq!(seen.events.last(), Some(&told[2]));
        Some(made.expect("a picture"))
    }
}
