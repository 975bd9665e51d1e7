//! Quantising checkpoints: a folder that mlx-lm and this crate load, written a tensor at a time.
//!
//! Names, forms, bits and the files' layout are those of `mlx_lm.convert`, byte for byte. A vision
//! tower that is kept has the names and forms of mlx-vlm. What embeds texts has the names of
//! mlx-embeddings.

mod check;
mod config;
mod falcon_h1;
mod families;
mod options;
mod order;
mod partial;
mod plan;
mod precision;
mod python_json;
mod sight;
mod tensors;
mod value;
mod written;

use std::fs;
use std::path::{Path, PathBuf};

use inference_core::{CancelToken, Error as CoreError};
use mlx_ffi::{Device, memory, quantize, use_device};

use crate::config::Config;
use crate::error::{Error, Result, load};
use crate::files::ModelFiles;
use crate::gguf::Groups;
use crate::load::mlx_dtype;
use crate::models;
use crate::weights::Checkpoint;

use families::{TIE, is_tied};
pub use options::{Packing, QuantiseOptions, Recipe, Rule, packing};
use partial::Partial;
use plan::{Item, Plan};
use tensors::of_tensor;
use written::{Planned, Shards, write_text};

/// The result of a conversion.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantised {
    /// Modules whose weights are packed now.
    pub packed: usize,
    /// Bytes of all tensors.
    pub bytes: u64,
    /// How many numbers the model has.
    pub parameters: u64,
    /// Tensors of the source that are not part of the result, such as a vision tower's.
    pub left_out: Vec<String>,
    /// Modules that stay as they are because groups do not divide their rows.
    pub narrow: Vec<String>,
    /// Folders that interrupted runs had left beside the target, and that are removed now.
    pub removed: Vec<PathBuf>,
}

impl Quantised {
    /// Bits for a weight, scales included.
    pub fn bits_per_weight(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.parameters as f64
    }
}

/// Quantises the checkpoint in the folder `source`, or the file of GGUF, into the new folder
/// `target`. What is packed already stays as it is.
///
/// `progress` gets the bytes that were written and those of all tensors. The folder is there once
/// it is whole.
///
/// # Errors
/// A source that is no model; options that do not fit it; a target that exists; a full disk.
pub(crate) fn quantise(
    source: &Path,
    target: &Path,
    options: &QuantiseOptions,
    device: Device,
    cancel: &CancelToken,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Quantised> {
    use_device(device)?;
    // What is written is read by MLX's programs, too.
    let files = ModelFiles::open(source, Groups::OfMlx, options.dtype.map(mlx_dtype))?;
    let text = files.required_text("config.json")?;
    let config = Config::parse("config.json", &text).map_err(|error| error.at(source))?;
    let family = family(&config).map_err(|error| error.at(source))?;
    let checkpoint = Checkpoint::open(&files)?;
    let config = config.with_packings(checkpoint.of_vendors());
    check_head(&files, &config, &checkpoint).map_err(|error| error.at(source))?;
    let plan =
        Plan::new(family, &config, &checkpoint, options).map_err(|error| error.at(source))?;
    let packed = plan.items.iter().filter(|item| item.packing.is_some()).count();
    if packed == 0 && plan.narrow.is_empty() {
        let reason = "nothing is left to quantise: all weights are packed already; choose the unquantised checkpoint";
        return Err(load(source, reason));
    }
    let text = config::text(&files, &text, family, options, plan.quantization.clone())?;
    let planned = plan.planned(family);
    check::loads(&files, &text, &planned).map_err(|error| error.at(source))?;
    let removed = partial::remove_remains(target);
    let folder = Partial::create(target)?;
    check_place(source, &folder.path)?;
    let shards = Shards::create(&folder.path, &planned)?;
    let total = shards.total_bytes;
    let mut done = 0;
    for item in &plan.items {
        if cancel.is_cancelled() {
            return Err(Error::Core(CoreError::Cancelled));
        }
        let planned = item.planned();
        write(item, &planned, &files, (&shards, &folder.path))
            .map_err(|error| of_tensor(&item.name, error).at(source))?;
        memory::clear_cache()?;
        done += planned.iter().map(Planned::bytes).sum::<u64>();
        progress(done, total);
    }
    shards.finish(&folder.path, plan.parameters)?;
    copy_others(&files, source, &folder.path)?;
    // By it a folder is a model.
    write_text(&folder.path.join("config.json"), &text)?;
    folder.keep(target)?;
    let Plan { parameters, left_out, narrow, .. } = plan;
    Ok(Quantised { packed, bytes: total, parameters, left_out, narrow, removed })
}

/// Computes one tensor and writes it, or what it is packed as: `planned`.
fn write(
    item: &Item,
    planned: &[Planned],
    files: &ModelFiles,
    (shards, folder): (&Shards, &Path),
) -> Result<()> {
    let array = item.value.array(files)?;
    let Some(quantization) = item.packing else {
        return shards.write(folder, &item.name, &array);
    };
    let made = quantize(&array, quantization)?;
    let parts = [Some(made.weight), Some(made.scales), made.biases];
    for (tensor, part) in planned.iter().zip(parts.iter().flatten()) {
        shards.write(folder, &tensor.name, part)?;
    }
    Ok(())
}

/// Refuses a place within the source's folder, whose folders are copied.
fn check_place(source: &Path, partial: &Path) -> Result<()> {
    let whole = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match whole(partial).starts_with(whole(source)) {
        true => {
            Err(load(source, "the new folder would lie in the model's own: name another place"))
        }
        false => Ok(()),
    }
}

/// The architecture by the name that the tables here have for it.
///
/// # Errors
/// One that is not known.
fn family(config: &Config) -> Result<&'static str> {
    let name = config.opt_text("model_type")?.unwrap_or_default();
    if let Some(encoder) = models::encoder_named(name) {
        return Ok(encoder);
    }
    Ok(match models::model_type(config)? {
        "iquestcoder" | "mistral" | "xverse" => "llama",
        "joyai_llm_flash" | "kimi_k2" => "deepseek_v3",
        "minimax_m2" => "minimax",
        "gemma4_unified_text" => "gemma4_text",
        family => family,
    })
}

