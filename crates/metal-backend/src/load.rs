//! From a model's files to a model that can run.

mod options;

use inference_core::{
    Feature, GenerateOptions, LoadOptions, ModelInfo, RankSplit, Ranks, Speculate,
};
use mlx_ffi::Dtype;
use mlx_ffi::distributed::Group;

use crate::cache::{StateSpec, Storage};
use crate::config::Config;
use crate::error::{Error, Result, load as load_error};
use crate::files::ModelFiles;
use crate::kernels::Bf16;
use crate::layers::{Decoder, DraftModel, Drafter, Stage};
use crate::models;
use crate::weights::{Adapter, Checkpoint, TakesHeads, Weights};
pub(crate) use options::{Drafting, EngineOptions};

/// A model with what the engine needs to run it.
pub(crate) struct LoadedModel {
    pub model: Decoder,
    /// The states that this rank keeps.
    pub specs: Vec<StateSpec>,
    /// The states of the rank whose layers keep the most bytes for a position.
    pub heaviest: Vec<StateSpec>,
    /// How the caches hold keys and values.
    pub storage: Storage,
    pub description: Description,
    /// Bytes of one activation.
    pub dtype_size: u64,
}

/// The description of a model.
pub(crate) struct Description {
    pub info: ModelInfo,
    /// The layers that have attention.
    pub attention_layers: Vec<usize>,
    /// The bytes of a model that drafts, as a share of all weights.
    pub drafter_share: f64,
    /// It has a vision tower.
    pub sees: bool,
    /// It has an audio tower.
    pub hears: bool,
    /// Features that it refuses and others of this backend honour, each with the reason.
    pub refused: Vec<(Feature, String)>,
}

/// Returns true for the architectures of models that transcribe speech.
pub(crate) fn transcribes(model_type: &str) -> bool {
    matches!(model_type, "whisper" | "parakeet_ctc" | "parakeet_tdt")
}

/// Returns true for the `config.json` of a model that speaks, which names no architecture.
pub(crate) fn speaks(config: &Config) -> bool {
    config.get("istftnet").is_some() && config.get("plbert").is_some()
}

/// Reads `config.json`.
///
/// # Errors
/// A file that is missing, damaged or describes an architecture that is not known.
pub(crate) fn config(files: &ModelFiles) -> Result<Config> {
    let text = files.required_text("config.json")?;
    if files.exists("modules.json") {
        let reason = "lists the modules of an embedding model, which generates no text: use `ml embed`, `ml rerank` or `ml serve --embedding-model`";
        return Err(load_error(&files.path("modules.json"), reason));
    }
    let config = Config::parse("config.json", &text);
    if config.as_ref().is_ok_and(speaks) {
        let reason = "is of a model that speaks: use `ml speak` or `ml serve --speech-model`";
        return Err(load_error(&files.path("config.json"), reason));
    }
    if let Ok(config) = &config
        && config.opt_text("model_type").ok().flatten().is_some_and(transcribes)
    {
        let reason = "is of a model that transcribes speech: use `ml transcribe` or `ml serve --transcription-model`";
        return Err(load_error(&files.path("config.json"), reason));
    }
    config
        .and_then(|config| models::model_type(&config).map(|_| config))
        .map_err(|error| error.at(&files.folder()))
}

/// Loads the weights, on the thread that will use them: where there are ranks, those of this one.
///
/// # Errors
/// Files or options that do not fit, with the file or the folder.
pub(crate) fn load(
    options: &EngineOptions,
    checkpoint: &Checkpoint,
    group: Option<&Group>,
) -> Result<LoadedModel> {
    build(&settled(options, checkpoint)?, checkpoint, group, false)
}

/// Builds the model of empty placeholders: all that can be wrong with names, shapes and types
/// shows before the first weight is read.
///
/// # Errors
/// As [`load`].
pub(crate) fn describe(
    options: &EngineOptions,
    checkpoint: &Checkpoint,
    group: Option<&Group>,
) -> Result<LoadedModel> {
    build(&settled(options, checkpoint)?, checkpoint, group, true)
}

/// `options` with the type that stands for bf16 in this model. One that sees or hears keeps its
/// own: the range of its towers' activations is not tried.
fn settled(options: &EngineOptions, checkpoint: &Checkpoint) -> Result<EngineOptions> {
    let mut settled = options.clone();
    if options.bf16 == Bf16::AsF16 {
        let weights = Weights::of(checkpoint, &options.config, None, options.kernels, true);
        let model = models::load(&options.config, &weights);
        let model = model.map_err(|error| error.at(&options.files.folder()))?;
        if model.tower.is_some() || model.ears.is_some() {
            settled.bf16 = Bf16::Itself;
        }
    }
    Ok(settled)
}

