//! Folders that `mflux-save` writes: weights in mflux's names, packed or not, and no configs.
//!
//! A config is read where one lies beside a component's weights; else it is that of the release.
//! Kernels of convolutions have their channels last. Packed modules are known by their scales.

use std::path::Path;

use serde_json::Value as Json;

use super::edit::Style;
use super::kind::Kind;
use super::released;
use crate::error::{Error, Result, load};
use crate::files::ModelFiles;
use crate::weights::TensorHeader;

/// The record of the model that `mflux-save` writes; older versions did not.
const RECORD: &str = "mflux_model.json";
/// Names that only mflux's transformers have.
const MARKS: [(&str, Kind); 2] = [
    ("t_embedder.linear1.weight", Kind::ZImage),
    ("transformer_blocks.0.img_mod_linear.weight", Kind::Qwen(Style::Plain)),
];
/// The classes that diffusers and transformers have for the components.
const CLASSES: [(&str, [&str; 2]); 5] = [
    ("tokenizer", ["Qwen2Tokenizer", "Qwen2Tokenizer"]),
    ("text_encoder", ["Qwen3Model", "Qwen2_5_VLForConditionalGeneration"]),
    ("scheduler", ["FlowMatchEulerDiscreteScheduler", "FlowMatchEulerDiscreteScheduler"]),
    ("transformer", ["ZImageTransformer2DModel", "QwenImageTransformer2DModel"]),
    ("vae", ["AutoencoderKL", "AutoencoderKLQwenImage"]),
];

/// A folder of mflux's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Saved {
    pub kind: Kind,
    /// Bits that it was saved with.
    pub bits: Option<usize>,
    /// The name of the model, by the record or else by the folder's name.
    name: String,
}

impl Saved {
    /// Opens the folder at `path`, where it is one of mflux's.
    ///
    /// # Errors
    /// Weights that cannot be read; a model for edits that nothing tells the release of.
    pub fn open(path: &Path) -> Result<Option<Saved>> {
        let transformer = ModelFiles::Folder(path.join("transformer"));
        if !path.join("transformer").is_dir() {
            return Ok(None);
        }
        let headers = transformer.headers()?;
        let found = MARKS.iter().find(|(mark, _)| headers.contains_key(*mark));
        let Some(&(_, mut kind)) = found else { return Ok(None) };
        let files = ModelFiles::Folder(path.to_owned());
        let record = files.text(RECORD)?;
        let is_recorded = record.is_some();
        let told = match record {
            Some(text) => {
                let record: Json =
                    serde_json::from_str(&text).map_err(|error| load(&path.join(RECORD), error))?;
                let text = |key: &str| record[key].as_str().unwrap_or_default().to_owned();
                format!("{} {}", text("model_name"), text("base_model"))
            }
            None => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        };
        let name = told.to_lowercase();
        if let Kind::Qwen(style) = &mut kind {
            let encoder = ModelFiles::Folder(path.join("text_encoder"));
            *style = style_of((&name, is_recorded), &encoder).map_err(|error| error.at(path))?;
        }
        let bits = match transformer.text("model.safetensors.index.json")? {
            Some(text) => serde_json::from_str::<Json>(&text)
                .ok()
                .and_then(|index| index["metadata"]["quantization_level"].as_str()?.parse().ok()),
            None => None,
        };
        Ok(Some(Saved { kind, bits, name }))
    }