/// Refuses an output layer that is no copy of the embeddings where the config says that they are
/// tied: none is written there.
fn check_head(files: &ModelFiles, config: &Config, checkpoint: &Checkpoint) -> Result<()> {
    let ending = |end: &str| checkpoint.headers.iter().find(|(name, _)| name.ends_with(end));
    let embeddings = ending("embed_tokens.weight").or_else(|| ending("backbone.embeddings.weight"));
    let head = ending("lm_head.weight");
    if let (true, Some((name, head)), Some((_, embeddings))) = (is_tied(config)?, head, embeddings)
        && !files.look_alike(head, embeddings)?
    {
        return Err(Error::model(format!(
            "`{name}` is no copy of the embeddings, and config.json says `{TIE}`: set it to false"
        )));
    }
    Ok(())
}

/// Copies what belongs to a model beside its weights: tokenizer, templates, licence, and the
/// folders of sentence-transformers' modules; of a file of GGUF, what stands for such files.
fn copy_others(files: &ModelFiles, source: &Path, folder: &Path) -> Result<()> {
    const KINDS: [&str; 8] =
        [".json", ".jsonl", ".txt", ".jinja", ".model", ".tiktoken", ".py", ".md"];
    if let ModelFiles::Gguf(_) = files {
        for name in files.names()?.iter().filter(|name| *name != "config.json") {
            write_text(&folder.join(name), &files.required_text(name)?)?;
        }
        return Ok(());
    }
    for name in files.names()? {
        let is_named = KINDS.iter().any(|end| name.ends_with(end))
            || ["LICENSE", "LICENCE", "NOTICE", "tokenizer.model."]
                .iter()
                .any(|start| name.starts_with(start));
        let is_written =
            name == "config.json" || name == "README.md" || name.ends_with(".index.json");
        let from = source.join(&name);
        if is_named && !is_written && from.is_file() {
            copy(&from, &folder.join(&name))?;
        }
        if from.join("config.json").is_file() {
            let module = ModelFiles::Folder(from.clone());
            let to = folder.join(&name);
            fs::create_dir(&to).map_err(|error| load(&to, error))?;
            for part in module.names()?.iter().filter(|part| from.join(part).is_file()) {
                copy(&from.join(part), &to.join(part))?;
            }
        }
    }
    Ok(())
}

/// Not `fs::copy`: the files of a cache may be read-only, and what is written here need not be.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let bytes = fs::read(from).map_err(|error| load(from, error))?;
    fs::write(to, bytes).map_err(|error| load(to, error))
}
