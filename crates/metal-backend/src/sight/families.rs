//! Families of models that see: their marks, and how they cut pictures.

use inference_core::PictureTokens;
use inference_text::Tokenizer;
use pictures::{Filter, Picture, Processor, Rescale, Sizing};

use super::patches::{Inside, Patches};
use crate::config::Config;
use crate::error::{Error, Result};

/// The ids and texts around pictures.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    /// The mark that a chat template writes for a picture, and its id.
    pub written: (String, u32),
    /// The text put around that mark before it is encoded, as the model's processor does.
    pub around: &'static str,
    /// A template writes the beginning and the end of a picture, too.
    pub writes_all: bool,
    /// The id before a picture.
    pub begin: Option<u32>,
    /// In the place of each vector.
    pub image: u32,
    /// Behind each row but the last.
    pub row_end: Option<u32>,
    /// The id behind a picture.
    pub end: u32,
}

/// A family of models that see.
pub(super) struct Family {
    kind: Kind,
    marks: Marks,
    /// Pixels a side of a patch.
    patch: u32,
    /// Patches a side of what becomes a vector.
    merge: u32,
    /// The positions of a picture see each other.
    sees_whole: bool,
    filler: u32,
}

enum Kind {
    /// One size for all pictures, and so many vectors.
    Gemma3 {
        vectors: u32,
    },
    Gemma4,
    /// So many equal frames.
    Qwen {
        frames: u32,
    },
    Pixtral,
}

