//! Prompts of Qwen-Image and its edits: templates, the pictures' sizes, and ids.

use inference_core::{EncodedPicture, Error, Result};
use inference_text::{ChatFormat, ChatInput, Tokenizer};
use pictures::{Arithmetic, Filter, Limits, Picture, Sizing};
use serde_json::json;

use crate::config::Config;
use crate::files::ModelFiles;

const START: &str = "<|im_start|>system\n";
const PLAIN: &str = "Describe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the objects and background:";
const EDIT: &str = "Describe the key features of the input image (color, shape, size, texture, objects, background), then explain how the user's text instruction should alter or modify the image. Generate a new image that meets the user's requirements while maintaining consistency with the original input where appropriate.";
const USER: &str = "<|im_end|>\n<|im_start|>user\n";
const MARK: &str = "<|vision_start|><|image_pad|><|vision_end|>";
const END: &str = "{{ messages[0].content }}<|im_end|>\n<|im_start|>assistant{{ '\\n' }}";

/// The most ids of a prompt without pictures, beside its template's.
const MOST_IDS: usize = 1024;
/// Pixels of a picture that is edited as latents, and as the text encoder sees it where there are
/// several.
const AREA: f64 = 1024.0 * 1024.0;
const SEEN_AREA: f64 = 384.0 * 384.0;

/// Which of the pipelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Pictures from text.
    Plain,
    /// One picture is edited.
    Edit,
    /// One or several are.
    EditPlus,
}

/// A picture that is edited.
#[derive(Clone, Debug)]
pub(super) struct Edited {
    /// As the text encoder's tower sees it.
    pub seen: Picture,
    /// As the VAE encodes it.
    pub given: Picture,
    /// Rows and columns of the tower's cells.
    pub cells: [i32; 2],
    /// Rows and columns of the transformer's patches.
    pub patches: [i32; 2],
    /// Width and height of what is made of it where a request names none.
    pub size: [usize; 2],
}

impl Edited {
    /// Ids that stand for it in the prompt.
    pub fn seen_tokens(&self) -> usize {
        self.cells.iter().product::<i32>() as usize
    }
}

/// The tokenizer with the template, and how pictures are prepared.
pub(super) struct QwenText {
    tokenizer: Tokenizer,
    chat: ChatFormat,
    style: Style,
    sizing: Sizing,
    image_id: u32,
}

impl Style {
    /// Ids of the template's beginning, which do not describe the prompt: the same whatever the
    /// tokenizer.
    pub fn dropped(self) -> i32 {
        match self {
            Style::Plain => 34,
            Style::Edit | Style::EditPlus => 64,
        }
    }

    fn template(self) -> String {
        match self {
            Style::Plain => format!("{START}{PLAIN}{USER}{END}"),
            Style::Edit => format!("{START}{EDIT}{USER}{MARK}{END}"),
            Style::EditPlus => {
                let loops = "{% for n in range(messages[0].pictures) %}Picture {{ n + 1 }}: ";
                format!("{START}{EDIT}{USER}{loops}{MARK}{{% endfor %}}{END}")
            }
        }
    }
}

impl QwenText {
    /// Reads the tokenizer in `files`; `processor` is the config of the pictures' preparation.
    ///
    /// # Errors
    /// A file that is missing or wrong.
    pub fn read(files: &ModelFiles, style: Style, processor: Option<&Config>) -> Result<QwenText> {
        let tokenizer = super::tokenizer::read(files)?;
        let chat = ChatFormat::from_template(&style.template(), &tokenizer).map_err(Error::from)?;
        let image_id = tokenizer.token_to_id("<|image_pad|>");
        if image_id.is_none() && style != Style::Plain {
            let path = files.folder().display().to_string();
            return Err(Error::Load { path, reason: "has no token `<|image_pad|>`".into() });
        }
        let sizing = processor.map(sizing).transpose().map_err(Error::from)?;
        let sizing = sizing.unwrap_or(DEFAULT_SIZING);
        Ok(QwenText { tokenizer, chat, style, sizing, image_id: image_id.unwrap_or(u32::MAX) })
    }

    /// Decodes the pictures of a request, and brings them to their sizes.
    ///
    /// # Errors
    /// Names the picture that cannot be read or resized.
    pub fn edited(&self, images: &[EncodedPicture]) -> Result<Vec<Edited>> {
        images.iter().map(|image| self.one(image)).collect()
    }