fn build(
    options: &EngineOptions,
    checkpoint: &Checkpoint,
    group: Option<&Group>,
    only_describe: bool,
) -> Result<LoadedModel> {
    let EngineOptions { files, config, device, kernels, bf16, load, .. } = options;
    let at_folder = |error: Error| error.at(&files.folder());
    let dtype = load.dtype.map(mlx_dtype);
    let weights = |only_describe| -> Result<Weights> {
        let weights = Weights::of(checkpoint, config, dtype, *kernels, only_describe)
            .with_bf16(*bf16)
            .with_progress(load.progress.clone())
            .with_heads(takes_heads(options, group.is_some()));
        Ok(match &load.adapter_path {
            None => weights,
            Some(folder) => weights.with_adapter(Adapter::open(folder)?),
        })
    };
    let stage = match (&load.ranks, group) {
        (Some(Ranks { split: RankSplit::Layers, .. }), Some(group)) => {
            Some(stage(config, weights(true)?, group).map_err(at_folder)?)
        }
        _ => None,
    };
    let weights = match &stage {
        None => weights(only_describe)?.with_ranks(group.cloned()),
        Some(_) => weights(only_describe)?.with_stage(stage.clone()),
    };
    let mut model = models::load(config, &weights).map_err(at_folder)?;
    let in_place_of = weights.replaced().map(name_of);
    let totals = weights.finish().map_err(at_folder)?;
    let context_length = model.max_position_embeddings.unwrap_or(i32::MAX) as usize;
    let bound = bound(load, context_length)?;
    let mut specs =
        StateSpec::of_layers(&model.layers, bound, |layer, bound| layer.mixer.state(bound));
    if load.speculate == Speculate::Mtp && model.drafter.is_none() {
        let reason = match kernels.is_on_cuda() {
            true => "layers that predict further tokens do not draft on CUDA; leave it unset",
            false => {
                "no layer of this checkpoint that predicts a further token is read; leave it unset"
            }
        };
        let what = "speculate".to_owned();
        return Err(inference_core::Error::Unsupported { what, reason: reason.into() }.into());
    }
    specs.extend(model.drafter.iter().flat_map(|drafter| drafter.specs(bound)));
    let (mut weight_bytes, mut drafter_share) = (totals.bytes, 0.0);
    if let Some(drafting) = &options.drafting {
        let (drafter, bytes) = drafter(options, drafting, only_describe)?;
        specs.extend(drafter.specs(bound));
        drafter_share = bytes as f64 / (bytes + totals.bytes).max(1) as f64;
        weight_bytes += bytes;
        model.drafter = Some(drafter);
    }
    // What is wrong with it is told where nothing is packed too.
    config.default_quantization().map_err(at_folder)?;
    let packings = totals.packings();
    let activations = model.embed_tokens.dtype();
    let dtype_size = activations.size() as u64;
    let storage = storage(load, &specs)?;
    let own = stage.as_ref().map_or_else(|| specs.clone(), |stage| stage.specs(&specs));
    let weigh = |spec: StateSpec| spec.cost(storage, dtype_size).position;
    let heaviest =
        stage.as_ref().map_or_else(|| specs.clone(), |stage| stage.heaviest(&specs, weigh));
    let growing = own.iter().filter(|spec| spec.grows());
    let info = ModelInfo {
        kv_bytes_per_token: growing.map(|spec| spec.cost(storage, dtype_size).position).sum(),
        architecture: models::model_type(config)?.to_owned(),
        vocab_size: model.vocab_size as usize,
        num_layers: model.layers.len(),
        hidden_size: model.hidden_size as usize,
        quant_bits: packings.first().map_or(0, |packing| packing.bits),
        quant_group: packings.first().map_or(0, |packing| packing.group_size),
        packings,
        context_length,
        num_parameters: totals.parameters,
        unused_parts: totals.unused_parts.iter().map(|part| (*part).to_owned()).collect(),
        weight_bytes,
        stored_as: files.stored_as(),
        dtype: name_of(activations),
        in_place_of,
        device: device.info()?.backend.to_owned(),
        ..ModelInfo::default()
    };
    let kv_bits = group_size(&specs, None).err().map(|reason| (Feature::KvBits, reason));
    let no_keys = no_keys(load, &specs)?;
    let (sees, hears) = (model.tower.is_some(), model.ears.is_some());
    let attention_layers: Vec<usize> = (0..model.layers.len())
        .filter(|layer| model.layers[*layer].mixer.heads().is_some())
        .collect();
    let no_heads = attention_layers.is_empty().then(|| {
        let reason = "no layer attends to all keys: states are recurrent, or an index chooses";
        (Feature::InspectAttention, reason.to_owned())
    });
    let cpu_activations = rounding(load, totals.rounds)?;
    let no_drafts = (load.speculate == Speculate::Off).then(|| {
        let reason = "the load turned drafts off; load the model without `speculate`";
        (Feature::DraftTokens, reason.to_owned())
    });
    let refused = [kv_bits, no_keys, no_heads, cpu_activations, no_drafts];
    let refused = refused.into_iter().flatten().collect();
    let description = Description { info, attention_layers, refused, sees, hears, drafter_share };
    Ok(LoadedModel { model, specs: own, heaviest, storage, description, dtype_size })
}

