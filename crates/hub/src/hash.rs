//! The hashes that name files: SHA-256 for large ones, git's SHA-1 of a blob for small ones. A
//! mirror may tell a mark that is neither.

use std::io::{self, Read};

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// A file's hash, which is its name in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hash {
    /// Of a file in large-file storage.
    Sha256(String),
    /// Of a file in git itself.
    GitSha1(String),
    /// A name made of a mirror's own `ETag`, which is no hash. Nothing can be checked against it.
    Mark(String),
}

impl Hash {
    /// The hash with `digits`; `None` for a text that is none.
    pub fn parse(digits: &str) -> Option<Self> {
        let hexadecimal = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        let digits = digits.to_owned();
        match digits.len() {
            _ if !digits.chars().all(hexadecimal) => None,
            64 => Some(Hash::Sha256(digits)),
            40 => Some(Hash::GitSha1(digits)),
            _ => None,
        }
    }

    /// The hash that the `ETag` of the file `path` holds, or the mark that it is; `None` for an
    /// empty one.
    pub fn of_etag(etag: &str, path: &str) -> Option<Self> {
        let text = etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"');
        // Whatever it is made of, it names one file of the cache: mirrors may give one mark to
        // several files.
        let mark = || format!("etag-{}", hexadecimal(&Sha256::digest([path, text].join("\0"))));
        Self::parse(text).or_else(|| (!text.is_empty()).then(|| Hash::Mark(mark())))
    }

    /// Its digits, or what stands for a mark.
    pub fn digits(&self) -> &str {
        match self {
            Hash::Sha256(digits) | Hash::GitSha1(digits) | Hash::Mark(digits) => digits,
        }
    }

    /// Returns the hasher that computes it for a file of `size` bytes.
    pub fn hasher(&self, size: u64) -> Hasher {
        match self {
            Hash::Sha256(_) => Hasher::Sha256(Sha256::new()),
            Hash::GitSha1(_) => Hasher::GitSha1(Sha1::new_with_prefix(format!("blob {size}\0"))),
            Hash::Mark(mark) => Hasher::Mark(mark.clone()),
        }
    }
}

/// Computes a [`Hash`].
pub enum Hasher {
    /// SHA-256.
    Sha256(Sha256),
    /// SHA-1, begun with git's header.
    GitSha1(Sha1),
    /// Nothing: a mark is the mirror's alone.
    Mark(String),
}

impl Hasher {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha256(hasher) => hasher.update(bytes),
            Hasher::GitSha1(hasher) => hasher.update(bytes),
            Hasher::Mark(_) => {}
        }
    }

    /// Takes all that `reader` has.
    pub fn read(&mut self, mut reader: impl Read) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 17];
        loop {
            match reader.read(&mut buffer)? {
                0 => return Ok(()),
                count => self.update(&buffer[..count]),
            }
        }
    }

    /// The digits.
    pub fn digits(self) -> String {
        match self {
            Hasher::Sha256(hasher) => hexadecimal(&hasher.finalize()),
            Hasher::GitSha1(hasher) => hexadecimal(&hasher.finalize()),
            Hasher::Mark(mark) => mark,
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::Hash;

    #[test]
    fn both_hashes_are_as_git_and_large_file_storage_have_them() {
        // `printf 'hello\n' | git hash-object --stdin` and `printf 'hello\n' | sha256sum`.
        for digits in [
            "ce013625030ba8dba906f756967f9e9ca394464a",
            "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
        ] {
            let mut hasher = Hash::parse(digits).unwrap().hasher(6);
            hasher.read(&b"hello\n"[..]).unwrap();
            assert_eq!(hasher.digits(), digits);
        }
    }

    #[test]
    fn an_etag_is_a_hash_or_a_mark_that_names_one_file() {
        let sha1 = "a".repeat(40);
        for etag in [format!("\"{sha1}\""), format!("W/\"{sha1}\""), sha1.clone()] {
            assert_eq!(Hash::of_etag(&etag, "x"), Some(Hash::GitSha1(sha1.clone())), "{etag}");
        }
        assert_eq!(Hash::of_etag("\"\"", "x"), None);
        let of = |etag, path| Hash::of_etag(etag, path).unwrap().digits().to_owned();
        assert_ne!(of("\"65f1-2b\"", "x"), of("\"65f1-2b\"", "y"));
        for etag in ["65f1-2b", "../../x", "é", "a.lock"] {
            let name = of(etag, "x");
            assert!(name.starts_with("etag-") && name.len() == 69 && !name.contains(['/', '.']));
        }
    }

    #[test]
    fn a_text_that_is_no_hash_names_no_file() {
        for text in ["", "abc", &"../".repeat(14)[..40], &"g".repeat(40), &"A".repeat(64)] {
            assert_eq!(Hash::parse(text), None, "{text}");
        }
    }
}