    fn one(&self, image: &EncodedPicture) -> Result<Edited> {
        let picture = Picture::decode(&image.bytes, &Limits::default());
        let picture = picture.map_err(|error| image.error(error))?;
        let ratio = f64::from(picture.width()) / f64::from(picture.height());
        let resized = |picture: &Picture, (width, height), filter, arithmetic| {
            picture.resized(width, height, filter, arithmetic).map_err(|error| image.error(error))
        };
        let size = with_area(AREA, ratio);
        let seen_size = match self.style {
            Style::EditPlus => with_area(SEEN_AREA, ratio),
            _ => size,
        };
        if size.0 == 0 || size.1 == 0 || seen_size.0 == 0 || seen_size.1 == 0 {
            return Err(image.error("is too long and thin to be edited"));
        }
        let given = resized(&picture, size, Filter::Lanczos, Arithmetic::Pillow)?;
        let seen = match seen_size == size {
            true => given.clone(),
            false => resized(&picture, seen_size, Filter::Lanczos, Arithmetic::Pillow)?,
        };
        let to = self.sizing.of(seen.width(), seen.height()).map_err(|error| image.error(error))?;
        let seen = resized(&seen, to, Filter::Bicubic, Arithmetic::Torchvision)?;
        let parts = |picture: &Picture, size: u32| {
            [(picture.height() / size) as i32, (picture.width() / size) as i32]
        };
        Ok(Edited {
            cells: parts(&seen, 28),
            patches: parts(&given, 16),
            size: [size.0 as usize / 16 * 16, size.1 as usize / 16 * 16],
            seen,
            given,
        })
    }

    /// The ids of a prompt about these pictures.
    ///
    /// # Errors
    /// A prompt that is too long.
    pub fn ids(&self, text: &str, edited: &[Edited]) -> Result<Vec<u32>> {
        let _ = &self.tokenizer;
        let messages = [json!({"role": "user", "content": text, "pictures": edited.len()})];
        let input = ChatInput::new(&messages);
        let ids = self.chat.render_and_encode(&input).map_err(Error::from)?.ids;
        let most = MOST_IDS + self.style.dropped() as usize;
        if self.style == Style::Plain && ids.len() > most {
            return Err(Error::PromptTooLong { tokens: ids.len(), limit: most });
        }
        let mut pictures = edited.iter();
        let mut expanded = Vec::with_capacity(ids.len());
        for id in ids {
            let count = match (id == self.image_id).then(|| pictures.next()).flatten() {
                Some(edited) => edited.seen_tokens(),
                None => 1,
            };
            expanded.extend(std::iter::repeat_n(id, count));
        }
        if expanded.len() <= self.style.dropped() as usize {
            return Err(Error::EmptyPrompt);
        }
        Ok(expanded)
    }
}

/// Qwen2VLProcessor's own sizes.
const DEFAULT_SIZING: Sizing =
    Sizing::Area { factor: 28, min_pixels: 56 * 56, max_pixels: 28 * 28 * 1280 };

fn sizing(config: &Config) -> crate::error::Result<Sizing> {
    let Sizing::Area { factor, min_pixels, max_pixels } = DEFAULT_SIZING else {
        unreachable!("it is an area")
    };
    for (key, expected) in [("patch_size", 14), ("merge_size", 2)] {
        if config.opt_size(key)?.is_some_and(|size| size != expected) {
            let reason = format!("the processor's `{key}` is not {expected}");
            return Err(crate::error::Error::model(reason));
        }
    }
    let edges = config.object("size")?;
    let of = |old: &str, new: &str| -> crate::error::Result<Option<i32>> {
        let edge = edges.as_ref().map(|edges| edges.opt_size(new)).transpose()?.flatten();
        Ok(edge.or(config.opt_size(old)?))
    };
    Ok(Sizing::Area {
        factor,
        min_pixels: of("min_pixels", "shortest_edge")?.map_or(min_pixels, |size| size as u64),
        max_pixels: of("max_pixels", "longest_edge")?.map_or(max_pixels, |size| size as u64),
    })
}

/// Width and height, multiples of 32, of about this area.
fn with_area(area: f64, ratio: f64) -> (u32, u32) {
    let width = (area * ratio).sqrt();
    let rounded = |side: f64| ((side / 32.0).round_ties_even() * 32.0) as u32;
    (rounded(width), rounded(width / ratio))
}
