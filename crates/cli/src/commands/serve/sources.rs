//! The models that `ml serve` is told of: which there are, what each is called, and how it is
//! loaded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use inference_core::{
    DiscoveredModel, EmbeddingLoadOptions, ImageLoadOptions, LoadOptions, ModelKind,
    SpeechLoadOptions, TranscriptionLoadOptions, discover, model_kind,
};
use inference_server::Makes;

use crate::args::ServeArgs;
use crate::failure::{Failure, Result};
use crate::names;
use crate::source::Source;

/// Bytes for earlier prompts where the backend keeps them and nothing else is asked for: it gives
/// them back when a request needs them.
pub const PREFIX_CACHE: u64 = 1 << 30;

/// The kind of a model, and its place.
#[derive(Clone, Debug)]
pub enum Place {
    /// A model that answers in text.
    Text(Source),
    /// A model that answers in text with the adapter in this folder.
    Adapted(Source, PathBuf),
    /// The folder of one that makes pictures.
    Image(PathBuf),
    /// The folder of one that embeds or scores texts, and which of both.
    Embedding(PathBuf, Makes),
    /// The folder of one that transcribes speech.
    Transcription(PathBuf),
    /// The folder of one that speaks.
    Speech(PathBuf),
}

impl Place {
    /// Returns the kind of its outputs.
    pub fn makes(&self) -> Makes {
        match self {
            Place::Text(_) | Place::Adapted(..) => Makes::Text,
            Place::Image(_) => Makes::Pictures,
            Place::Embedding(_, makes) => *makes,
            Place::Transcription(_) => Makes::Transcripts,
            Place::Speech(_) => Makes::Speech,
        }
    }

    /// Its folder, where it has one.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Place::Text(Source::Folder(folder)) => Some(folder),
            Place::Text(_) | Place::Adapted(..) => None,
            Place::Image(folder)
            | Place::Embedding(folder, _)
            | Place::Transcription(folder)
            | Place::Speech(folder) => Some(folder),
        }
    }

    fn of(source: Source) -> Place {
        if let Some(folder) = source.image_folder() {
            Place::Image(folder.to_owned())
        } else if let Some(folder) = source.embedding_folder() {
            Place::embedding(folder.to_owned())
        } else if let Some(folder) = source.transcription_folder() {
            Place::Transcription(folder.to_owned())
        } else if let Some(folder) = source.speech_folder() {
            Place::Speech(folder.to_owned())
        } else {
            Place::Text(source)
        }
    }

    /// One that embeds or scores. What is broken is told when it is loaded.
    fn embedding(folder: PathBuf) -> Place {
        let told =
            metal_backend::describe_embedding_model(&folder, &EmbeddingLoadOptions::default());
        let makes = told.as_ref().map_or(Makes::Vectors, Makes::of);
        Place::Embedding(folder, makes)
    }
}

/// A model and its name.
#[derive(Clone, Debug)]
pub struct Named {
    /// The name under which it is served.
    pub name: String,
    /// Its kind and place.
    pub place: Place,
    /// It was named by itself, so that it must be there.
    pub is_asked_for: bool,
}

