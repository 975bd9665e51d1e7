//! The repositories that a test gives the hub.

use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use sha2::Sha256;

/// A repository with one commit, which is `main`.
#[derive(Clone, Debug)]
pub struct Repository {
    /// `ORG/NAME`.
    pub name: String,
    /// Forty hexadecimal digits, made from the files.
    pub commit: String,
    /// Paths and contents.
    pub files: Vec<(String, Vec<u8>)>,
    /// Further files that the list has, as it has them.
    pub listed: Vec<Value>,
    /// The list has the files' names alone, as some mirrors give it.
    pub names_alone: bool,
}

impl Repository {
    pub(crate) fn new(name: &str, files: &[(&str, &[u8])]) -> Self {
        let all: Vec<u8> =
            files.iter().flat_map(|(path, bytes)| [path.as_bytes(), bytes].concat()).collect();
        let files =
            files.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec())).collect();
        let commit = git_sha1(&all);
        Repository { name: name.to_owned(), commit, files, listed: Vec::new(), names_alone: false }
    }

    /// The content of a file.
    pub(crate) fn file(&self, path: &str) -> Option<&[u8]> {
        self.files.iter().find(|(name, _)| name == path).map(|(_, bytes)| &**bytes)
    }

    /// The list of files, with sizes and hashes where they are to be told.
    pub(crate) fn listing(&self) -> Value {
        let files = self.files.iter().map(|(path, bytes)| match is_large(path) {
            _ if self.names_alone => json!({"rfilename": path}),
            true => json!({"rfilename": path, "size": bytes.len(), "blobId": git_sha1(b"a pointer"),
                           "lfs": {"sha256": sha256(bytes), "size": bytes.len(), "pointerSize": 130}}),
            false => json!({"rfilename": path, "size": bytes.len(), "blobId": git_sha1(bytes)}),
        });
        let siblings: Vec<_> = files.chain(self.listed.iter().cloned()).collect();
        json!({"id": self.name, "sha": self.commit, "siblings": siblings})
    }
}

/// Returns true for a file in large-file storage.
pub(crate) fn is_large(path: &str) -> bool {
    path.ends_with(".safetensors")
}

/// The hash that git gives a file.
pub fn git_sha1(bytes: &[u8]) -> String {
    let header = format!("blob {}\0", bytes.len());
    hexadecimal(&Sha1::new_with_prefix(header).chain_update(bytes).finalize())
}

/// The hash that large-file storage gives a file.
pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