    /// The class of a component.
    pub fn class_of(&self, component: &str) -> &'static str {
        let found = CLASSES.iter().find(|(name, _)| *name == component);
        found.map_or("", |(_, [z_image, qwen])| match self.kind {
            Kind::ZImage => z_image,
            Kind::Qwen(_) => qwen,
        })
    }

    /// The config of a component as it is released.
    ///
    /// # Errors
    /// A schedule that the folder does not tell; a component that no config is known of.
    pub fn config(&self, component: &str) -> Result<&'static str> {
        let config = match (self.kind, component) {
            (Kind::ZImage, "text_encoder") => released::Z_IMAGE_TEXT,
            (Kind::ZImage, "transformer") => released::Z_IMAGE,
            (Kind::ZImage, "vae") => released::Z_IMAGE_VAE,
            (Kind::ZImage, "scheduler") if self.name.contains("turbo") => {
                released::Z_IMAGE_TURBO_SCHEDULE
            }
            (Kind::ZImage, "scheduler") if self.name.contains("z-image") => {
                released::Z_IMAGE_SCHEDULE
            }
            (Kind::ZImage, "scheduler") => {
                return Err(Error::model(
                    "neither the folder's name nor `mflux_model.json` tells Z-Image from Z-Image-Turbo; put the release's `scheduler/scheduler_config.json` into the folder",
                ));
            }
            (Kind::Qwen(Style::Plain), "text_encoder") => released::QWEN_TEXT,
            (Kind::Qwen(_), "text_encoder") => released::QWEN_SEEING_TEXT,
            (Kind::Qwen(_), "transformer") if self.name.contains("2511") => {
                released::QWEN_IMAGE_EDIT_2511
            }
            (Kind::Qwen(_), "transformer") => released::QWEN_IMAGE,
            (Kind::Qwen(_), "vae") => released::QWEN_VAE,
            (Kind::Qwen(_), "scheduler") => released::QWEN_SCHEDULE,
            (Kind::Qwen(Style::Edit | Style::EditPlus), "processor") => released::QWEN_PROCESSOR,
            (_, other) => {
                return Err(Error::model(format!("mflux saves no config of `{other}`")));
            }
        };
        Ok(config)
    }

    /// The name that diffusers and transformers have for a tensor of a component; `None`: it is
    /// computed, and needs not be read.
    pub fn named(&self, component: &str, name: &str, header: &TensorHeader) -> Option<String> {
        const COMPUTED: [&str; 2] = ["inv_freq", "freqs_cis"];
        // A block of the tower is there under two names.
        let is_twice = name.contains("visual.blocks_");
        if is_twice || name.split('.').any(|part| COMPUTED.contains(&part)) {
            return None;
        }
        let name = match (self.kind, component) {
            (Kind::ZImage, "transformer") => replaced(name, &Z_IMAGE),
            (Kind::ZImage, "vae") => replaced(name, &Z_IMAGE_VAE),
            (Kind::Qwen(_), "transformer") => replaced(name, &QWEN_IMAGE),
            (Kind::Qwen(_), "vae") => of_qwen_vae(name),
            (Kind::Qwen(_), "text_encoder") => match name.strip_prefix("encoder.") {
                Some(rest) if rest.starts_with("visual.") => replaced(rest, &QWEN_TOWER),
                Some(rest) => format!("model.{rest}"),
                None => name.to_owned(),
            },
            _ => name.to_owned(),
        };
        // A kernel whose channels are last.
        Some(match name.strip_suffix(".weight") {
            Some(path) if header.shape.len() > 3 => format!("{path}.kernels"),
            _ => name,
        })
    }
}

const Z_IMAGE: [(&str, &str); 3] = [
    ("t_embedder.linear1.", "t_embedder.mlp.0."),
    ("t_embedder.linear2.", "t_embedder.mlp.2."),
    (".2-1.adaLN_modulation.0.", ".2-1.adaLN_modulation.1."),
];
const Z_IMAGE_VAE: [(&str, &str); 5] = [
    (".conv_in.conv2d.", ".conv_in."),
    (".conv_in.conv.", ".conv_in."),
    (".conv_out.conv2d.", ".conv_out."),
    (".conv_out.conv.", ".conv_out."),
    (".conv_norm_out.norm.", ".conv_norm_out."),
];
const QWEN_IMAGE: [(&str, &str); 7] = [
    (".attn.attn_to_out.0.", ".attn.to_out.0."),
    (".img_mod_linear.", ".img_mod.1."),
    (".txt_mod_linear.", ".txt_mod.1."),
    (".img_ff.mlp_in.", ".img_mlp.net.0.proj."),
    (".img_ff.mlp_out.", ".img_mlp.net.2."),
    (".txt_ff.mlp_in.", ".txt_mlp.net.0.proj."),
    (".txt_ff.mlp_out.", ".txt_mlp.net.2."),
];

/// Parts of the tower that looks at pictures.
const QWEN_TOWER: [(&str, &str); 2] =
    [(".merger.mlp_0.", ".merger.mlp.0."), (".merger.mlp_1.", ".merger.mlp.2.")];

/// Which pipeline a folder of Qwen-Image's is, by what the model was `called`, which may be
/// recorded, and the tower in its text encoder. mflux calls a later release `qwen-image-edit` too,
/// but does not record it so.
///
/// # Errors
/// Weights that cannot be read; a tower without the release's name.
fn style_of((called, is_recorded): (&str, bool), encoder: &ModelFiles) -> Result<Style> {
    const SEVERAL: [&str; 3] = ["2509", "2511", "edit-plus"];
    if !encoder.headers()?.keys().any(|name| name.starts_with("encoder.visual.")) {
        return Ok(Style::Plain);
    }
    if SEVERAL.iter().any(|release| called.contains(release)) {
        return Ok(Style::EditPlus);
    }
    if is_recorded && called.contains("edit") {
        return Ok(Style::Edit);
    }
    Err(Error::model(
        "the model edits pictures, and neither the folder's name nor `mflux_model.json` tells its release; call the folder as the release is called, such as Qwen-Image-Edit-2509",
    ))
}

fn replaced(name: &str, names: &[(&str, &str)]) -> String {
    let found = names.iter().find(|(theirs, _)| name.contains(theirs));
    found.map_or(name.to_owned(), |(theirs, released)| name.replacen(theirs, released, 1))
}

