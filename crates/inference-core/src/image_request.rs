//! Requests to an image model: options of its load and of a request.

use crate::{CancelToken, Dtype, EncodedPicture, Error, LoadOptions, Result};

/// A picture in memory: 8 bits for each of red, green and blue.
#[derive(Clone, PartialEq, Eq)]
pub struct Picture {
    /// Pixels of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// `height · width · 3` bytes: rows from the top, pixels from the left, red first.
    pub rgb: Vec<u8>,
}

impl Picture {
    /// The most pixels of a side.
    pub const MAX_SIDE: usize = 16_384;

    /// A picture of these bytes.
    ///
    /// # Errors
    /// [`Error::Engine`] for a side that is 0 or above [`MAX_SIDE`](Self::MAX_SIDE), and for
    /// another number of bytes than the sides say.
    pub fn new(width: usize, height: usize, rgb: Vec<u8>) -> Result<Picture> {
        let sides = 1..=Self::MAX_SIDE;
        let expected = width.saturating_mul(height).saturating_mul(3);
        if sides.contains(&width) && sides.contains(&height) && rgb.len() == expected {
            return Ok(Picture { width, height, rgb });
        }
        Err(Error::Engine(format!("{} bytes are no picture of {width} × {height}", rgb.len())))
    }
}

/// The sizes; the pixels are too many to print.
impl std::fmt::Debug for Picture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Picture({} × {})", self.width, self.height)
    }
}

/// The noise that a picture begins with, handed in to compare with other programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Latents {
    /// `[1, channels, height / 8, width / 8]`.
    pub shape: [usize; 4],
    /// The values, the last dimension changing fastest.
    pub values: Vec<f32>,
}

/// How an image model is loaded. A backend that does not honour a set option refuses it by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageLoadOptions {
    /// The backend's name; `None`: the first available one.
    pub backend: Option<String>,
    /// The type that weights and activations are held in; `None`: the checkpoint's own.
    pub dtype: Option<Dtype>,
    /// Bits to which the matrices of the text encoder and the transformer are packed as they are
    /// read: 4 or 8. `None`: they stay as the checkpoint has them.
    pub quantize: Option<usize>,
    /// Bytes that weights and activations may take together; `None`, or more than the device has:
    /// what it has.
    pub memory_limit: Option<u64>,
    /// Keep the components in memory between requests, where they fit together with the work.
    /// Otherwise each is read when it is needed and freed after.
    pub keep_components: bool,
    /// Requests that may wait before further ones are refused with [`Error::QueueFull`]; `None`: as
    /// many as come.
    pub queue_limit: Option<usize>,
    /// Threads that compute on a CPU, for all models of the process; `None`: all that it has.
    pub threads: Option<usize>,
}

impl ImageLoadOptions {
    /// Checks every value against its range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] with the first bad option's name.
    pub fn validate(&self) -> Result<()> {
        if let Some(bits) = self.quantize.filter(|bits| !matches!(bits, 4 | 8)) {
            return Err(invalid("quantize", format!("{bits} is not 4 or 8")));
        }
        // What both kinds of model have is checked once.
        let (memory_limit, threads) = (self.memory_limit, self.threads);
        LoadOptions { memory_limit, threads, ..LoadOptions::default() }.validate()
    }
}

