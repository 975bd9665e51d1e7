//! Plans a pipeline's pictures from requests, and describes the model.

use inference_core::{Error, ImageComponent, ImageModelInfo, ImageRequest, Result};
use mlx_ffi::Device;

use super::caption::CaptionText;
use super::edit::{QwenText, Style};
use super::folder::{Loaded, PipelineFolder};
use super::kind::Kind;
use super::pipeline::Pipeline;
use super::plan::{Plan, Prompt, noise, sides};

/// Turns requests into plans; any thread may ask it.
pub(super) struct Planner {
    text: Text,
    pub info: ImageModelInfo,
    /// The longest side of a picture.
    most: usize,
}

enum Text {
    Caption(CaptionText),
    Qwen(QwenText),
}

impl Planner {
    /// Reads the tokenizer and what else `pipeline` needs of `folder` to plan.
    ///
    /// # Errors
    /// A file that is missing or wrong.
    pub fn new(pipeline: &Pipeline, folder: &PipelineFolder, device: Device) -> Result<Planner> {
        let (transformer, loaded) = pipeline.transformer(true)?;
        let component = |name: &str, of: Loaded| ImageComponent {
            name: name.to_owned(),
            class: folder.class_of(name),
            num_parameters: of.parameters,
            weight_bytes: of.bytes,
        };
        // Turbo is distilled to few steps without guidance; it has another shift than the base
        // model.
        let is_turbo = pipeline.schedule.static_shift().is_some_and(|shift| shift < 4.5);
        let (default_steps, default_guidance, images) = match pipeline.kind {
            Kind::ZImage if is_turbo => (9, 0.0, [0, 0]),
            Kind::ZImage => (50, 5.0, [0, 0]),
            Kind::Qwen(Style::Plain) => (50, 4.0, [0, 0]),
            Kind::Qwen(Style::Edit) => (50, 4.0, [1, 1]),
            Kind::Qwen(Style::EditPlus) => (40, 4.0, [1, ImageRequest::MAX_IMAGES]),
        };
        let mut components = vec![
            component("tokenizer", Loaded::default()),
            component("text_encoder", pipeline.encoder(true)?.1),
            component("scheduler", Loaded::default()),
            component("transformer", loaded),
            component("vae", pipeline.vae(true)?.1),
        ];
        if images[1] > 0 {
            pipeline.vae_encoder(true)?;
            components.insert(1, component("processor", Loaded::default()));
        }
        let info = ImageModelInfo {
            pipeline: folder.class(),
            components,
            dtype: format!("{:?}", transformer.dtype()).to_lowercase(),
            quant_bits: pipeline.bits()?,
            device: device.info().map_err(crate::error::Error::from)?.backend.to_owned(),
            multiple: 16,
            default_side: 1024,
            default_steps,
            default_guidance,
            latent_channels: pipeline.latent_channels()? as usize,
            min_images: images[0],
            max_images: images[1],
        };
        let files = folder.files("tokenizer");
        let text = match pipeline.kind {
            Kind::ZImage => Text::Caption(CaptionText::read(&files)?),
            Kind::Qwen(style) => {
                let name = "preprocessor_config.json";
                let has_one = folder.has_config("processor", name);
                let config = has_one.then(|| folder.config("processor", name)).transpose()?;
                Text::Qwen(QwenText::read(&files, style, config.as_ref())?)
            }
        };
        Ok(Planner { text, info, most: transformer.most_side() as usize })
    }

