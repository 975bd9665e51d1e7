//! `ml serve`: models for OpenAI's, Anthropic's and Ollama's clients.

mod access;
mod entries;
mod folder;
mod places;
mod several;
pub mod sources;
mod systemd;
mod told;

pub use self::access::API_KEY;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use inference_core::{Feature, LoadOptions, ModelInfo, Support};
use inference_server::{
    Config, ConfigError, EmbeddingService, Exit, ImageService, Limits, SpeechService, Timeouts,
    Tools, Traces, TranscriptionService,
};

use crate::args::{LogFormat, ServeArgs, ToolFormat};
use crate::failure::{Failure, Result};
use crate::names;
use crate::output::note;
use crate::ranks;
use crate::source::Source;
use several::Several;
use sources::{
    PREFIX_CACHE, embedding_options, image_options, speech_options, transcription_options,
};

/// Bytes of a body of text, and of one with pictures in base64 or with a file of sound.
const BODY: u64 = 4 << 20;
const BODY_WITH_FILES: u64 = 32 << 20;

/// Serves until a signal comes.
///
/// # Errors
/// Bad options, an address that cannot be listened on, a model that cannot be loaded.
pub fn run(args: &ServeArgs) -> Result<()> {
    let in_ranks = ranks::from_environment()?.is_some();
    let exit = match !in_ranks && several::is_meant(args)? {
        true => serve_several(args)?,
        false => serve_one(args)?,
    };
    match exit {
        Exit::Drained => Ok(()),
        Exit::Late => broken_off("the time for draining was over"),
        Exit::Forced => broken_off("a second signal came"),
    }
}

/// The one model that is served.
pub struct Served {
    pub source: Source,
    pub load: LoadOptions,
    /// Bytes of a body that are enough for what it takes.
    pub body_bytes: u64,
    /// Its description, before it is loaded.
    pub info: ModelInfo,
}

/// The one model that `args` ask for, with what is good for a server and was not asked for.
///
/// # Errors
/// Bad options, a model that cannot be described, several models of several ranks.
pub fn served(args: &ServeArgs) -> Result<Served> {
    let mut load = args.load.options()?;
    if load.ranks.is_some() && several::is_meant(args)? {
        let reason =
            "several ranks serve one model: give one --model, without options of several models";
        return Err(Failure::Usage(reason.to_owned()));
    }
    let source = Source::of(args.models.first().map(PathBuf::as_path))?;
    load.prefix_cache = args.prefix_cache;
    let (info, body_bytes) = choose(args, &source, &mut load)?;
    load.prefix_cache_dir.clone_from(&args.prefix_cache_dir);
    load.prefix_cache_disk = args.prefix_cache_disk;
    Ok(Served { source, load, body_bytes, info })
}

fn serve_one(args: &ServeArgs) -> Result<Exit> {
    if args.image_model.is_none() && (args.image_keep || args.image_quantise.is_some()) {
        let reason = "--image-keep and --image-quantise say nothing without --image-model";
        return Err(Failure::Usage(reason.to_owned()));
    }
    let Served { source, mut load, body_bytes, info } = served(args)?;
    let slots = load.parallel_slots.unwrap_or(1);
    // First, since the others are loaded here.
    let shared = config(args, slots, body_bytes)?;
    let config = Config {
        model: args.model_name.clone().unwrap_or_else(|| source.served_name()),
        aliases: args.model_alias.clone(),
        load_progress: Some(load.progress.get_or_insert_default().clone()),
        images: image_model(args)?,
        embeddings: embedding_models(args)?,
        transcriptions: transcription_models(args)?,
        speech: speech_models(args)?,
        ..shared
    };
    log(args.log);
    let (quiet, is_silent) = (args.quiet, told::is_quiet(args));
    let facts = told::of_model(&config, &info);
    let loading = move || {
        let begun = Instant::now();
        let loaded = source.load(&load, quiet).map_err(Failure::into_contract)?;
        if !is_silent {
            let seconds = begun.elapsed().as_secs_f64();
            note(format_args!("  ready   {} is loaded ({seconds:.1} s)", source.name()));
        }
        Ok(loaded)
    };
    inference_server::serve(config, loading, told::listening(args, facts)).map_err(failure)
}

