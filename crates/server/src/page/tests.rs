//! The page's files are all there, and hold to what its policy allows.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use axum::http::header::IF_NONE_MATCH;
use axum::http::{HeaderMap, HeaderValue};

use super::{FILES, INDEX, PAGE, POLICY};

/// The files of a folder of the sources, with `/` between the parts of their paths.
fn listed(folder: &Path, below: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let entry = entry.expect("it can be listed");
        let name = entry.file_name().into_string().expect("the name is UTF-8");
        let path = format!("{below}{name}");
        match entry.path().is_dir() {
            true => listed(&entry.path(), &format!("{path}/"), found),
            false => drop(found.insert(path)),
        }
    }
}

/// The page and its own modules and styles, without the libraries.
fn own() -> impl Iterator<Item = (&'static str, &'static str)> {
    let files = FILES.iter().filter(|(path, _)| !path.starts_with("vendor/"));
    let text = |bytes| str::from_utf8(bytes).expect("own files are UTF-8");
    files.map(move |(path, bytes)| (*path, text(bytes))).chain([("index.html", text(INDEX))])
}

#[test]
fn every_file_of_the_folder_is_served() {
    let mut found = BTreeSet::new();
    listed(&Path::new(env!("CARGO_MANIFEST_DIR")).join("page"), "", &mut found);
    assert!(found.remove("index.html"));
    let served: BTreeSet<_> = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
    assert_eq!(served, found);
}

/// The page has nothing that the policy would block, and nothing that reads text as HTML.
#[test]
fn the_page_names_nothing_foreign_and_parses_no_html() {
    for (path, text) in own() {
        for part in [
            "@import",
            "url(\"http",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "createContextualFragment",
            "setHTML",
            "DOMParser",
            "srcdoc",
            "document.write",
            "eval(",
            "new Function",
            " onclick=",
            " style=",
            "<style",
            "javascript:",
        ] {
            assert!(!text.contains(part), "{path} has {part}");
        }
    }
    let index = str::from_utf8(INDEX).expect("the page is UTF-8");
    assert_eq!(index.matches("<script").count(), 1);
    assert!(index.contains(r#"<script type="module" src="page/main.js"></script>"#));
    assert!(!POLICY.contains("unsafe") && !POLICY.contains("http"));
}

#[test]
fn each_module_is_short_and_imports_files_that_there_are() {
    for (path, text) in own().filter(|(path, _)| path.ends_with(".js")) {
        let lines = text.lines().count();
        assert!(lines <= 300, "{path} has {lines} lines");
        for (_, rest) in text.match_indices("\"./").map(|(at, _)| text.split_at(at + 3)) {
            let name = rest.split('"').next().expect("a part is always there");
            assert!(FILES.iter().any(|(known, _)| *known == name), "{path} imports {name}");
        }
    }
}

#[test]
fn a_file_that_the_client_has_is_not_sent_again() {
    let page = &*PAGE;
    let first = page.file("/page/main.js", &HeaderMap::new()).expect("it is there");
    assert_eq!(first.status(), 200);
    assert_eq!(first.headers()["cache-control"], "no-cache");
    let mut headers = HeaderMap::new();
    headers.insert(IF_NONE_MATCH, first.headers()["etag"].clone());
    assert_eq!(page.file("/page/main.js", &headers).expect("it is there").status(), 304);
    // As a proxy that compresses writes it, beside another one.
    let weak = format!("\"other\", W/{}", headers[IF_NONE_MATCH].to_str().expect("ASCII"));
    headers.insert(IF_NONE_MATCH, HeaderValue::from_str(&weak).expect("a header"));
    assert_eq!(page.file("/page/main.js", &headers).expect("it is there").status(), 304);
    assert_eq!(page.index(&headers).status(), 200, "another file has another tag");
    assert!(page.file("/page/../index.html", &headers).is_none());
    assert!(page.file("/page/", &headers).is_none());
}