/// The models of `--model`, `--models-dir` and `--image-model`, in this order.
///
/// # Errors
/// A folder that cannot be listed or holds no model, a name that is not in the cache, two models of
/// one name.
pub fn all(args: &ServeArgs) -> Result<Vec<Named>> {
    let mut all = Vec::new();
    for model in &args.models {
        all.push(named(model)?);
    }
    if let Some(folder) = &args.pool.models_dir {
        all.extend(in_folder(folder)?);
    } else if all.is_empty() {
        let source = Source::of(None)?;
        all.push(Named {
            name: source.served_name(),
            place: Place::of(source),
            is_asked_for: true,
        });
    }
    if let Some(model) = &args.image_model {
        let folder = names::folder(model)?;
        let name = file_name(model).unwrap_or_else(|| "image".to_owned());
        all.push(Named { name, place: Place::Image(folder), is_asked_for: true });
    }
    for model in &args.embedding_model {
        let folder = names::folder(model)?;
        let name = file_name(model).unwrap_or_else(|| "embeddings".to_owned());
        all.push(Named { name, place: Place::embedding(folder), is_asked_for: true });
    }
    for model in &args.transcription_model {
        let folder = names::folder(model)?;
        let name = file_name(model).unwrap_or_else(|| "transcription".to_owned());
        all.push(Named { name, place: Place::Transcription(folder), is_asked_for: true });
    }
    for model in &args.speech_model {
        let folder = names::folder(model)?;
        let name = file_name(model).unwrap_or_else(|| "speech".to_owned());
        all.push(Named { name, place: Place::Speech(folder), is_asked_for: true });
    }
    if let (Some(name), [only]) = (&args.model_name, all.as_mut_slice()) {
        if let Some(own) = args.models.iter().find(|model| names::split(model).0.is_some()) {
            return Err(Failure::Usage(format!(
                "--model-name {name} (or ML_SERVE_MODEL_NAME) and --model {} name one model twice: give one of both",
                own.display()
            )));
        }
        only.name = name.clone();
    } else if args.model_name.is_some() {
        let reason = "--model-name is for one model: with several, write --model NAME=MODEL";
        return Err(Failure::Usage(reason.to_owned()));
    }
    let adapters = adapted(args, &all)?;
    all.extend(adapters);
    let mut seen = BTreeMap::new();
    for Named { name, place, .. } in &all {
        if let Some(other) = seen.insert(name, place) {
            return Err(Failure::Usage(format!(
                "two models are called `{name}` ({} and {}): give one another name by \
                 --model NAME=MODEL",
                shown(other),
                shown(place)
            )));
        }
    }
    Ok(all)
}

/// Returns true when an adapter has a name, and so is a model beside the one without it.
///
/// # Errors
/// A name that would mean another model, or several.
pub fn names_adapters(args: &ServeArgs) -> Result<bool> {
    let mut is_any = false;
    for given in &args.load.adapter {
        let name = names::split(given).0;
        is_any |= name.is_some();
        let is_empty = || given.to_string_lossy().starts_with('=') && !given.exists();
        let is_refused = match name {
            // The tag that Ollama's clients put behind any name.
            Some(name) => name == "latest" || name.contains([':', '*', '/']),
            None => is_empty(),
        };
        if is_refused {
            let given = given.display();
            let reason =
                "the name in front of `=` must not be empty or `latest`, nor have `:`, `*` or `/`";
            return Err(Failure::Usage(format!("--adapter {given}: {reason}")));
        }
    }
    Ok(is_any)
}

/// The name of the model `base` with the adapter called `name`.
fn adapted_name(base: &str, name: &str) -> String {
    format!("{base}:{name}")
}

/// The name of the adapter of the model that [`adapted_name`] called so. It has no `:` itself.
pub fn adapter_of(name: &str) -> Option<&str> {
    name.rsplit_once(':').map(|(_, adapter)| adapter)
}

/// The one model for text of `all` with each adapter that has a name.
///
/// # Errors
/// There is another number of models, an adapter has no name or one that is refused, or is not in
/// the cache.
fn adapted(args: &ServeArgs, all: &[Named]) -> Result<Vec<Named>> {
    if !names_adapters(args)? {
        return Ok(Vec::new());
    }
    let mut texts = all.iter().filter_map(|one| match &one.place {
        Place::Text(source) => Some((one, source)),
        _ => None,
    });
    let (Some((base, source)), None) = (texts.next(), texts.next()) else {
        let reason = "--adapter NAME=ADAPTER is for one model that answers in text: name one by \
                      --model";
        return Err(Failure::Usage(reason.to_owned()));
    };
    let adapters = args.load.adapter.iter().map(|given| {
        let (name, adapter) = names::split(given);
        let name = name.ok_or_else(|| {
            let given = given.display();
            Failure::Usage(format!("--adapter {given}: several need names: write NAME={given}"))
        })?;
        let place = Place::Adapted(source.clone(), names::folder(adapter)?);
        Ok(Named { name: adapted_name(&base.name, name), place, is_asked_for: true })
    });
    adapters.collect()
}

/// Looks for each model that `args` name, and fetches those that are not here where that is wanted.
///
/// # Errors
/// A name that is not in the cache, and was not fetched.
pub fn find_all(args: &ServeArgs) -> Result<()> {
    let texts = args.models.iter().map(|model| names::split(model).1);
    let others = [&args.embedding_model, &args.transcription_model, &args.speech_model];
    let others = others.into_iter().flatten();
    let others = others.chain(&args.image_model).map(PathBuf::as_path);
    let adapters = args.load.adapter.iter().map(|adapter| names::split(adapter).1);
    texts.chain(others).chain(adapters).try_for_each(|model| names::folder(model).map(|_| ()))
}