fn serve_several(args: &ServeArgs) -> Result<Exit> {
    let Several { models, slots, takes_files } = several::choose(args)?;
    let config = config(args, slots, if takes_files { BODY_WITH_FILES } else { BODY })?;
    log(args.log);
    let facts = told::of_models(&models, &config);
    inference_server::serve_models(config, models, told::listening(args, facts)).map_err(failure)
}

fn broken_off(why: &str) -> Result<()> {
    Err(Failure::Other(format!("requests were broken off: {why}")))
}

fn failure(error: inference_server::ServeError) -> Failure {
    match error {
        inference_server::ServeError::Load(error) => Failure::Model(error),
        inference_server::ServeError::Config(ConfigError::Zero(limit)) => {
            Failure::Usage(format!("{}: must be at least 1", flag(limit)))
        }
        inference_server::ServeError::Config(error) => Failure::Usage(error.to_string()),
        other => Failure::Other(other.to_string()),
    }
}

/// The flag of a limit of the server.
fn flag(limit: &'static str) -> &'static str {
    match limit {
        "connections" => "--max-connections",
        "headers" => "--max-headers",
        "body bytes" => "--max-body",
        "choices" => "--max-n",
        "slots" => "--parallel",
        other => other,
    }
}

/// Sets what is good for a server and was not asked for, where the backend can; the bytes of a body
/// that are enough for what the model takes, and what it is.
fn choose(args: &ServeArgs, source: &Source, load: &mut LoadOptions) -> Result<(ModelInfo, u64)> {
    // The vocabulary is parsed behind the open port: that of a file of GGUF takes a while.
    let (info, capabilities) = source.outline(load)?;
    let can = |feature| capabilities.support(feature) == Support::Yes;
    if can(Feature::ParallelSlots) {
        load.parallel_slots.get_or_insert(metal_backend::system()?.parallel_slots);
    }
    if can(Feature::PrefixCache) && load.prefix_cache.is_none() {
        load.prefix_cache = Some(prefix_cache(args, load, info.weight_bytes)?);
    }
    let takes_files = can(Feature::Images)
        || can(Feature::Audio)
        || args.image_model.is_some()
        || !args.transcription_model.is_empty();
    Ok((info, if takes_files { BODY_WITH_FILES } else { BODY }))
}

/// Bytes for earlier prompts of the one model, of so many bytes of weights. On CUDA they are an
/// eighth of what the weights leave of the memory, since prompts of many requests displace each
/// other in fewer. Several ranks have few, as their devices may differ. So have models whose
/// prefixes lie in a folder, which is read at the start.
fn prefix_cache(args: &ServeArgs, load: &LoadOptions, weights: u64) -> Result<u64> {
    let system = metal_backend::system()?;
    let has_few = load.ranks.is_some() || args.prefix_cache_dir.is_some();
    if has_few || system.device != "cuda" {
        return Ok(PREFIX_CACHE);
    }
    let limit = system.memory_limit_bytes.min(load.memory_limit.unwrap_or(u64::MAX));
    Ok((limit.saturating_sub(weights) / 8).max(PREFIX_CACHE))
}

/// The model that makes pictures, where one is asked for. Its weights are read when they are
/// needed.
fn image_model(args: &ServeArgs) -> Result<Option<ImageService>> {
    let Some(model) = &args.image_model else { return Ok(None) };
    let folder = names::folder(model)?;
    metal_backend::register()?;
    let loaded = inference_core::load_image_model(&folder, &image_options(args))?;
    Ok(Some(ImageService { name: last_of(model), model: loaded.into() }))
}

/// The models that embed or score texts.
fn embedding_models(args: &ServeArgs) -> Result<Vec<EmbeddingService>> {
    let mut services: Vec<EmbeddingService> = Vec::new();
    for model in &args.embedding_model {
        let folder = names::folder(model)?;
        metal_backend::register()?;
        let name = last_of(model);
        if services.iter().any(|service| service.name == name) {
            let reason = format!("--embedding-model: two models are called `{name}`");
            return Err(Failure::Usage(reason));
        }
        let model = inference_core::load_embedding_model(&folder, &embedding_options(args))?;
        services.push(EmbeddingService { name, model: model.into() });
    }
    Ok(services)
}

/// The models that transcribe speech.
fn transcription_models(args: &ServeArgs) -> Result<Vec<TranscriptionService>> {
    let mut services: Vec<TranscriptionService> = Vec::new();
    for model in &args.transcription_model {
        let folder = names::folder(model)?;
        metal_backend::register()?;
        let name = last_of(model);
        if services.iter().any(|service| service.name == name) {
            let reason = format!("--transcription-model: two models are called `{name}`");
            return Err(Failure::Usage(reason));
        }
        let options = transcription_options(args);
        let model = inference_core::load_transcription_model(&folder, &options)?;
        services.push(TranscriptionService { name, model: model.into() });
    }
    Ok(services)
}

fn speech_models(args: &ServeArgs) -> Result<Vec<SpeechService>> {
    let mut services: Vec<SpeechService> = Vec::new();
    for model in &args.speech_model {
        let folder = names::folder(model)?;
        metal_backend::register()?;
        let name = last_of(model);
        if services.iter().any(|service| service.name == name) {
            let reason = format!("--speech-model: two models are called `{name}`");
            return Err(Failure::Usage(reason));
        }
        let model = inference_core::load_speech_model(&folder, &speech_options(args))?;
        services.push(SpeechService { name, model: model.into() });
    }
    Ok(services)
}

/// The last part of a folder's path or of a name on the hub: what clients call the model.
fn last_of(model: &Path) -> String {
    model.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy().into_owned())
}