impl Family {
    /// Reads `config.json`, with the family's own way to prepare pictures.
    pub fn read(config: &Config, tokenizer: &Tokenizer) -> Result<(Family, Processor)> {
        let vision = config
            .object("vision_config")?
            .ok_or_else(|| Error::model("config.json: key `vision_config` is missing"))?;
        let id = |keys: &[&str], default: u32| -> Result<u32> {
            for key in keys {
                if let Some(id) = config.opt_index(key)? {
                    return Ok(id as u32);
                }
            }
            Ok(default)
        };
        let text = |id: u32| {
            tokenizer.id_to_token(id).ok_or_else(|| {
                Error::model(format!("config.json: the tokenizer has no token {id} for pictures"))
            })
        };
        let named = |name: &str| {
            tokenizer
                .token_to_id(name)
                .ok_or_else(|| Error::model(format!("the tokenizer has no token `{name}`")))
        };
        let size = |key, default: u32| {
            Ok::<_, Error>(vision.opt_size(key)?.map_or(default, |size| size as u32))
        };
        let rescale = |normalize| Rescale { factor: Some(1.0 / 255.0), normalize };
        const HALVES: ([f32; 3], [f32; 3]) = ([0.5; 3], [0.5; 3]);
        const CLIP: ([f32; 3], [f32; 3]) =
            ([0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_6, 0.275_777_1]);
        match config.opt_text("model_type")?.unwrap_or_default() {
            "gemma3" => {
                let begin = id(&["boi_token_index", "boi_token_id"], 255_999)?;
                let marks = Marks {
                    written: (text(begin)?, begin),
                    around: "\n\n",
                    writes_all: false,
                    begin: Some(begin),
                    image: id(&["image_token_index", "image_token_id"], 262_144)?,
                    row_end: None,
                    end: id(&["eoi_token_index", "eoi_token_id"], 256_000)?,
                };
                let (side, patch) = (size("image_size", 896)?, size("patch_size", 14)?);
                let vectors = config.opt_size("mm_tokens_per_image")?.unwrap_or(256) as u32;
                let (across, places) = (f64::from(vectors).sqrt() as u32, side / patch.max(1));
                if across == 0 || places == 0 || across * across != vectors || places % across != 0
                {
                    return Err(Error::model(format!(
                        "config.json: `mm_tokens_per_image` {vectors} does not divide {places} × {places} patches"
                    )));
                }
                let family =
                    Family::new(Kind::Gemma3 { vectors }, marks, patch, places / across, true);
                let processor = Processor {
                    sizing: Sizing::Fixed { width: side, height: side },
                    filter: Some(Filter::Bilinear),
                    rescale: rescale(Some(HALVES)),
                };
                Ok((family, processor))
            }
            "gemma4" => {
                let image = id(&["image_token_id"], 258_880)?;
                let marks = Marks {
                    written: (text(image)?, image),
                    around: "",
                    writes_all: false,
                    begin: Some(id(&["boi_token_id"], 255_999)?),
                    image,
                    row_end: None,
                    end: id(&["eoi_token_id", "eoi_token_index"], 258_882)?,
                };
                let (patch, pooling) = (size("patch_size", 16)?, size("pooling_kernel_size", 3)?);
                let most = match config.opt_size("vision_soft_tokens_per_image")? {
                    Some(most) => most as u32,
                    None => size("default_output_length", 280)?,
                };
                let language = config.object("text_config")?;
                let language = language.as_ref().unwrap_or(config);
                let way = language.opt_text("use_bidirectional_attention")?;
                let filler = language.opt_index("pad_token_id")?.unwrap_or(0) as u32;
                let family =
                    Family::new(Kind::Gemma4, marks, patch, pooling, way == Some("vision"));
                let processor = Processor {
                    sizing: Sizing::Patches { patch, pooling, max_tokens: most },
                    filter: Some(Filter::Bicubic),
                    rescale: rescale(None),
                };
                Ok((Family { filler, ..family }, processor))
            }
            "mistral3" => {
                let image = id(&["image_token_index", "image_token_id"], 10)?;
                let marks = Marks {
                    written: (text(image)?, image),
                    around: "",
                    writes_all: false,
                    begin: None,
                    image,
                    row_end: Some(named("[IMG_BREAK]")?),
                    end: named("[IMG_END]")?,
                };
                let patch = size("patch_size", 16)?;
                let merge = config.opt_size("spatial_merge_size")?.unwrap_or(2) as u32;
                let longest = size("image_size", 1540)?;
                let processor = Processor {
                    sizing: Sizing::LongestEdge {
                        longest_width: longest,
                        longest_height: longest,
                        multiple: patch.saturating_mul(merge),
                    },
                    filter: Some(Filter::Bicubic),
                    rescale: rescale(Some(CLIP)),
                };
                Ok((Family::new(Kind::Pixtral, marks, patch, merge, false), processor))
            }
            kind @ ("qwen2_vl" | "qwen2_5_vl" | "qwen3_vl" | "qwen3_vl_moe" | "qwen3_5"
            | "qwen3_5_moe") => {
                let is_2 = kind.starts_with("qwen2");
                // Qwen 3.5 has other ids than those before it.
                let [image, begin, end] = match kind.starts_with("qwen3_5") {
                    false => [151_655, 151_652, 151_653],
                    true => [248_056, 248_053, 248_054],
                };
                let image = id(&["image_token_id"], image)?;
                let marks = Marks {
                    written: (text(image)?, image),
                    around: "",
                    writes_all: true,
                    begin: Some(id(&["vision_start_token_id"], begin)?),
                    image,
                    row_end: None,
                    end: id(&["vision_end_token_id"], end)?,
                };
                let patch = size("patch_size", if is_2 { 14 } else { 16 })?;
                let merge = size("spatial_merge_size", 2)?;
                let frames = size("temporal_patch_size", 2)?;
                let (min_pixels, max_pixels) = match is_2 {
                    true => (56 * 56, 28 * 28 * 1280),
                    false => (1 << 16, 1 << 24),
                };
                let factor = patch.saturating_mul(merge);
                let processor = Processor {
                    sizing: Sizing::Area { factor, min_pixels, max_pixels },
                    filter: Some(Filter::Bicubic),
                    rescale: rescale(Some(if is_2 { CLIP } else { HALVES })),
                };
                Ok((Family::new(Kind::Qwen { frames }, marks, patch, merge, false), processor))
            }
            other => Err(Error::model(format!(
                "config.json: how `{other}` prepares pictures is not known here"
            ))),
        }
    }

    fn new(kind: Kind, marks: Marks, patch: u32, merge: u32, sees_whole: bool) -> Family {
        Family { kind, marks, patch, merge, sees_whole, filler: 0 }
    }