/// Returns true when a model makes pictures, vectors, scores, transcripts or speech instead of
/// answers.
///
/// # Errors
/// A name that is not in the cache, and was not fetched.
pub fn makes_no_text(given: &Path) -> Result<bool> {
    Ok(!matches!(Place::of(Source::of(Some(given))?), Place::Text(_)))
}

fn named(given: &Path) -> Result<Named> {
    let (name, model) = names::split(given);
    let source = Source::of(Some(model))?;
    if let Source::Folder(folder) = &source
        && !folder.is_dir()
        && model_kind(folder).is_none()
    {
        return Err(Failure::Other(format!("--model: there is no folder {}", folder.display())));
    }
    let name = name.map_or_else(|| source.served_name(), str::to_owned);
    Ok(Named { name, place: Place::of(source), is_asked_for: true })
}

/// The models directly under `folder`, sorted by path.
///
/// # Errors
/// It cannot be listed.
pub fn under(folder: &Path) -> Result<Vec<DiscoveredModel>> {
    let mut found = discover(folder)?;
    found.retain(|found| found.path != folder);
    Ok(found)
}

/// The model that was found under `folder`, by its path from there; `None` where it is of no kind
/// that is served.
pub fn found(folder: &Path, found: &DiscoveredModel) -> Option<Named> {
    let place = match found.kind {
        ModelKind::Text => Place::of(Source::Folder(found.path.clone())),
        ModelKind::Image => Place::Image(found.path.clone()),
        _ => return None,
    };
    let path = found.path.strip_prefix(folder).ok()?;
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    Some(Named { name: parts.join("/"), place, is_asked_for: false })
}

/// The models directly under `folder`.
fn in_folder(folder: &Path) -> Result<Vec<Named>> {
    let models: Vec<_> = under(folder)?.iter().filter_map(|one| found(folder, one)).collect();
    if models.is_empty() {
        return Err(Failure::Usage(format!(
            "--models-dir: no folder in {} has a config.json and .safetensors files, and no file is a .gguf",
            folder.display()
        )));
    }
    Ok(models)
}

fn file_name(path: &Path) -> Option<String> {
    path.file_name().map(|name| name.to_string_lossy().into_owned())
}

/// The place as people are told of it.
pub fn shown(place: &Place) -> String {
    match place {
        Place::Text(source) => source.name(),
        Place::Adapted(_, adapter) => adapter.display().to_string(),
        Place::Image(folder)
        | Place::Embedding(folder, _)
        | Place::Transcription(folder)
        | Place::Speech(folder) => folder.display().to_string(),
    }
}

/// How a model is loaded with the adapter in this folder.
pub fn with_adapter(load: &LoadOptions, adapter: &Path) -> LoadOptions {
    LoadOptions { adapter_path: Some(adapter.to_owned()), ..load.clone() }
}

/// How embedding models are loaded.
pub fn embedding_options(args: &ServeArgs) -> EmbeddingLoadOptions {
    EmbeddingLoadOptions {
        backend: args.load.backend.clone(),
        memory_limit: args.load.memory_limit,
        threads: args.load.threads,
        queue_limit: Some(args.limits.queue),
        ..EmbeddingLoadOptions::default()
    }
}

/// How models that transcribe are loaded.
pub fn transcription_options(args: &ServeArgs) -> TranscriptionLoadOptions {
    TranscriptionLoadOptions {
        backend: args.load.backend.clone(),
        memory_limit: args.load.memory_limit,
        threads: args.load.threads,
        queue_limit: Some(args.limits.queue),
        ..TranscriptionLoadOptions::default()
    }
}

/// How models that speak are loaded.
pub fn speech_options(args: &ServeArgs) -> SpeechLoadOptions {
    SpeechLoadOptions {
        backend: args.load.backend.clone(),
        memory_limit: args.load.memory_limit,
        threads: args.load.threads,
        queue_limit: Some(args.limits.queue),
        ..SpeechLoadOptions::default()
    }
}

/// How image models are loaded.
pub fn image_options(args: &ServeArgs) -> ImageLoadOptions {
    ImageLoadOptions {
        backend: args.load.backend.clone(),
        quantize: args.image_quantise,
        memory_limit: args.load.memory_limit,
        threads: args.load.threads,
        queue_limit: Some(args.limits.queue),
        keep_components: args.image_keep,
        ..ImageLoadOptions::default()
    }
}
