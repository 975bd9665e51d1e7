//! Addresses of models: what people copy from the hub's pages, or from other programs.

use percent_encoding::percent_decode_str;

use crate::{Error, Name, Result};

/// Hosts that are the hub.
const HUBS: [&str; 2] = ["huggingface.co/", "hf.co/"];
const SCHEMES: [&str; 2] = ["https://", "http://"];
/// First parts of the addresses of what is no model.
const OTHERS: [&str; 2] = ["datasets", "spaces"];

impl Name {
    /// The model that an address means: `hf.co/ORG/NAME:FILE`, or `https://huggingface.co/ORG/NAME`
    /// with what may follow, such as `/tree/REVISION` or `/blob/REVISION/FILE` of a file of GGUF.
    /// `endpoint` is the address of another hub. A plain name is its own address.
    ///
    /// # Errors
    /// [`Error::Name`] for a text that means no model.
    pub fn from_address(text: &str, endpoint: &str) -> Result<Self> {
        let Some(path) = behind(text, endpoint) else { return text.parse() };
        let path = path.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
        match path.split('/').collect::<Vec<_>>()[..] {
            [first, ..] if OTHERS.contains(&first) => {
                let reason = "it is the address of a data set or a space";
                Err(Error::Name { name: text.to_owned(), reason })
            }
            [organisation, repository, "tree", revision, ..] => {
                named([organisation, repository], revision, None)
            }
            [organisation, repository, "blob" | "resolve", revision, .., file] => {
                let is_gguf = file.to_ascii_lowercase().ends_with(".gguf");
                named([organisation, repository], revision, is_gguf.then_some(file))
            }
            // Another page of the repository, such as its discussions.
            [organisation, repository, _, ..] => named([organisation, repository], "main", None),
            _ => path.parse(),
        }
    }
}

/// `text` behind the address of a hub, where it begins with one.
fn behind<'a>(text: &'a str, endpoint: &str) -> Option<&'a str> {
    if let Some(path) = text.strip_prefix(endpoint).and_then(|path| path.strip_prefix('/')) {
        return Some(path);
    }
    let scheme = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme));
    let text = scheme.unwrap_or(text);
    HUBS.iter().find_map(|hub| text.strip_prefix(hub))
}

/// The name of a repository, of which the usual revision is not named.
fn named(parts: [&str; 2], revision: &str, file: Option<&str>) -> Result<Name> {
    let mut text = parts.join("/");
    for (mark, part) in [(":", file), ("@", Some(revision).filter(|name| *name != "main"))] {
        if let Some(part) = part {
            text += mark;
            text += &percent_decode_str(part).decode_utf8_lossy();
        }
    }
    text.parse()
}

#[cfg(test)]
mod tests {
    use crate::Name;

    fn name(address: &str) -> String {
        let name = Name::from_address(address, "http://mirror:8/x");
        name.map_or_else(|error| error.to_string(), |name| name.to_string())
    }

    #[test]
    fn what_is_copied_from_a_page_means_its_model() {
        for (address, expected) in [
            ("org/name", "org/name"),
            ("hf.co/org/name", "org/name"),
            ("hf.co/org/name:Q4_K_M", "org/name:Q4_K_M"),
            ("hf.co/org/name:Q4_K_M@v1", "org/name:Q4_K_M@v1"),
            ("huggingface.co/org/name", "org/name"),
            ("https://huggingface.co/org/name", "org/name"),
            ("http://hf.co/org/name/", "org/name"),
            ("http://mirror:8/x/org/name", "org/name"),
            ("https://huggingface.co/org/name?library=mlx#use", "org/name"),
            ("https://huggingface.co/org/name/tree/main", "org/name"),
            ("https://huggingface.co/org/name/tree/v1/folder", "org/name@v1"),
            ("https://huggingface.co/org/name/tree/refs%2Fpr%2F1", "org/name@refs/pr/1"),
            ("https://huggingface.co/org/name/discussions/7", "org/name"),
            ("https://huggingface.co/org/name/blob/main/config.json", "org/name"),
            ("https://huggingface.co/org/name/blob/main/a/m-Q8_0.gguf", "org/name:m-Q8_0.gguf"),
            (
                "https://huggingface.co/org/name/resolve/v1/m.gguf?download=true",
                "org/name:m.gguf@v1",
            ),
        ] {
            assert_eq!(name(address), expected, "{address}");
        }
    }

    #[test]
    fn addresses_of_other_things_are_refused() {
        for address in [
            "https://huggingface.co/datasets/org/name",
            "https://huggingface.co/spaces/org/name",
            "https://huggingface.co/org",
            "https://huggingface.co/",
            "https://example.com/org/name",
            "hf.co/../name",
            "hf.co/org/name/tree/..",
            "hf.co/org/name/blob/main/%2e%2e%2fx.gguf",
        ] {
            assert!(name(address).contains("is no name of a model"), "{address}");
        }
    }
}
