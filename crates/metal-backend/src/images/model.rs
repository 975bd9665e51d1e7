//! An image model as the contract sees it, and the thread that makes its pictures.

use std::path::Path;
use std::time::Instant;

use inference_core::{
    CancelToken, EngineStatus, Error, GeneratedImage, ImageEvent, ImageGeneration,
    ImageLoadOptions, ImageModel, ImageModelInfo, ImageRequest, ImageSender, Result,
};
use mlx_ffi::Device;

use super::folder::PipelineFolder;
use super::painter::{Observer, Painter};
use super::pipeline::Pipeline;
use super::plan::Plan;
use super::planner::Planner;
use crate::engine::{Turn, Turns, device};
use crate::kernels::Kernels;

/// An image model on a thread of its own, which alone owns its arrays.
pub(crate) struct MlxImageModel {
    planner: Planner,
    turns: Turns<PictureJob>,
}

/// A picture that waits for its turn.
struct PictureJob {
    plan: Plan,
    sender: ImageSender,
    queued: Instant,
}

impl Turn for PictureJob {
    type Worker = Painter;
    type Done = GeneratedImage;

    fn work(&self, painter: &mut Painter, closing: &CancelToken) -> Result<GeneratedImage> {
        let waited = self.queued.elapsed();
        let mut observer = Told { sender: &self.sender, closing };
        let mut image = painter.paint(&self.plan, &mut observer).map_err(Error::from)?;
        image.facts.queue_duration = waited;
        image.facts.total_duration += waited;
        Ok(image)
    }

    fn clear(painter: &mut Painter) {
        painter.clear();
    }

    fn answer(self, result: Result<GeneratedImage>, closing: &CancelToken) {
        match result {
            Err(Error::Cancelled) if closing.is_cancelled() => {
                self.sender.finish(Err(Error::Closed));
            }
            result => self.sender.finish(result),
        }
    }
}

impl MlxImageModel {
    /// Reads the configs and headers in `path`, and starts the thread. Weights are read when they
    /// are needed.
    ///
    /// # Errors
    /// An option that is not honoured; what is wrong with the files.
    pub fn load(
        path: &Path,
        options: &ImageLoadOptions,
        device: Device,
        kernels: Kernels,
    ) -> Result<MlxImageModel> {
        let folder = PipelineFolder::open(path)?;
        let pipeline = Pipeline::open(&folder, options, kernels)?;
        let planner = Planner::new(&pipeline, &folder, device)?;
        let (options, queue_limit) = (options.clone(), options.queue_limit);
        let begin = move || {
            let limit = device::begin(device, options.threads, options.memory_limit)?;
            Ok(Painter::new(pipeline, limit, options.keep_components))
        };
        let turns = Turns::start("ml-images", device, queue_limit, begin)?;
        Ok(MlxImageModel { planner, turns })
    }

    /// Describes the model in a folder without reading weights.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn describe(
        path: &Path,
        options: &ImageLoadOptions,
        device: Device,
        kernels: Kernels,
    ) -> Result<ImageModelInfo> {
        let folder = PipelineFolder::open(path)?;
        let pipeline = Pipeline::open(&folder, options, kernels)?;
        Ok(Planner::new(&pipeline, &folder, device)?.info)
    }
}

impl ImageModel for MlxImageModel {
    fn info(&self) -> &ImageModelInfo {
        &self.planner.info
    }

    fn generate(&self, request: &ImageRequest) -> Result<ImageGeneration> {
        let plan = self.planner.plan(request)?;
        let (sender, generation) = ImageGeneration::new(&request.cancel);
        self.turns.submit(PictureJob { plan, sender, queued: Instant::now() })?;
        Ok(generation)
    }

    fn status(&self) -> EngineStatus {
        self.turns.status()
    }

    fn close(&self) {
        self.turns.close();
    }
}

impl Drop for MlxImageModel {
    fn drop(&mut self) {
        self.close();
    }
}

/// Whoever waits for a picture.
struct Told<'a> {
    sender: &'a ImageSender,
    closing: &'a CancelToken,
}

impl Observer for Told<'_> {
    fn is_cancelled(&self) -> bool {
        self.sender.is_cancelled() || self.closing.is_cancelled()
    }

    fn tell(&mut self, event: ImageEvent) {
        self.sender.send(event);
    }
}
