//! The page of chats and pictures: its files, served as they are.

mod files;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;

use files::FILES;

/// The page. It talks to its own server, and to nothing else.
const INDEX: &[u8] = include_bytes!("../page/index.html");

/// The value of `Content-Security-Policy` of all files: scripts, styles, fonts and requests of its
/// own server alone, none of them inline, and no text that becomes HTML or a script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    font-src 'self'; connect-src 'self'; img-src data: blob:; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
    trusted-types 'none'";

/// The path below which the files of the page are.
pub const FOLDER: &str = "/page/";

/// A file of the page with what its response says of it.
#[derive(Debug)]
struct File {
    bytes: &'static [u8],
    media_type: &'static str,
    tag: HeaderValue,
}

impl File {
    fn new(path: &str, bytes: &'static [u8]) -> File {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let tag = format!("\"{:016x}\"", hasher.finish());
        let tag = HeaderValue::from_str(&tag).expect("figures and quotes are a header's");
        File { bytes, media_type: media_type(path), tag }
    }

    /// Returns true when `tags`, of which a proxy that compresses makes weak ones, have this
    /// file's.
    fn is_among(&self, tags: &HeaderValue) -> bool {
        let own = |tag: &str| self.tag == tag.trim().trim_start_matches("W/");
        tags.to_str().is_ok_and(|tags| tags.split(',').any(own))
    }

    /// The file, or 304 where the client says that it has this version.
    fn response(&self, headers: &HeaderMap) -> Response {
        let known = headers.get_all(IF_NONE_MATCH).iter().any(|tags| self.is_among(tags));
        let (status, body) = match known {
            true => (StatusCode::NOT_MODIFIED, Body::empty()),
            false => (StatusCode::OK, Body::from(self.bytes)),
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(ETAG, self.tag.clone());
        // Another version of the program has other files under the same names.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if !known {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        }
        response
    }
}

/// The page and its files.
#[derive(Debug)]
pub struct Page {
    index: File,
    files: HashMap<&'static str, File>,
}

/// The files that lie in the program, whose tags are made when the page is first asked for.
pub static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let files = FILES.iter().map(|(path, bytes)| (*path, File::new(path, bytes)));
    Page { index: File::new("index.html", INDEX), files: files.collect() }
});

impl Page {
    /// Answers with the page itself.
    pub fn index(&self, headers: &HeaderMap) -> Response {
        self.index.response(headers)
    }

    /// Answers with the file of that path; `None` where there is no such file.
    pub fn file(&self, path: &str, headers: &HeaderMap) -> Option<Response> {
        let path = path.strip_prefix(FOLDER)?;
        self.files.get(path).map(|file| file.response(headers))
    }
}

/// The media type by a file's ending.
fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("woff2") => "font/woff2",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests;
