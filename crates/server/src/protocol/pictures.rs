//! Pictures of a request: out of data URLs, out of base64, and out of the folder that the operator
//! allows.

use std::fs;
use std::path::{Path, PathBuf};

use inference_core::{Capabilities, EncodedPicture, Feature, PictureLimits, Support, TextModel};
use pictures::{Format, Header, Limits};

use super::encoded::{bytes_in, without_breaks};
use super::sounds::Sounds;
use crate::error::{ApiError, Result};
use crate::run::state::State;

/// The reason why an address of a picture is refused.
const NOT_FETCHED: &str = "the server fetches nothing; send the picture itself as \
                           `data:image/png;base64,…`";

/// How pictures come to the served model.
#[derive(Clone, Copy)]
pub struct Pictures<'a> {
    model: &'a dyn TextModel,
    /// The folder whose files requests may name.
    folder: Option<&'a Path>,
}

impl<'a> Pictures<'a> {
    /// Pictures for `model`, and files of `folder`, where there is one.
    pub fn new(model: &'a dyn TextModel, folder: Option<&'a PathBuf>) -> Self {
        Pictures { model, folder: folder.map(PathBuf::as_path) }
    }

    /// Pictures for `model`, a model of the server of `state`.
    pub fn of(state: &'a State, model: &'a dyn TextModel) -> Self {
        Pictures::new(model, state.config.local_media_path.as_ref())
    }

    /// Sounds for the same model.
    pub fn sounds(&self) -> Sounds<'a> {
        Sounds::new(self.model)
    }

    /// Checks that the model takes pictures; `path` is the part that has one.
    ///
    /// # Errors
    /// It does not, with the reason.
    pub fn check_sees(&self, path: &str) -> Result<()> {
        match sight(self.model.capabilities()) {
            Ok(()) => Ok(()),
            Err(reason) => Err(ApiError::unsupported(format!("{path}.type"), reason)),
        }
    }

    /// Checks that the model does what `detail`, the value of `field`, asks for: it has one
    /// resolution of its own.
    ///
    /// # Errors
    /// It asks for less, or means nothing.
    pub fn check_detail(&self, field: &str, detail: Option<&str>) -> Result<()> {
        match detail {
            None | Some("auto" | "high" | "original") => Ok(()),
            Some("low") => {
                let reason = "pictures are shown at the model's own resolution; scale the picture \
                              down, and leave `detail` out";
                Err(ApiError::unsupported(field, reason))
            }
            Some(other) => {
                let reason = format!("`{other}` is not one of auto, high, original, low");
                Err(ApiError::value(field, reason))
            }
        }
    }

    /// The picture of the part `path` at `url`, which stands in the field `field`.
    ///
    /// # Errors
    /// An address that is not taken, or what is wrong with the picture.
    pub fn of_url(&self, path: &str, field: &str, url: &str) -> Result<EncodedPicture> {
        let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
        match scheme.to_ascii_lowercase().as_str() {
            "data" => self.of_data(path, field, rest),
            "file" => self.of_file(path, field, rest),
            "http" | "https" => Err(ApiError::unsupported(field, NOT_FETCHED)),
            _ => {
                let reason = "expected a URL that begins with `data:image/` (or `file:///`, where \
                              the operator allows a folder)";
                Err(ApiError::value(field, reason))
            }
        }
    }

    /// `rest` is a data URL without `data:`.
    fn of_data(&self, path: &str, field: &str, rest: &str) -> Result<EncodedPicture> {
        self.checked(path, self.decoded(field, base64_in(field, rest)?)?)
    }

    /// The picture of the part `path` in base64, which must be of `media_type`.
    ///
    /// # Errors
    /// The picture is malformed, or the model does not take it.
    pub fn of_base64(&self, path: &str, media_type: &str, data: &str) -> Result<EncodedPicture> {
        let picture = self.checked(path, self.decoded(&format!("{path}.source.data"), data)?)?;
        match Format::of(&picture.bytes).map(Format::media_type) {
            Ok(found) if found == media_type => Ok(picture),
            found => {
                let found = found.unwrap_or("no picture");
                let reason = format!("is `{media_type}`, and the data is `{found}`");
                Err(ApiError::value(format!("{path}.source.media_type"), reason))
            }
        }
    }

    /// The picture of the part `path` in base64, of whatever type.
    ///
    /// # Errors
    /// The picture is malformed, or the model does not take it.
    pub fn of_plain_base64(&self, path: &str, data: &str) -> Result<EncodedPicture> {
        self.checked(path, self.decoded(path, data)?)
    }

    fn decoded(&self, field: &str, data: &str) -> Result<Vec<u8>> {
        let data = without_breaks(data);
        let bytes = data.len() as u64 / 4 * 3;
        let most = self.limits().bytes as u64;
        // Bytes that are no longer than the last group's padding are left to the decoder's count.
        if bytes > most + 3 {
            let reason = format!("the picture has {bytes} bytes; at most {most} are taken");
            return Err(ApiError::value(field, reason));
        }
        bytes_in(field, &data)
    }

    /// `rest` is a file's URL without `file:`. What it tells apart is inside and outside of the
    /// folder; outside of it, not even whether a file is there.
    fn of_file(&self, path: &str, field: &str, rest: &str) -> Result<EncodedPicture> {
        let Some(folder) = self.folder else {
            let reason = "the operator allows no files (`ml serve --allowed-local-media-path`); send \
                          the picture as `data:image/png;base64,…`";
            return Err(ApiError::unsupported(field, reason));
        };
        let outside =
            || ApiError::value(field, "is no file of the folder that the operator allows");
        let name = rest.strip_prefix("//localhost/").or_else(|| rest.strip_prefix("///"));
        let name = percent_decoded(name.ok_or_else(outside)?).ok_or_else(outside)?;
        // Links are followed first, so that none leads out.
        let folder = folder.canonicalize().map_err(|_| outside())?;
        let file = Path::new("/").join(name).canonicalize().map_err(|_| outside())?;
        let about = file.metadata().map_err(|_| outside())?;
        if !file.starts_with(&folder) || !about.is_file() {
            return Err(outside());
        }
        let most = self.limits().bytes as u64;
        if about.len() > most {
            let reason = format!("the file has {} bytes; at most {most} are taken", about.len());
            return Err(ApiError::value(field, reason));
        }
        let bytes = fs::read(&file).map_err(|error| ApiError::value(field, error.to_string()))?;
        self.checked(path, bytes)
    }

    /// Holds the header to the model's limits.
    fn checked(&self, path: &str, bytes: Vec<u8>) -> Result<EncodedPicture> {
        let header = Header::read(&bytes, &self.limits())
            .map_err(|error| ApiError::value(path, error.to_string()))?;
        let taken = self.model.info().pictures.as_ref().map(|limits| &limits.formats);
        let name = header.format.to_string().to_lowercase();
        if let Some(formats) = taken.filter(|formats| !formats.contains(&name.as_str())) {
            let reason = format!("the model takes {}, not {name}", formats.join(", "));
            return Err(ApiError::value(path, reason));
        }
        Ok(EncodedPicture::new(bytes, path))
    }

    fn limits(&self) -> Limits {
        match &self.model.info().pictures {
            Some(PictureLimits { max_bytes, max_pixels, .. }) => Limits {
                bytes: usize::try_from(*max_bytes).unwrap_or(usize::MAX),
                pixels: *max_pixels,
                ..Limits::default()
            },
            None => Limits::default(),
        }
    }
}

