//! Words that a report does not tell: names of the user, of the host and of folders.

use std::env;
use std::process::Command;

use serde_json::Value;

/// Words of the report itself and of systems, which tell of nobody.
const PUBLIC: [&str; 8] = ["root", "user", "metal", "cuda", "cpu", "mlx", "ours", "localhost"];
/// The shortest name that is looked for.
const SHORTEST: usize = 3;

/// Names that are taken out of texts.
pub struct Private {
    home: Option<String>,
    names: Vec<String>,
}

impl Private {
    /// Those of this user and this host.
    pub fn here() -> Private {
        let variable = |name| env::var(name).ok().filter(|value: &String| value.len() > 1);
        let host = Command::new("uname").arg("-n").output().ok();
        let host = host.and_then(|output| String::from_utf8(output.stdout).ok());
        let host = host.map(|name| name.trim().to_owned()).unwrap_or_default();
        let short = host.split('.').next().unwrap_or_default().to_owned();
        let users = ["USER", "LOGNAME"].into_iter().filter_map(variable);
        Private::of(variable("HOME"), users.chain([host, short]))
    }

    fn of(home: Option<String>, names: impl IntoIterator<Item = String>) -> Private {
        let is_private = |name: &String| name.len() >= SHORTEST && !PUBLIC.contains(&&**name);
        let mut names: Vec<String> = names.into_iter().filter(is_private).collect();
        // The longer one first: a host's name with its domain.
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        Private { home, names }
    }

    /// Takes them out of each text of `value`.
    pub fn clean(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.without(text),
            Value::Array(all) => all.iter_mut().for_each(|value| self.clean(value)),
            Value::Object(all) => all.values_mut().for_each(|value| self.clean(value)),
            _ => {}
        }
    }

    /// `text` without them.
    pub fn without(&self, text: &str) -> String {
        let mut text = text.to_owned();
        if let Some(home) = &self.home {
            text = text.replace(home.trim_end_matches('/'), "~");
        }
        text = without_folders(&text);
        self.names.iter().fold(text, |text, name| without_word(&text, name))
    }
}

/// `text` with `…/file` in place of paths from the root on or from the home on.
fn without_folders(text: &str) -> String {
    let is_end = |letter: char| letter.is_whitespace() || "\"'`,;:()[]{}<>".contains(letter);
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['/', '~']) {
        let (before, path) = rest.split_at(at);
        out.push_str(before);
        let starts = out.chars().next_back().is_none_or(is_end);
        let path = &path[..path.find(is_end).unwrap_or(path.len())];
        rest = &rest[at + path.len().max(1)..];
        match path.rsplit_once('/') {
            Some((_, file)) if starts && path.len() > 1 => {
                out.push_str("…/");
                out.push_str(file);
            }
            _ => out.push_str(if path.is_empty() { "/" } else { path }),
        }
    }
    out + rest
}

/// `text` with `…` in place of `word` where it stands by itself.
fn without_word(text: &str, word: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let is_part = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
        let before_it = before.chars().next_back().or_else(|| out.chars().next_back());
        out.push_str(before);
        let stands = !is_part(before_it) && !is_part(after.chars().next());
        out.push_str(if stands { "…" } else { word });
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Private;

    fn private() -> Private {
        let names = ["ada", "ada-mac.local", "ada-mac", "metal", "ab", "root"].map(String::from);
        Private::of(Some("/Users/ada".into()), names)
    }

    #[test]
    fn names_and_folders_are_taken_out() {
        let cases = [
            ("no file /Users/ada/models/Qwen3/config.json: gone", "no file …/config.json: gone"),
            ("`/Users/ada`: no folder", "`~`: no folder"),
            ("at /opt/b/libmlx.dylib, then", "at …/libmlx.dylib, then"),
            ("host ada-mac.local or ada-mac of ada", "host … or … of …"),
            ("/home/ada", "…/…"),
            (
                "an adapter, 5 tokens/s on metal, f16/bf16 ~ 2 / 3",
                "an adapter, 5 tokens/s on metal, f16/bf16 ~ 2 / 3",
            ),
            ("as root on cab", "as root on cab"),
        ];
        for (text, expected) in cases {
            assert_eq!(private().without(text), expected, "{text}");
        }
    }

    #[test]
    fn all_texts_of_a_report_are_cleaned() {
        let mut value = json!({"a": ["/Users/ada/x", 1], "b": {"c": "ada", "d": null}});
        private().clean(&mut value);
        assert_eq!(value, json!({"a": ["…/x", 1], "b": {"c": "…", "d": null}}));
    }
}
