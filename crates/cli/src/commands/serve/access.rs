//! The keys that a server wants of its clients, and the certificate that it shows them.

use inference_server::{ApiKey, Tls};

use crate::args::ServeArgs;
use crate::failure::{Failure, Result, without_numbers};
use crate::files;

/// The variable with an API key. It is no flag, because other users of a machine see flags.
pub const API_KEY: &str = "ML_SERVE_API_KEY";

/// The keys that `args` and the environment name; none: no key is wanted.
///
/// # Errors
/// A file that cannot be read or holds no key, and a text that is none.
pub fn keys(args: &ServeArgs) -> Result<Vec<ApiKey>> {
    let mut keys = Vec::new();
    let unusable = |place: &str| {
        Failure::Usage(format!("{place}: a key has visible ASCII characters and no white space"))
    };
    if let Some(file) = &args.api_key_file {
        let text = files::read(file)?;
        let place = file.display().to_string();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            keys.push(ApiKey::new(line).ok_or_else(|| unusable(&place))?);
        }
        if keys.is_empty() {
            return Err(Failure::Usage(format!("{place}: holds no key")));
        }
    }
    if let Ok(key) = std::env::var(API_KEY)
        && !key.is_empty()
    {
        keys.push(ApiKey::new(&key).ok_or_else(|| unusable(API_KEY))?);
    }
    Ok(keys)
}

/// The certificate that `args` name; none: connections are plain.
///
/// # Errors
/// One of the two files alone, and what no server can use.
pub fn tls(args: &ServeArgs) -> Result<Option<Tls>> {
    let alone = |given: &str, other: &str| {
        Failure::Usage(format!("{given} says nothing without {other}: give both"))
    };
    match (&args.tls_cert, &args.tls_key) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(alone("--tls-cert", "--tls-key")),
        (None, Some(_)) => Err(alone("--tls-key", "--tls-cert")),
        (Some(certificate), Some(key)) => {
            let tls = Tls::read(certificate, key);
            tls.map(Some).map_err(|error| Failure::Usage(without_numbers(&error.to_string())))
        }
    }
}
