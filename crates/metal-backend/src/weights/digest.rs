//! By what a model is known: by all of its bytes where answers are kept for the next load, by
//! samples where ranks meet.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use inference_text::{Files, other_tokenizers};
use sha2::{Digest, Sha256};

use super::adapter::Adapter;
use super::checkpoint::Checkpoint;
use super::known_digests::KnownDigests;
use super::source::TensorHeader;
use crate::error::{Result, load};
use crate::files::ModelFiles;

/// Places of each tensor that count where ranks meet, and words at each: all bytes would take as
/// long as a load.
const PLACES: u64 = 8;
const WORDS: u64 = 128;
/// Files beside the weights that decide what a model computes.
const FILES: [&str; 3] = ["config.json", TOKENIZER, "generation_config.json"];
const TOKENIZER: &str = "tokenizer.json";
/// The config by which a tokenizer in another form is read.
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
/// A tokenizer in another form, at most.
const MAX_TOKENIZER: u64 = 128 << 20;
/// Bytes of a file that one thread digests at a time.
const PIECE: u64 = 8 << 20;
/// The most threads that digest a file: disks give no more from here on.
const MOST_THREADS: usize = 16;

impl Checkpoint {
    /// The digest of `options`, the configs, the tokenizer, and the names, types, shapes and
    /// samples of all tensors.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn sampled_digest(&self, options: &str) -> Result<[u8; 32]> {
        let mut digest = self.begin_digest(options)?;
        for (name, header) in &self.headers {
            add_samples(&mut digest, &self.files, name, header)?;
        }
        Ok(digest.finalize().into())
    }

    /// The digest of `options`, the configs, the tokenizer, and all bytes of the weights. Those of
    /// files that `known` has seen as they are now are not read again.
    ///
    /// # Errors
    /// A file that cannot be read; a load that nobody waits for any more.
    pub fn whole_digest(&self, options: &str, known: &mut KnownDigests) -> Result<[u8; 32]> {
        let mut digest = self.begin_digest(options)?;
        if let ModelFiles::Embedded(files) = &self.files {
            for (name, bytes) in *files {
                digest.update(name);
                digest.update(Sha256::digest(bytes));
            }
        }
        for path in self.weight_paths() {
            digest.update(path.file_name().unwrap_or_default().as_encoded_bytes());
            let of_file = known.of(&path, || digest_of_file(&path, &self.is_unwanted));
            digest.update(of_file.map_err(|error| load(&path, error))?);
        }
        Ok(digest.finalize().into())
    }

    fn begin_digest(&self, options: &str) -> Result<Sha256> {
        let mut digest = Sha256::new();
        digest.update(options);
        for name in FILES {
            digest.update(name);
            digest.update(self.files.text(name)?.unwrap_or_default());
        }
        if !self.files.exists(TOKENIZER) {
            for name in other_tokenizers().chain([TOKENIZER_CONFIG]) {
                // What cannot be read is told where it is used.
                if let Ok(Some(bytes)) = self.files.read(name, MAX_TOKENIZER) {
                    digest.update(name);
                    digest.update(Sha256::digest(&bytes));
                }
            }
        }
        Ok(digest)
    }

    /// The files on disk that tensors lie in.
    fn weight_paths(&self) -> Vec<PathBuf> {
        match &self.files {
            ModelFiles::Gguf(file) => file.paths().to_vec(),
            ModelFiles::Folder(_) => {
                let names: BTreeSet<&str> = self.headers.values().map(TensorHeader::file).collect();
                names.into_iter().map(|name| self.files.path(name)).collect()
            }
            ModelFiles::Embedded(_) | ModelFiles::Random(_) => Vec::new(),
        }
    }
}

impl Adapter {
    /// The digest of an adapter's config, and of the names, types, shapes and samples of its
    /// tensors.
    ///
    /// # Errors
    /// A file that cannot be read, or that no adapter has.
    pub fn digest(folder: &Path) -> Result<[u8; 32]> {
        let adapter = Adapter::open(folder)?;
        let mut digest = Sha256::new();
        digest.update(adapter.config_text()?);
        for (name, header) in adapter.headers() {
            add_samples(&mut digest, &adapter.files, &name, &header)?;
        }
        Ok(digest.finalize().into())
    }
}

/// Adds a tensor of `files` by words at equal distances, its first and last ones among them.
fn add_samples(
    digest: &mut Sha256,
    files: &ModelFiles,
    name: &str,
    header: &TensorHeader,
) -> Result<()> {
    let TensorHeader { dtype, shape, .. } = header;
    digest.update(format!("{name} {dtype:?} {shape:?}"));
    for at in 0..=PLACES {
        for word in files.read_tensor(&header.words_at(WORDS, at, PLACES))?.to_vec_u32()? {
            digest.update(word.to_ne_bytes());
        }
    }
    Ok(())
}

/// The digest of the digests of a file's pieces, which several threads read.
fn digest_of_file(path: &Path, is_unwanted: &AtomicBool) -> io::Result<[u8; 32]> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let pieces = size.div_ceil(PIECE);
    let next = AtomicU64::new(0);
    let work = || -> io::Result<Vec<(u64, [u8; 32])>> {
        let mut buffer = vec![0; PIECE.min(size) as usize];
        let mut digests = Vec::new();
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= pieces {
                return Ok(digests);
            }
            if is_unwanted.load(Ordering::Relaxed) {
                return Err(io::Error::other("the load was given up"));
            }
            let start = piece * PIECE;
            let part = &mut buffer[..PIECE.min(size - start) as usize];
            file.read_exact_at(part, start)?;
            digests.push((piece, Sha256::digest(part).into()));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.min(MOST_THREADS).min(pieces as usize).max(1);
    let mut digests = thread::scope(|scope| -> io::Result<Vec<_>> {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::with_capacity(pieces as usize);
        for thread in running {
            let of_thread = thread.join().map_err(|_| io::Error::other("a thread failed"))?;
            all.extend(of_thread?);
        }
        Ok(all)
    })?;
    digests.sort_unstable();
    let mut whole = Sha256::new();
    whole.update(size.to_le_bytes());
    digests.iter().for_each(|(_, digest)| whole.update(digest));
    Ok(whole.finalize().into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);

    #[test]
    fn the_digest_of_a_file_is_of_each_of_its_bytes_and_of_their_order() {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        let path = folder.path().join("weights");
        let wanted = AtomicBool::new(false);
        let bytes: Vec<u8> = (0..2 * PIECE as usize + 5).map(|at| (at / 4096) as u8).collect();
        let of = |change: Change<'_>| {
            let mut changed = bytes.clone();
            change(&mut changed);
            fs::write(&path, &changed).expect("a writable folder");
            digest_of_file(&path, &wanted).expect("a file that can be read")
        };
        let whole = of(&|_| ());
        assert_eq!(whole, of(&|_| ()));
        let piece = PIECE as usize;
        let changes: [Change<'_>; 5] = [
            &|bytes| bytes[0] ^= 1,
            &|bytes| bytes[piece + 7777] ^= 1,
            &|bytes| *bytes.last_mut().expect("bytes") ^= 1,
            &|bytes| bytes.truncate(2 * piece),
            &|bytes| bytes.rotate_left(piece),
        ];
        for change in changes {
            assert_ne!(whole, of(change));
        }
        let unwanted = AtomicBool::new(true);
        let error = load(&path, digest_of_file(&path, &unwanted).expect_err("given up"));
        assert!(error.to_string().contains("given up"), "{error}");
    }
}
