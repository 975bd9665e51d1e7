//! Reports on a picture: in its file, as JSON, and in a line.

use std::path::Path;
use std::time::Duration;

use inference_core::{GeneratedImage, ImageModelInfo, ImageRequest, Picture};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::bytes;
use crate::failure::{Failure, Result};

/// The object of `--json`, which tells all that makes the picture again.
#[derive(Serialize)]
pub struct Report<'a> {
    output: String,
    model: String,
    pipeline: &'a str,
    device: &'a str,
    dtype: &'a str,
    /// `null` where weights are not packed by us or by the checkpoint.
    quantization_bits: Option<usize>,
    prompt: &'a str,
    negative_prompt: Option<&'a str>,
    width: usize,
    height: usize,
    steps: usize,
    guidance: f32,
    guidance_normalization: Option<f32>,
    guidance_truncation: Option<f32>,
    /// `null` where the noise was given.
    seed: Option<u64>,
    input_images: Vec<&'a str>,
    prompt_tokens: usize,
    image_tokens: usize,
    load_seconds: f64,
    encode_seconds: f64,
    denoise_seconds: f64,
    /// The median of the steps.
    step_seconds: f64,
    decode_seconds: f64,
    total_seconds: f64,
    peak_memory_bytes: u64,
    /// Of the RGB bytes, rows from the top.
    sha256: String,
}

impl<'a> Report<'a> {
    /// The report of `image`, which `request` asked for.
    pub fn new(
        model: &str,
        info: &'a ImageModelInfo,
        request: &'a ImageRequest,
        image: &GeneratedImage,
        output: &Path,
    ) -> Report<'a> {
        let GeneratedImage { picture, facts } = image;
        let digest = Sha256::digest(&picture.rgb);
        let seconds = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e6;
        Report {
            output: output.display().to_string(),
            model: model.to_owned(),
            pipeline: &info.pipeline,
            device: &info.device,
            dtype: &info.dtype,
            quantization_bits: (info.quant_bits > 0).then_some(info.quant_bits),
            prompt: &request.prompt,
            negative_prompt: request.negative_prompt.as_deref(),
            width: picture.width,
            height: picture.height,
            steps: facts.steps,
            guidance: facts.guidance,
            guidance_normalization: request.guidance_normalization,
            guidance_truncation: request.guidance_truncation,
            seed: facts.seed,
            input_images: request.images.iter().map(|image| &*image.name).collect(),
            prompt_tokens: facts.prompt_tokens,
            image_tokens: facts.image_tokens,
            load_seconds: seconds(facts.load_duration),
            encode_seconds: seconds(facts.encode_duration),
            denoise_seconds: seconds(facts.denoise_duration),
            step_seconds: seconds(facts.step_duration),
            decode_seconds: seconds(facts.decode_duration),
            total_seconds: seconds(facts.total_duration),
            peak_memory_bytes: facts.peak_memory_bytes,
            sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// The picture as a PNG with what makes it again as texts: nothing of times, so that equal
    /// settings make equal files.
    ///
    /// # Errors
    /// A picture without pixels.
    pub fn png(&self, picture: &Picture) -> Result<Vec<u8>> {
        let settings = self.settings();
        let seed = self.seed.map(|seed| seed.to_string());
        let mut texts =
            vec![("prompt", self.prompt), ("model", self.model.as_str()), ("settings", &settings)];
        texts.extend(self.negative_prompt.map(|text| ("negative_prompt", text)));
        texts.extend(seed.as_deref().map(|seed| ("seed", seed)));
        let failed = |reason: String| Failure::Other(format!("the PNG: {reason}"));
        let (width, height) = (picture.width as u32, picture.height as u32);
        let picture = pictures::Picture::new(width, height, picture.rgb.clone())
            .map_err(|error| failed(error.to_string()))?;
        picture.to_png(&texts).map_err(|error| failed(error.to_string()))
    }

    /// The settings beside the prompts, as one object of JSON.
    fn settings(&self) -> String {
        let settings = serde_json::json!({
            "pipeline": self.pipeline, "device": self.device, "dtype": self.dtype,
            "quantization_bits": self.quantization_bits, "width": self.width,
            "height": self.height, "steps": self.steps, "guidance": self.guidance,
            "guidance_normalization": self.guidance_normalization,
            "guidance_truncation": self.guidance_truncation, "seed": self.seed,
            "input_images": self.input_images, "program": concat!("ml ", env!("CARGO_PKG_VERSION")),
        });
        settings.to_string()
    }

    /// One line for a person.
    pub fn line(&self) -> String {
        let seed = match self.seed {
            Some(seed) => format!("seed {seed}"),
            None => "given noise".to_owned(),
        };
        format!(
            "{}: {} × {}, {seed}, {} steps in {:.1} s, {:.1} s in all, {} at the peak",
            self.output,
            self.width,
            self.height,
            self.steps,
            self.denoise_seconds,
            self.total_seconds,
            bytes::human(self.peak_memory_bytes)
        )
    }
}
