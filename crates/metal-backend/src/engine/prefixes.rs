//! Prefixes of earlier prompts: in memory, and in files for the next load.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::rc::Rc;

use inference_core::LoadOptions;
use mlx_ffi::memory;
use sha2::{Digest, Sha256};

use super::served::Served;
use super::shared::Shared;
use crate::cache::{PrefixCache, PrefixStore, hex};
use crate::error::{Result, load};
use crate::load::{Drafting, EngineOptions};
use crate::weights::{Checkpoint, KnownDigests};

/// Prefixes of earlier prompts.
pub(super) struct Prefixes {
    pub cache: PrefixCache,
    pub store: Option<PrefixStore>,
}

impl Prefixes {
    /// Nothing, at most `budget` bytes; in all ranks what it holds counts as many bytes as in the
    /// first one.
    pub fn new(served: &Served, budget: u64) -> Prefixes {
        let ranks = Rc::clone(&served.ranks);
        let weigh = move |bytes| {
            let agreed = ranks.agree("bytes of a prefix", || bytes);
            agreed.map_err(|error| mlx_ffi::Error::new(error.to_string()))
        };
        let cache = PrefixCache::new(budget, Box::new(weigh));
        let are_several = served.ranks.are_several();
        Prefixes { cache: if are_several { cache.one_by_one() } else { cache }, store: None }
    }

    /// The prefixes that the options ask for, with those that an earlier load of the model left.
    /// Half of the memory that is left of `limit` bytes is for requests.
    ///
    /// # Errors
    /// A folder that cannot be used; files of the model that cannot be read.
    pub fn open(
        options: &EngineOptions,
        checkpoint: &Checkpoint,
        served: &Served,
        (limit, shared): (u64, &Shared),
    ) -> Result<Prefixes> {
        let LoadOptions { prefix_cache, prefix_cache_dir, prefix_cache_disk, .. } = &options.load;
        let mut prefixes = Prefixes::new(served, prefix_cache.unwrap_or(0));
        if let Some(folder) = prefix_cache_dir {
            PrefixStore::prepare(folder)?;
            let mut known = KnownDigests::read(folder);
            let key = key(options, served, &mut known)?;
            let key = checkpoint.whole_digest(&key, &mut known)?;
            known.save();
            let mut store = PrefixStore::open(folder, &key, *prefix_cache_disk)?;
            let room = limit.saturating_sub(memory::active()? as u64) / 2;
            let most = prefix_cache.unwrap_or(0).min(room);
            store.restore(&mut prefixes.cache, served.specs.len(), most);
            shared.notice(store.notices());
            prefixes.store = Some(store);
        }
        Ok(prefixes)
    }

    /// Writes a part that no file holds yet; false where there is none.
    pub fn write_one(&mut self, shared: &Shared) -> bool {
        let Some(store) = &mut self.store else { return false };
        let is_written = store.write_one(&mut self.cache);
        shared.notice(store.notices());
        is_written
    }

    /// Writes all that no file holds yet, at the end.
    pub fn finish(&mut self, shared: &Shared) {
        if let Some(store) = &mut self.store {
            store.finish(&mut self.cache);
            shared.notice(store.notices());
        }
    }
}

/// The key of the kept files: all that decides keys and values beside the model's own files.
fn key(options: &EngineOptions, served: &Served, known: &mut KnownDigests) -> Result<String> {
    let LoadOptions { kv_bits, kv_group_size, batch_invariant, dtype, .. } = &options.load;
    let (layers, chunk) = (served.specs.len(), served.chunk);
    let adapter = match &options.load.adapter_path {
        None => String::new(),
        Some(folder) => digest_of(folder).map_err(|error| load(folder, error))?,
    };
    let drafter = match &options.drafting {
        None => String::new(),
        Some(Drafting { files, .. }) => hex(&Checkpoint::open(files)?.whole_digest("", known)?),
    };
    let EngineOptions { device, kernels, bf16, .. } = options;
    let version = env!("CARGO_PKG_VERSION");
    Ok(format!(
        "{version} {device:?} {kernels:?} {kv_bits:?} {kv_group_size:?} {batch_invariant} {dtype:?} {bf16:?} {chunk} {adapter} {drafter} {layers}"
    ))
}

/// The digest of all files of an adapter.
fn digest_of(folder: &Path) -> io::Result<String> {
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = entries.collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.is_file());
    paths.sort();
    let mut digest = Sha256::new();
    for path in paths {
        digest.update(path.file_name().unwrap_or_default().as_encoded_bytes());
        digest.update(path.metadata()?.len().to_le_bytes());
        io::copy(&mut File::open(&path)?, &mut digest)?;
    }
    Ok(hex(&digest.finalize()))
}