/// The model that drafts, and the bytes of its weights.
///
/// # Errors
/// Files that do not fit; a model that cannot draft, by its folder.
fn drafter(
    options: &EngineOptions,
    drafting: &Drafting,
    only_describe: bool,
) -> Result<(Box<dyn Drafter>, u64)> {
    let Drafting { files, config } = drafting;
    let at_folder = |error: Error| error.at(&files.folder());
    let refused = |reason: &str| load_error(&files.folder(), format!("cannot draft: {reason}"));
    let checkpoint = Checkpoint::open(files)?;
    let dtype = options.load.dtype.map(mlx_dtype);
    let weights = Weights::of(&checkpoint, config, dtype, options.kernels, only_describe)
        .with_bf16(options.bf16);
    let own = models::load(config, &weights).map_err(at_folder)?;
    let totals = weights.finish().map_err(at_folder)?;
    let drafter = DraftModel::new(own).map_err(refused)?;
    Ok((Box::new(drafter), totals.bytes))
}

/// Which layers that draft are taken. They are of no use to ranks, which do not agree on drafts,
/// nor on CUDA, where their passes would not be captured.
fn takes_heads(options: &EngineOptions, among_ranks: bool) -> TakesHeads {
    match options.load.speculate {
        _ if among_ranks || options.kernels.is_on_cuda() => TakesHeads::No,
        Speculate::Auto if options.drafting.is_none() => TakesHeads::Whole,
        Speculate::Mtp => TakesHeads::All,
        _ => TakesHeads::No,
    }
}

/// The layers of this rank, where ranks have some each; `weights` are described alone.
///
/// # Errors
/// A model whose layers cannot be parted so; fewer layers than ranks.
fn stage(config: &Config, weights: Weights, group: &Group) -> Result<Stage> {
    let refused =
        |reason: String| inference_core::Error::Unsupported { what: "pipeline".to_owned(), reason };
    let model = models::load(config, &weights)?;
    if let Some(reason) = model.refuses_stages() {
        let reason = format!("{reason}: let ranks have a part of every layer");
        return Err(refused(reason).into());
    }
    let (layers, ranks) = (model.layers.len(), group.size());
    let stage = Stage::of(group.clone(), &weights.finish()?.parts);
    stage.ok_or_else(|| {
        refused(format!("the model has {layers} layers, fewer than {ranks} ranks")).into()
    })
}

/// The name of a type to users.
fn name_of(dtype: Dtype) -> String {
    format!("{dtype:?}").to_lowercase()
}

/// MLX's name of a type.
pub(crate) fn mlx_dtype(dtype: inference_core::Dtype) -> Dtype {
    match dtype {
        inference_core::Dtype::F32 => Dtype::F32,
        inference_core::Dtype::F16 => Dtype::F16,
        inference_core::Dtype::Bf16 => Dtype::Bf16,
    }
}

/// Why activations cannot be rounded, where no weights have a form for which they are.
///
/// # Errors
/// That reason, where it is asked for.
fn rounding(options: &LoadOptions, has_form: bool) -> Result<Option<(Feature, String)>> {
    if has_form {
        return Ok(None);
    }
    let reason = "no weights are packed in whole numbers or mxfp4, or only experts, which stay in bf16 with AVX-512; leave it unset";
    let reason = reason.to_owned();
    let feature = Feature::CpuActivations;
    if options.cpu_activations.is_some() {
        let what = feature.as_str().to_owned();
        return Err(inference_core::Error::Unsupported { what, reason }.into());
    }
    Ok(Some((feature, reason)))
}

