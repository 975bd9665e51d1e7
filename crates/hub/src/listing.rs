//! The hub's list of a revision: its commit and its files, checked before they are used.

use serde::Deserialize;

use crate::hash::Hash;
use crate::{Error, Name, Result};

/// Longest path that a file may have, which is that of common systems.
const LONGEST_PATH: usize = 4096;

/// A commit's files.
#[derive(Debug)]
pub struct Listing {
    /// Forty hexadecimal digits.
    pub commit: String,
    /// All files, those in folders too.
    pub files: Vec<Listed>,
}

/// A file as the hub lists it. Mirrors may leave out size and hash; then the file itself is asked
/// for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its path in the repository, which stays inside of it.
    pub path: String,
    /// In bytes.
    pub size: Option<u64>,
    /// The hash that its bytes are checked against.
    pub hash: Option<Hash>,
}

/// A file that can be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path in the repository, which stays inside of it.
    pub path: String,
    /// In bytes.
    pub size: u64,
    /// The hash that its bytes are checked against.
    pub hash: Hash,
}

#[derive(Deserialize)]
struct Answer {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

impl Listing {
    /// Reads the hub's answer of `/api/models/ORG/NAME/revision/REVISION?blobs=true`.
    ///
    /// # Errors
    /// [`Error::Listing`] for an answer without what is needed, and for a path that leads out of
    /// the repository.
    pub fn read(name: &Name, answer: &[u8]) -> Result<Self> {
        let refused = |reason: String| Error::Listing { name: name.to_string(), reason };
        let answer: Answer =
            serde_json::from_slice(answer).map_err(|error| refused(error.to_string()))?;
        if !matches!(Hash::parse(&answer.sha), Some(Hash::GitSha1(_))) {
            return Err(refused(format!("`{}` is no commit", answer.sha)));
        }
        let files = answer.siblings.into_iter().map(|sibling| {
            let path = sibling.rfilename;
            if path.len() > LONGEST_PATH {
                return Err(refused(format!(
                    "a file name has {} bytes; at most {LONGEST_PATH} are taken",
                    path.len()
                )));
            }
            if !stays_inside(&path) {
                return Err(refused(format!(
                    "the file name {path:?} leads out of the model's folder"
                )));
            }
            let (digits, size) = match sibling.lfs {
                Some(lfs) => (Some(lfs.sha256), Some(lfs.size)),
                None => (sibling.blob_id, sibling.size),
            };
            let hash = digits.and_then(|digits| Hash::parse(&digits));
            Ok(Listed { path, size, hash })
        });
        Ok(Listing { commit: answer.sha, files: files.collect::<Result<_>>()? })
    }
}

/// Returns true for a relative path without `..` that means one file on every system.
fn stays_inside(path: &str) -> bool {
    let odd = |c: char| c.is_control() || c == '\\';
    let drive = path.as_bytes().get(1) == Some(&b':');
    !drive && !path.contains(odd) && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Listing;
    use crate::hash::Hash;

    fn read(commit: &str, file: Value) -> crate::Result<Listing> {
        let answer = json!({"sha": commit, "siblings": [file], "likes": 3});
        Listing::read(&"a/b".parse().unwrap(), answer.to_string().as_bytes())
    }

    #[test]
    fn small_files_have_gits_hash_and_large_ones_their_own() {
        let (sha1, sha256) = ("a".repeat(40), "b".repeat(64));
        let small = json!({"rfilename": "config.json", "size": 7, "blobId": sha1});
        let file = read(&sha1, small).unwrap().files.remove(0);
        assert_eq!((file.size, file.hash), (Some(7), Some(Hash::GitSha1(sha1.clone()))));
        let large = json!({"rfilename": "x/m.safetensors", "size": 9, "blobId": sha1,
                           "lfs": {"sha256": sha256, "size": 9, "pointerSize": 130}});
        let file = read(&sha1, large).unwrap().files.remove(0);
        assert_eq!(file.hash, Some(Hash::Sha256(sha256)));
    }

    #[test]
    fn what_leads_out_of_the_folder_is_refused_by_name() {
        let commit = "a".repeat(40);
        for path in [
            "../x",
            "/etc/x",
            "a/../../x",
            "a//x",
            "./x",
            "..",
            "",
            "a\\..\\x",
            "C:x",
            "x\0",
            "x\n",
        ] {
            let file = json!({"rfilename": path, "size": 1, "blobId": commit});
            let error = read(&commit, file).unwrap_err().to_string();
            assert!(error.contains("leads out of the model's folder"), "{path:?}: {error}");
        }
    }

    #[test]
    fn a_commit_that_is_none_is_refused_and_a_hash_that_is_none_is_not_taken() {
        let commit = "a".repeat(40);
        let good = json!({"rfilename": "x", "size": 1, "blobId": commit});
        for bad in ["main", "../../x", ""] {
            assert!(read(bad, good.clone()).unwrap_err().to_string().contains("is no commit"));
        }
        for (file, size) in [
            (json!({"rfilename": "x", "size": 1}), Some(1)),
            (json!({"rfilename": "x"}), None),
            (
                json!({"rfilename": "x", "blobId": "../../../../../../../../../../../../etc/x"}),
                None,
            ),
        ] {
            let file = read(&commit, file).unwrap().files.remove(0);
            assert_eq!((file.size, file.hash), (size, None));
        }
        assert!(read(&commit, json!({})).is_err());
        let long = json!({"rfilename": "x".repeat(5000), "size": 1, "blobId": commit});
        let error = read(&commit, long).unwrap_err().to_string();
        assert!(error.ends_with("a file name has 5000 bytes; at most 4096 are taken"), "{error}");
    }
}
