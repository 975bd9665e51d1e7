//! A picture in progress: its events, and the result.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crate::{CancelToken, Error, Picture, Result};

/// A phase of an image model's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImagePhase {
    /// The prompts and the given pictures are encoded.
    Encode,
    /// Noise becomes a picture's latents, step by step.
    Denoise,
    /// Latents become pixels.
    Decode,
}

impl ImagePhase {
    /// `encode`, `denoise` or `decode`.
    pub fn as_str(self) -> &'static str {
        match self {
            ImagePhase::Encode => "encode",
            ImagePhase::Denoise => "denoise",
            ImagePhase::Decode => "decode",
        }
    }
}

/// An event that is reported while a picture is made.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ImageEvent {
    /// A phase begins.
    Phase(ImagePhase),
    /// A denoising step is done.
    Step {
        /// Its number, from 1 on.
        step: usize,
        /// How many there are.
        steps: usize,
    },
    /// The picture as it would be without further steps: blurred at first. The next event reports
    /// the same step.
    Partial {
        /// Its number, from 0 on.
        index: usize,
        /// The picture so far.
        picture: Box<Picture>,
    },
    /// The picture, the last event.
    Done(Box<GeneratedImage>),
}

/// A picture with what it was made with.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedImage {
    /// The picture.
    pub picture: Picture,
    /// The settings that a request left open, and what it cost.
    pub facts: ImageFacts,
}

/// Settings, times and memory of one picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageFacts {
    /// The seed of the first noise; `None` where that was handed in.
    pub seed: Option<u64>,
    /// Denoising steps.
    pub steps: usize,
    /// Weight of the guidance.
    pub guidance: f32,
    /// Ids of the prompt, those of its template and its pictures included.
    pub prompt_tokens: usize,
    /// Of them, those of the pictures.
    pub prompt_image_tokens: usize,
    /// Positions of the transformer that the picture itself has.
    pub image_tokens: usize,
    /// From entering the queue until the work began.
    pub queue_duration: Duration,
    /// Reading weights, in all phases.
    pub load_duration: Duration,
    /// Encoding prompts and pictures.
    pub encode_duration: Duration,
    /// All steps, without partial pictures.
    pub denoise_duration: Duration,
    /// One step: the median.
    pub step_duration: Duration,
    /// From latents to pixels, partial pictures included.
    pub decode_duration: Duration,
    /// From entering the queue until the end.
    pub total_duration: Duration,
    /// The most memory that was in use in the process during the work, in bytes. What other models
    /// do at the same time counts in it.
    pub peak_memory_bytes: u64,
}

/// A picture that is being made: an iterator over its events. Dropping it cancels the work.
#[derive(Debug)]
pub struct ImageGeneration {
    events: Receiver<Result<ImageEvent>>,
    cancel: CancelToken,
    is_over: bool,
}

impl ImageGeneration {
    /// The two ends of a generation. `cancel` is the request's own token; it fires when this end is
    /// dropped.
    pub fn new(cancel: &CancelToken) -> (ImageSender, ImageGeneration) {
        let (sender, events) = mpsc::channel();
        let own = CancelToken::new();
        let ours = ImageSender { events: sender, cancel: cancel.clone(), dropped: own.clone() };
        (ours, ImageGeneration { events, cancel: own, is_over: false })
    }

    /// Waits for the picture.
    ///
    /// # Errors
    /// The error that ended the work.
    pub fn finish(self) -> Result<GeneratedImage> {
        for event in self {
            if let ImageEvent::Done(image) = event? {
                return Ok(*image);
            }
        }
        Err(Error::Closed)
    }
}

impl Iterator for ImageGeneration {
    type Item = Result<ImageEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let event = self.events.recv().unwrap_or(Err(Error::Closed));
        self.is_over = matches!(event, Err(_) | Ok(ImageEvent::Done(_)));
        Some(event)
    }
}

impl Drop for ImageGeneration {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// The backend's end of an [`ImageGeneration`]. Dropped before the picture, it tells that the model
/// was closed.
#[derive(Debug)]
pub struct ImageSender {
    events: Sender<Result<ImageEvent>>,
    cancel: CancelToken,
    dropped: CancelToken,
}

impl ImageSender {
    /// Returns true when the request's token fired or nobody waits for the picture.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled() || self.dropped.is_cancelled()
    }

    /// Tells of the work. It never waits.
    pub fn send(&self, event: ImageEvent) {
        // Where nobody listens, the work ends at its next look at the token.
        let _ = self.events.send(Ok(event));
    }

    /// Ends the generation.
    pub fn finish(self, result: Result<GeneratedImage>) {
        let event = result.map(|image| ImageEvent::Done(Box::new(image)));
        let _ = self.events.send(event);
    }
}
