//! A model's name: `ORG/NAME`, `ORG/NAME@REVISION`, `ORG/NAME:FILE` or `ORG/NAME:FILE@REVISION`.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// Longer than any organisation's and repository's name together.
const LONGEST: usize = 96;
const LONGEST_REVISION: usize = 255;
const LONGEST_FILE: usize = 128;
/// The revision that a name without one means.
const MAIN: &str = "main";

/// A repository, one of its revisions, and one of its models in files of GGUF. None of its parts
/// leads out of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    organisation: String,
    repository: String,
    file: Option<String>,
    revision: Option<String>,
}

impl Name {
    /// `ORG/NAME`.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.organisation, self.repository)
    }

    /// The label of the GGUF file, such as `Q4_K_M`, or its name; `None` where the name has none.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// The name, of which no file is meant.
    pub fn without_file(&self) -> Self {
        Name { file: None, ..self.clone() }
    }

    /// This name with a file of GGUF by what it is called.
    ///
    /// # Errors
    /// A text that cannot be a file's label.
    pub fn with_file(&self, file: &str) -> Result<Self, Error> {
        if !is_file(file) {
            let name = format!("{}:{file}", self.repository());
            return Err(Error::Name { name, reason: FILE_REASON });
        }
        Ok(Name { file: Some(file.to_owned()), ..self.clone() })
    }

    /// The branch, tag or commit: `main` where the name has none.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(MAIN)
    }

    /// Returns true when the name states a revision.
    pub fn has_revision(&self) -> bool {
        self.revision.is_some()
    }

    /// The repository's folder in the cache.
    pub(crate) fn folder(&self) -> String {
        format!("models--{}--{}", self.organisation, self.repository)
    }

    /// The name that [`folder`](Self::folder) gave `folder`; `None` for a folder of something else.
    pub(crate) fn of_folder(folder: &str) -> Option<Self> {
        let (organisation, repository) = folder.strip_prefix("models--")?.split_once("--")?;
        format!("{organisation}/{repository}").parse().ok()
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refused = |reason| Error::Name { name: text.to_owned(), reason };
        let (path, revision) = match text.split_once('@') {
            Some((path, revision)) => (path, Some(revision)),
            None => (text, None),
        };
        let (path, file) = match path.split_once(':') {
            Some((path, file)) => (path, Some(file)),
            None => (path, None),
        };
        let (organisation, repository) =
            path.split_once('/').ok_or_else(|| refused("it has no `/`"))?;
        if path.len() > LONGEST || [organisation, repository].iter().any(|part| !is_part(part)) {
            return Err(refused(
                "each part is of letters, digits, `_`, `-` and `.`, begins and ends with none of the last two, \
                 and has no `--` and no `..`",
            ));
        }
        if revision.is_some_and(|revision| !is_revision(revision)) {
            return Err(refused("the revision is no name of a branch, a tag or a commit"));
        }
        if file.is_some_and(|file| !is_file(file)) {
            return Err(refused(FILE_REASON));
        }
        Ok(Name {
            organisation: organisation.to_owned(),
            repository: repository.to_owned(),
            file: file.map(str::to_owned),
            revision: revision.map(str::to_owned),
        })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.organisation, self.repository)?;
        self.file.as_ref().map_or(Ok(()), |file| write!(f, ":{file}"))?;
        self.revision.as_ref().map_or(Ok(()), |revision| write!(f, "@{revision}"))
    }
}

/// `--` separates the parts in the cache's folders, and `..` leads out of one.
fn is_part(part: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    !part.is_empty()
        && part.chars().all(allowed)
        && !part.starts_with(['-', '.'])
        && !part.ends_with(['-', '.'])
        && !part.contains("--")
        && !part.contains("..")
}

const FILE_REASON: &str = "what follows `:` is the name of a file of GGUF or its end, of letters, digits, `_`, `-` and `.`";

/// Returns true for a text that may end a file's name.
fn is_file(file: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    (1..=LONGEST_FILE).contains(&file.len()) && file.chars().all(allowed) && !file.contains("..")
}

/// Returns true for a text that may be a branch and a path below `refs`.
fn is_revision(revision: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.+/".contains(c);
    revision.len() <= LONGEST_REVISION
        && revision.chars().all(allowed)
        && revision.split('/').all(|part| !part.is_empty() && !part.starts_with('.'))
        && !revision.contains("..")
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn a_name_has_two_parts_and_perhaps_a_revision() {
        let name: Name = "mlx-community/Qwen3-0.6B-4bit".parse().unwrap();
        assert_eq!(name.folder(), "models--mlx-community--Qwen3-0.6B-4bit");
        assert_eq!((name.revision(), name.has_revision()), ("main", false));
        assert_eq!(Name::of_folder(&name.folder()), Some(name));
        let name: Name = "a/b@refs/pr/1".parse().unwrap();
        assert_eq!((name.revision(), name.to_string().as_str()), ("refs/pr/1", "a/b@refs/pr/1"));
        assert_eq!(Name::of_folder("datasets--a--b"), None);
        let name: Name = "a/b:Q4_K_M@v1".parse().unwrap();
        assert_eq!((name.file(), name.revision()), (Some("Q4_K_M"), "v1"));
        assert_eq!(name.to_string(), "a/b:Q4_K_M@v1");
        let plain: Name = "a/b@v1".parse().unwrap();
        assert_eq!((&name.without_file(), plain.with_file("Q4_K_M").unwrap()), (&plain, name));
    }

    #[test]
    fn a_name_that_leads_out_of_the_cache_is_refused() {
        for text in [
            "..",
            "a",
            "/",
            "a/",
            "/b",
            "a/b/c",
            "../b",
            "a/..",
            "a/../../etc",
            "/etc/passwd",
            "a\\b/c",
            "C:/b",
            "a/b\\..\\c",
            "a--b/c",
            "a/b..c",
            ".a/b",
            "a/b.",
            "a/-b",
            "a b/c",
            "a/b\0",
            "é/b",
            "a/b@",
            "a/b@..",
            "a/b@../../x",
            "a/b@/etc",
            "a/b@x/../y",
            "a/b@x//y",
            "a/b@.lock",
            "a/b@x\\y",
            "a/b@x y",
            "a/b@x@y",
            "a/b:",
            "a/b:x/y",
            "a/b:..",
            "a:x/b",
            "~/b",
        ] {
            let error = text.parse::<Name>().unwrap_err().to_string();
            assert!(error.contains("is no name of a model"), "{text}: {error}");
        }
        assert!(format!("a/{}", "b".repeat(100)).parse::<Name>().is_err());
    }
}
