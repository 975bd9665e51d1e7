//! Several models in one server: what each is called, when it is loaded, and in how much memory.

use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use inference_core::{Feature, Support};
use inference_server::{Described, Entry, Makes, Models};

use super::entries::{Naming, describe};
use super::folder::Folder;
use super::places::Places;
use super::sources::{
    self, Named, PREFIX_CACHE, Place, adapter_of, embedding_options, image_options, speech_options,
    transcription_options,
};
use crate::args::ServeArgs;
use crate::failure::{Failure, Result};
use crate::names;
use crate::output::note;

/// How many requests wait for loads, and for how long, where nothing is asked for.
const LOAD_QUEUE: usize = 64;
const LOAD_WAIT: Duration = Duration::from_secs(300);

/// The models of a server, and what follows from them.
pub struct Several {
    /// The models.
    pub models: Models,
    /// Requests that each of them runs together.
    pub slots: usize,
    /// One of them takes pictures or files of sound.
    pub takes_files: bool,
}

/// Returns true when several models are meant, or an option is given that only several need.
///
/// # Errors
/// A model's name that is not in the cache, and was not fetched; an adapter's that cannot be one.
pub fn is_meant(args: &ServeArgs) -> Result<bool> {
    match args.models.as_slice() {
        _ if args.pool.is_given() => Ok(true),
        _ if sources::names_adapters(args)? => Ok(true),
        [] => Ok(false),
        [only] => Ok(names::split(only).0.is_some() || sources::makes_no_text(only)?),
        _ => Ok(true),
    }
}

/// The models that `args` ask for. Nothing is loaded yet.
///
/// # Errors
/// A model that is asked for and cannot be described, names that no model has, options for one
/// model alone.
pub fn choose(args: &ServeArgs) -> Result<Several> {
    let named = sources::all(args)?;
    let texts = named.iter().filter(|one| one.place.makes() == Makes::Text).count();
    let mut how = args.load.clone();
    if sources::names_adapters(args)? {
        // Each is a model of its own.
        how.adapter.clear();
    } else if texts > 1 && !how.adapter.is_empty() {
        let reason = "--adapter is for one model, and this server has several";
        return Err(Failure::Usage(reason.to_owned()));
    }
    let mut load = how.options()?;
    let images = named.iter().any(|one| one.place.makes() == Makes::Pictures);
    if !images && (args.image_keep || args.image_quantise.is_some()) {
        let reason = "--image-keep and --image-quantise say nothing without a model that makes \
                      pictures";
        return Err(Failure::Usage(reason.to_owned()));
    }
    let described = |one| match describe(one, &load) {
        Err(failure) if !one.is_asked_for => {
            if !args.quiet {
                note(format_args!("{}: {failure}", one.name));
            }
            Ok(None)
        }
        told => told,
    };
    let described = named.iter().map(described).collect::<Result<Vec<_>>>()?;
    let can = |feature| {
        described.iter().flatten().any(|known| match known {
            Described::Text(_, capabilities) => capabilities.support(feature) == Support::Yes,
            _ => false,
        })
    };
    let limit = limit(args)?;
    let mut slots = args.load.parallel.unwrap_or(1);
    if can(Feature::ParallelSlots) {
        slots = *load.parallel_slots.get_or_insert(metal_backend::system()?.parallel_slots);
    }
    load.prefix_cache = args.prefix_cache;
    if can(Feature::PrefixCache) {
        // An eighth of the memory for all of them: what one keeps, another cannot ask back.
        let share = limit / 8 / texts.max(1) as u64;
        load.prefix_cache.get_or_insert(PREFIX_CACHE.min(share));
    }
    load.prefix_cache_dir.clone_from(&args.prefix_cache_dir);
    load.prefix_cache_disk = args.prefix_cache_disk;
    // One that sees may be put into the folder later.
    let folder = args.pool.models_dir.clone();
    let hears = named.iter().any(|one| one.place.makes() == Makes::Transcripts);
    let takes_files =
        images || hears || can(Feature::Images) || can(Feature::Audio) || folder.is_some();
    let (entries, naming) = entries(args, &named, described)?;
    let folder = folder.map(|folder| Folder::new(folder, &named));
    let places = named.into_iter().map(|one| Arc::new(one.place)).collect();
    let models = Models {
        entries,
        loader: Box::new(Places {
            places: RwLock::new(places),
            folder,
            naming,
            load,
            images: image_options(args),
            embeddings: embedding_options(args),
            transcriptions: transcription_options(args),
            speech: speech_options(args),
            current: Mutex::default(),
        }),
        memory: args.pool.models_memory.unwrap_or(limit / 4 * 3),
        idle: args.pool.idle_unload,
        waiting: args.pool.load_queue.unwrap_or(LOAD_QUEUE),
        wait: args.pool.load_wait.unwrap_or(LOAD_WAIT),
    };
    Ok(Several { models, slots, takes_files })
}

/// Bytes that everything may take.
fn limit(args: &ServeArgs) -> Result<u64> {
    let device = metal_backend::system()?.memory_limit_bytes;
    Ok(args.load.memory_limit.map_or(device, |limit| limit.min(device)))
}

/// The names of adapters, each with that of the model that it makes.
fn adapters_names(named: &[Named]) -> Vec<(String, String)> {
    let adapted = named.iter().filter(|one| matches!(one.place, Place::Adapted(..)));
    let short = |one: &Named| Some((adapter_of(&one.name)?.to_owned(), one.name.clone()));
    adapted.filter_map(short).collect()
}

/// The table's entries.
fn entries(
    args: &ServeArgs,
    named: &[Named],
    described: Vec<Option<Described>>,
) -> Result<(Vec<Entry>, Naming)> {
    let known = || {
        let names: Vec<_> = named.iter().map(|one| format!("`{}`", one.name)).collect();
        names.join(", ")
    };
    let check = |flag: &str, name: &str| match named.iter().any(|one| one.name == name) {
        true => Ok(()),
        false => {
            let reason = format!("{flag}: there is no model `{name}`; there are {}", known());
            Err(Failure::Usage(reason))
        }
    };
    args.pool.pin.iter().try_for_each(|name| check("--pin", name))?;
    args.pool.at_start.iter().try_for_each(|name| check("--load", name))?;
    let mut aliases = adapters_names(named);
    for alias in &args.model_alias {
        match (alias.split_once('='), named) {
            (Some((alias, name)), _) if named.iter().any(|one| one.name == name) => {
                aliases.push((alias.to_owned(), name.to_owned()));
            }
            (None, [only]) => aliases.push((alias.clone(), only.name.clone())),
            _ => {
                let reason = format!(
                    "--model-alias {alias}: with several models, write ALIAS=NAME, where NAME is one \
                     of {}",
                    known()
                );
                return Err(Failure::Usage(reason));
            }
        }
    }
    let naming = Naming { aliases, pins: args.pool.pin.clone() };
    let has = |name: &String| args.pool.at_start.contains(name);
    let entry = |(one, described): (&Named, _)| Entry {
        // A model alone is loaded as it always is.
        at_start: named.len() == 1 || has(&one.name),
        ..naming.entry(one, described)
    };
    let entries = named.iter().zip(described).map(entry).collect();
    Ok((entries, naming))
}
