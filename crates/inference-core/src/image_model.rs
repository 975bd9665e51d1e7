//! The contract of a loaded image model.

use crate::{EngineStatus, ImageGeneration, ImageRequest, Result};

/// A part of an image model: its text encoder, its transformer and so on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageComponent {
    /// Its folder, such as `transformer`.
    pub name: String,
    /// The class that `model_index.json` gives it.
    pub class: String,
    /// Parameters, packed ones counted as what they stand for; 0 without weights.
    pub num_parameters: u64,
    /// Bytes of the weights as they are held in memory; 0 without weights.
    pub weight_bytes: u64,
}

/// Description of a loaded image model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageModelInfo {
    /// The pipeline's name, `_class_name` in `model_index.json`.
    pub pipeline: String,
    /// The parts, in the order in which they work.
    pub components: Vec<ImageComponent>,
    /// The type of the transformer's activations: `f32`, `f16` or `bf16`.
    pub dtype: String,
    /// Bits of the transformer's packed weights, 0 where they are not packed.
    pub quant_bits: usize,
    /// The device that computes.
    pub device: String,
    /// The number that both sides of a picture are multiples of.
    pub multiple: usize,
    /// The side of a picture where a request names none and gives no pictures to take it from.
    pub default_side: usize,
    /// Steps where a request names none.
    pub default_steps: usize,
    /// Guidance where a request names none.
    pub default_guidance: f32,
    /// Channels of the latents.
    pub latent_channels: usize,
    /// How many pictures a request has to give.
    pub min_images: usize,
    /// How many pictures a request may give.
    pub max_images: usize,
}

/// A loaded image model. Any number of threads may call it at once; pictures are made one after the
/// other.
///
/// Every call validates its request first and honours each option, or refuses it by name.
pub trait ImageModel: Send + Sync {
    /// Returns the model's description.
    fn info(&self) -> &ImageModelInfo;

    /// Begins a picture.
    ///
    /// # Errors
    /// Before anything is queued: [`Error::InvalidOption`](crate::Error::InvalidOption),
    /// [`Error::Unsupported`](crate::Error::Unsupported),
    /// [`Error::QueueFull`](crate::Error::QueueFull), [`Error::Closed`](crate::Error::Closed). What
    /// goes wrong later, [`Error::Memory`](crate::Error::Memory) included, is the last item of the
    /// [`ImageGeneration`].
    fn generate(&self, request: &ImageRequest) -> Result<ImageGeneration>;

    /// Returns the state of the engine at this moment.
    fn status(&self) -> EngineStatus {
        EngineStatus::default()
    }

    /// Cancels all pictures, frees the model, and waits until both is done. Later requests are
    /// refused with [`Error::Closed`](crate::Error::Closed).
    fn close(&self);
}
