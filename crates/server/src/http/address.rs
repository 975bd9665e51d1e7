//! Addresses: the path of the server that a request's path means.

use axum::extract::Request;
use axum::http::Uri;
use axum::http::uri::PathAndQuery;

/// The beginning of most of the server's paths. Clients have base addresses with it and without.
const VERSION: &str = "v1";

/// The part of an unknown path that is compared and told, in bytes.
const TOLD: usize = 200;

/// The paths that a server has routes for, as the router writes them: `{name}` is one segment, and
/// `{*name}` is all that follows.
#[derive(Debug)]
pub struct Paths(Vec<&'static str>);

impl Paths {
    /// The paths of these routes.
    pub fn new(paths: impl IntoIterator<Item = &'static str>) -> Paths {
        Paths(paths.into_iter().collect())
    }

    /// The path that `asked` means: without doubled slashes and one behind, and with the `/v1` that
    /// it lacks or without one that it has too often.
    pub fn meant(&self, asked: &str) -> String {
        let segments: Vec<_> = asked.split('/').filter(|segment| !segment.is_empty()).collect();
        let path = |segments: &[&str]| format!("/{}", segments.join("/"));
        let plain = path(&segments);
        if self.has(&plain) {
            return plain;
        }
        let named = segments.iter().position(|segment| *segment != VERSION);
        let bare = path(&segments[named.unwrap_or(segments.len())..]);
        let versioned = format!("/{VERSION}{bare}");
        match (named, self.has(&versioned), self.has(&bare)) {
            (Some(_), true, _) => versioned,
            (Some(_), false, true) => bare,
            _ => plain,
        }
    }

    /// `request` with the path that it means, so that all that looks at paths sees the same one.
    pub fn named(&self, mut request: Request) -> Request {
        let uri = request.uri();
        // What is no path stays: `*` of OPTIONS, and the address of a CONNECT.
        if uri.path().starts_with('/') {
            let meant = self.meant(uri.path());
            if meant != uri.path()
                && let Some(uri) = with_path(uri, meant)
            {
                *request.uri_mut() = uri;
            }
        }
        request
    }

    /// The path that is likest to `asked`, as a person writes it.
    pub fn nearest(&self, asked: &str) -> Option<String> {
        let asked = clipped(asked);
        let likeness = |path: &&&str| {
            let short = path.strip_prefix("/v1").filter(|bare| bare.starts_with('/'));
            let short = short.unwrap_or(path);
            // Many clients put a path of their own in front.
            let is_end = short != "/" && asked.ends_with(short);
            let ends = if is_end { 1.0 + short.len() as f64 } else { 0.0 };
            let like = |path| strsim::normalized_damerau_levenshtein(asked, path);
            match like(path).max(like(short)) {
                // A letter or two are wrong in it.
                like if like > 0.9 => f64::from(u16::MAX) + like,
                like => like.max(ends),
            }
        };
        let nearest = self.0.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        nearest.map(|path| path.replace('*', ""))
    }

    fn has(&self, path: &str) -> bool {
        self.0.iter().any(|pattern| fits(pattern, path))
    }
}

/// The part of `path` that is told.
pub fn clipped(path: &str) -> &str {
    &path[..path.floor_char_boundary(TOLD)]
}

fn with_path(uri: &Uri, path: String) -> Option<Uri> {
    let path = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
    Uri::from_parts(parts).ok()
}

/// Tells whether the router takes `path` to the route `pattern`.
fn fits(pattern: &str, path: &str) -> bool {
    let (mut own, mut asked) = (pattern.split('/'), path.split('/'));
    loop {
        match (own.next(), asked.next()) {
            (None, None) => return true,
            (Some(own), Some(asked)) if own.starts_with("{*") => return !asked.is_empty(),
            (Some(own), Some(asked)) if own.starts_with('{') && !asked.is_empty() => {}
            (Some(own), Some(asked)) if own == asked => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::Request;

    use super::{Paths, TOLD};

    fn paths() -> Paths {
        Paths::new([
            "/",
            "/health",
            "/v1/models",
            "/v1/models/{*model}",
            "/v1/chat/completions",
            "/v1/completions",
            "/completion",
            "/v1/responses/{id}/input_items",
            "/v1/embeddings",
            "/v1/rerank",
            "/v2/rerank",
            "/api/chat",
            "/api/embeddings",
        ])
    }

    #[test]
    fn a_path_means_the_same_with_its_version_and_without_it_and_with_stray_slashes() {
        for (asked, meant) in [
            ("/", "/"),
            ("//", "/"),
            ("/health/", "/health"),
            ("/v1/health", "/health"),
            ("/v1/models/", "/v1/models"),
            ("/models", "/v1/models"),
            ("/v1/v1/models//", "/v1/models"),
            ("/v1//v1/v1/models", "/v1/models"),
            ("/models/org/name", "/v1/models/org/name"),
            ("/v1/models/v1/models", "/v1/models/v1/models"),
            ("//v1//chat///completions/", "/v1/chat/completions"),
            ("/chat/completions", "/v1/chat/completions"),
            ("/responses/resp_1/input_items/", "/v1/responses/resp_1/input_items"),
            ("/embeddings", "/v1/embeddings"),
            ("/api/embeddings/", "/api/embeddings"),
            ("/v1/api/chat", "/api/chat"),
            ("/rerank", "/v1/rerank"),
            ("/v2/rerank", "/v2/rerank"),
            // Nothing is there, or it would be the page.
            ("/v1", "/v1"),
            ("/v1/v1/", "/v1/v1"),
            ("/v1/responses//input_items", "/v1/responses/input_items"),
            ("/v1beta/models", "/v1beta/models"),
            ("/V1/models", "/V1/models"),
        ] {
            assert_eq!(paths().meant(asked), meant, "{asked}");
        }
    }

    #[test]
    fn a_query_and_a_host_stay_where_a_path_changes() {
        let request = |uri: &str| {
            let request = Request::builder().uri(uri).body(Body::empty()).unwrap();
            paths().named(request).uri().to_string()
        };
        assert_eq!(request("http://a:1/models/?limit=1&a=//"), "http://a:1/v1/models?limit=1&a=//");
        assert_eq!(request("/v1/models?x"), "/v1/models?x");
        assert_eq!(request("*"), "*");
    }

    #[test]
    fn the_nearest_path_is_named_however_long_the_asked_one_is() {
        let nearest = |asked: &str| paths().nearest(asked).unwrap();
        assert_eq!(nearest("/v1/chat/completion"), "/v1/chat/completions");
        assert_eq!(nearest("/openai/deployments/gpt/chat/completions"), "/v1/chat/completions");
        assert_eq!(nearest("/v1/model"), "/v1/models");
        assert_eq!(nearest("/completion"), "/completion");
        assert!(!nearest(&format!("/{}", "ä".repeat(TOLD))).is_empty());
    }
}