/// One picture to be made. Unset is the model's own default
/// ([`ImageModelInfo`](crate::ImageModelInfo)).
#[derive(Clone, Debug, Default)]
pub struct ImageRequest {
    /// The description of the picture.
    pub prompt: String,
    /// The description of what to avoid; `None`: the empty text where there is guidance. Qwen-Image
    /// has guidance with a negative prompt and a `guidance` above 1.
    pub negative_prompt: Option<String>,
    /// Pixels of a row.
    pub width: Option<usize>,
    /// Rows.
    pub height: Option<usize>,
    /// Denoising steps, each a pass of the transformer (two with guidance).
    pub steps: Option<usize>,
    /// Weight of the difference between the prediction with the prompt and that with the negative
    /// prompt (classifier-free guidance, `true_cfg_scale` of Qwen-Image).
    pub guidance: Option<f32>,
    /// The most that guidance may lengthen a prediction, as a factor; 0: any. Z-Image only.
    pub guidance_normalization: Option<f32>,
    /// The part of the way, 0 to 1, after which steps run without guidance. Z-Image only.
    pub guidance_truncation: Option<f32>,
    /// The seed of the first noise; `None`: 0. Equal seeds make equal pictures on one device.
    pub seed: Option<u64>,
    /// Pictures to be edited, in the order in which the prompt counts them.
    pub images: Vec<EncodedPicture>,
    /// The first noise, in place of the seed's.
    pub latents: Option<Latents>,
    /// How many pictures are reported on the way
    /// ([`ImageEvent::Partial`](crate::ImageEvent::Partial)), after steps that divide the work
    /// evenly. A request of few steps has no more of them than steps before its last one. The
    /// finished picture stays the same.
    pub partial_images: usize,
    /// Ends the work between two steps.
    pub cancel: CancelToken,
}

impl ImageRequest {
    /// The most steps.
    pub const MAX_STEPS: usize = 1000;
    /// The most pictures to be edited.
    pub const MAX_IMAGES: usize = 16;
    /// The most pictures that are reported on the way.
    pub const MAX_PARTIAL_IMAGES: usize = 3;

    /// Checks every value against its range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] with the first bad option's name.
    pub fn validate(&self) -> Result<()> {
        side("width", self.width)?;
        side("height", self.height)?;
        if let Some(steps) = self.steps
            && !(1..=Self::MAX_STEPS).contains(&steps)
        {
            return Err(invalid("steps", format!("{steps} is not 1 to {}", Self::MAX_STEPS)));
        }
        number("guidance", self.guidance, 1000.0)?;
        number("guidance_normalization", self.guidance_normalization, 1000.0)?;
        number("guidance_truncation", self.guidance_truncation, 1.0)?;
        if self.images.len() > Self::MAX_IMAGES {
            let reason = format!("{} pictures, at most {}", self.images.len(), Self::MAX_IMAGES);
            return Err(invalid("images", reason));
        }
        if self.partial_images > Self::MAX_PARTIAL_IMAGES {
            let most = Self::MAX_PARTIAL_IMAGES;
            let reason = format!("{} pictures, at most {most}", self.partial_images);
            return Err(invalid("partial_images", reason));
        }
        if let Some(Latents { shape, values }) = &self.latents {
            if self.seed.is_some() {
                return Err(invalid("latents", "given together with `seed`: choose one".into()));
            }
            let size = shape.iter().try_fold(1usize, |size, dim| size.checked_mul(*dim));
            if size != Some(values.len()) {
                let reason = format!("{} values do not fill the shape {shape:?}", values.len());
                return Err(invalid("latents", reason));
            }
            if let Some(value) = values.iter().find(|value| !value.is_finite()) {
                return Err(invalid("latents", format!("a value is {value}")));
            }
        }
        Ok(())
    }
}

fn side(option: &'static str, side: Option<usize>) -> Result<()> {
    match side {
        Some(side) if !(1..=Picture::MAX_SIDE).contains(&side) => {
            Err(invalid(option, format!("{side} is not 1 to {}", Picture::MAX_SIDE)))
        }
        _ => Ok(()),
    }
}

fn number(option: &'static str, value: Option<f32>, most: f32) -> Result<()> {
    match value {
        Some(value) if !(0.0..=most).contains(&value) => {
            Err(invalid(option, format!("{value} is not 0 to {most}")))
        }
        _ => Ok(()),
    }
}

fn invalid(option: &'static str, reason: String) -> Error {
    Error::InvalidOption { option, reason }
}
