//! Variables that `huggingface_hub` reads: the hub's address, the user's token and the cache.

use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

const ENDPOINT: &str = "https://huggingface.co";
/// A token's file is read up to so many bytes; tokens have some 40.
const LONGEST_TOKEN: u64 = 4 << 10;
/// How these variables say yes.
const TRUE: [&str; 4] = ["1", "ON", "YES", "TRUE"];

/// A secret that tells the hub who asks. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The hub and the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The hub's address without a slash at its end: `HF_ENDPOINT`.
    pub endpoint: String,
    /// The folder of models: `HF_HUB_CACHE`, else `hub` in `HF_HOME`.
    pub cache: PathBuf,
    /// `HF_TOKEN`, else what the file at `HF_TOKEN_PATH` or `token` in `HF_HOME` holds.
    pub token: Option<Token>,
    /// Nothing may be fetched: `HF_HUB_OFFLINE`.
    pub offline: bool,
}

impl Settings {
    /// The settings of this process's environment.
    ///
    /// # Errors
    /// [`Error::Setting`] for an address or a token that cannot be used, and where no variable
    /// tells of a folder.
    pub fn from_env() -> Result<Self> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// The settings that `variable` tells; an empty one is unset.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let get = |name: &str| variable(name).filter(|value| !value.is_empty());
        let flag =
            |name: &str| get(name).is_some_and(|value| TRUE.contains(&&*value.to_uppercase()));
        let user = get("HOME").map(PathBuf::from);
        let path = |name: &str| get(name).map(|text| expanded(&text, user.as_deref()));

        let home = path("HF_HOME").or_else(|| {
            let cache = path("XDG_CACHE_HOME").or_else(|| Some(user.as_ref()?.join(".cache")))?;
            Some(cache.join("huggingface"))
        });
        let in_home = |name: &str| home.as_ref().map(|home| home.join(name));
        let cache = path("HF_HUB_CACHE")
            .or_else(|| path("HUGGINGFACE_HUB_CACHE"))
            .or_else(|| in_home("hub"))
            .ok_or_else(|| Error::Setting {
                variable: "HF_HUB_CACHE",
                reason: "neither it nor HF_HOME nor HOME names a folder for models: set one".into(),
            })?;
        let token = match get("HF_TOKEN").or_else(|| get("HUGGING_FACE_HUB_TOKEN")) {
            Some(token) => Some(token),
            None if flag("HF_HUB_DISABLE_IMPLICIT_TOKEN") => None,
            None => match path("HF_TOKEN_PATH").or_else(|| in_home("token")) {
                Some(file) => token_of(&file)?,
                None => None,
            },
        };
        Ok(Settings {
            endpoint: endpoint(get("HF_ENDPOINT"))?,
            cache,
            token: token.map(|token| checked(&token)).transpose()?.flatten(),
            offline: flag("HF_HUB_OFFLINE") || flag("TRANSFORMERS_OFFLINE"),
        })
    }
}

fn expanded(text: &str, user: Option<&Path>) -> PathBuf {
    match (text.strip_prefix('~'), user) {
        (Some(""), Some(user)) => user.to_owned(),
        (Some(rest), Some(user)) if rest.starts_with('/') => {
            user.join(rest.trim_start_matches('/'))
        }
        _ => PathBuf::from(text),
    }
}

fn endpoint(value: Option<String>) -> Result<String> {
    let Some(value) = value else { return Ok(ENDPOINT.to_owned()) };
    let address = value.trim_end_matches('/');
    let host = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://"));
    if host.is_none_or(|host| host.is_empty() || host.contains(['@', '?', '#', ' '])) {
        let reason = format!("`{value}` is no address of a hub: expected one such as {ENDPOINT}");
        return Err(Error::Setting { variable: "HF_ENDPOINT", reason });
    }
    Ok(address.to_owned())
}

/// The text of the token's file; there is none for most people.
fn token_of(file: &Path) -> Result<Option<String>> {
    let mut text = String::new();
    let opened = fs::File::open(file);
    match opened.and_then(|opened| opened.take(LONGEST_TOKEN).read_to_string(&mut text)) {
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(file)(error)),
    }
}

/// The token without the space around it, `None` where nothing is left.
fn checked(text: &str) -> Result<Option<Token>> {
    let token = text.trim();
    if !token.chars().all(|c| c.is_ascii_graphic()) {
        // The token itself is not shown: it may be right but for one letter.
        let reason = "the token has a space or a letter that no token has: copy it again".into();
        return Err(Error::Setting { variable: "HF_TOKEN", reason });
    }
    Ok((!token.is_empty()).then(|| Token(token.to_owned())))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Settings, Token};

    fn settings(variables: &[(&str, &str)]) -> crate::Result<Settings> {
        Settings::from_variables(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_cache_is_where_huggingface_hub_has_it() {
        for (variables, cache) in [
            (&[("HOME", "/u")][..], "/u/.cache/huggingface/hub"),
            (&[("HOME", "/u"), ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub"),
            (&[("HOME", "/u"), ("HF_HOME", "~/h")], "/u/h/hub"),
            (&[("HF_HOME", "/h"), ("HUGGINGFACE_HUB_CACHE", "/old")], "/old"),
            (&[("HUGGINGFACE_HUB_CACHE", "/old"), ("HF_HUB_CACHE", "/c")], "/c"),
            (&[("HOME", "/u"), ("HF_HUB_CACHE", ""), ("HF_HOME", "")], "/u/.cache/huggingface/hub"),
        ] {
            assert_eq!(settings(variables).unwrap().cache, Path::new(cache), "{variables:?}");
        }
        assert!(settings(&[]).unwrap_err().to_string().starts_with("HF_HUB_CACHE: "));
    }

    #[test]
    fn the_token_comes_from_the_variable_or_the_file_and_is_not_shown() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("token"), "hf_file\n").unwrap();
        let home = home.path().to_str().unwrap();
        let token = |more: &[(&str, &str)]| {
            let variables: Vec<_> = [("HF_HOME", home)].iter().chain(more).copied().collect();
            settings(&variables).unwrap().token
        };
        assert_eq!(token(&[]), Some(Token("hf_file".into())));
        assert_eq!(token(&[("HF_TOKEN", " hf_own ")]), Some(Token("hf_own".into())));
        assert_eq!(token(&[("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]), None);
        assert_eq!(token(&[("HF_TOKEN_PATH", "/no/such/file")]), None);
        assert!(!format!("{:?}", token(&[])).contains("hf_"));
        let error =
            settings(&[("HOME", "/u"), ("HF_TOKEN", "hf_a\r\nX: y")]).unwrap_err().to_string();
        assert!(error.starts_with("HF_TOKEN: ") && !error.contains("hf_a"), "{error}");
    }

    #[test]
    fn addresses_and_flags_are_read_as_there() {
        let of = |name, value| settings(&[("HOME", "/u"), (name, value)]);
        assert_eq!(of("HF_ENDPOINT", "http://mirror:8/x/").unwrap().endpoint, "http://mirror:8/x");
        assert_eq!(of("X", "").unwrap().endpoint, "https://huggingface.co");
        for address in ["mirror", "ftp://mirror", "https://", "https://me@mirror"] {
            assert!(of("HF_ENDPOINT", address).is_err(), "{address}");
        }
        assert!(of("HF_HUB_OFFLINE", "yes").unwrap().offline);
        assert!(of("TRANSFORMERS_OFFLINE", "1").unwrap().offline);
        assert!(!of("HF_HUB_OFFLINE", "0").unwrap().offline);
    }
}