/// All but the models.
fn config(args: &ServeArgs, slots: usize, body_bytes: u64) -> Result<Config> {
    let limits = &args.limits;
    let bytes = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    // Ranks are started by another process, which the manager knows.
    let is_managed = ranks::from_environment()?.is_none();
    let sockets = if is_managed { systemd::sockets()? } else { Vec::new() };
    if !sockets.is_empty() && !told::is_quiet(args) {
        note("listening on sockets that were handed over: --host and --port are not used");
    }
    Ok(Config {
        sockets,
        notifier: if is_managed { systemd::notifier()? } else { None },
        listen: SocketAddr::new(args.host, args.port),
        tls: access::tls(args)?,
        keys: access::keys(args)?,
        allowed_hosts: args.allowed_host.clone(),
        cors_origins: args.cors_origin.clone(),
        allows_shutdown: args.allow_shutdown,
        strict_fields: args.strict_fields,
        tools: match args.tools {
            ToolFormat::Template => Tools::Template,
            ToolFormat::Generic => Tools::Generic,
        },
        local_media_path: media_folder(args)?,
        batches: access::batches(&args.batches)?,
        traces: traces(args),
        slots,
        limits: Limits {
            body_bytes: bytes(limits.max_body.unwrap_or(body_bytes)),
            headers: limits.max_headers,
            connections: limits.max_connections,
            waiting: limits.queue,
            choices: limits.max_n,
            prompts: limits.max_prompts,
            inputs: limits.max_inputs,
            top_logprobs: limits.max_logprobs,
            prompt_logprobs: limits.max_prompt_logprobs,
            stop: limits.max_stop,
            logit_bias: limits.max_logit_bias,
            schema_bytes: bytes(limits.max_schema),
            inspect_values: limits.max_inspect,
            stored_responses: limits.max_stored,
            stored_bytes: usize::try_from(limits.max_stored_bytes).unwrap_or(usize::MAX),
        },
        timeouts: Timeouts {
            header: limits.header_timeout,
            body: limits.body_timeout,
            write: limits.write_timeout,
            keep_alive: limits.keep_alive,
            drain: limits.drain_timeout,
            stall: limits.stall_timeout,
        },
        ..Config::default()
    })
}

/// The collector of spans of requests, where there is one.
fn traces(args: &ServeArgs) -> Option<Traces> {
    let endpoint = args.otlp_endpoint.clone()?;
    Some(Traces::new(endpoint, &args.otlp_service))
}

/// The folder of pictures that requests may name, which must be there.
fn media_folder(args: &ServeArgs) -> Result<Option<PathBuf>> {
    match &args.allowed_local_media_path {
        Some(path) if !path.is_dir() => {
            let path = path.display();
            Err(Failure::Usage(format!("--allowed-local-media-path: `{path}` is no folder")))
        }
        folder => Ok(folder.clone()),
    }
}

fn log(format: LogFormat) {
    // A line that cannot be written is nobody's loss; to tell so on stderr would fail, too.
    let builder = tracing_subscriber::fmt().with_writer(io::stderr).log_internal_errors(false);
    // Fails where a log is installed already, which then stays.
    let _ = match format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Off => Ok(()),
    };
}