/// A name of the VAE of Qwen-Image, whose encoder mflux has by levels and the release in one list.
fn of_qwen_vae(name: &str) -> String {
    let mut name = name.replace(".conv3d.", ".").replace(".skip_conv.", ".conv_shortcut.");
    name = name.replace(".resample_conv.", ".resample.1.");
    if let Some((path, last)) = name.rsplit_once('.')
        && last == "weight"
    {
        let module = path.rsplit('.').next().unwrap_or_default();
        if matches!(module, "norm" | "norm1" | "norm2" | "norm_out") {
            name = format!("{path}.gamma");
        }
    }
    if let Some(rest) = name.strip_prefix("decoder.up_block")
        && rest.starts_with(|first: char| first.is_ascii_digit())
    {
        return format!("decoder.up_blocks.{rest}");
    }
    let levels = name.strip_prefix("encoder.down_blocks.");
    let parts = levels.map(|rest| rest.splitn(4, '.').collect::<Vec<_>>());
    let Some([level, part, index, rest]) = parts.as_deref() else { return name };
    // Each level has two resnets and what halves it.
    let (Ok(level), Ok(index)) = (level.parse::<usize>(), index.parse::<usize>()) else {
        return name;
    };
    let place = match *part {
        "resnets" => index,
        "downsamplers" => 2,
        _ => return name,
    };
    format!("encoder.down_blocks.{}.{rest}", 3 * level + place)
}

#[cfg(test)]
mod tests {
    use mlx_ffi::Dtype;

    use super::*;

    fn named(kind: Kind, component: &str, name: &str, shape: &[i32]) -> Option<String> {
        let saved = Saved { kind, bits: None, name: String::new() };
        saved.named(component, name, &TensorHeader::of(shape, Dtype::Bf16))
    }

    #[test]
    fn names_of_mflux_become_those_of_the_release() {
        let qwen = Kind::Qwen(Style::Plain);
        for (kind, component, theirs, shape, ours) in [
            (
                Kind::ZImage,
                "transformer",
                "t_embedder.linear2.scales",
                2,
                "t_embedder.mlp.2.scales",
            ),
            (
                Kind::ZImage,
                "transformer",
                "all_final_layer.2-1.adaLN_modulation.0.bias",
                1,
                "all_final_layer.2-1.adaLN_modulation.1.bias",
            ),
            (
                Kind::ZImage,
                "transformer",
                "layers.3.adaLN_modulation.0.bias",
                1,
                "layers.3.adaLN_modulation.0.bias",
            ),
            (Kind::ZImage, "vae", "decoder.conv_in.conv.weight", 4, "decoder.conv_in.kernels"),
            (
                Kind::ZImage,
                "vae",
                "decoder.conv_norm_out.norm.bias",
                1,
                "decoder.conv_norm_out.bias",
            ),
            (
                Kind::ZImage,
                "vae",
                "decoder.up_blocks.1.upsamplers.0.conv.weight",
                4,
                "decoder.up_blocks.1.upsamplers.0.conv.kernels",
            ),
            (
                qwen,
                "transformer",
                "transformer_blocks.7.txt_ff.mlp_in.weight",
                2,
                "transformer_blocks.7.txt_mlp.net.0.proj.weight",
            ),
            (qwen, "text_encoder", "encoder.norm.weight", 1, "model.norm.weight"),
            (
                qwen,
                "text_encoder",
                "encoder.visual.merger.ln_q.weight",
                1,
                "visual.merger.ln_q.weight",
            ),
            (
                qwen,
                "vae",
                "decoder.up_block2.resnets.0.skip_conv.conv3d.weight",
                5,
                "decoder.up_blocks.2.resnets.0.conv_shortcut.kernels",
            ),
            (qwen, "vae", "decoder.norm_out.weight", 1, "decoder.norm_out.gamma"),
            (
                qwen,
                "vae",
                "encoder.down_blocks.2.resnets.1.norm2.weight",
                1,
                "encoder.down_blocks.7.norm2.gamma",
            ),
            (
                qwen,
                "vae",
                "encoder.down_blocks.1.downsamplers.0.resample_conv.bias",
                1,
                "encoder.down_blocks.5.resample.1.bias",
            ),
        ] {
            let found = named(kind, component, theirs, &vec![1; shape]);
            assert_eq!(found.as_deref(), Some(ours), "{theirs}");
        }
        for name in ["rope_embedder.freqs_cis.0", "rotary_emb.inv_freq"] {
            assert_eq!(named(Kind::ZImage, "transformer", name, &[1]), None);
        }
    }

    #[test]
    fn a_schedule_is_that_of_the_model_that_was_saved() {
        let of = |name: &str| {
            let saved = Saved { kind: Kind::ZImage, bits: None, name: name.to_owned() };
            saved.config("scheduler")
        };
        assert_eq!(of("z-image-turbo ").ok(), Some(released::Z_IMAGE_TURBO_SCHEDULE));
        assert_eq!(of("tongyi-mai/z-image ").ok(), Some(released::Z_IMAGE_SCHEDULE));
        assert!(of("my-model").unwrap_err().to_string().contains("scheduler_config.json"));
    }
}