/// Why a context length bounds nothing, where all states are recurrent.
///
/// # Errors
/// That reason, where a length is asked for.
fn no_keys(options: &LoadOptions, specs: &[StateSpec]) -> Result<Option<(Feature, String)>> {
    if specs.iter().any(|spec| spec.packed_dims().next().is_some()) {
        return Ok(None);
    }
    let reason = "recurrent states do not grow with the positions; leave it unset".to_owned();
    let feature = Feature::ContextLength;
    if options.context_length.is_some() {
        let what = feature.as_str().to_owned();
        return Err(inference_core::Error::Unsupported { what, reason }.into());
    }
    Ok(Some((feature, reason)))
}

/// How keys and values are held.
fn storage(options: &LoadOptions, specs: &[StateSpec]) -> Result<Storage> {
    let Some(bits) = options.kv_bits else { return Ok(Storage::Plain) };
    let size = group_size(specs, options.kv_group_size).map_err(|reason| {
        // Where no size fits, the reason is that of the capabilities.
        let reason = group_size(specs, None).err().unwrap_or(reason);
        let what = options.kv_group_size.map_or("kv_bits", |_| "kv_group_size").to_owned();
        inference_core::Error::Unsupported { what, reason }
    })?;
    Ok(Storage::packed(bits as i32, size as i32))
}

/// How many values of a head share a scale where keys and values are packed.
///
/// # Errors
/// Why that cannot be.
fn group_size(specs: &[StateSpec], wanted: Option<usize>) -> std::result::Result<usize, String> {
    let heads: Vec<usize> =
        specs.iter().flat_map(|spec| spec.packed_dims()).map(|dim| dim as usize).collect();
    if heads.is_empty() {
        return Err("no layer keeps keys and values, but recurrent states; leave it unset".into());
    }
    let fits = |size: usize| heads.iter().all(|head_dim| head_dim.is_multiple_of(size));
    let sizes = wanted.map_or(vec![64, 32], |size| vec![size]);
    sizes.into_iter().find(|size| fits(*size)).ok_or_else(|| {
        let least = wanted.unwrap_or(32);
        let odd = heads.iter().copied().find(|head_dim| !head_dim.is_multiple_of(least));
        let head_dim = odd.unwrap_or_default();
        let of = wanted.map_or("64 or 32".to_owned(), |size| size.to_string());
        format!("a head of {head_dim} values is not a multiple of {of}")
    })
}

/// The positions that a cache may hold, where the load options bound them.
fn bound(options: &LoadOptions, context_length: usize) -> Result<Option<i32>> {
    match options.context_length {
        Some(wanted) if wanted > context_length => Err(inference_core::Error::InvalidOption {
            option: "context_length",
            reason: format!("{wanted} exceeds the model's own {context_length} positions"),
        }
        .into()),
        wanted => Ok(wanted.map(|wanted| wanted as i32)),
    }
}

/// Sampling options of `generation_config.json`, for requests that leave the temperature unset.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SamplingDefaults {
    pub temperature: f32,
    pub top_k: Option<usize>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
}

impl SamplingDefaults {
    /// Greedy unless the file says `do_sample`.
    ///
    /// # Errors
    /// A file that is damaged, or a value of the wrong type.
    pub fn read(files: &ModelFiles) -> Result<SamplingDefaults> {
        const NAME: &str = "generation_config.json";
        let Some(text) = files.text(NAME)? else { return Ok(SamplingDefaults::default()) };
        let read = || -> Result<SamplingDefaults> {
            let config = Config::parse(NAME, &text)?;
            if !config.opt_flag("do_sample")?.unwrap_or(false) {
                return Ok(SamplingDefaults::default());
            }
            let number = |key| Ok::<_, Error>(config.opt_number(key)?.map(|value| value as f32));
            let options = GenerateOptions {
                temperature: Some(number("temperature")?.unwrap_or(1.0)),
                top_k: config.opt_index("top_k")?.map(|k| k as usize),
                top_p: number("top_p")?,
                min_p: number("min_p")?,
                repetition_penalty: number("repetition_penalty")?,
                ..GenerateOptions::default()
            };
            // The file's values must be in the ranges that a request's values must be in.
            options.validate()?;
            Ok(SamplingDefaults {
                temperature: options.temperature.unwrap_or_default(),
                top_k: options.top_k,
                top_p: options.top_p,
                min_p: options.min_p,
                repetition_penalty: options.repetition_penalty,
            })
        };
        read().map_err(|error| load_error(&files.path(NAME), error))
    }
}

#[cfg(test)]
mod tests;
