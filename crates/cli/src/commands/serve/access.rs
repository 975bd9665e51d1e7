//! The keys that a server wants of its clients.

use inference_server::ApiKey;

use crate::args::ServeArgs;
use crate::failure::{Failure, Result};
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