/// The picture at a data URL in the request's `field`. What reads it holds it to its limits.
///
/// # Errors
/// Another address; what is no base64.
pub fn of_data_url(field: &str, url: &str) -> Result<EncodedPicture> {
    let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
    let data = match scheme.to_ascii_lowercase().as_str() {
        "data" => base64_in(field, rest)?,
        "http" | "https" => return Err(ApiError::unsupported(field, NOT_FETCHED)),
        _ => return Err(ApiError::value(field, "expected `data:image/png;base64,…`")),
    };
    Ok(EncodedPicture::new(bytes_in(field, &without_breaks(data))?, field))
}

/// The data after `;base64,` in a picture's data URL; `rest` is the URL after `data:`.
fn base64_in<'a>(field: &str, rest: &'a str) -> Result<&'a str> {
    let Some((kind, data)) = rest.split_once(',') else {
        return Err(ApiError::value(field, "the data URL has no comma before its data"));
    };
    let Some(kind) = kind.strip_suffix(";base64") else {
        return Err(ApiError::unsupported(field, "data URLs are read in base64 alone"));
    };
    let media_type = kind.split(';').next().unwrap_or_default().to_ascii_lowercase();
    // Clients often send every picture as JPEG: what the bytes are counts, not what the type says.
    if !media_type.starts_with("image/") {
        let reason = format!("the data URL is of the type `{media_type}`; expected `image/…`");
        return Err(ApiError::value(field, reason));
    }
    Ok(data)
}

/// Checks that a model of these capabilities takes pictures.
///
/// # Errors
/// Why not.
pub fn sight(capabilities: &Capabilities) -> std::result::Result<(), String> {
    match capabilities.support(Feature::Images) {
        Support::Yes => Ok(()),
        Support::No(reason) => Err(reason.to_string()),
    }
}

/// `text` with its `%xx` as bytes; `None` where that is no text.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        rest = others;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}