    /// The plan of a request.
    ///
    /// # Errors
    /// An option by name.
    pub fn plan(&self, request: &ImageRequest) -> Result<Plan> {
        let info = &self.info;
        // Sizes first: what is refused of them names the nearest good ones.
        sides(request, [info.default_side; 2], info.multiple, self.most)?;
        request.validate()?;
        self.check_images(request.images.len())?;
        let guidance = self.guidance(request)?;
        let edited = match &self.text {
            Text::Caption(_) => Vec::new(),
            Text::Qwen(text) => text.edited(&request.images)?,
        };
        // Edit takes the size of its picture, and Plus that of its last one.
        let default = edited.last().map_or([info.default_side; 2], |edited| edited.size);
        let [width, height] = sides(request, default, info.multiple, self.most)?;
        let prompt = |text: &str| -> Result<Prompt> {
            match &self.text {
                Text::Caption(caption) => Ok(Prompt { ids: caption.ids(text)? }),
                Text::Qwen(qwen) => Ok(Prompt { ids: qwen.ids(text, &edited)? }),
            }
        };
        let negative = match &self.text {
            Text::Caption(_) => {
                (guidance > 0.0).then(|| request.negative_prompt.as_deref().unwrap_or(""))
            }
            // The default weight is for requests with a negative prompt; one that is asked for
            // guides anyway.
            Text::Qwen(_) => {
                let asks = request.guidance.is_some_and(|guidance| guidance > 1.0);
                request.negative_prompt.as_deref().or(asks.then_some(""))
            }
        };
        Ok(Plan {
            width,
            height,
            steps: request.steps.unwrap_or(info.default_steps),
            guidance: if negative.is_some() { guidance } else { 0.0 },
            normalization: request.guidance_normalization.unwrap_or(0.0),
            truncation: request.guidance_truncation.unwrap_or(1.0),
            noise: noise(request, info, [width, height])?,
            prompt: prompt(&request.prompt)?,
            negative: negative.map(prompt).transpose()?,
            edited,
            partials: request.partial_images,
        })
    }

    /// # Errors
    /// Pictures where there may be none, or another number of them.
    fn check_images(&self, count: usize) -> Result<()> {
        let ImageModelInfo { pipeline, min_images, max_images, .. } = &self.info;
        if (*min_images..=*max_images).contains(&count) {
            return Ok(());
        }
        if *max_images == 0 {
            return Err(Error::Unsupported {
                what: "images".into(),
                reason: format!("{pipeline} makes pictures from text alone"),
            });
        }
        let expected = match (min_images, max_images) {
            (1, 1) => "one".to_owned(),
            (least, most) => format!("{least} to {most}"),
        };
        let reason = format!("{count} pictures given, {pipeline} edits {expected}");
        Err(Error::InvalidOption { option: "images", reason })
    }

    /// The weight of the guidance.
    ///
    /// # Errors
    /// A parameter that has no effect beside the others.
    fn guidance(&self, request: &ImageRequest) -> Result<f32> {
        let guidance = request.guidance.unwrap_or(self.info.default_guidance);
        let refused = |option: &'static str, is_set: bool, reason: &str| match is_set {
            true => Err(Error::InvalidOption { option, reason: reason.to_owned() }),
            false => Ok(()),
        };
        let [normalization, truncation] =
            [request.guidance_normalization.is_some(), request.guidance_truncation.is_some()];
        match &self.text {
            Text::Caption(_) if guidance == 0.0 => {
                let reason = "says nothing without guidance: set `guidance` above 0";
                refused("negative_prompt", request.negative_prompt.is_some(), reason)?;
                refused("guidance_normalization", normalization, reason)?;
                refused("guidance_truncation", truncation, reason)?;
            }
            Text::Caption(_) => {}
            Text::Qwen(_) => {
                let has_negative = request.negative_prompt.is_some();
                let reason = "is Z-Image's: Qwen-Image keeps the length of each prediction";
                refused("guidance_normalization", normalization, reason)?;
                let reason = "is Z-Image's: Qwen-Image guides at every step";
                refused("guidance_truncation", truncation, reason)?;
                let reason = "says nothing with a `guidance` of 1 or less";
                refused("negative_prompt", has_negative && guidance <= 1.0, reason)?;
            }
        }
        Ok(guidance)
    }
}