    /// Refuses a way to prepare pictures that does not fit the tower.
    pub fn check(&self, processor: &Processor) -> Result<()> {
        let cell = self.patch.saturating_mul(self.merge).max(1);
        let fits = match processor.sizing {
            Sizing::Fixed { width, height } => width == height && width % cell == 0,
            Sizing::Area { factor, .. } => factor == cell,
            Sizing::Patches { patch, pooling, .. } => patch == self.patch && pooling == self.merge,
            Sizing::LongestEdge { multiple, .. } => multiple == cell,
            _ => false,
        };
        if fits && processor.filter.is_some() {
            return Ok(());
        }
        let makes = match processor.sizing {
            Sizing::Fixed { width, height } => format!("pictures of {width} × {height} pixels"),
            Sizing::Area { factor: side, .. } | Sizing::LongestEdge { multiple: side, .. } => {
                format!("sides that are multiples of {side} pixels")
            }
            Sizing::Patches { patch, pooling, .. } => {
                format!("patches of {patch} pixels, {pooling} a side")
            }
            _ => "sizes of another kind".to_owned(),
        };
        Err(Error::model(format!(
            "the picture processor makes {makes}; the tower has patches of {} pixels, {} a side",
            self.patch, self.merge
        )))
    }

    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Returns true when the language model knows rows and columns.
    pub fn has_places(&self) -> bool {
        matches!(self.kind, Kind::Qwen { .. })
    }

    pub fn sees_whole(&self) -> bool {
        self.sees_whole
    }

    pub fn filler(&self) -> u32 {
        self.filler
    }

    /// How many vectors a picture has.
    pub fn tokens(&self, sizing: &Sizing) -> PictureTokens {
        let vectors = if let Kind::Gemma3 { vectors } = self.kind { vectors } else { 0 };
        tokens(sizing, self.patch.saturating_mul(self.merge).clamp(1, 1 << 15), vectors as usize)
    }

    /// A picture of a size that fits, cut.
    pub fn patches(&self, rescale: &Rescale, picture: &Picture) -> Patches {
        let (square, inside) = match self.kind {
            Kind::Gemma3 { .. } | Kind::Pixtral => (1, Inside::Planes { frames: 1 }),
            Kind::Gemma4 => (1, Inside::Pixels),
            Kind::Qwen { frames } => {
                (self.merge as i32, Inside::Planes { frames: frames as usize })
            }
        };
        Patches::cut(picture, rescale, self.patch as usize, square, inside)
    }

    /// Rows and columns of vectors of a grid of patches.
    pub fn cells(&self, grid: [i32; 2]) -> [i32; 2] {
        grid.map(|side| side / self.merge as i32)
    }

    /// A picture's own ids.
    pub fn ids(&self, [rows, columns]: [i32; 2]) -> Vec<u32> {
        let Marks { begin, image, row_end, end, .. } = self.marks;
        let mut ids: Vec<u32> = begin.into_iter().collect();
        for row in 0..rows {
            ids.extend((0..columns).map(|_| image));
            ids.extend(row_end.filter(|_| row + 1 < rows));
        }
        ids.push(end);
        ids
    }
}

/// How many vectors a size of pictures leads to.
fn tokens(sizing: &Sizing, cell: u32, per_picture: usize) -> PictureTokens {
    let cells = |pixels: u64| (pixels / u64::from(cell * cell)).max(1) as usize;
    match *sizing {
        Sizing::Area { min_pixels, max_pixels, .. } => PictureTokens::Cells {
            cell: cell as usize,
            least: cells(min_pixels),
            most: cells(max_pixels),
        },
        Sizing::Patches { max_tokens, .. } => {
            PictureTokens::Cells { cell: cell as usize, least: 1, most: max_tokens as usize }
        }
        Sizing::LongestEdge { longest_width, longest_height, .. } => {
            let side = |pixels: u32| pixels.div_ceil(cell) as usize;
            let most = side(longest_width) * side(longest_height);
            PictureTokens::Cells { cell: cell as usize, least: 1, most }
        }
        _ => PictureTokens::Fixed(per_picture),
    }
}
