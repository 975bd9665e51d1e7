//! The keys that a server wants of its clients, the certificate that it shows them, and the folder
//! in which it keeps their files.

use inference_server::{ApiKey, Batches, Tls};

use crate::args::{BatchArgs, ServeArgs};
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

/// The folder of files and batches that `args` name; none: there are none.
///
/// # Errors
/// Bounds without a folder.
pub fn batches(args: &BatchArgs) -> Result<Option<Batches>> {
    let Some(folder) = args.batch_dir.clone() else {
        let given = [
            ("--max-batch-file", args.max_batch_file.is_some()),
            ("--max-batch-bytes", args.max_batch_bytes.is_some()),
            ("--max-batch-requests", args.max_batch_requests.is_some()),
        ];
        return match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => {
                Err(Failure::Usage(format!("{flag} says nothing without --batch-dir: give both")))
            }
            None => Ok(None),
        };
    };
    let usual = Batches::new(folder);
    Ok(Some(Batches {
        file_bytes: args.max_batch_file.unwrap_or(usual.file_bytes),
        bytes: args.max_batch_bytes.unwrap_or(usual.bytes),
        requests: args.max_batch_requests.unwrap_or(usual.requests),
        ..usual
    }))
}
