//! The page of chats and pictures: one file, served as it is.

/// The page. It talks to `/v1/models`, `/v1/chat/completions`, `/v1/images/generations` and
/// `/v1/images/edits` of the server that it comes from, and to nothing else.
pub const PAGE: &str = include_str!("../page/index.html");

/// The value of the `Content-Security-Policy` header that [`PAGE`] is sent with: its own script and
/// style, by their hashes, and requests to its own server.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; \
    script-src 'sha256-lV3o0+IP7CoFvAAs8CTZJ/yY7dwCLHXEFOzZlCT/fyQ='; \
    style-src 'sha256-g0qQ3ouCghHeQGBTls+ELdAk2e6xikg/FXx4x/aGNm0='; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use sha2::{Digest, Sha256};

    use super::{CONTENT_SECURITY_POLICY, PAGE};

    fn hash(tag: &str) -> String {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        assert_eq!(PAGE.matches(&open).count(), 1, "the policy has one hash for {tag}");
        let (_, rest) = PAGE.split_once(&open).expect("the page has the element");
        let (text, _) = rest.split_once(&close).expect("the element ends");
        format!("{tag}-src 'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(text)))
    }

    #[test]
    fn the_policy_allows_the_pages_own_script_and_style() {
        for tag in ["script", "style"] {
            let hash = hash(tag);
            assert!(CONTENT_SECURITY_POLICY.contains(&hash), "the policy must have {hash}");
        }
    }

    /// The page has nothing that the policy would block.
    #[test]
    fn the_page_names_nothing_foreign_and_parses_no_html() {
        for part in [
            "src=\"",
            "@import",
            "url(\"http",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            " onclick=",
            " style=",
            "import(",
        ] {
            assert!(!PAGE.contains(part), "the page has {part}");
        }
    }
}
